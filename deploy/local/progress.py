"""Shows progress: a line for each finished step, and the step that is waited for."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TextIO

PATIENCE_SECONDS: Final = 2.0
_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_CLEAR: Final = "\r\x1b[K"


class Progress:
    """Writes a line for each finished step; on a terminal a moving line for the present one."""

    def __init__(
        self, out: TextIO = sys.stdout, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = out
        self._clock = clock
        self._live = out.isatty()
        self._waiting: dict[str, float] = {}
        self._told_at = 0.0

    def say(self, text: str) -> None:
        """Write a line."""
        clear = _CLEAR if self._live else ""
        print(f"{clear}{text}", file=self._out, flush=True)

    def report(self, name: str, state: str) -> None:
        """Record what a program does now."""
        now = self._clock()
        if state == "starting":
            self._waiting[name] = now
            self._told_at = now
        elif state == "ready":
            self.say(f"  ✓ {name:<13} {now - self._waiting.pop(name, now):5.1f} s")

    @asynccontextmanager
    async def moving(self) -> AsyncIterator[None]:
        """Show the step that is waited for, until the block ends."""
        task = asyncio.create_task(self._move())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            if self._live:
                print(_CLEAR, end="", file=self._out, flush=True)

    async def _move(self) -> None:
        turn = 0
        while True:
            await asyncio.sleep(0.12)
            if not self._waiting:
                continue
            turn += 1
            now = self._clock()
            text = f"{', '.join(self._waiting)} … {now - min(self._waiting.values()):.0f} s"
            if self._live:
                frame = f"{_CLEAR}  {_FRAMES[turn % len(_FRAMES)]} {text}"
                print(frame, end="", file=self._out, flush=True)
            elif now - self._told_at >= PATIENCE_SECONDS:
                self._told_at = now
                self.say(f"    waiting for {text}")
