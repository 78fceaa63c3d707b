"""Stalled peers: found by what they acknowledge, and given up.

A connection is watched only while bytes are unsent: from ``pause_writing`` until nothing is unsent,
while it closes, and while the kernel holds bytes for a peer that :class:`StallSweep` has found. One
timer checks all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import islice
from typing import Final, Protocol

from gateway.relay.transports import has_unsent, progress

_CHECKS: Final = 8
"""Checks within a deadline: a stall is found at most an eighth of it late."""
_CHECKS_AT_ONCE: Final = 512
_FOUND_AT_ONCE: Final = 32
"""In one turn of the loop: about one millisecond, and two."""
_OFTEN_SECONDS: Final = 0.05
_SELDOM_SECONDS: Final = 5.0


@dataclass(slots=True, eq=False)
class _Watched:
    """A transport with unsent bytes."""

    seconds: float
    stalled: Callable[[], None]
    moved_at: float
    transient: bool
    """Whether the watch ends by itself once nothing is unsent."""
    progress: int = -1


class StallWatch:
    """Calls back when a peer has acknowledged nothing until its deadline."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.watched: dict[asyncio.Transport, _Watched] = {}
        """By transport."""
        self.timer: asyncio.TimerHandle | None = None
        """The timer of the next check; None while nothing is watched."""
        self.found = 0
        """The number of stalls found."""

    def watch(
        self,
        transport: asyncio.Transport,
        *,
        seconds: float,
        stalled: Callable[[], None],
        transient: bool = False,
    ) -> None:
        """Call *stalled* once the peer of *transport* has acknowledged nothing for *seconds*.

        The caller must :meth:`forget` the transport when nothing is unsent; a *transient* watch,
        and that of a closed transport, end by themselves. A second call replaces the callback.
        """
        watched = _Watched(seconds, stalled, self._loop.time(), transient)
        before = self.watched.get(transport)
        if before is not None:
            watched.progress, watched.moved_at = before.progress, before.moved_at
        self.watched[transport] = watched
        due = self._loop.time() + _pause(seconds)
        if self.timer is None or self.timer.when() > due:
            self._check_later()

    def forget(self, transport: asyncio.Transport | None) -> None:
        """Stop watching *transport*."""
        if transport is not None:
            self.watched.pop(transport, None)

    def abort_stalled(self, seconds: float) -> int:
        """Call back now for peers that have acknowledged nothing for *seconds*; return how many."""
        now = self._loop.time()
        stalled = [
            (transport, watched)
            for transport, watched in self.watched.items()
            if now - watched.moved_at >= seconds and progress(transport) == watched.progress
        ]
        for transport, watched in stalled:
            self._give_up(transport, watched)
        return len(stalled)

    def close(self) -> None:
        """Stop all watches."""
        self.watched.clear()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _check_later(self) -> None:
        shortest = min(watched.seconds for watched in self.watched.values())
        self._set_timer(_pause(shortest), self._check)

    def _set_timer(self, seconds: float, call: Callable[[], None]) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self._loop.call_later(seconds, call)

    def _check(self) -> None:
        self._check_some(iter(tuple(self.watched)))

    def _check_some(self, left: Iterator[asyncio.Transport]) -> None:
        """Check some of the transports *left*, and the others in later turns of the loop.

        Thousands of connections that stall together are found together.
        """
        self.timer = None
        now, most = self._loop.time(), self.found + _FOUND_AT_ONCE
        for looks, transport in enumerate(left, 1):
            watched = self.watched.get(transport)
            if watched is not None:
                self._judge(transport, watched, now)
            if looks == _CHECKS_AT_ONCE or self.found >= most:
                self._set_timer(0.0, partial(self._check_some, left))
                return
        if self.watched and self.timer is None:
            self._check_later()

    def _judge(self, transport: asyncio.Transport, watched: _Watched, now: float) -> None:
        taken = progress(transport)
        if taken < 0 or (watched.transient and not has_unsent(transport)):
            self.forget(transport)
        elif taken != watched.progress:
            watched.progress, watched.moved_at = taken, now
        elif now - watched.moved_at >= watched.seconds:
            self._give_up(transport, watched)

    def _give_up(self, transport: asyncio.Transport, watched: _Watched) -> None:
        self.forget(transport)
        self.found += 1
        watched.stalled()


def _pause(seconds: float) -> float:
    """Return the time until the next check of a peer whose deadline is *seconds*."""
    return min(max(seconds / _CHECKS, _OFTEN_SECONDS), _SELDOM_SECONDS)


_CHECKED_AT_ONCE: Final = 500
"""Connections checked in one turn of the loop: about one millisecond."""
_PAUSE_SECONDS: Final = 0.01


class StallChecked(Protocol):
    """A connection that the sweep checks."""

    def check_stalls(self) -> None:
        """Watch each side for which the kernel holds unacknowledged bytes."""


@dataclass(slots=True, eq=False, repr=False)
class StallSweep:
    """Checks all *connections* repeatedly, with *seconds* between two rounds.

    A transport reports when its own buffer is full. Before that the kernel accepts megabytes for a
    peer that does not read or has vanished, and reports nothing. Each open connection is therefore
    checked from time to time; those with unacknowledged bytes are watched from then on.
    """

    loop: asyncio.AbstractEventLoop
    _: KW_ONLY
    seconds: float
    connections: Callable[[], Sequence[StallChecked]]
    _timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self._begin_later()

    def close(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin_later(self) -> None:
        self._timer = self.loop.call_later(self.seconds, self._begin)

    def _begin(self) -> None:
        self._check(iter(self.connections()))

    def _check(self, left: Iterator[StallChecked]) -> None:
        checked = 0
        for connection in islice(left, _CHECKED_AT_ONCE):
            connection.check_stalls()
            checked += 1
        if checked == _CHECKED_AT_ONCE:
            self._timer = self.loop.call_later(_PAUSE_SECONDS, self._check, left)
        else:
            self._begin_later()
