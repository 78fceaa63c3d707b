"""The last changes of the table, encoded once, of which each worker is sent what it lacks: no I/O.

A reader keeps a position. Positions only rise; one whose rest is not kept any more is told so, and
its reader takes the whole table instead. So the slowest reader costs no more than the bound.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

MOST_BYTES: Final = 8 << 20
"""Several times the 16,384 events that Redis keeps, at the 400 bytes of a usual route."""
_MOST_AT_ONCE: Final = 256


class Journal:
    """Frames by position."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._frames: list[bytes] = []
        self._bytes = 0
        self._first = 0
        self.before_cut = -1
        """The end as it was before the last cut: who stands there lacked nothing of that."""

    @property
    def end(self) -> int:
        """The position after the last frame."""
        return self._first + len(self._frames)

    def append(self, frame: bytes) -> None:
        """Keep *frame*; the older half is forgotten when all become too many."""
        self._frames.append(frame)
        self._bytes += len(frame)
        if self._bytes > self._most_bytes:
            half = (len(self._frames) + 1) // 2
            self._bytes -= sum(map(len, islice(self._frames, half)))
            del self._frames[:half]
            self._first += half

    def cut(self) -> None:
        """Forget everything: what follows is no continuation, and every position is outdated."""
        self.before_cut = self.end
        self._first = self.end + 1
        self._frames.clear()
        self._bytes = 0

    def since(self, position: int) -> list[bytes] | None:
        """Return what comes after *position*, in pieces of 256; None when it is not kept."""
        if position < self._first:
            return None
        start = position - self._first
        return self._frames[start : start + _MOST_AT_ONCE]
