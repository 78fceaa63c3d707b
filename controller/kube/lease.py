"""A Lease (coordination.k8s.io/v1) for leader election.

Clocks of different processes are not compared. A candidate measures by its own clock how long the
Lease was not renewed. The Lease only elects the leader. The store's term fences the writes of a
process that wrongly believes to hold the Lease.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Final

from controller.kube.client import Kube, Object
from controller.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, Throttled
from controller.kube.kinds import LEASES
from controller.volcano.names import INSTANCE_LABEL

DURATION_SECONDS: Final = 8
"""A Lease that was not renewed for this time may be taken."""
THROTTLED_FACTOR: Final = 3
"""While the API server throttles this process, it may throttle the holder, too, which then renews
the Lease less often: a candidate waits this many times as long."""
AWAY_SECONDS: Final = DURATION_SECONDS / 2
"""If the API server was unavailable for this time, a candidate measures the holder's time anew."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A version of the Lease, and when it was first observed."""

    holder: str
    version: str
    at: float


class Lease:
    """The Lease *name*, on behalf of *holder*.

    Args:
        instance: The value of its instance label.
        holder: The identity of this process, which must be unique.
        clock: Monotonic seconds.
        now: Unix seconds, used only for the Lease's timestamps.
    """

    def __init__(
        self,
        kube: Kube,
        *,
        name: str,
        namespace: str,
        instance: str,
        holder: str,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._name = name
        self._namespace = namespace
        self._instance = instance
        self.holder = holder
        self._clock = clock
        self._now = now
        self._seen: _Seen | None = None
        self._read_at = clock()
        self._failed = False
        """Whether a read has failed since ``_read_at``."""
        self._throttled_at = -inf

    async def take(self) -> bool:
        """Take the Lease if it is free or was not renewed in time; return whether it is held.

        Raises:
            KubeError: If the API server does not tell.
        """
        try:
            found = await self._kube.get(LEASES, self._name, self._namespace)
        except NotFound:
            return await self._create()
        except Throttled:
            # The server is there. Were this an outage, throttled reads would put a takeover off
            # for as long as they go on.
            self._throttled_at = self._clock()
            raise
        except KubeError:
            self._failed = True
            raise
        holder = _holder_of(found)
        if holder == self.holder:
            return True
        if holder and not self._is_abandoned(found):
            return False
        return await self._write(found, self.holder)

    async def renew(self) -> bool:
        """Renew the Lease; return False if another process holds it.

        Raises:
            KubeError: If the API server does not respond; other candidates then do not know more
                either.
        """
        try:
            found = await self._kube.get(LEASES, self._name, self._namespace)
        except NotFound:
            return await self._create()
        return _holder_of(found) == self.holder and await self._write(found, self.holder)

    async def is_anothers(self) -> bool:
        """Return whether another process holds the Lease.

        Raises:
            KubeError: If the API server does not tell.
        """
        try:
            found = await self._kube.get(LEASES, self._name, self._namespace)
        except NotFound:
            return False
        return _holder_of(found) not in ("", self.holder)

    async def release(self) -> None:
        """Release the Lease, so that a successor need not wait. Failures are ignored."""
        with suppress(KubeError):
            found = await self._kube.get(LEASES, self._name, self._namespace)
            if _holder_of(found) == self.holder:
                await self._write(found, "")

    def _is_abandoned(self, found: Object) -> bool:
        version, now = found["metadata"]["resourceVersion"], self._clock()
        # While the API server was unavailable, the holder could not renew the Lease either.
        was_away = self._failed and now - self._read_at >= AWAY_SECONDS
        self._read_at, self._failed = now, False
        if self._seen is None or self._seen.version != version or was_away:
            self._seen = _Seen(_holder_of(found), version, now)
        duration = (found.get("spec") or {}).get("leaseDurationSeconds") or DURATION_SECONDS
        is_throttled = self._throttled_at >= self._seen.at
        return now - self._seen.at >= float(duration) * (THROTTLED_FACTOR if is_throttled else 1)

    async def _create(self) -> bool:
        metadata = {"name": self._name, "labels": {INSTANCE_LABEL: self._instance}}
        try:
            body = {"metadata": metadata, "spec": self._spec(self.holder, 0)}
            await self._kube.create(LEASES, body, self._namespace)
        except AlreadyExists:
            return False
        return True

    async def _write(self, found: Object, holder: str) -> bool:
        spec = found.get("spec") or {}
        changes = int(spec.get("leaseTransitions") or 0) + (spec.get("holderIdentity") != holder)
        body = {**found, "spec": {**spec, **self._spec(holder, changes)}}
        if spec.get("holderIdentity") == holder:
            body["spec"]["acquireTime"] = spec.get("acquireTime") or body["spec"]["acquireTime"]
        try:
            # Has the resourceVersion that was read: of two candidates, only one succeeds.
            await self._kube.replace(LEASES, self._name, body, self._namespace)
        except Conflict:
            return False
        return True

    def _spec(self, holder: str, changes: int) -> Object:
        at = datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": DURATION_SECONDS,
            "acquireTime": at,
            "renewTime": at,
            "leaseTransitions": changes,
        }


def _holder_of(found: Object) -> str:
    return (found.get("spec") or {}).get("holderIdentity") or ""
