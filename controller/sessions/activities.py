"""What gateways report of sessions: shown to the orchestrator, and never a reason for access."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from shared.bus import ACTIVITIES_AT_ONCE, ReportReader
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

    async def of(self, sids: Sequence[str]) -> dict[str, Activity]:
        """Return what gateways saw of these sessions, by sid, as far as that is known."""
        found: dict[str, Activity] = {}
        try:
            async with asyncio.timeout(READ_SECONDS):
                for first in range(0, len(sids), ACTIVITIES_AT_ONCE):
                    some = sids[first : first + ACTIVITIES_AT_ONCE]
                    found |= await self._reader.activities_of(some, now=self._clock())
        except (BusUnavailable, TimeoutError) as error:
            log.info("it is not known who is connected", extra={"why": str(error)})
        return found
