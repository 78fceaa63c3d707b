"""An event loop without a clock: when no task is ready, time jumps to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class _NoWaiting(selectors.SelectSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for something that never comes"
            self.loop.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time is ``now``; hours pass as fast as the work in them is done."""

    def __init__(self) -> None:
        selector = _NoWaiting()
        selector.loop = self
        self.now = 0.0
        super().__init__(selector)

    def time(self) -> float:
        return self.now
