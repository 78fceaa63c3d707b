"""Deadlines of many connections at little cost: one timer for all of them.

A connection's deadline moves with every request. Setting a timer each time would cost more than
parsing the request, so a connection stands in one bucket, is asked when that bucket's time comes,
and says when it wants to be asked next.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

TICK_SECONDS: Final = 0.1
ASKED_AT_ONCE: Final = 32
"""In one turn of the loop: to close a connection takes some 30 µs, to refuse a head 100."""


class Waiting(Protocol):
    """What stands in a wheel. ``tick`` belongs to the wheel and starts as 0."""

    tick: int

    def due(self, now: float) -> float:
        """Act if the time has come; return when to be asked again, 0 for never."""


class Wheel:
    """Asks whatever waits in it not before its time and at most one tick after, but for a crowd.

    What is new is noted, and enters its bucket with the next tick: most connections that are opened
    and closed at once never do.
    """

    __slots__ = ("_buckets", "_loop", "_noted", "_passed", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, set[Waiting]] = {}
        self._noted: set[Waiting] = set()
        """Those that are in no bucket yet; the tick of each is that of its bucket, negative."""
        self._passed: list[int] = []
        """The ticks of buckets whose time has come, the last one first."""
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
        self._passed.clear()

    def _turn(self) -> None:
        self._enter_noted()
        tick = int(self._loop.time() / TICK_SECONDS)
        self._passed = sorted((t for t in self._buckets if t <= tick), reverse=True)
        self._ask_some()

    def _ask_some(self) -> None:
        """Ask a few of those whose time has come; the others in later turns of the loop.

        Whoever opens thousands of connections at once has their deadlines pass at once.
        """
        now, left, passed = self._loop.time(), ASKED_AT_ONCE, self._passed
        try:
            while passed and left:
                bucket = self._buckets.get(passed[-1])
                if bucket:
                    left -= 1
                    self._ask(bucket.pop(), passed[-1], now)
                else:
                    self._buckets.pop(passed.pop(), None)
        finally:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:  # it has passed, or one was set since
            self._timer.cancel()
            self._timer = None
        if self._passed:
            self._timer = self._loop.call_later(0, self._ask_some)
        elif self._buckets or self._noted:
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
