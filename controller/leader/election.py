"""Whose turn it is to lead.

With PostgreSQL, several controllers stand for it, and a Lease of the cluster says which one leads.
With SQLite there is one controller: it leads from its start, and whoever led before it is told so
by the store.

Either way a leader has a *term*, a number that its start raises in the store. Each of its
transactions checks it, and so does Redis: a leader that was believed dead and is not writes
nothing any more. So a leader that cannot reach the API server keeps on leading, since nobody
else could have been elected without it: what people have open goes on.

A leader whose store does not answer frees the Lease, and leads on until somebody else holds it: a
replica whose own store does answer. Where the store is away for all, nobody does, and nothing
changes hands.
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import Final, Protocol

from controller.jobs.cluster.prerequisites import ensure_namespace
from controller.kube.client import Kube
from controller.kube.errors import KubeError
from controller.kube.lease import Lease
from controller.store.errors import LeadershipLost, StoreUnavailable
from shared.log import Outage

RENEW_SECONDS: Final = 2.0
SILENT_SECONDS: Final = 15.0
"""A leader that could not write to its store for so long frees the Lease."""
PROBE_SECONDS: Final = 4.0
ROUNDS_TO_WAIT: Final = 4
FRESH_SECONDS: Final = 5.0
"""Only who has written to its store within so long takes it."""

log = logging.getLogger(__name__)


class Election(Protocol):
    """Says when to lead, and until when."""

    again: bool
    """Whether who has lost leadership stands for it once more."""

    async def acquire(self) -> None:
        """Return when it is this process' turn."""

    async def renew(self) -> None:
        """Run while leading.

        Raises:
            LeadershipLost: When it is somebody else's turn.
        """

    async def release(self) -> None:
        """Let somebody else have the turn at once."""


class _Writable(Protocol):
    @property
    def seconds_since_write(self) -> float: ...
    async def probe(self) -> None: ...


class NoElection:
    """The only controller there is meant to be: it leads from its start."""

    again = False

    async def acquire(self) -> None:
        """Return at once."""

    async def renew(self) -> None:
        """Wait; the store tells when another one leads."""
        await asyncio.Event().wait()

    async def release(self) -> None:
        """Nobody waits for it."""


class ByLease:
    """One of several controllers: who holds the Lease leads.

    Args:
        lease: The Lease.
        namespace: Where the Lease is; made if missing.
        instance: What is made is labelled with.
        store: Who cannot write to it is not to lead.
    """

    again = True

    def __init__(
        self,
        kube: Kube,
        lease: Lease,
        *,
        namespace: str,
        instance: str,
        store: _Writable | None = None,
    ) -> None:
        self._store = store
        self._probe: asyncio.Task[None] | None = None
        self._unanswered = Outage(
            log, begins="the store does not answer", ends="the store answers again"
        )
        self._is_free = False
        self._rounds_to_wait = 0
        self._kube = kube
        self._lease = lease
        self._namespace = namespace
        self._instance = instance

    async def acquire(self) -> None:
        """Return when the Lease is held."""
        self._ask_store()
        while not self._may_stand() or not await self._try():
            await asyncio.sleep(RENEW_SECONDS)
            self._ask_store()
        self._is_free = False
        log.info("elected", extra={"holder": self._lease.holder})

    def _may_stand(self) -> bool:
        """Say whether the store answers, and has for a while where it was away.

        Whoever led before it was away may be back, too: then nothing need change hands.
        """
        silent = self._silent_seconds()
        if silent >= FRESH_SECONDS:
            self._rounds_to_wait = ROUNDS_TO_WAIT if silent < inf else 0
            return False
        self._rounds_to_wait = max(0, self._rounds_to_wait - 1)
        return not self._rounds_to_wait

    async def _try(self) -> bool:
        try:
            await ensure_namespace(self._kube, self._namespace, instance=self._instance)
            return await self._lease.take()
        except KubeError as error:
            log.warning("the Lease cannot be taken", extra={"why": str(error)})
            return False

    async def renew(self) -> None:
        """Renew the Lease.

        Raises:
            LeadershipLost: When another one holds it.
        """
        while True:
            self._ask_store()
            await asyncio.sleep(RENEW_SECONDS)
            try:
                held = await self._renew()
            except KubeError as error:
                log.warning("the Lease cannot be renewed", extra={"why": str(error)})
                continue
            if not held:
                raise LeadershipLost("the Lease is another controller's")

    async def _renew(self) -> bool:
        """Renew the Lease, or free it; say whether nobody else has it."""
        silent = self._silent_seconds()
        # Freed once, it is taken again only by who would be given it.
        if silent < (FRESH_SECONDS if self._is_free else SILENT_SECONDS):
            self._is_free = False
            return await self._lease.renew() or await self._lease.take()
        if not self._is_free:
            log.warning(
                "the store does not answer: the Lease is free for who reaches it",
                extra={"holder": self._lease.holder, "seconds": round(silent, 1)},
            )
            self._is_free = True
            await self._lease.release()
        return not await self._lease.is_anothers()

    def _silent_seconds(self) -> float:
        return self._store.seconds_since_write if self._store is not None else 0.0

    def _ask_store(self) -> None:
        """Have the store probed; where the link is dead, nobody waits for that."""
        if self._store is None or (self._probe is not None and not self._probe.done()):
            return
        self._probe = asyncio.create_task(_probed(self._store, self._unanswered))

    async def release(self) -> None:
        """Give the Lease up."""
        if self._probe is not None:
            self._probe.cancel()
        await self._lease.release()


async def _probed(store: _Writable, unanswered: Outage) -> None:
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await store.probe()
        unanswered.passed()
    except (StoreUnavailable, TimeoutError) as error:
        unanswered.failed(error)
