"""What one connection may cost in one turn of the loop, so that the others get theirs.

A loop gives a connection up to 32 reads of 256 KB before anybody else has a turn (libuv). Here a
connection that fills the loop's read buffer again and again is paused after
:data:`SHARE_SECONDS`, and read again in a later turn: to pause after each read costs a third of
what passing on costs. What was read may take many steps to understand (chunks of a byte, frames of
none): the readers of :mod:`gateway.core` stop after so many of them, and go on in a later turn as
well, before anything more is read.

A request and its response wait for the end of a turn each: what others notice of a connection that
always has more to do is the length of a turn. So all that was left for later waits in one queue.
Each turn takes the first of it, and more only until a share is used up, however many connections
have something there. Where nobody else is ready, the next turn begins at once.

A turn as a whole has a bound, too. Where 1,024 connections are ready at once, libuv asks the kernel
for more before anything else runs, and does so up to 48 times: 2,000 connections that always have
something to read made turns of seconds, in which no timer, no answer of Redis and no other
connection got on. Once a turn has lasted :data:`LONG_TURN_SECONDS`, a connection that is read is
not read again before the next one. Where so many connections cannot exist, only reads that fill the
buffer come more than once in a turn, and only these look at the clock. Of TLS, whose records may
hold next to nothing, a few come in a turn (:mod:`gateway.relay.tls_records`).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

TURN_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Bounds of the histogram; one turn may take 5 ms at most."""
_SHORT_SECONDS: Final = TURN_SECONDS[0]
SMALL_READ: Final = 3000
"""A smaller one cannot take a millisecond, and is not timed: a clock costs as much as its use."""
FULL_READ: Final = 250_000
"""From here on the loop would read again at once: uvloop's buffer is 256,000 bytes. What is less
was all there was, unless it came by TLS."""
SHARE_SECONDS: Final = 0.00025
"""Reads of one connection in a row, in one turn, before the others go first; and, of all
connections together, what was left for later. A GET alone takes some tenths of a millisecond."""
LONG_TURN_SECONDS: Final = 0.05
"""For all connections together; from then on each is read once."""
CROWD: Final = 500
"""A loop is crowded from a browser's connection with this descriptor on. The kernel gives the
lowest that is free, and a browser's connection has one to an app at most: below it, there are fewer
than a thousand of both."""
READS_BETWEEN_LOOKS: Final = 128
"""A look at the clock takes as long as a small read's share of the rest."""


class Reader(Protocol):
    """A protocol whose connection takes turns."""

    def receive(self, data: bytes, /) -> None:
        """Take what was read."""

    def pause_for_others(self) -> None:
        """Stop reading until :meth:`resume_after_others`."""

    def resume_after_others(self) -> None:
        """Read again, unless something else speaks against it."""


class Turns:
    """Times the turns that connections take, and has the others go first."""

    __slots__ = (
        "_began",
        "_clock",
        "_first",
        "_loop",
        "_paused",
        "_queue",
        "_reader",
        "_reads_left",
        "_serves",
        "_turn",
        "_turn_since",
        "counts",
        "crowded",
        "seconds",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._loop = loop
        self._clock = clock
        self.counts = [0] * (len(TURN_SECONDS) + 1)
        self.seconds = 0.0
        self._reader: Reader | None = None
        """The connection that was timed the last time in this turn, and since when."""
        self._began = 0.0
        self._turn = 0.0
        self._first = 0.0
        """When this turn's first timed read began."""
        self.crowded = False
        """Whether a thousand connections may be ready at once: each read is to be counted then."""
        self._reads_left = READS_BETWEEN_LOOKS
        self._turn_since: float | None = None
        """When this turn was looked at first; None where it has not been."""
        self._paused: list[Reader] = []
        self._queue: deque[tuple[Callable[[], None], bool]] = deque()
        """What was left for later, first come, first served; True for what then is read."""
        self._serves = False
        """Whether the queue is gone on with in the next turn."""

    def take(self, reader: Reader, data: bytes) -> None:
        """Have *reader* receive *data*, all of one read, and let others go first after its share.

        For reads of :data:`SMALL_READ` and more; smaller ones are received without this.
        """
        began = self._clock()
        try:
            reader.receive(data)
        finally:
            ended = self._clock()
            self._note(ended - began)
        # The loop's time stands still while the connections that one poll found ready are read.
        turn = self._loop.time()
        if turn != self._turn:
            self._turn, self._first, self._reader = turn, began, None
        if reader is not self._reader:
            self._reader, self._began = reader, began
            if len(data) < FULL_READ:
                return
        if ended - self._began >= SHARE_SECONDS or ended - self._first >= LONG_TURN_SECONDS:
            self._reader = None
            reader.pause_for_others()
            self._enqueue(reader.resume_after_others, reads=True)

    def accepted(self, descriptor: int) -> None:
        """Note the *descriptor* of a browser's connection."""
        if descriptor >= CROWD:
            self.crowded = True

    def count_read(self, reader: Reader) -> None:
        """Count a read; a *reader* goes on in the next turn once this one has lasted too long.

        For each read while :attr:`crowded`.
        """
        self._reads_left -= 1
        if self._reads_left >= 0:
            return
        if self._turn_since is None:
            self._turn_since = self._clock()
            self._loop.call_soon(self._begin_turn)
        elif self._clock() - self._turn_since >= LONG_TURN_SECONDS:
            self._paused.append(reader)
            reader.pause_for_others()
            return  # and so with every read until the next turn
        self._reads_left = READS_BETWEEN_LOOKS

    def _begin_turn(self) -> None:
        self._turn_since = None
        self._reads_left = READS_BETWEEN_LOOKS
        paused, self._paused = self._paused, []
        for reader in paused:
            reader.resume_after_others()

    def defer(self, go_on: Callable[[], None]) -> None:
        """Call *go_on* in a later turn, after what was left before; it is timed as well."""
        self._enqueue(go_on, reads=False)

    def _enqueue(self, go_on: Callable[[], None], *, reads: bool) -> None:
        self._queue.append((go_on, reads))
        if not self._serves:
            self._serves = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Go on with what was left before this turn, until a share is used up.

        A connection that is read again uses its share once the loop has asked the kernel.
        """
        queue = self._queue
        until = self._clock() + SHARE_SECONDS
        try:
            for _ in range(len(queue)):
                go_on, reads = queue.popleft()
                if reads:
                    go_on()
                    break
                if self._time(go_on) >= until:
                    break
        finally:
            self._serves = bool(queue)
            if queue:
                self._loop.call_soon(self._serve)

    def _time(self, act: Callable[[], None]) -> float:
        """Return when *act* had ended."""
        began = self._clock()
        try:
            act()
        finally:
            ended = self._clock()
            self._note(ended - began)
        return ended

    def _note(self, took: float) -> None:
        if took <= _SHORT_SECONDS:
            self.counts[0] += 1
        else:
            self.counts[bisect_left(TURN_SECONDS, took)] += 1
        self.seconds += took
