"""A Lease of the cluster (coordination.k8s.io/v1): one holds it, others see when it is let go.

Clocks are not compared: whoever wants the Lease measures by its own clock for how long nobody has
renewed it. The Lease only says whose turn it is; that two who both believe to hold it do no harm
is for the store's term to see to.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from controller.kube.client import Kube, Object
from controller.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from controller.kube.kinds import LEASES
from controller.volcano.names import INSTANCE_LABEL

DURATION_SECONDS: Final = 8
"""A Lease that nobody has renewed for so long may be taken."""
AWAY_SECONDS: Final = DURATION_SECONDS / 2
"""After so long without an answer of the API server, the holder has its time from anew."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A Lease as it was first seen like this, and when."""

    holder: str
    version: str
    at: float


class Lease:
    """The Lease *name*, as *holder* sees it.

    Args:
        name: The Lease's name.
        namespace: Where it is.
        instance: What it is labelled with.
        holder: Who this is: unique for each process.
        clock: Monotonic seconds.
        now: Unix seconds, which are only written down.
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
        """Whether it could not be read since ``_read_at``."""

    async def take(self) -> bool:
        """Take the Lease if it is free or nobody has renewed it; say whether it is held now.

        Raises:
            KubeError: If the cluster does not say.
        """
        try:
            found = await self._kube.get(LEASES, self._name, self._namespace)
        except NotFound:
            return await self._create()
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
        """Say that the holder lives; False if the Lease is somebody else's by now.

        Raises:
            KubeError: If the cluster does not say; nobody else can have learned more.
        """
        try:
            found = await self._kube.get(LEASES, self._name, self._namespace)
        except NotFound:
            return await self._create()
        return _holder_of(found) == self.holder and await self._write(found, self.holder)

    async def is_anothers(self) -> bool:
        """Say whether somebody else holds the Lease.

        Raises:
            KubeError: If the cluster does not say.
        """
        try:
            found = await self._kube.get(LEASES, self._name, self._namespace)
        except NotFound:
            return False
        return _holder_of(found) not in ("", self.holder)

    async def release(self) -> None:
        """Give the Lease up, so that nobody has to wait; as far as the cluster can be told."""
        with suppress(KubeError):
            found = await self._kube.get(LEASES, self._name, self._namespace)
            if _holder_of(found) == self.holder:
                await self._write(found, "")

    def _is_abandoned(self, found: Object) -> bool:
        version, now = found["metadata"]["resourceVersion"], self._clock()
        # While the API server was away, the holder could not renew it either: that is no sign.
        was_away = self._failed and now - self._read_at >= AWAY_SECONDS
        self._read_at, self._failed = now, False
        if self._seen is None or self._seen.version != version or was_away:
            self._seen = _Seen(_holder_of(found), version, now)
        duration = (found.get("spec") or {}).get("leaseDurationSeconds") or DURATION_SECONDS
        return now - self._seen.at >= float(duration)

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
            # With the resourceVersion that was read: of two who take it, one does.
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
