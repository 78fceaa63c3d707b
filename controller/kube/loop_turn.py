"""A long piece of work, done in many turns of the event loop."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

TURN_SECONDS: Final = 0.005
"""After so long the others go first."""


class LoopTurn:
    """Lets the loop go on whenever the work has kept it for long."""

    def __init__(self) -> None:
        self._began = perf_counter()

    async def rest(self) -> None:
        """Return at once, or in another turn where this one has been long enough."""
        if perf_counter() - self._began >= TURN_SECONDS:
            await asyncio.sleep(0)
            self._began = perf_counter()
