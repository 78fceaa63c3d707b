"""Rate limits for many keys, with one number for each key.

This is the generic cell rate algorithm (GCRA): a key's number is the time at which its events so
far are paid for. It needs no timer, and a key that was idle for long equals one that was never
seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Final

from gateway.core.access.refusals import REFUSALS, Refusal
from gateway.core.limits.addresses import limit_key

MAX_KEYS: Final = 65536


class Rate:
    """Allows *limit* events in *seconds* for each key, as a burst if need be.

    Args:
        limit: How many; 0 for unlimited.
        max_keys: How many keys are remembered. Beyond that the oldest are forgotten, so that a
            client with many addresses cannot fill memory.
    """

    def __init__(
        self,
        limit: int,
        seconds: float,
        *,
        clock: Callable[[], float],
        max_keys: int = MAX_KEYS,
    ) -> None:
        self._interval = seconds / limit if limit else 0.0
        self._seconds = seconds
        self._clock = clock
        self._most_keys = max_keys
        # Keys seen since the last rotation, and before it. No key is in debt for longer than
        # `seconds`, so a key that is still old at a second rotation has no debt left.
        self._current: dict[str, float] = {}
        self._previous: dict[str, float] = {}
        self._rotated_at = clock()

    def __len__(self) -> int:
        """Return how many keys are remembered."""
        return len(self._current) + len(self._previous)

    def take(self, key: str) -> float:
        """Count one event of *key* and return 0.0, or return how many seconds it must wait.

        An event that must wait is not counted: retrying costs nothing.
        """
        if not self._interval:
            return 0.0
        now = self._clock()
        self._rotate(now)
        before = self._current.pop(key, None)
        if before is None:
            before = self._previous.pop(key, now)
        paid_at = max(before, now) + self._interval
        waits = paid_at - now - self._seconds
        if waits > 1e-9:
            self._current[key] = paid_at - self._interval
            return waits
        if len(self) >= self._most_keys:
            self._forget(now)
        self._current[key] = paid_at
        return 0.0

    def tidy(self) -> None:
        """Forget idle keys. Called periodically, it frees what a flood has left."""
        self._rotate(self._clock())

    def _rotate(self, now: float) -> None:
        idle = now - self._rotated_at
        if idle >= self._seconds:
            self._previous = self._current if idle < 2 * self._seconds else {}
            self._current = {}
            self._rotated_at = now

    def _forget(self, now: float) -> None:
        self._previous = {key: at for key, at in self._previous.items() if at > now}
        self._current = {key: at for key, at in self._current.items() if at > now}
        if len(self) >= self._most_keys:
            # Not just the oldest one: scanning all of them must stay rare.
            for key in list(chain(self._previous, self._current))[: self._most_keys // 8 or 1]:
                (self._previous if key in self._previous else self._current).pop(key)


def retry_after(waits: float) -> int:
    """Return the ``Retry-After`` for a wait of *waits* seconds."""
    return max(1, math.ceil(waits))


BURST_SECONDS: Final = 10
"""The burst holds this many seconds' worth: a campus that reconnects after a restart is one
address."""
COUNTED: Final = frozenset({401, 403, 404})


class RefusalRate:
    """Limits how many 401, 403 and 404 an address gets, which slows the search for sessions.

    Each of these responses costs a decision and a page, and discloses something about what exists.
    An address over the limit gets 429 instead, and its connection is closed. Admitted requests are
    neither counted nor refused. *per_second* is the sustained rate; 0 for unlimited.
    """

    def __init__(self, per_second: int, *, clock: Callable[[], float]) -> None:
        self._rate = Rate(per_second * BURST_SECONDS, float(BURST_SECONDS), clock=clock)

    def judge(self, refusal: Refusal, address: str) -> Refusal:
        """Return *refusal*, or a 429 if the client at *address* is over the limit."""
        if refusal.status not in COUNTED:
            return refusal
        waits = self._rate.take(limit_key(address))
        if not waits:
            return refusal
        return replace(REFUSALS["too_many_refusals"], retry_after_seconds=retry_after(waits))

    def tidy(self) -> None:
        """Forget idle addresses."""
        self._rate.tidy()
