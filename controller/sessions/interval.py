"""The due time of a repeated action."""

from __future__ import annotations

from collections.abc import Callable
from math import inf


class Interval:
    """An action is due *seconds* after its last start, and before its first one.

    Args:
        seconds: The interval.
        monotonic: Monotonic seconds: a change of the wall clock must not stop a heartbeat.
    """

    def __init__(self, seconds: float, monotonic: Callable[[], float]) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._due_at = -inf

    @property
    def left_seconds(self) -> float:
        """Seconds until the action is due; 0 if it is."""
        return max(0.0, self._due_at - self._monotonic())

    @property
    def is_due(self) -> bool:
        """Whether the action is due."""
        return self._monotonic() >= self._due_at

    def begin(self) -> None:
        """Start the interval now."""
        self._due_at = self._monotonic() + self._seconds

    def make_due(self) -> None:
        """Make the action due now."""
        self._due_at = -inf
