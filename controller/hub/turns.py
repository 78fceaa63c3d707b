"""How long one client's messages may occupy the loop, so that other clients are served too.

:mod:`shared.runtime.listeners` parses a client's frames in slices, for the same reason.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

WORK_SECONDS: Final = 0.001
"""After this time in one turn of the loop, other clients are served first."""


class Turn:
    """The time that one client may use the loop before others are served."""

    def __init__(self) -> None:
        self._until = perf_counter() + WORK_SECONDS

    async def pause(self) -> None:
        """Let others run if the turn is over."""
        if perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = perf_counter() + WORK_SECONDS
