"""How the time is taken."""

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
        """Note that the first byte is here; only the first time counts."""
        if self._first is None:
            self._first = self._clock()

    @property
    def seconds(self) -> float | None:
        """How long the first byte took; None if it has not come."""
        return None if self._first is None else self._first - self._began
