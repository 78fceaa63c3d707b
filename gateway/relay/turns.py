"""Fair use of the loop: what one connection may take of one turn.

A loop gives a connection up to 32 reads of 256 KB before another connection gets a turn (libuv).
Here a connection that keeps filling the loop's read buffer is paused after :data:`SHARE_SECONDS`
and read again in a later turn. Pausing after each read would cost a third of the throughput. A read
can also need many steps (chunks of one byte, empty frames): the readers of :mod:`gateway.core` stop
after a number of steps and continue in a later turn, before more is read.

A request and its response each wait for the end of a turn: other connections notice a busy one by
the length of a turn. All deferred work therefore waits in one queue. Each turn runs the first of
it, and more only until a share is used up, however many connections have work there. If no other
connection is ready, the next turn starts at once.

A whole turn is limited too. If 1,024 connections are ready at once, libuv polls the kernel again
before anything else runs, up to 48 times. With 2,000 connections that always had data, turns took
seconds in which no timer, no Redis response and no other connection ran. Once a turn has lasted
:data:`LONG_TURN_SECONDS`, a connection that is read is not read again before the next turn. With
fewer connections only reads that fill the buffer can repeat in a turn, and only these check the
clock. TLS records, which may be nearly empty, are limited in number
(:mod:`gateway.relay.tls_records`).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

TURN_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Bounds of the histogram; one connection may take 5 ms at most."""
_SHORT_SECONDS: Final = TURN_SECONDS[0]
SMALL_READ: Final = 3000
"""A smaller read cannot take a millisecond and is not timed: reading the clock costs as much."""
FULL_READ: Final = 250_000
"""From here on the loop would read again at once: uvloop's buffer has 256,000 bytes. A smaller read
was all the data, except with TLS."""
PORTION_BYTES: Final = 1 << 16
"""What one turn takes of a :class:`Backlog`."""
SHARE_SECONDS: Final = 0.00025
"""For successive reads of one connection in one turn before others go first; and for the deferred
work of all connections together. A GET takes some tenths of a millisecond."""
LONG_TURN_SECONDS: Final = 0.05
"""For all connections together; from then on each is read once."""
CROWD: Final = 500
"""A loop counts as crowded from a downstream connection with this descriptor on. The kernel assigns
the lowest free descriptor, and a downstream connection has at most one upstream connection. Below
it there are fewer than a thousand of both."""
READS_BETWEEN_LOOKS: Final = 128
"""Reading the clock costs as much as the rest of the check for a small read."""


class Reader(Protocol):
    """A protocol whose connection takes turns."""

    def receive(self, data: bytes, /) -> None:
        """Process what was read."""

    def yield_turn(self) -> None:
        """Stop reading until :meth:`resume_turn`."""

    def resume_turn(self) -> None:
        """Read again, unless something else prevents it."""


class Backlog:
    """Received bytes that are passed on in order over several turns."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def add(self, data: bytes) -> None:
        """Append *data*."""
        self._data = self.rest() + data
        self._at = 0

    @property
    def left(self) -> int:
        """The number of bytes that are left."""
        return len(self._data) - self._at

    def portion(self) -> bytes:
        """Return the next bytes, as many as one turn may write."""
        return self._data[self._at : self._at + PORTION_BYTES]

    def advance(self, size: int) -> bool:
        """Drop the next *size* bytes, which were passed on; return whether others are left."""
        self._at += size
        return self._at < len(self._data)

    def rest(self) -> bytes:
        """Return all bytes that are left."""
        return self._data[self._at :]


class Turns:
    """Times the turns of connections, and lets others go first."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._loop = loop
        self._clock = clock
        self.counts = [0] * (len(TURN_SECONDS) + 1)
        self.seconds = 0.0
        self._reader: Reader | None = None
        """The connection that was timed last in this turn, and since when."""
        self._began = 0.0
        self._turn = 0.0
        self._first = 0.0
        """When the first timed read of this turn started."""
        self.crowded = False
        """Whether a thousand connections may be ready at once: then each read is counted."""
        self._reads_left = READS_BETWEEN_LOOKS
        self._turn_since: float | None = None
        """When this turn was first checked; None if it was not."""
        self._paused: list[Reader] = []
        self._queue: deque[tuple[Callable[[], None], bool]] = deque()
        """The deferred work, in order; True marks a connection that is read again."""
        self._serves = False
        """Whether the queue is processed in the next turn."""

    def read(self, reader: Reader, data: bytes) -> None:
        """Let *reader* process *data*, one read.

        The protocols of requests and tunnels do the same without this call.
        """
        if self.crowded:
            self.count_read(reader)
        if len(data) < SMALL_READ:
            reader.receive(data)
        else:
            self.run(reader, data)

    def run(self, reader: Reader, data: bytes) -> None:
        """Let *reader* process *data*, one read, and let others go first after its share.

        For reads of :data:`SMALL_READ` and more; smaller ones are processed without this call.
        """
        began = self._clock()
        try:
            reader.receive(data)
        finally:
            ended = self._clock()
            self._note(ended - began)
        # The loop's time does not change while the connections of one poll are read.
        turn = self._loop.time()
        if turn != self._turn:
            self._turn, self._first, self._reader = turn, began, None
        if reader is not self._reader:
            self._reader, self._began = reader, began
            if len(data) < FULL_READ:
                return
        if ended - self._began >= SHARE_SECONDS or ended - self._first >= LONG_TURN_SECONDS:
            self._reader = None
            reader.yield_turn()
            self._enqueue(reader.resume_turn, reads=True)

    def note_descriptor(self, descriptor: int) -> None:
        """Note the *descriptor* of a downstream connection."""
        if descriptor >= CROWD:
            self.crowded = True

    def count_read(self, reader: Reader) -> None:
        """Count a read; pause *reader* until the next turn once this one has lasted too long.

        Called for each read while :attr:`crowded`.
        """
        self._reads_left -= 1
        if self._reads_left >= 0:
            return
        if self._turn_since is None:
            self._turn_since = self._clock()
            self._loop.call_soon(self._begin_turn)
        elif self._clock() - self._turn_since >= LONG_TURN_SECONDS:
            self._paused.append(reader)
            reader.yield_turn()
            return  # likewise for every further read of this turn
        self._reads_left = READS_BETWEEN_LOOKS

    def _begin_turn(self) -> None:
        self._turn_since = None
        self._reads_left = READS_BETWEEN_LOOKS
        paused, self._paused = self._paused, []
        for reader in paused:
            reader.resume_turn()

    def defer(self, go_on: Callable[[], None]) -> None:
        """Call *go_on* in a later turn, after earlier deferred work; its time is recorded too."""
        self._enqueue(go_on, reads=False)

    def _enqueue(self, go_on: Callable[[], None], *, reads: bool) -> None:
        self._queue.append((go_on, reads))
        if not self._serves:
            self._serves = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Run work that was deferred before this turn, until a share is used up.

        A connection that is read again uses its share after the loop has polled the kernel.
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
        """Run *act*, record its time, and return when it ended."""
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
