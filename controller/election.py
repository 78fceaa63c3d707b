"""Whose turn it is to lead.

With PostgreSQL, several controllers stand for it, and a Lease of the cluster says which one leads.
With SQLite there is one controller: it leads from its start, and whoever led before it is told so
by the store.

Either way a leader has a *term*, a number that its start raises in the store. Each of its
transactions checks it, and so does Redis: a leader that was believed dead and is not writes
nothing any more. So a leader that cannot reach the API server keeps on leading, since nobody
else could have been elected without it: what people have open goes on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from controller.jobs.ground import ensure_namespace
from controller.kube.client import Kube
from controller.kube.errors import KubeError
from controller.kube.lease import Lease
from controller.store.errors import LeadershipLost

RENEW_SECONDS: Final = 2.0

log = logging.getLogger(__name__)


class Election(Protocol):
    """Says when to lead, and until when."""

    again: bool
    """Whether who leads no more stands for it once more."""

    async def won(self) -> None:
        """Return when it is this process' turn."""
        ...

    async def keep(self) -> None:
        """Run while leading.

        Raises:
            LeadershipLost: When it is somebody else's turn.
        """
        ...

    async def let_go(self) -> None:
        """Let somebody else have the turn at once."""
        ...


class AtOnce:
    """The only controller there is meant to be: it leads from its start."""

    again = False

    async def won(self) -> None:
        """Return at once."""

    async def keep(self) -> None:
        """Wait; the store tells when another one leads."""
        await asyncio.Event().wait()

    async def let_go(self) -> None:
        """Nobody waits for it."""


class ByLease:
    """One of several controllers: who holds the Lease leads.

    Args:
        kube: The cluster.
        lease: The Lease.
        namespace: Where the Lease is; made if missing.
        instance: What is made is labelled with.
    """

    again = True

    def __init__(self, kube: Kube, lease: Lease, *, namespace: str, instance: str) -> None:
        self._kube = kube
        self._lease = lease
        self._namespace = namespace
        self._instance = instance

    async def won(self) -> None:
        """Return when the Lease is held."""
        while not await self._try():  # noqa: ASYNC110  # nobody could set an event
            await asyncio.sleep(RENEW_SECONDS)
        log.info("elected", extra={"holder": self._lease.holder})

    async def _try(self) -> bool:
        try:
            await ensure_namespace(self._kube, self._namespace, instance=self._instance)
            return await self._lease.take()
        except KubeError as error:
            log.warning("the Lease cannot be taken", extra={"why": str(error)})
            return False

    async def keep(self) -> None:
        """Renew the Lease.

        Raises:
            LeadershipLost: When another one holds it.
        """
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                held = await self._lease.renew() or await self._lease.take()
            except KubeError as error:
                log.warning("the Lease cannot be renewed", extra={"why": str(error)})
                continue
            if not held:
                raise LeadershipLost("the Lease is another controller's")

    async def let_go(self) -> None:
        """Give the Lease up."""
        await self._lease.let_go()
