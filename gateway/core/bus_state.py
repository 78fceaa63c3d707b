"""How the bus stands, from what was last known of it: docs/proxy-events.md, "Following".

Nothing here reads a clock: monotonic seconds are arguments, and a state is what follows from them
at the moment of asking. So a process that was stopped for a minute knows it with its first look.

==========  =============================  =======  ======  =====
state       no good head of our epoch for  ready    serves  opens
==========  =============================  =======  ======  =====
starting    ever (there is no table)       no       no      no
following   up to 5 s                      yes      yes     yes
lost        more                           yes      yes     no
closed      5 s + the grace                no       no      no
==========  =============================  =======  ======  =====
"""

from __future__ import annotations

import enum
from math import inf
from typing import Final

LOST_SECONDS: Final = 5.0
SLEPT_SECONDS: Final = 4.0
"""A look at the head takes two seconds at most, and the next one begins a second later."""


class Bus(enum.Enum):
    """How the bus stands."""

    STARTING = "starting"
    FOLLOWING = "following"
    LOST = "lost"
    CLOSED = "closed"

    @property
    def serves(self) -> bool:
        """Whether what the table says may be acted upon."""
        return self in (Bus.FOLLOWING, Bus.LOST)

    @property
    def opens(self) -> bool:
        """Whether new sessions may be opened."""
        return self is Bus.FOLLOWING


class BusClock:
    """Remembers when the bus was last good and when the controller was last heard.

    Args:
        bus_grace_seconds: For how long a lost bus still serves what is known.
        controller_grace_seconds: For how long a silent controller's addresses are believed.
    """

    def __init__(self, *, bus_grace_seconds: float, controller_grace_seconds: float) -> None:
        self._bus_grace = bus_grace_seconds
        self._controller_grace = controller_grace_seconds
        self._good_at: float | None = None
        self._heard_at = 0.0
        self._deaf_since: float | None = 0.0
        self._looked_at: float | None = None
        self._attested_at: float | None = None
        self.usable_until = -inf
        """Until then :meth:`serves` is true and :meth:`slept` is not, whatever else happens."""

    # What happened

    def looked(self, at: float) -> None:
        """Note that a look at the head, with whatever result, was over at *at*."""
        self._looked_at = at
        self._set_usable()

    def good(self, at: float) -> None:
        """Note that the head read at *at* was of our epoch, and that the table has reached it."""
        self._good_at = at if self._good_at is None else max(at, self._good_at)
        self._set_usable()

    def _set_usable(self) -> None:
        if self._good_at is not None:
            serves_until = self._good_at + LOST_SECONDS + self._bus_grace
            awake_until = inf if self._looked_at is None else self._looked_at + SLEPT_SECONDS
            self.usable_until = min(serves_until, awake_until)

    def heard(self, at: float) -> None:
        """Note that the publisher of our epoch gave a sign of life."""
        self._heard_at = max(at, self._heard_at)
        if self._deaf_since is not None:
            self._deaf_since = max(at, self._deaf_since)

    def attested(self, at: float) -> None:
        """Note that the controller has signed a head *at* that time.

        From then on only that says whether it is silent: Redis can repeat what it said before, and
        can let nobody subscribe.
        """
        self._attested_at = at if self._attested_at is None else max(at, self._attested_at)

    def subscribed(self, at: float) -> None:
        """Note that heartbeats can be heard; time without that is no silence of theirs."""
        if self._deaf_since is not None:
            self._heard_at += max(0.0, at - self._deaf_since)
            self._deaf_since = None

    def unsubscribed(self, at: float) -> None:
        """Note that heartbeats cannot be heard."""
        if self._deaf_since is None:
            self._deaf_since = at

    # What follows

    def bus(self, now: float) -> Bus:
        """Return how the bus stands at *now*."""
        if self._good_at is None:
            return Bus.STARTING
        silent = now - self._good_at
        if silent <= LOST_SECONDS:
            return Bus.FOLLOWING
        return Bus.LOST if silent <= LOST_SECONDS + self._bus_grace else Bus.CLOSED

    def serves(self, now: float) -> bool:
        """Say whether what the table says may be acted upon."""
        good_at = self._good_at
        return good_at is not None and now - good_at <= LOST_SECONDS + self._bus_grace

    def controller_silent(self, now: float) -> bool:
        """Say whether addresses are too old to be dialled."""
        if self._attested_at is not None:
            return now - self._attested_at > self._controller_grace
        until = now if self._deaf_since is None else self._deaf_since
        return until - self._heard_at > self._controller_grace

    def slept(self, now: float) -> bool:
        """Say whether this process was stopped: longer than any look takes, it made none.

        What it knows is then as old as its sleep was long, and it has not even tried to know
        better. A bus that is lost is something else: looks fail, but they are made.
        """
        return self._looked_at is not None and now - self._looked_at > SLEPT_SECONDS

    def closes_at(self) -> float:
        """Return when the bus is closed unless something good happens; infinity if never."""
        if self._good_at is None:
            return float("inf")
        return self._good_at + LOST_SECONDS + self._bus_grace
