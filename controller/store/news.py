"""Hears at once that another process has written what a leader looks at.

PostgreSQL tells whoever listens when a transaction has been committed in which a revision was
raised (``NOTIFY``, which is a part of that transaction). It is a hint and no more: what was
written is in the store, and whoever leads looks there now and then too. So nothing is lost where a
notice is, as with a connection that breaks, a pooler in between, or SQLite, which tells nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from controller.store.database import Store
from controller.store.errors import StoreUnavailable

AGAIN_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 15.0
"""How often it is found out whether a connection that says nothing is still there."""

log = logging.getLogger(__name__)


async def hear_others(store: Store, told: Callable[[], None]) -> None:
    """Call *told* whenever another process may have written something; never return."""
    if store.is_for_one:
        await asyncio.Event().wait()
    while True:
        try:
            await _hear(store, told)
        except StoreUnavailable as error:
            log.warning("news are not heard", extra={"why": str(error)})
        await asyncio.sleep(AGAIN_SECONDS)


async def _hear(store: Store, told: Callable[[], None]) -> None:
    def heard(_connection: Any, _pid: int, _channel: str, writer: str) -> None:
        if writer != store.name:
            told()

    async with store.listening(heard) as probe:
        told()  # what was told before, nobody heard
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            await probe()
