"""A timer wheel: the deadlines of many connections with one timer.

A connection's deadline moves with every request. Setting a timer each time would cost more than
parsing the request. Instead a connection is in one bucket; when the bucket's time comes, the
connection returns its next deadline.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

TICK_SECONDS: Final = 0.1
CALLED_AT_ONCE: Final = 32
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

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, set[Timed]] = {}
        self._new: set[Timed] = set()
        """Members without a bucket; the tick of each is that of its bucket, negated."""
        self._due_ticks: list[int] = []
        """The ticks of buckets whose time has come, the latest first."""
        self._timer: asyncio.TimerHandle | None = None

    def arm(self, member: Timed, at: float) -> None:
        """Call *member* at *at*; no effect if an earlier call is scheduled."""
        tick, known = int(at / TICK_SECONDS) + 1, member.tick
        if known and abs(known) <= tick:
            return
        if known > 0:
            self.disarm(member)
        member.tick = -tick
        self._new.add(member)
        if self._timer is None:
            self._timer = self._loop.call_later(TICK_SECONDS, self._turn)

    def disarm(self, member: Timed) -> None:
        """Remove *member*."""
        tick, member.tick = member.tick, 0
        if tick < 0:
            self._new.discard(member)
        elif bucket := self._buckets.get(tick):
            bucket.discard(member)
            if not bucket:
                del self._buckets[tick]

    def close(self) -> None:
        """Make no further calls."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._buckets.clear()
        self._new.clear()
        self._due_ticks.clear()

    def _turn(self) -> None:
        self._enter_new()
        tick = int(self._loop.time() / TICK_SECONDS)
        self._due_ticks = sorted((t for t in self._buckets if t <= tick), reverse=True)
        self._call_some()

    def _call_some(self) -> None:
        """Call some of the members that are due; the others follow in later turns of the loop.

        The deadlines of thousands of connections that open at once pass at once.
        """
        now, left, passed = self._loop.time(), CALLED_AT_ONCE, self._due_ticks
        try:
            while passed and left:
                bucket = self._buckets.get(passed[-1])
                if bucket:
                    left -= 1
                    self._call(bucket.pop(), passed[-1], now)
                else:
                    self._buckets.pop(passed.pop(), None)
        finally:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:  # it has fired, or another was set since
            self._timer.cancel()
            self._timer = None
        if self._due_ticks:
            self._timer = self._loop.call_later(0, self._call_some)
        elif self._buckets or self._new:
            self._timer = self._loop.call_later(TICK_SECONDS, self._turn)

    def _enter_new(self) -> None:
        new, self._new = self._new, set()
        for member in new:
            tick = member.tick = -member.tick
            self._buckets.setdefault(tick, set()).add(member)

    def _call(self, member: Timed, tick: int, now: float) -> None:
        if member.tick != tick:
            return
        member.tick = 0
        again = member.due(now)
        if again:
            self.arm(member, again)
