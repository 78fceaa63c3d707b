"""How often something may happen, for each of many keys, in one number a key.

The generic cell rate algorithm: a key's number is the time at which all that it did would be
paid for. It needs no timer, and a key that was idle for long is the same as one never seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

MOST_KEYS: Final = 65536


class Rate:
    """Allows *often* events in *seconds* per key, all of them at once if need be.

    Args:
        often: How many; 0 for without limit.
        seconds: In which time.
        clock: Seconds, never going back.
        most_keys: How many keys are remembered. Beyond that the oldest is forgotten, so that
            who has many addresses fills no memory.
    """

    __slots__ = ("_clock", "_interval", "_most_keys", "_paid_at", "_seconds")

    def __init__(
        self,
        often: int,
        seconds: float,
        *,
        clock: Callable[[], float],
        most_keys: int = MOST_KEYS,
    ) -> None:
        self._interval = seconds / often if often else 0.0
        self._seconds = seconds
        self._clock = clock
        self._most_keys = most_keys
        self._paid_at: dict[str, float] = {}

    def __len__(self) -> int:
        """Return how many keys are remembered."""
        return len(self._paid_at)

    def take(self, key: str) -> float:
        """Count one event of *key* and return 0.0, or return how many seconds it has to wait.

        Who has to wait is not counted: asking again costs nothing.
        """
        if not self._interval:
            return 0.0
        now = self._clock()
        paid_at = max(self._paid_at.pop(key, now), now) + self._interval
        waits = paid_at - now - self._seconds
        if waits > 1e-9:
            self._paid_at[key] = paid_at - self._interval
            return waits
        if len(self._paid_at) >= self._most_keys:
            self._forget(now)
        self._paid_at[key] = paid_at
        return 0.0

    def _forget(self, now: float) -> None:
        self._paid_at = {key: at for key, at in self._paid_at.items() if at > now}
        if len(self._paid_at) >= self._most_keys:
            # Not only the oldest one: going through all of them must stay rare.
            for key in list(self._paid_at)[: self._most_keys // 8 or 1]:
                del self._paid_at[key]


def whole_seconds(waits: float) -> int:
    """Return a ``Retry-After`` after which it is allowed."""
    return max(1, math.ceil(waits))
