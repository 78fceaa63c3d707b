"""How many 401, 403 and 404 an address gets: whoever looks for sessions looks slowly.

Each of these answers costs a decision and a page, and says something about what there is. An
address that has drawn too many gets 429 instead, and its connection is closed: a request that is
let in is never counted, and never refused by this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.core.access.answers import REFUSALS, Refusal
from gateway.core.limits.addresses import limit_key
from gateway.core.limits.rates import Rate, whole_seconds

BURST_SECONDS: Final = 10
"""So many seconds' worth at once: a campus that comes back after a restart is one address."""
COUNTED: Final = frozenset({401, 403, 404})


class RefusalRate:
    """Judges refusals by the address of the client.

    Args:
        per_second: How many an address gets for good; 0 for without limit.
        clock: Seconds, never going back.
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
