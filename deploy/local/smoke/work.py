"""Measures the time of an opening."""

from __future__ import annotations

from collections.abc import Callable


class Stopwatch:
    """Measures one opening, from its beginning to the app's first byte.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._first: float | None = None

    def first_byte(self) -> None:
        """Record that the first byte has arrived. Only the first call counts."""
        if self._first is None:
            self._first = self._clock()

    @property
    def seconds(self) -> float | None:
        """The time until the first byte; None if it has not arrived."""
        return None if self._first is None else self._first - self._began
