"""What one connection may cost in one turn of the loop, so that the others get theirs.

A loop gives a connection up to 32 reads of 256 KB before anybody else has a turn (libuv). Here a
connection that filled the loop's read buffer is read again in a later turn. What was read may take
many steps to understand (chunks of a byte, frames of none): the readers of :mod:`gateway.core`
stop after so many of them, and go on in a later turn as well, before anything more is read.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

TURN_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Bounds of the histogram; one turn may take 5 ms at most."""
SMALL_READ: Final = 4096
"""A smaller one cannot take a millisecond, and is not timed: a clock costs as much as its use."""
FULL_READ: Final = 250_000
"""From here on the loop would read again at once: uvloop's buffer is 256,000 bytes."""


class Reader(Protocol):
    """A protocol whose connection takes turns."""

    def receive(self, data: bytes) -> None:
        """Take what was read."""
        ...

    def pause_for_others(self) -> None:
        """Stop reading until :meth:`resume_after_others`."""
        ...

    def resume_after_others(self) -> None:
        """Read again, unless something else speaks against it."""
        ...


class Turns:
    """Times the turns that connections take, and has the others go first.

    Args:
        loop: Whose turns they are.
        clock: Seconds.
    """

    __slots__ = ("_clock", "_loop", "counts", "seconds")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._loop = loop
        self._clock = clock
        self.counts = [0] * (len(TURN_SECONDS) + 1)
        self.seconds = 0.0

    def take(self, reader: Reader, data: bytes) -> None:
        """Have *reader* receive *data*, all of one read, and let others go first after a full one.

        For reads of :data:`SMALL_READ` and more; smaller ones are received without this.
        """
        self.time(reader.receive, data)
        if len(data) >= FULL_READ:
            reader.pause_for_others()
            self._loop.call_soon(reader.resume_after_others)

    def later(self, go_on: Callable[[], None]) -> None:
        """Call *go_on* in a later turn, which is timed as well."""
        self._loop.call_soon(self.time, go_on)

    def time(self, act: Callable[..., None], *arguments: object) -> None:
        """Call *act*, and note how long it took."""
        began = self._clock()
        try:
            act(*arguments)
        finally:
            took = self._clock() - began
            self.counts[bisect_left(TURN_SECONDS, took)] += 1
            self.seconds += took
