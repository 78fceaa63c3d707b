"""What gateways report of sessions: shown to the orchestrator, and never a reason for access."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from shared.bus import ReportReader
from shared.errors import BusUnavailable
from shared.reports import Activity

READ_SECONDS: Final = 0.5

log = logging.getLogger(__name__)


class Activities:
    """Reads activities; nothing here fails, and nobody waits for long.

    Args:
        reader: Reads Redis.
        clock: Unix seconds.
    """

    def __init__(self, reader: ReportReader, *, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._clock = clock

    async def of(self, sid: str) -> Activity | None:
        """Return what gateways saw of the session; None where that is not known."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await self._reader.activity_of(sid, now=self._clock())
        except (BusUnavailable, TimeoutError) as error:
            log.info("it is not known who is connected", extra={"why": str(error)})
            return None
