"""How much later than asked for this process is woken: what a busy machine takes from everybody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_SECONDS = 0.05


class Overruns:
    """The longest that a wait of 50 ms has taken beyond them, in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def look(self) -> None:
        """Wait, again and again."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _SECONDS
            await asyncio.sleep(_SECONDS)
            self.longest = max(self.longest, loop.time() - due)


@asynccontextmanager
async def overruns() -> AsyncIterator[Overruns]:
    """Give what is measured meanwhile.

    A test of a promised time allows for it: the machine was not there to keep the promise.
    """
    found = Overruns()
    looking = asyncio.create_task(found.look())
    try:
        yield found
    finally:
        looking.cancel()
        await asyncio.wait([looking])
