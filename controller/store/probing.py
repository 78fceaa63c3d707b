"""Finds out whether the store can be written to, also where nobody writes: for readiness."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from controller.store.database import Store
from controller.store.errors import StoreUnavailable

ROUND_SECONDS: Final = 5.0
PROBE_SECONDS: Final = 4.0
SILENT_SECONDS: Final = 15.0
"""A process is not ready once nothing could be written for so long."""
FULL_SECONDS: Final = 60.0
"""For how long it is told that a transaction was refused for want of space, say."""

log = logging.getLogger(__name__)


class StoreProbe:
    """Probes *store* whenever nothing else has been written for a while."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._why = "nothing was written"

    def problems(self) -> Sequence[str]:
        """Return why this process is not ready: nothing while the store takes writes."""
        silent = self._store.silent_seconds
        return (f"the store takes no writes: {self._why}",) if silent >= SILENT_SECONDS else ()

    def degraded(self) -> Sequence[str]:
        """Return which resource the store has run out of, where small writes succeed still."""
        return self._store.refusals(FULL_SECONDS)

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            if self._store.silent_seconds >= ROUND_SECONDS:
                await self._probe()
            await asyncio.sleep(ROUND_SECONDS)

    async def _probe(self) -> None:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._store.probe()
        except (StoreUnavailable, TimeoutError) as error:
            self._why = str(error) or "the database does not answer in time"
            log.warning("the store takes no writes", extra={"why": self._why})
