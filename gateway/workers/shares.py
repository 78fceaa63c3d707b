"""The number of connections of each worker, in shared memory."""

from __future__ import annotations

import mmap
from typing import Final

_ABSENT: Final = 0xFFFF_FFFF
_SPARE: Final = 4
"""A worker with this many connections more than the mean is not over its share yet."""


class Shares:
    """The number of connections of each worker, visible to all; create it before any fork.

    With SO_REUSEPORT the kernel spreads connections evenly, also to a worker that hangs, and a
    share of all browsers would wait until it is killed. All workers therefore accept from one
    socket. But the worker that wakes first then accepts most connections, which stay for hours. So
    a worker above its share leaves the next connection to others for a moment
    (:class:`gateway.relay.listening.Listener`). ``benchmarks/accepting.py`` measures it.
    """

    def __init__(self, workers: int) -> None:
        self._counts = memoryview(mmap.mmap(-1, 4 * workers)).cast("I")
        for number in range(workers):
            self.leave(number)

    def set(self, number: int, count: int) -> None:
        """Note that worker *number* has *count* connections and accepts more."""
        self._counts[number] = min(count, _ABSENT - 1)

    def leave(self, number: int) -> None:
        """Note that worker *number* accepts no connections."""
        self._counts[number] = _ABSENT

    @property
    def is_taken(self) -> bool:
        """Whether any worker accepts connections."""
        return any(count != _ABSENT for count in self._counts)

    def is_over(self, number: int) -> bool:
        """Return whether worker *number* has more than its share."""
        counts = [count for count in self._counts if count != _ABSENT]
        mine = self._counts[number]
        return len(counts) > 1 and mine > sum(counts) / len(counts) * 1.125 + _SPARE
