"""Yields to the event loop in the midst of work on many objects.

Work that takes long and waits for nothing keeps every other task from running: requests are not
answered, watches are not read, and the Lease is not renewed.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

TURN_SECONDS: Final = 0.005
"""After this time, other tasks run first."""


class LoopTurn:
    """Yields to the event loop when the work has occupied it for long."""

    def __init__(self) -> None:
        self._began = perf_counter()

    async def rest(self) -> None:
        """Return at once, or after other tasks have run if this turn has been long enough."""
        if perf_counter() - self._began >= TURN_SECONDS:
            await asyncio.sleep(0)
            self._began = perf_counter()
