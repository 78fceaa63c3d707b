"""A timer wheel: the deadlines of many connections with one timer.

A connection's deadline moves with every request. Setting a timer each time would cost more than
parsing the request. Instead a connection is in one bucket; when the bucket's time comes, the
connection returns its next deadline.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

TICK_SECONDS: Final = 0.1
ASKED_AT_ONCE: Final = 32
"""The maximum number called in one turn of the loop: closing a connection takes about 30 µs,
refusing a head 100."""


class Timed(Protocol):
    """A member of a wheel. ``tick`` belongs to the wheel and starts as 0."""

    tick: int

    def due(self, now: float) -> float:
        """Act if the deadline has passed; return the next deadline, 0 for none."""


class TimerWheel:
    """Calls each member not before its deadline and at most one tick later, except in a crowd.

    A new member enters its bucket at the next tick only: most connections that close at once never
    do.
    """

    __slots__ = ("_buckets", "_loop", "_noted", "_passed", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, set[Timed]] = {}
        self._noted: set[Timed] = set()
        """Members without a bucket; the tick of each is that of its bucket, negated."""
        self._passed: list[int] = []
        """The ticks of buckets whose time has come, the latest first."""
        self._timer: asyncio.TimerHandle | None = None

    def arm(self, waiting: Timed, at: float) -> None:
        """Call *waiting* at *at*; no effect if an earlier call is scheduled."""
        tick, known = int(at / TICK_SECONDS) + 1, waiting.tick
        if known and abs(known) <= tick:
            return
        if known > 0:
            self.disarm(waiting)
        waiting.tick = -tick
        self._noted.add(waiting)
        if self._timer is None:
            self._timer = self._loop.call_later(TICK_SECONDS, self._turn)

    def disarm(self, waiting: Timed) -> None:
        """Remove *waiting*."""
        tick, waiting.tick = waiting.tick, 0
        if tick < 0:
            self._noted.discard(waiting)
        elif bucket := self._buckets.get(tick):
            bucket.discard(waiting)
            if not bucket:
                del self._buckets[tick]

    def close(self) -> None:
        """Make no further calls."""
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
        """Call some of the members that are due; the others follow in later turns of the loop.

        The deadlines of thousands of connections that open at once pass at once.
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
        if self._timer is not None:  # it has fired, or another was set since
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

    def _ask(self, waiting: Timed, tick: int, now: float) -> None:
        if waiting.tick != tick:
            return
        waiting.tick = 0
        again = waiting.due(now)
        if again:
            self.arm(waiting, again)
