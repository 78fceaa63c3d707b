"""Pipes through which the kernel moves bytes from one socket to another (``splice(2)``).

A body owns a pipe only while the pipe holds its bytes. Bodies that flow, or wait for their source,
share one; only stalled readers cost descriptors.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from typing import Final

from gateway.relay.transports import descriptor_ceiling

_LEAST_BYTES: Final = 64 << 10
"""Smaller pipes need more calls than reading would. A user with many pipes gets only small ones
from the kernel (pipe(7), pipe-user-pages-soft)."""
_KEPT: Final = 4
"""Unused pipes that stay open."""


@dataclass(frozen=True, slots=True, eq=False)
class Pipe:
    """Both ends, non-blocking, and its capacity in bytes."""

    read_end: int
    write_end: int
    size: int


class Pipes:
    """Lends pipes; none if too many are open or descriptors run out.

    Args:
        size: The capacity of each pipe in bytes.
        most: The maximum number of open pipes.
        descriptors: The descriptor limit; None for that of the process. A reserve is left.
    """

    def __init__(self, *, size: int, most: int, descriptors: int | None = None) -> None:
        self._size = size
        self._most = most
        self._kept = min(_KEPT, most)
        self._ceiling = descriptor_ceiling(descriptors)
        self._unused: list[Pipe] = []
        self.open = 0
        """The number of lent and unused pipes."""

    @property
    def lent(self) -> int:
        """The number of pipes in use."""
        return self.open - len(self._unused)

    def take(self) -> Pipe | None:
        """Return an empty pipe; the caller must :meth:`give` or :meth:`drop` it."""
        if self._unused:
            return self._unused.pop()
        if self.open >= self._most:
            return None
        pipe = self._make()
        if pipe is not None:
            self.open += 1
        return pipe

    def give(self, pipe: Pipe) -> None:
        """Take back an empty *pipe*."""
        if len(self._unused) < self._kept:
            self._unused.append(pipe)
        else:
            self.drop(pipe)

    def drop(self, pipe: Pipe) -> None:
        """Close a *pipe* and discard its contents."""
        self.open -= 1
        _close(pipe)

    def close(self) -> None:
        """Lend no more; lent pipes are closed when they are returned."""
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
    """Set the capacity of a pipe if allowed; return the actual one."""
    try:
        return int(fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, size))
    except OSError:
        return int(fcntl.fcntl(end, fcntl.F_GETPIPE_SZ))


def _close(pipe: Pipe) -> None:
    os.close(pipe.read_end)
    os.close(pipe.write_end)
