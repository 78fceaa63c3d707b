"""Notifications of other processes' writes.

PostgreSQL notifies listeners when a transaction that raised a revision, or wrote an update for
orchestrators, is committed (``NOTIFY`` is part of that transaction). A notification is only a hint:
the data is in the store, and the leader polls it as well. So a lost notification loses nothing.
None arrive while a connection is broken, behind a pooler, or with SQLite.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from controller.store.database import REVISION_CHANNEL, UPDATES_CHANNEL, Store
from controller.store.errors import StoreUnavailable
from shared.log import Outage

AGAIN_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 15.0
"""Interval of the check whether a silent connection is still alive."""

log = logging.getLogger(__name__)


class UpdateNotifications:
    """Wakes followers of updates when this process or another commits one.

    Notifications are hints: with SQLite other processes send none, and a broken connection loses
    them.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next = asyncio.Event()
        store.followers.append(self._wake)

    @property
    def next(self) -> asyncio.Event:
        """The event that the next update sets. Take it, read the store, then wait for it."""
        return self._next

    def _wake(self) -> None:
        woken, self._next = self._next, asyncio.Event()
        woken.set()

    async def listen(self) -> None:
        """Listen for other processes' updates. Never returns."""
        await listen_for_changes(self._store, self._wake, channel=UPDATES_CHANNEL)


async def listen_for_changes(
    store: Store, notify: Callable[[], None], *, channel: str = REVISION_CHANNEL
) -> None:
    """Call *notify* whenever another process may have written. Never returns."""
    if not store.has_notifications:
        await asyncio.Event().wait()
    outage = Outage(
        log, begins="no notifications from the store", ends="notifications from the store again"
    )
    while True:
        try:
            await _listen(store, notify, channel, outage)
        except StoreUnavailable as error:
            outage.failed(error)
        await asyncio.sleep(AGAIN_SECONDS)


async def _listen(store: Store, notify: Callable[[], None], channel: str, outage: Outage) -> None:
    def heard(_connection: Any, _pid: int, _channel: str, writer: str) -> None:
        if writer != store.name:
            notify()

    async with store.listening(heard, channel=channel) as probe:
        outage.passed()
        notify()  # notifications before this were missed
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            await probe()
