"""What came from one peer of a bridge, some of it in each turn.

A read of 256 KB may hold 40,000 frames, and a frame a hundred thousand messages of RFB. Both are
understood a bounded number at a time, and for :data:`WORK_SECONDS` in a turn of the loop. What is
left waits here, and its peer is not read meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Final, Protocol

from gateway.relay.turns import Turns

WORK_SECONDS: Final = 0.0002
"""In one turn, plus what one step takes: others wait for it once for a request and once for its
response, and one of theirs takes twice as long."""
FRAMES_AT_ONCE: Final = 32
"""Frames that the library reads in one step: a tenth of a millisecond."""
_LITTLE_BYTES: Final = 512
"""Whatever stands in so little takes less than a step or two: no clock is asked."""


class Work(Protocol):
    """Understands what came."""

    @property
    def has_more(self) -> bool:
        """Whether a step without new bytes leads further."""

    def step(self, data: bytes) -> int:
        """Understand some of *data*, in a tenth of a millisecond or two; return how much of it."""

    def sync_reading(self) -> None:
        """Read from the peer, or do not, as :attr:`Intake.waits` says."""


@dataclass(slots=True, eq=False, repr=False)
class Intake:
    """Gives *work* what came, and lets the others go first when that takes long."""

    work: Work
    turns: Turns
    clock: Callable[[], float] = perf_counter
    waits: bool = False
    """Whether something is left for a later turn, so that the peer is not to be read."""
    _waiting: bytes = b""

    def take(self, data: bytes) -> None:
        """Have *data* understood, after whatever waits."""
        if self.waits:
            self._waiting += data
            return
        work, at, size = self.work, 0, len(data)
        if size <= _LITTLE_BYTES and not work.has_more:
            at = work.step(data)
            while at < size and not work.has_more:
                at += work.step(data[at:])
            if at >= size and not work.has_more:
                return
        self._go_through(data[at:] if at else data)

    def _go_through(self, data: bytes) -> None:
        work, until, at = self.work, self.clock() + WORK_SECONDS, 0
        while at < len(data) or work.has_more:
            at += work.step(data[at:] if at else data)
            if self.clock() >= until:
                break
        self._waiting = data[at:]
        self.waits = bool(self._waiting) or work.has_more
        if self.waits:
            work.sync_reading()
            self.turns.defer(self._go_on)

    def _go_on(self) -> None:
        data, self._waiting = self._waiting, b""
        self._go_through(data)
        if not self.waits:
            self.work.sync_reading()
