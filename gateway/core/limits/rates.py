"""How often something may happen, for each of many keys, in one number a key.

The generic cell rate algorithm: a key's number is the time at which all that it did would be
paid for. It needs no timer, and a key that was idle for long is the same as one never seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain
from typing import Final

from gateway.core.access.refusals import REFUSALS, Refusal
from gateway.core.limits.addresses import limit_key

MOST_KEYS: Final = 65536


class Rate:
    """Allows *often* events in *seconds* per key, all of them at once if need be.

    Args:
        often: How many; 0 for without limit.
        most_keys: How many keys are remembered. Beyond that the oldest is forgotten, so that
            who has many addresses fills no memory.
    """

    __slots__ = ("_clock", "_interval", "_most_keys", "_old", "_seconds", "_turned_at", "_young")

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
        # What was heard of since the last turn, and before it. Nobody has to pay for longer than
        # `seconds`: what is old at two turns that are so far apart has paid.
        self._young: dict[str, float] = {}
        self._old: dict[str, float] = {}
        self._turned_at = clock()

    def __len__(self) -> int:
        """Return how many keys are remembered."""
        return len(self._young) + len(self._old)

    def take(self, key: str) -> float:
        """Count one event of *key* and return 0.0, or return how many seconds it has to wait.

        Who has to wait is not counted: asking again costs nothing.
        """
        if not self._interval:
            return 0.0
        now = self._clock()
        self._turn(now)
        before = self._young.pop(key, None)
        if before is None:
            before = self._old.pop(key, now)
        paid_at = max(before, now) + self._interval
        waits = paid_at - now - self._seconds
        if waits > 1e-9:
            self._young[key] = paid_at - self._interval
            return waits
        if len(self) >= self._most_keys:
            self._forget(now)
        self._young[key] = paid_at
        return 0.0

    def tidy(self) -> None:
        """Forget keys that were idle for long; called now and then, a flood leaves nothing."""
        self._turn(self._clock())

    def _turn(self, now: float) -> None:
        idle = now - self._turned_at
        if idle >= self._seconds:
            self._old = self._young if idle < 2 * self._seconds else {}
            self._young = {}
            self._turned_at = now

    def _forget(self, now: float) -> None:
        self._old = {key: at for key, at in self._old.items() if at > now}
        self._young = {key: at for key, at in self._young.items() if at > now}
        if len(self) >= self._most_keys:
            # Not only the oldest one: going through all of them must stay rare.
            for key in list(chain(self._old, self._young))[: self._most_keys // 8 or 1]:
                (self._old if key in self._old else self._young).pop(key)


def whole_seconds(waits: float) -> int:
    """Return a ``Retry-After`` after which it is allowed."""
    return max(1, math.ceil(waits))


BURST_SECONDS: Final = 10
"""So many seconds' worth at once: a campus that comes back after a restart is one address."""
COUNTED: Final = frozenset({401, 403, 404})


class RefusalRate:
    """How many 401, 403 and 404 an address gets: whoever looks for sessions looks slowly.

    Each of these answers costs a decision and a page, and says something about what there is. An
    address that has drawn too many gets 429 instead, and its connection is closed: a request that
    is let in is never counted, and never refused by this. *per_second* is for good; 0 for without
    limit.
    """

    __slots__ = ("_rate",)

    def __init__(self, per_second: int, *, clock: Callable[[], float]) -> None:
        self._rate = Rate(per_second * BURST_SECONDS, float(BURST_SECONDS), clock=clock)

    def judge(self, refusal: Refusal, address: str) -> Refusal:
        """Return *refusal*, or a 429 where the client at *address* has drawn too many."""
        if refusal.status not in COUNTED:
            return refusal
        waits = self._rate.take(limit_key(address))
        return REFUSALS["too_many_refusals"].again_in(whole_seconds(waits)) if waits else refusal

    def tidy(self) -> None:
        """Forget addresses that were idle for long."""
        self._rate.tidy()
