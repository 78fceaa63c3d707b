"""A clock that advances only when a test sets it."""

from __future__ import annotations


class Clock:
    """Seconds, as ``time.time`` or ``time.monotonic`` returns them."""

    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
