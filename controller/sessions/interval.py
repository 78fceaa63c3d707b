"""When something that is done again and again is due."""

from __future__ import annotations

from collections.abc import Callable
from math import inf


class Interval:
    """Says when *seconds* have passed since something began; before its first time it is due.

    Args:
        seconds: How long after each time it is due again.
        monotonic: Seconds that go on evenly: setting the wall clock must not stop a heartbeat.
    """

    def __init__(self, seconds: float, monotonic: Callable[[], float]) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._due_at = -inf

    @property
    def left_seconds(self) -> float:
        """How long until it is due, 0 when it is."""
        return max(0.0, self._due_at - self._monotonic())

    @property
    def is_due(self) -> bool:
        """Whether it is time."""
        return self._monotonic() >= self._due_at

    def begin(self) -> None:
        """Count from now."""
        self._due_at = self._monotonic() + self._seconds

    def make_due(self) -> None:
        """Have it done next, whenever it was done last."""
        self._due_at = -inf
