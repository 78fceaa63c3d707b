"""Holds the table in use: applies the next event in order, or replaces the table by a newer one.

Callers are notified of each change at once. Nothing here reads Redis: if an event is missing, a
read of the head is requested (:mod:`gateway.bus.catch_up`). The rest of the gateway reads the
table and the state of the bus from here alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from gateway.bus.catch_up import CatchUp
from gateway.bus.head_policy import NOT_SIGNED, HeadPolicy, accept_unsigned, is_proven
from gateway.core.bus_state import Bus, BusClock
from shared.errors import MalformedEvent, SnapshotRefused
from shared.events import (
    Event,
    GrantRevoked,
    RouteRemoved,
    RouteUpserted,
    UnknownEvent,
    decode_event,
    event_time,
)
from shared.routes.table import Outcome, RouteTable

REPAIR_SECONDS: Final = 0.5
WAKE_SECONDS: Final = 3.0
"""After this process was suspended: by then a read of the head has succeeded or failed."""
UNKNOWN_SECONDS: Final = 30.0
"""Between two snapshots that are read because of events of an unknown version or type."""
MOST_EARLY_SIGN_OUTS: Final = 1000
"""Sign-outs from other workers that are kept until this process has a table."""
_CHECKED_AT_ONCE: Final = 64
"""Buffered events checked for a new table: about 10 ms of signature checks."""

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
"""The values of the label ``what`` of ``fumarole_gateway_bus_noted``."""

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class RouteTableHolder:
    """Holds the table in use and the state of the bus.

    Args:
        on_change: Called with the sessions that changed, or None for all, after the table has.
        on_closed: Called when the bus has been lost for longer than its grace period.
        policy: Decides what is accepted; by default Redis is trusted.
    """

    clock: BusClock
    monotonic: Callable[[], float]
    wall: Callable[[], float]
    on_change: Changed
    on_closed: Callable[[], None]
    policy: HeadPolicy = field(default_factory=accept_unsigned)
    table: RouteTable | None = None
    noted: Counter[Noted] = field(init=False, default_factory=Counter)
    lag_seconds: float = 0.0
    """From the publication of the last event (the controller's clock) until it was applied."""
    last_error: str | None = None
    """Why the last read of the head failed; None if it succeeded."""
    catch_up: CatchUp = field(init=False)
    _signed_out: deque[tuple[str, str]] = field(
        init=False, default_factory=lambda: deque(maxlen=MOST_EARLY_SIGN_OUTS)
    )
    _passed_unknown: bool = False
    """Whether an event of an unknown version or type passed since the table was loaded."""
    _reloaded_at: float = float("-inf")
    _buffered: list[Event] | None = None
    _controller_time: float = float("inf")
    """The controller's time in the last event; infinity before the first event."""
    _noted_state: Bus = Bus.STARTING

    def __post_init__(self) -> None:
        self.policy.table = lambda: self.table
        self.policy.on_attested = lambda age: self.clock.head_signed(self.monotonic() - age)
        self.catch_up = CatchUp(on_reached=self.clock.head_confirmed)

    @property
    def unserved_reason(self) -> str | None:
        """Why some routes cannot be served; None if all can."""
        table = self.table
        mixed = table is not None and not is_proven(table) and table.unreadable > 0
        return NOT_SIGNED if self.policy.signed and mixed else None

    @property
    def bus(self) -> Bus:
        """The state of the bus now."""
        return self.clock.bus(self.monotonic())

    @property
    def usable_table(self) -> RouteTable | None:
        """The table while :attr:`serving` and not :attr:`stale`; reads the clock once."""
        return self.table if self.monotonic() <= self.clock.usable_until else None

    @property
    def serving(self) -> bool:
        """False without a table, and once the grace period of a lost bus is over."""
        return self.table is not None and self.clock.serves(self.monotonic())

    @property
    def opening(self) -> bool:
        """Whether sessions may be opened: only while the bus is followed."""
        return self.table is not None and self.bus.opens

    @property
    def dialling(self) -> bool:
        """False once the controller has been silent for longer than its grace period."""
        return not self.clock.controller_silent(self.monotonic())

    @property
    def stale(self) -> bool:
        """Whether this process was suspended and has not read the head since.

        A request then waits for :meth:`repair` before it is decided, since the table may lack
        revocations and new routes.
        """
        return self.table is not None and self.clock.was_suspended(self.monotonic())

    async def repair(self) -> None:
        """Return when the table has reached the head that Redis holds now, or after a deadline.

        The deadline is 0.5 s, and 3 s if this process was suspended. Never fails. However many
        requests call this, the head is read ten times a second at most. A process that is
        suspended during the call reads the head again, since the first result may predate the
        suspension.
        """
        was_stale = self.stale
        await self._caught_up_within(WAKE_SECONDS if was_stale else REPAIR_SECONDS)
        if self.stale and not was_stale:
            await self._caught_up_within(WAKE_SECONDS)

    async def _caught_up_within(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.catch_up.caught_up()

    def note(self, what: Noted, times: int = 1) -> None:
        """Count *what* in the metrics."""
        self.noted[what] += times

    # One event

    def take(self, message: bytes) -> None:
        """Apply the published *message* if it is the next event; else request a read of the head.

        However many such messages come, the head is read ten times a second at most.
        """
        try:
            event = decode_event(message)
        except MalformedEvent as error:
            self.note("malformed")
            log.warning("dropped a malformed event: %s", error)
            # It may have been the next event, even a revocation: the head shows whether it was.
            self.catch_up.request_look()
            return
        if self._buffered is not None:
            self._buffered.append(event)
        if self.table is None:
            return
        if event.epoch == self.table.epoch:
            self.clock.heartbeat_received(self.monotonic())
        self._revoke(event, self.table)
        if self.advance_by(event, self.table) is Outcome.REPAIR:
            self.note("gap")
            self.catch_up.request_look()

    def _revoke(self, event: Event, table: RouteTable) -> None:
        """Apply a revocation at once even if it is not the next event."""
        if not isinstance(event, GrantRevoked) or event.epoch != table.epoch:
            return
        if event.seq == table.seq + 1 or table.knows(event):
            return
        if is_proven(table) and not self.policy.admits_early(event):
            self.note("unproven")
            return
        if table.revoke(event):
            self.note("early")
            self.on_change(None if event.sid is None else (event.sid,))

    def end_grant(self, sid: str, jti: str) -> None:
        """Treat the grants of token *jti* as revoked in this process, and end their connections.

        Without a table, the sign-out is kept for the first one. The caller must also send the
        request to the controller, which revokes the grants everywhere else.
        """
        table = self.table
        if table is None:
            self._signed_out.append((sid, jti))
        elif self._sign_out(sid, jti, table):
            self.on_change((sid,))

    def _sign_out(self, sid: str, jti: str, table: RouteTable) -> bool:
        at = event_time(self.wall())
        event = GrantRevoked(epoch=table.epoch, seq=table.seq, at=at, sid=sid, jti=jti)
        fresh = table.revoke(event)
        self.note("signed_out", fresh)
        return fresh

    def advance_by(self, event: Event, table: RouteTable, *, from_log: bool = False) -> Outcome:
        """Apply *event* to the table in use if it is the next one.

        *from_log* says that the event was read from the log, and not received by subscription.
        """
        if not self.policy.admits(event, table, from_log=from_log):
            self.note("unproven")
            return Outcome.REPAIR
        outcome = table.apply(event)
        if outcome is Outcome.REPAIR:
            return outcome
        if not isinstance(event, UnknownEvent) and event.at is not None:
            self._controller_time = event.at.timestamp()
            if outcome is Outcome.APPLIED:
                self.lag_seconds = max(0.0, self.wall() - self._controller_time)
        if outcome is not Outcome.CURRENT:
            self._applied(event)
        if isinstance(event, UnknownEvent):
            self._pass_unknown(event)
        return outcome

    def _applied(self, event: Event) -> None:
        self.note("applied")
        self.advance()
        match event:
            case RouteUpserted(sid=sid) | RouteRemoved(sid=sid):
                self.on_change((sid,))
            case GrantRevoked(sid=sid):
                self.on_change(None if sid is None else (sid,))
            case _:
                pass

    def prune(self) -> None:
        """Forget revocations and ended sessions of which no grant can be valid any more.

        Uses the earlier of this clock and the controller's, so that a clock that runs ahead does
        not drop a revocation too early.
        """
        now = min(self.wall(), self._controller_time)
        if self.table is not None:
            self.table.prune(now)
        self.policy.forget_ended(now)

    def _pass_unknown(self, event: UnknownEvent) -> None:
        self.note("unknown")
        self._passed_unknown = True
        if self.reload_if_due():
            extra = {"type": event.type}
            log.warning("received an event of an unknown version or type", extra=extra)

    def reload_if_due(self) -> bool:
        """Request the snapshot that shows what unknown events changed; return whether it is due.

        It is due :data:`UNKNOWN_SECONDS` after the last one, so that no event's effect is lost.
        """
        now = self.monotonic()
        due = self._passed_unknown and now - self._reloaded_at >= UNKNOWN_SECONDS
        if due:
            self._reloaded_at = now
            self.catch_up.request_repair(whole=True)
        return due

    # Another table

    @contextmanager
    def buffering_events(self) -> Iterator[None]:
        """Buffer the events that arrive in the context, for the table that is being read."""
        self._buffered = []
        try:
            yield
        finally:
            self._buffered = None

    def adopt(self, table: RouteTable, *, read_at: float, passed_unknown: bool = False) -> None:
        """Replace the table in use by *table*, after applying the buffered events to it.

        *passed_unknown* says that *table* may lack the effect of an unknown event.

        Raises:
            SnapshotRefused: If the table in use is newer.
        """
        outcomes = [table.apply(event) for event in self._admitted(table)]
        # An unsigned table cannot contradict a signed one.
        old = self.table if is_proven(self.table) or not is_proven(table) else None
        if old is not None and table.head.is_older_than(old.head):
            raise SnapshotRefused(f"the snapshot is at {table.seq}, the table at {old.seq}")
        if old is not None:
            table.inherit(old)
        self.note("snapshot")
        moved = old is None or (old.epoch, old.seq) != (table.epoch, table.seq)
        if moved:
            self.clock.heartbeat_received(self.monotonic())
        while self._signed_out:
            self._sign_out(*self._signed_out.popleft(), table)
        self.table = table
        self._passed_unknown = passed_unknown or Outcome.UNKNOWN in outcomes
        self.clock.head_confirmed(read_at)
        log.info(
            "loaded a snapshot of the route table",
            extra={"epoch": table.epoch, "seq": table.seq, "routes": len(table)},
        )
        if not self.advance():
            self.catch_up.request_look()
        self.note_state()
        self.on_change(None)

    def _admitted(self, table: RouteTable) -> Iterator[Event]:
        """Yield the buffered events for *table*, up to :data:`_CHECKED_AT_ONCE` if it is signed.

        The others are then read from the log.
        """
        arrived = self._buffered or []
        for event in arrived[:_CHECKED_AT_ONCE] if is_proven(table) else arrived:
            if event.epoch == table.epoch and event.seq > table.seq:
                if not self.policy.admits(event, table, from_log=True):
                    return
                yield event

    # How far behind

    @property
    def is_behind(self) -> bool:
        """Whether the table needs a repair."""
        return not self.advance() or self.catch_up.wants_snapshot

    def advance(self) -> bool:
        """Release requests if the table has reached the last head read; return whether it has."""
        return self.catch_up.advance(self.table)

    # The bus' state

    def closing_at(self, now: float) -> float:
        """Return when the grace period of the bus ends, *now* at the earliest."""
        if self._noted_state is Bus.CLOSED:
            return float("inf")
        return max(self.clock.closes_at(), now)

    def note_state(self) -> None:
        """Log the state of the bus if it has changed, and call ``on_closed`` if it is closed."""
        state = self.bus
        if state is self._noted_state:
            return
        level = logging.INFO if state is Bus.FOLLOWING else logging.WARNING
        log.log(level, "bus state: %s (was %s)", state.value, self._noted_state.value)
        self._noted_state = state
        if state is Bus.CLOSED:
            self.on_closed()
