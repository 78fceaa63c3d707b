"""Hears at once that another process has written what a leader looks at.

PostgreSQL tells whoever listens when a transaction has been committed in which a revision was
raised, or an update was written for orchestrators (``NOTIFY``, which is a part of that
transaction). It is a hint and no more: what was
written is in the store, and whoever leads looks there now and then too. So nothing is lost where a
notice is, as with a connection that breaks, a pooler in between, or SQLite, which tells nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from controller.store.database import CHANGED, UPDATED, Store
from controller.store.errors import StoreUnavailable
from shared.log import Outage

AGAIN_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 15.0
"""How often it is found out whether a connection that says nothing is still there."""

log = logging.getLogger(__name__)


class UpdateNews:
    """Wakes those who follow updates, as soon as one is committed by this process or another.

    It is a hint: with SQLite other processes tell nobody, and a broken connection is silent.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next = asyncio.Event()
        store.followers.append(self._wake)

    @property
    def next(self) -> asyncio.Event:
        """Is set by the first update after this was taken: take it, look, and then wait for it."""
        return self._next

    def _wake(self) -> None:
        woken, self._next = self._next, asyncio.Event()
        woken.set()

    async def hear(self) -> None:
        """Hear of other processes' updates; never return."""
        await hear_others(self._store, self._wake, channel=UPDATED)


async def hear_others(store: Store, told: Callable[[], None], *, channel: str = CHANGED) -> None:
    """Call *told* whenever another process may have written something; never return."""
    if not store.tells:
        await asyncio.Event().wait()
    outage = Outage(log, begins="news are not heard", ends="news are heard again")
    while True:
        try:
            await _hear(store, told, channel, outage)
        except StoreUnavailable as error:
            outage.failed(error)
        await asyncio.sleep(AGAIN_SECONDS)


async def _hear(store: Store, told: Callable[[], None], channel: str, outage: Outage) -> None:
    def heard(_connection: Any, _pid: int, _channel: str, writer: str) -> None:
        if writer != store.name:
            told()

    async with store.listening(heard, channel=channel) as probe:
        outage.passed()
        told()  # what was told before, nobody heard
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            await probe()
