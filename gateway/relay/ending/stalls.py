"""Peers that take nothing of what waits for them: found by what they acknowledge, and given up.

A connection is watched only while something waits: from the transport's ``pause_writing`` to its
``resume_writing``, while it is being closed, and while the kernel holds something for a peer that
:class:`Sweep` has come across. One timer looks at all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import islice
from typing import Final, Protocol

from gateway.relay.ending.kernel import progress, waits

_LOOKS: Final = 8
"""In the time that a peer has: a stall is found an eighth of it late at most."""
_LOOKS_AT_ONCE: Final = 512
_FOUND_AT_ONCE: Final = 32
"""In one turn of the loop: about a millisecond, and two."""
_OFTEN_SECONDS: Final = 0.05
_SELDOM_SECONDS: Final = 5.0


@dataclass(slots=True, eq=False)
class _Watched:
    """A transport that has something to send."""

    seconds: float
    stalled: Callable[[], None]
    moved_at: float
    passing: bool
    """Whether it is forgotten by itself once nothing waits any more."""
    progress: int = -1


class StallWatch:
    """Calls back when a peer has acknowledged nothing for its time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.watched: dict[asyncio.Transport, _Watched] = {}
        """By transport; looked into by whoever forgets it."""
        self.timer: asyncio.TimerHandle | None = None
        """Of the next look; None while nobody is watched."""
        self.found = 0
        """How many stalls were found."""

    def __len__(self) -> int:
        """Return how many transports are watched."""
        return len(self.watched)

    def watch(
        self,
        transport: asyncio.Transport,
        *,
        seconds: float,
        stalled: Callable[[], None],
        passing: bool = False,
    ) -> None:
        """Call *stalled* once the peer of *transport* has taken nothing for *seconds*.

        Whoever watches a transport forgets it when nothing waits any more; one that is *passing*,
        or closed, is forgotten by itself. Watching it twice replaces what is called.
        """
        watched = _Watched(seconds, stalled, self._loop.time(), passing)
        before = self.watched.get(transport)
        if before is not None:
            watched.progress, watched.moved_at = before.progress, before.moved_at
        self.watched[transport] = watched
        due = self._loop.time() + _pause(seconds)
        if self.timer is None or self.timer.when() > due:
            self._look_later()

    def watches(self, transport: asyncio.Transport) -> bool:
        """Say whether *transport* is watched."""
        return transport in self.watched

    def forget(self, transport: asyncio.Transport | None) -> None:
        """Watch *transport* no more."""
        if transport is not None:
            self.watched.pop(transport, None)

    def give_up(self, seconds: float) -> int:
        """Call back now for peers that have taken nothing for *seconds*; return how many."""
        now = self._loop.time()
        stalled = [
            (transport, watched)
            for transport, watched in self.watched.items()
            if now - watched.moved_at >= seconds and progress(transport) == watched.progress
        ]
        for transport, watched in stalled:
            self.forget(transport)
            self.found += 1
            watched.stalled()
        return len(stalled)

    def close(self) -> None:
        """Watch nothing any more."""
        self.watched.clear()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _look_later(self) -> None:
        shortest = min(watched.seconds for watched in self.watched.values())
        self._set_timer(_pause(shortest), self._look)

    def _set_timer(self, seconds: float, call: Callable[[], None]) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self._loop.call_later(seconds, call)

    def _look(self) -> None:
        self._look_at(iter(tuple(self.watched)))

    def _look_at(self, left: Iterator[asyncio.Transport]) -> None:
        """Look at some of those that are *left*, and at the others in later turns of the loop.

        Whoever stalls thousands of connections at once has them found at once.
        """
        self.timer = None
        now, most = self._loop.time(), self.found + _FOUND_AT_ONCE
        for looks, transport in enumerate(left, 1):
            watched = self.watched.get(transport)
            if watched is not None:
                self._judge(transport, watched, now)
            if looks == _LOOKS_AT_ONCE or self.found >= most:
                self._set_timer(0.0, partial(self._look_at, left))
                return
        if self.watched and self.timer is None:
            self._look_later()

    def _judge(self, transport: asyncio.Transport, watched: _Watched, now: float) -> None:
        taken = progress(transport)
        if taken < 0 or (watched.passing and not waits(transport)):
            self.forget(transport)
        elif taken != watched.progress:
            watched.progress, watched.moved_at = taken, now
        elif now - watched.moved_at >= watched.seconds:
            self.forget(transport)
            self.found += 1
            watched.stalled()


def _pause(seconds: float) -> float:
    """Return when to look again at a peer that has so many *seconds*."""
    return min(max(seconds / _LOOKS, _OFTEN_SECONDS), _SELDOM_SECONDS)


_ASKED_AT_ONCE: Final = 500
"""Connections asked before the loop turns: about a millisecond."""
_ASK_PAUSE_SECONDS: Final = 0.01


class Swept(Protocol):
    """A connection that is asked."""

    def look_for_stalls(self) -> None:
        """Have those of its sides watched for which the kernel holds something."""


@dataclass(slots=True, eq=False, repr=False)
class Sweep:
    """Asks *everyone* again and again, *seconds* from the end of one round to the next.

    A transport tells when much waits in itself. Before that the kernel takes megabytes for a peer
    that does not read, or that has vanished, and tells nobody. So every open connection is asked
    from time to time; those for which something waits are watched from then on.
    """

    loop: asyncio.AbstractEventLoop
    _: KW_ONLY
    seconds: float
    everyone: Callable[[], Sequence[Swept]]
    _timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self._begin_later()

    def close(self) -> None:
        """Ask nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin_later(self) -> None:
        self._timer = self.loop.call_later(self.seconds, self._begin)

    def _begin(self) -> None:
        self._ask(iter(self.everyone()))

    def _ask(self, left: Iterator[Swept]) -> None:
        asked = 0
        for connection in islice(left, _ASKED_AT_ONCE):
            connection.look_for_stalls()
            asked += 1
        if asked == _ASKED_AT_ONCE:
            self._timer = self.loop.call_later(_ASK_PAUSE_SECONDS, self._ask, left)
        else:
            self._begin_later()
