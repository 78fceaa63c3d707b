"""The table in use: it changes by the next event in order, or is exchanged for a better one.

What a change concerns is told at once. Nothing here reads Redis: where something is missing, a
look at the head is requested (:mod:`gateway.bus.catch_up`). All that the rest of the gateway knows
of the bus, it reads from this.
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
from gateway.bus.head_policy import NOT_SIGNED, HeadPolicy, is_proven, trusting
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
"""After this process was stopped: by then a look at the head has succeeded, or failed."""
UNKNOWN_SECONDS: Final = 30.0
"""Between two snapshots for events that this version does not know."""
MOST_EARLY_SIGN_OUTS: Final = 1000
"""That another process told of, and that are kept until there is a table."""
_CHECKED_AT_ONCE: Final = 64
"""Some ten milliseconds of signatures."""

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

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class RouteTableHolder:
    """Holds the table in use, and says how the bus stands.

    Args:
        on_change: Called with the sessions that changed, or None for all, after the table has.
        on_closed: Called when the bus has been lost for longer than its grace.
        policy: Says what is believed: what Redis says, where nothing else is given.
    """

    clock: BusClock
    monotonic: Callable[[], float]
    wall: Callable[[], float]
    on_change: Changed
    on_closed: Callable[[], None]
    policy: HeadPolicy = field(default_factory=trusting)
    table: RouteTable | None = None
    noted: Counter[Noted] = field(init=False, default_factory=Counter)
    lag_seconds: float = 0.0
    """Of the last event: from its publication until it was applied, by both clocks."""
    trouble: str | None = None
    """Why the bus could not be asked the last time; None where it could."""
    catch_up: CatchUp = field(init=False)
    _signed_out: deque[tuple[str, str]] = field(
        init=False, default_factory=lambda: deque(maxlen=MOST_EARLY_SIGN_OUTS)
    )
    _anew_at: float = float("-inf")
    _arrived: list[Event] | None = None
    _told_at: float = float("inf")
    """The controller's time, as its last event said it; none counts until one has."""
    _was: Bus = Bus.STARTING

    def __post_init__(self) -> None:
        self.policy.connect(
            table=lambda: self.table,
            on_attested=lambda age: self.clock.attested(self.monotonic() - age),
        )
        self.catch_up = CatchUp(on_reached=self.clock.good)

    @property
    def doubt(self) -> str | None:
        """Why not all of the table can be served; None where it can."""
        table = self.table
        mixed = table is not None and not is_proven(table) and table.unreadable > 0
        return NOT_SIGNED if self.policy.signed and mixed else None

    @property
    def bus(self) -> Bus:
        """How the bus stands now."""
        return self.clock.bus(self.monotonic())

    @property
    def usable_table(self) -> RouteTable | None:
        """The table while :attr:`serving` and not :attr:`stale`: one look at a clock, no more."""
        return self.table if self.monotonic() <= self.clock.usable_until else None

    @property
    def serving(self) -> bool:
        """False before there is a table, and once the bus has been lost beyond its grace."""
        return self.table is not None and self.clock.serves(self.monotonic())

    @property
    def opening(self) -> bool:
        """Whether sessions may be opened: only while the bus is followed."""
        return self.table is not None and self.bus.opens

    @property
    def dialling(self) -> bool:
        """False once the controller has been silent beyond its grace."""
        return not self.clock.controller_silent(self.monotonic())

    @property
    def stale(self) -> bool:
        """Whether this process was stopped for a while and has not looked at the bus since.

        A request then waits for :meth:`repair` before anything is decided: what was withdrawn
        meanwhile must not be served, and what is good must not be refused.
        """
        return self.table is not None and self.clock.slept(self.monotonic())

    async def repair(self) -> None:
        """Return when the table is what Redis held after this call, in at most half a second.

        In at most 3 s after this process was stopped. Never fails; at most ten looks at the head a
        second come of it, however many ask. A process that is stopped meanwhile looks anew: what
        Redis said before the stop says nothing after it.
        """
        was_stale = self.stale
        await self._caught_up_within(WAKE_SECONDS if was_stale else REPAIR_SECONDS)
        if self.stale and not was_stale:
            await self._caught_up_within(WAKE_SECONDS)

    async def _caught_up_within(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.catch_up.ask()

    # What the parts that read Redis tell

    def note(self, what: Noted, times: int = 1) -> None:
        """Count that *what* has happened."""
        self.noted[what] += times

    def note_trouble(self, trouble: str | None) -> None:
        """Note why the bus could not be asked; None where it could."""
        self.trouble = trouble

    # One event

    def take(self, message: bytes) -> None:
        """Apply what was published, if it is the next event; else have the head looked at.

        However many such messages come, the head is looked at ten times a second at most.
        """
        try:
            event = decode_event(message)
        except MalformedEvent as error:
            self.note("malformed")
            log.warning("a message was dropped: %s", error)
            # It may have been the next event, a revocation even: the head says so at once.
            self.catch_up.request_look()
            return
        if self._arrived is not None:
            self._arrived.append(event)
        if self.table is None:
            return
        if event.epoch == self.table.epoch:
            self.clock.heard(self.monotonic())
        self._revoke(event, self.table)
        if self.advance_by(event, self.table) is Outcome.REPAIR:
            self.note("gap")
            self.catch_up.request_look()

    def _revoke(self, event: Event, table: RouteTable) -> None:
        """Let a revocation count at once, also one that is not the next event."""
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
        """Hold the grants of the token *jti* to be revoked from now on, in this process.

        What is open by them ends at once; before there is a table it is kept for the first one.
        The controller has to be asked, too: nobody else learns of it from here.
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

    def advance_by(self, event: Event, table: RouteTable, *, asked: bool = False) -> Outcome:
        """Apply *event* to *table*, which is in use, if it is the next one.

        *asked* says that it was read from the log, and not told.
        """
        if not self.policy.admits(event, table, asked=asked):
            self.note("unproven")
            return Outcome.REPAIR
        outcome = table.apply(event)
        if outcome in (Outcome.APPLIED, Outcome.UNKNOWN):
            self._applied(event)
        if outcome is Outcome.CURRENT or outcome is Outcome.APPLIED:
            self._note_time(event)
        if outcome is Outcome.UNKNOWN:
            self._pass_unknown(event)
        return outcome

    def _applied(self, event: Event) -> None:
        self.note("applied")
        at = None if isinstance(event, UnknownEvent) else event.at
        if at is not None:
            self.lag_seconds = max(0.0, self.wall() - at.timestamp())
        self.advance()
        match event:
            case RouteUpserted(sid=sid) | RouteRemoved(sid=sid):
                self.on_change((sid,))
            case GrantRevoked(sid=sid):
                self.on_change(None if sid is None else (sid,))
            case _:
                pass

    def _note_time(self, event: Event) -> None:
        at = None if isinstance(event, UnknownEvent) else event.at
        if at is not None:
            self._told_at = at.timestamp()

    def prune(self) -> None:
        """Forget revocations, and sessions that have ended, of which no grant can be left.

        By this clock and by the controller's: one that is ahead for a while must not bring back
        what was withdrawn.
        """
        now = min(self.wall(), self._told_at)
        if self.table is not None:
            self.table.prune(now)
        self.policy.forget_ended(now)

    def _pass_unknown(self, event: Event) -> None:
        self.note("unknown")
        now = self.monotonic()
        if now - self._anew_at < UNKNOWN_SECONDS:
            return
        self._anew_at = now
        self.catch_up.request_repair(whole=True)
        kind = event.type if isinstance(event, UnknownEvent) else ""
        log.warning("an event of a version or type that is not known", extra={"type": kind})

    # Another table

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """Keep the events that arrive meanwhile: for the table that is being read."""
        self._arrived = []
        try:
            yield
        finally:
            self._arrived = None

    def adopt(self, table: RouteTable, *, read_at: float) -> None:
        """Take *table*, brought up by what arrived meanwhile, unless the one in use is newer.

        Raises:
            SnapshotRefused: If it is.
        """
        for event in self._admitted(table):
            table.apply(event)
        # What nobody signed says nothing of what was signed.
        old = self.table if is_proven(self.table) or not is_proven(table) else None
        if old is not None and table.head.is_older_than(old.head):
            raise SnapshotRefused(f"the snapshot is at {table.seq}, the table at {old.seq}")
        if old is not None:
            table.inherit(old)
        self.note("snapshot")
        moved = old is None or (old.epoch, old.seq) != (table.epoch, table.seq)
        if moved:
            self.clock.heard(self.monotonic())
        while self._signed_out:
            self._sign_out(*self._signed_out.popleft(), table)
        self.table = table
        self.clock.good(read_at)
        log.info(
            "took a snapshot",
            extra={"epoch": table.epoch, "seq": table.seq, "routes": len(table)},
        )
        if not self.advance():
            self.catch_up.request_look()
        self.note_state()
        self.on_change(None)

    def _admitted(self, table: RouteTable) -> Iterator[Event]:
        """Yield what has arrived for *table*, but no more than can be checked at once.

        The log has the rest.
        """
        arrived = self._arrived or []
        for event in arrived[:_CHECKED_AT_ONCE] if is_proven(table) else arrived:
            if event.epoch == table.epoch and event.seq > table.seq:
                if not self.policy.admits(event, table, asked=True):
                    return
                yield event

    # How far behind

    @property
    def is_behind(self) -> bool:
        """Whether something is to be repaired."""
        return not self.advance() or self.catch_up.is_whole_wanted

    def advance(self) -> bool:
        """Say whether the table has reached the head that was read last."""
        return self.catch_up.advance(self.table)

    # The bus' state

    def closing_at(self, now: float) -> float:
        """Return when the bus is closed unless something good happens, *now* at the earliest."""
        if self._was is Bus.CLOSED:
            return float("inf")
        return max(self.clock.closes_at(), now)

    def note_state(self) -> None:
        """Say how the bus stands, if that is news."""
        state = self.bus
        if state is self._was:
            return
        level = logging.INFO if state is Bus.FOLLOWING else logging.WARNING
        log.log(level, "the bus is now %s, was %s", state.value, self._was.value)
        self._was = state
        if state is Bus.CLOSED:
            self.on_closed()
