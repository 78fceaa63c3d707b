"""The state of the bus, derived from when it was last confirmed.

See docs/proxy-events.md, "Following". Nothing here reads a clock: callers pass monotonic seconds,
and each state is computed for the time that they pass. A process that was suspended for a minute
therefore notices it with its first call.

==========  =============================  =======  ======  =====
state       no confirmed head for          ready    serves  opens
==========  =============================  =======  ======  =====
starting    ever (there is no table)       no       no      no
following   up to 5 s                      yes      yes     yes
lost        more                           yes      yes     no
closed      5 s + the grace                no       no      no
==========  =============================  =======  ======  =====

A head is confirmed when it is of the epoch that the gateway follows and the table has reached it.
"""

from __future__ import annotations

import enum
from math import inf
from typing import Final

LOST_SECONDS: Final = 5.0
SUSPENDED_SECONDS: Final = 4.0
"""One poll of the head takes two seconds at most, and the next one starts one second later."""


class Bus(enum.Enum):
    """The state of the bus."""

    STARTING = "starting"
    FOLLOWING = "following"
    LOST = "lost"
    CLOSED = "closed"

    @property
    def serves(self) -> bool:
        """Whether the gateway may act upon the route table."""
        return self in (Bus.FOLLOWING, Bus.LOST)

    @property
    def opens(self) -> bool:
        """Whether users may open new sessions."""
        return self is Bus.FOLLOWING


class BusClock:
    """Records when the bus was confirmed and when the controller gave its last sign of life.

    Args:
        bus_grace_seconds: For how long the gateway serves the known routes after the bus is lost.
        controller_grace_seconds: For how long the gateway dials a silent controller's addresses.
    """

    def __init__(self, *, bus_grace_seconds: float, controller_grace_seconds: float) -> None:
        self._bus_grace = bus_grace_seconds
        self._controller_grace = controller_grace_seconds
        self._confirmed_at: float | None = None
        self._heartbeat_at = 0.0
        self._unsubscribed_since: float | None = 0.0
        self._polled_at: float | None = None
        self._signed_at: float | None = None
        self.usable_until = -inf
        """Until this time :meth:`serves` is true and :meth:`was_suspended` is false, whatever
        happens."""

    # Events

    def head_polled(self, at: float) -> None:
        """Record that a poll of the head ended at *at*, with whatever result."""
        self._polled_at = at
        self._set_usable()

    def head_confirmed(self, at: float) -> None:
        """Record that the head read at *at* is of our epoch and that the table has reached it."""
        self._confirmed_at = at if self._confirmed_at is None else max(at, self._confirmed_at)
        self._set_usable()

    def _set_usable(self) -> None:
        if self._confirmed_at is not None:
            serves_until = self._confirmed_at + LOST_SECONDS + self._bus_grace
            awake_until = inf if self._polled_at is None else self._polled_at + SUSPENDED_SECONDS
            self.usable_until = min(serves_until, awake_until)

    def heartbeat_received(self, at: float) -> None:
        """Record a sign of life from the publisher of our epoch."""
        self._heartbeat_at = max(at, self._heartbeat_at)
        if self._unsubscribed_since is not None:
            self._unsubscribed_since = max(at, self._unsubscribed_since)

    def head_signed(self, at: float) -> None:
        """Record that the controller signed a head at *at*.

        From then on only signed heads count as signs of life: Redis could replay old heartbeats,
        and could prevent the gateway from subscribing.
        """
        self._signed_at = at if self._signed_at is None else max(at, self._signed_at)

    def subscribed(self, at: float) -> None:
        """Record that heartbeats can be received again.

        The time without a subscription does not count as silence of the controller.
        """
        if self._unsubscribed_since is not None:
            self._heartbeat_at += max(0.0, at - self._unsubscribed_since)
            self._unsubscribed_since = None

    def unsubscribed(self, at: float) -> None:
        """Record that heartbeats cannot be received."""
        if self._unsubscribed_since is None:
            self._unsubscribed_since = at

    # State

    def bus(self, now: float) -> Bus:
        """Return the state of the bus at *now*."""
        if self._confirmed_at is None:
            return Bus.STARTING
        silent = now - self._confirmed_at
        if silent <= LOST_SECONDS:
            return Bus.FOLLOWING
        return Bus.LOST if silent <= LOST_SECONDS + self._bus_grace else Bus.CLOSED

    def serves(self, now: float) -> bool:
        """Return whether the gateway may act upon the route table at *now*."""
        good_at = self._confirmed_at
        return good_at is not None and now - good_at <= LOST_SECONDS + self._bus_grace

    def controller_silent(self, now: float) -> bool:
        """Return whether the known addresses are too old to be dialled."""
        if self._signed_at is not None:
            return now - self._signed_at > self._controller_grace
        until = now if self._unsubscribed_since is None else self._unsubscribed_since
        return until - self._heartbeat_at > self._controller_grace

    def was_suspended(self, now: float) -> bool:
        """Return whether this process was suspended: no poll ended for longer than any poll takes.

        Its table is then as old as the suspension was long, and it has not tried to update it. A
        lost bus is a different case: polls fail, but they take place.
        """
        return self._polled_at is not None and now - self._polled_at > SUSPENDED_SECONDS

    def closes_at(self) -> float:
        """Return when the bus closes unless a head is confirmed before; infinity for never."""
        if self._confirmed_at is None:
            return float("inf")
        return self._confirmed_at + LOST_SECONDS + self._bus_grace
