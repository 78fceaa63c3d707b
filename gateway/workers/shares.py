"""How many connections each worker has: in memory that all of them share."""

from __future__ import annotations

import mmap
from typing import Final

_ABSENT: Final = 0xFFFF_FFFF
_SPARE: Final = 4
"""So many more than the mean are no reason to hold back."""


class Shares:
    """How many connections each worker has, seen by all; make it before any is forked.

    With SO_REUSEPORT the kernel spreads connections evenly, also onto a worker that does not move:
    a share of all browsers would hang until it is ended. From one socket only those who can take
    connections do; but whoever wakes first takes most, and connections stay for hours. So a worker
    that has more than its share leaves the next one to others for a moment
    (:class:`gateway.relay.listening.Listener`). Measured by ``benchmarks/accepting.py``.
    """

    def __init__(self, workers: int) -> None:
        self._counts = memoryview(mmap.mmap(-1, 4 * workers)).cast("I")
        for number in range(workers):
            self.leave(number)

    def set(self, number: int, count: int) -> None:
        """Note that worker *number* has *count* connections and takes more."""
        self._counts[number] = min(count, _ABSENT - 1)

    def leave(self, number: int) -> None:
        """Note that worker *number* takes none."""
        self._counts[number] = _ABSENT

    @property
    def is_taken(self) -> bool:
        """Whether any worker takes connections."""
        return any(count != _ABSENT for count in self._counts)

    def is_over(self, number: int) -> bool:
        """Say whether worker *number* has more than its share."""
        counts = [count for count in self._counts if count != _ABSENT]
        mine = self._counts[number]
        return len(counts) > 1 and mine > sum(counts) / len(counts) * 1.125 + _SPARE
