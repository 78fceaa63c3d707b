"""Pipes through which the kernel moves bytes from one socket to another (``splice(2)``).

A pipe belongs to a body only while it holds bytes of it: bodies that flow, or wait for their
source, need none, so that one pipe serves them all and only readers that stall cost descriptors.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from typing import Final

from gateway.relay.transports import ceiling

_LEAST_BYTES: Final = 64 << 10
"""Smaller ones cost more calls than reading would. The kernel gives a user who has many pipes
only small ones (pipe(7), pipe-user-pages-soft)."""
_KEPT: Final = 4
"""Unused pipes that are not closed."""


@dataclass(frozen=True, slots=True, eq=False)
class Pipe:
    """Both ends, non-blocking, and how many bytes it takes at most."""

    read_end: int
    write_end: int
    size: int


class Pipes:
    """Lends pipes; none, when there are too many or descriptors run out.

    Args:
        size: Bytes of each.
        most: How many are open at a time.
        descriptors: What the process may have open; None for its limit. A reserve of it is kept.
    """

    __slots__ = ("_ceiling", "_kept", "_most", "_size", "_unused", "open")

    possible: Final = hasattr(os, "splice")

    def __init__(self, *, size: int, most: int, descriptors: int | None = None) -> None:
        self._size = size
        self._most = most
        self._kept = min(_KEPT, most)
        self._ceiling = ceiling(descriptors)
        self._unused: list[Pipe] = []
        self.open = 0
        """Those that are lent, and those that are kept."""

    @property
    def lent(self) -> int:
        """How many are in use."""
        return self.open - len(self._unused)

    def take(self) -> Pipe | None:
        """Return an empty pipe, to be given back by :meth:`give` or :meth:`drop`."""
        if self._unused:
            return self._unused.pop()
        if not self.possible or self.open >= self._most:
            return None
        pipe = self._make()
        if pipe is not None:
            self.open += 1
        return pipe

    def give(self, pipe: Pipe) -> None:
        """Take back a *pipe* that is empty."""
        if len(self._unused) < self._kept:
            self._unused.append(pipe)
        else:
            self.drop(pipe)

    def drop(self, pipe: Pipe) -> None:
        """Close a *pipe*, with what it may hold."""
        self.open -= 1
        _close(pipe)

    def close(self) -> None:
        """Lend none any more; those that are lent are closed when they come back."""
        self._most = self._kept = 0
        while self._unused:
            self.drop(self._unused.pop())

    def _make(self) -> Pipe | None:
        try:
            read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        pipe = Pipe(read_end, write_end, _sized(write_end, self._size))
        if pipe.size < _LEAST_BYTES or max(read_end, write_end) >= self._ceiling:
            _close(pipe)
            return None
        return pipe


def _sized(end: int, size: int) -> int:
    """Give the pipe of *end* a size, where that is allowed; return the one that it has."""
    try:
        return int(fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, size))
    except OSError:
        return int(fcntl.fcntl(end, fcntl.F_GETPIPE_SZ))


def _close(pipe: Pipe) -> None:
    os.close(pipe.read_end)
    os.close(pipe.write_end)
