"""Measures how much later than requested the machine wakes this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_SECONDS = 0.05


class Overruns:
    """The longest overrun of a 50 ms wait, in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def look(self) -> None:
        """Wait in a loop, and record the overruns."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _SECONDS
            await asyncio.sleep(_SECONDS)
            self.longest = max(self.longest, loop.time() - due)


@asynccontextmanager
async def overruns() -> AsyncIterator[Overruns]:
    """Measure overruns during the block.

    A test of a promised time adds the overrun, because a busy machine delays every process.
    """
    found = Overruns()
    looking = asyncio.create_task(found.look())
    try:
        yield found
    finally:
        looking.cancel()
        await asyncio.wait([looking])
