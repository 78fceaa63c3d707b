"""What a gateway process knows of the world: the table, the revocations, the state of the bus.

The rest of the gateway reads this, and nothing else of the package. :class:`Follower
<gateway.bus.follower.Follower>` is what keeps it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from gateway.core.bus_state import Bus, BusClock

if TYPE_CHECKING:
    from shared.routes import RouteTable

REPAIR_SECONDS: Final = 0.5
WAKE_SECONDS: Final = 3.0
"""After this process was stopped: by then a look at the head has succeeded, or failed."""

Changed: TypeAlias = Callable[[Iterable[str] | None], None]
"""Called with the sessions that changed, or None for all, after the table has."""

Noted = Literal[
    "applied",
    "gap",
    "malformed",
    "unknown",
    "early",
    "signed_out",
    "log",
    "snapshot",
    "snapshot_refused",
    "rollback",
    "silent",
    "slept",
    "unproven",
]
"""What can happen while following; a metric's label."""


class Feed(ABC):
    """Keeps the table for as long as :meth:`run` runs; no request waits for any of that.

    Args:
        clock: What is known of the bus' state.
        monotonic: Seconds that only rise.
    """

    def __init__(self, *, clock: BusClock, monotonic: Callable[[], float]) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self.table: RouteTable | None = None
        self.noted: Counter[Noted] = Counter()
        self.lag_seconds = 0.0
        """Of the last event: from its publication until it was applied, by both clocks."""
        self.trouble: str | None = None
        """Why the bus could not be asked the last time; None where it could."""

    @property
    def doubt(self) -> str | None:
        """Why not all of the table can be served; None where it can."""
        return None

    @property
    def bus(self) -> Bus:
        """How the bus stands now."""
        return self._clock.bus(self._monotonic())

    @property
    def serving(self) -> bool:
        """False before there is a table, and once the bus has been lost beyond its grace."""
        return self.table is not None and self._clock.serves(self._monotonic())

    @property
    def opening(self) -> bool:
        """Whether sessions may be opened: only while the bus is followed."""
        return self.table is not None and self.bus.opens

    @property
    def dialling(self) -> bool:
        """False once the controller has been silent beyond its grace."""
        return not self._clock.controller_silent(self._monotonic())

    @property
    def stale(self) -> bool:
        """Whether this process was stopped for a while and has not looked at the bus since.

        A request then waits for :meth:`repair` before anything is decided: what was withdrawn
        meanwhile must not be served, and what is good must not be refused.
        """
        return self.table is not None and self._clock.slept(self._monotonic())

    @property
    def patience(self) -> float:
        """How long a request may wait for a repair, in seconds."""
        return WAKE_SECONDS if self.stale else REPAIR_SECONDS

    @abstractmethod
    async def repair(self, seconds: float | None = None) -> None:
        """Return when the table is what Redis held after this call, or *seconds* are over.

        None stands for :attr:`patience`. Never fails; at most ten looks at the head a second come
        of it, however many ask.
        """

    @abstractmethod
    def end_grant(self, sid: str, jti: str) -> None:
        """Hold the grants of the token *jti* to be revoked from now on, in this process.

        What is open by them ends at once. The controller has to be asked, too: nobody else learns
        of it from here.
        """

    @abstractmethod
    async def run(self) -> None:
        """Keep the table until cancelled."""
