"""Deadlines of many connections at little cost: one timer for all of them.

A connection's deadline moves with every request. Setting a timer each time would cost more than
parsing the request, so a connection stands in one bucket, is asked when that bucket's time comes,
and says when it wants to be asked next.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

TICK_SECONDS: Final = 0.1


class Waiting(Protocol):
    """What stands in a wheel. ``tick`` belongs to the wheel and starts as 0."""

    tick: int

    def due(self, now: float) -> float:
        """Act if the time has come; return when to be asked again, 0 for never."""


class Wheel:
    """Asks whatever waits in it not before its time and at most one tick after.

    What is new is noted, and enters its bucket with the next tick: most connections that are opened
    and closed at once never do.
    """

    __slots__ = ("_buckets", "_loop", "_noted", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, set[Waiting]] = {}
        self._noted: set[Waiting] = set()
        """Those that are in no bucket yet; the tick of each is that of its bucket, negative."""
        self._timer: asyncio.TimerHandle | None = None

    def arm(self, waiting: Waiting, at: float) -> None:
        """Have *waiting* asked at *at*; when it is asked before that anyway, change nothing."""
        tick, known = int(at / TICK_SECONDS) + 1, waiting.tick
        if known and abs(known) <= tick:
            return
        if known > 0:
            self.disarm(waiting)
        waiting.tick = -tick
        self._noted.add(waiting)
        if self._timer is None:
            self._timer = self._loop.call_later(TICK_SECONDS, self._turn)

    def disarm(self, waiting: Waiting) -> None:
        """Forget *waiting*."""
        tick, waiting.tick = waiting.tick, 0
        if tick < 0:
            self._noted.discard(waiting)
        elif bucket := self._buckets.get(tick):
            bucket.discard(waiting)
            if not bucket:
                del self._buckets[tick]

    def close(self) -> None:
        """Ask nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._buckets.clear()
        self._noted.clear()

    def _turn(self) -> None:
        self._timer = None
        now = self._loop.time()
        tick = int(now / TICK_SECONDS)
        self._enter_noted()
        for passed in sorted(t for t in self._buckets if t <= tick):
            for waiting in self._buckets.pop(passed):
                self._ask(waiting, passed, now)
        if (self._buckets or self._noted) and self._timer is None:
            self._timer = self._loop.call_later(TICK_SECONDS, self._turn)

    def _enter_noted(self) -> None:
        noted, self._noted = self._noted, set()
        for waiting in noted:
            tick = waiting.tick = -waiting.tick
            self._buckets.setdefault(tick, set()).add(waiting)

    def _ask(self, waiting: Waiting, tick: int, now: float) -> None:
        if waiting.tick != tick:
            return
        waiting.tick = 0
        again = waiting.due(now)
        if again:
            self.arm(waiting, again)
