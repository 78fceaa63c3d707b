"""Leader election.

With PostgreSQL there are several controllers, and a Lease of the cluster decides which one leads.
With SQLite there is one controller, which leads from its start; the store's term deposes a former
leader.

A leader has a *term*, a number that its start raises in the store. Each of its transactions checks
the term, and so does Redis, so that a leader that was wrongly believed dead cannot write any more.
A leader that cannot reach the API server therefore continues to lead: nobody else can be elected
without it, and open sessions continue.

A leader whose store is unavailable releases the Lease, and leads until another replica, whose store
is available, holds it. If the store is unavailable for all, nobody takes the Lease.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import KW_ONLY, dataclass, field
from math import inf
from typing import Final, Protocol

from controller.jobs.cluster.prerequisites import ensure_namespace
from controller.kube.client import Kube
from controller.kube.errors import KubeError, NotFound
from controller.kube.lease import Lease
from controller.store.errors import LeadershipLost, StoreUnavailable
from shared.log import Outage

RENEW_SECONDS: Final = 2.0
SILENT_SECONDS: Final = 15.0
"""A leader that could not write to its store for this time releases the Lease."""
PROBE_SECONDS: Final = 4.0
ROUNDS_TO_WAIT: Final = 4
FRESH_SECONDS: Final = 5.0
"""Only a candidate that has written to its store within this time takes the Lease."""

log = logging.getLogger(__name__)


class Election(Protocol):
    """Decides when this process begins and ends to lead."""

    again: bool
    """Whether a process that lost leadership becomes a candidate again."""

    async def acquire(self) -> None:
        """Return when this process is elected."""

    async def renew(self) -> None:
        """Run while leading.

        Raises:
            LeadershipLost: When another process is elected.
        """

    async def release(self) -> None:
        """Let another process be elected at once."""


class _Writable(Protocol):
    @property
    def seconds_since_write(self) -> float: ...
    async def probe(self) -> None: ...


class NoElection:
    """The election of the only controller, which leads from its start."""

    again = False

    async def acquire(self) -> None:
        """Return at once."""

    async def renew(self) -> None:
        """Wait; the store raises LeadershipLost once another controller leads."""
        await asyncio.Event().wait()

    async def release(self) -> None:
        """Do nothing: no process waits for it."""


@dataclass(slots=True, eq=False, repr=False)
class ByLease:
    """The election among several controllers: the holder of the Lease leads."""

    again = True

    kube: Kube
    lease: Lease
    _: KW_ONLY
    namespace: str
    """The namespace of the Lease, created if missing."""
    instance: str
    """The value of the namespace's instance label."""
    store: _Writable
    """A process that cannot write to it must not lead."""
    _probe: asyncio.Task[None] | None = None
    _unanswered: Outage = field(
        default_factory=lambda: Outage(
            log, begins="the store is unavailable", ends="the store is available again"
        ),
        init=False,
    )
    _is_free: bool = False
    _has_namespace: bool = False
    _rounds_to_wait: int = 0

    async def acquire(self) -> None:
        """Return when the Lease is held."""
        self._probe_store()
        while not self._is_candidate() or not await self._try():
            await asyncio.sleep(RENEW_SECONDS)
            self._probe_store()
        self._is_free = False
        log.info("elected", extra={"holder": self.lease.holder})

    def _is_candidate(self) -> bool:
        """Return whether the store is available, and has been for a while after an outage.

        After an outage the former leader may be back as well; then nothing needs to change.
        """
        silent = self.store.seconds_since_write
        if silent >= FRESH_SECONDS:
            self._rounds_to_wait = ROUNDS_TO_WAIT if silent < inf else 0
            return False
        self._rounds_to_wait = max(0, self._rounds_to_wait - 1)
        return not self._rounds_to_wait

    async def _try(self) -> bool:
        try:
            if not self._has_namespace:
                await ensure_namespace(self.kube, self.namespace, instance=self.instance)
                self._has_namespace = True
            return await self.lease.take()
        except NotFound as error:
            self._has_namespace = False
            log.warning("cannot take the Lease", extra={"why": str(error)})
            return False
        except KubeError as error:
            log.warning("cannot take the Lease", extra={"why": str(error)})
            return False

    async def renew(self) -> None:
        """Renew the Lease.

        Raises:
            LeadershipLost: When another one holds it.
        """
        while True:
            self._probe_store()
            await asyncio.sleep(RENEW_SECONDS)
            try:
                held = await self._renew()
            except KubeError as error:
                log.warning("cannot renew the Lease", extra={"why": str(error)})
                continue
            if not held:
                raise LeadershipLost("another controller holds the Lease")

    async def _renew(self) -> bool:
        """Renew or release the Lease; return whether no other process holds it."""
        silent = self.store.seconds_since_write
        # Once released, it is taken again only under a candidate's conditions.
        if silent < (FRESH_SECONDS if self._is_free else SILENT_SECONDS):
            self._is_free = False
            return await self.lease.renew() or await self.lease.take()
        if not self._is_free:
            log.warning(
                "the store is unavailable: releasing the Lease for a replica that reaches it",
                extra={"holder": self.lease.holder, "seconds": round(silent, 1)},
            )
            self._is_free = True
            await self.lease.release()
        return not await self.lease.is_anothers()

    def _probe_store(self) -> None:
        """Start a probe of the store in a task, since a dead connection would delay the Lease."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(_probed(self.store, self._unanswered))

    async def release(self) -> None:
        """Release the Lease."""
        if self._probe is not None:
            self._probe.cancel()
        await self.lease.release()


async def _probed(store: _Writable, unanswered: Outage) -> None:
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await store.probe()
        unanswered.passed()
    except (StoreUnavailable, TimeoutError) as error:
        unanswered.failed(error)
