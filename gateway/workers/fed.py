"""The worker's feed: the supervisor's table, kept in step by what comes down the socket.

Every message is applied as it is read, and ends at once what it ends: no task stands between a
revocation and the connections. While another table is being sent, what changes is applied to the
one in use as well, so that nothing withdrawn is served for longer because of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, assert_never

from gateway.bus.feed import Changed, Feed
from gateway.core.bus_state import SLEPT_SECONDS, Bus, BusClock
from gateway.workers import messages as m
from shared.events import GrantRevoked, event_time
from shared.routes import RouteReader, RouteTable

_LOOK_SECONDS: Final = 1.0
"""At least so often the bus' state is looked at, so that a change of it is logged."""

log = logging.getLogger(__name__)


class Worker(Protocol):
    """What the supervisor's other messages are for."""

    def standing(self, number: int) -> m.Standing:
        """Return how this worker stands."""
        ...

    def measured(self, number: int) -> m.Measured:
        """Return what this worker has counted."""
        ...

    def accept(self) -> None:
        """Take connections from now on."""
        ...

    def drain(self) -> None:
        """End in time."""
        ...


class Fed(Feed):
    """Keeps the table as the supervisor says; :meth:`take` is given what comes from it.

    Args:
        clock: What is known of the bus' state, as the supervisor passes it on.
        monotonic: Seconds that only rise, the same in all processes of this machine.
        wall: Unix seconds.
        send: Sends a message to the supervisor.
        on_change: Called with the sessions that changed, or None for all.
        on_closed: Called when the bus has been lost for longer than its grace.
    """

    def __init__(
        self,
        *,
        clock: BusClock,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        send: Callable[[m.Up], None],
        on_change: Changed,
        on_closed: Callable[[], None],
    ) -> None:
        super().__init__(clock=clock, monotonic=monotonic)
        self._wall = wall
        self._send = send
        self._on_change = on_change
        self._on_closed = on_closed
        self._coming: RouteTable | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._asked: list[asyncio.Future[None]] = []
        self._repairs = 0
        self._was = Bus.STARTING
        self._asked_at = 0.0
        self._awake_at = monotonic()
        self._woke_at = 0.0
        """When this process last noticed that it had been stopped."""
        self._slept = False
        self.worker: Worker | None = None

    @property
    def stale(self) -> bool:
        """Whether this very process was stopped for a while, and has not asked since.

        When it is the supervisor that stands still, there is nobody to ask: what is known is
        served, as when Redis is cut off.
        """
        return self.table is not None and (self._slept or self._has_slept())

    def _has_slept(self) -> bool:
        return self._monotonic() - self._awake_at > SLEPT_SECONDS

    def _notice_sleep(self) -> None:
        """Note a stop before anything that may have been on its way since before it is believed."""
        now = self._monotonic()
        if self._has_slept():
            self._slept = True
            self._woke_at = now
            self.noted["slept"] += 1
        self._awake_at = now

    # What comes

    def take(self, message: m.Down) -> None:
        """Apply *message*."""
        match message:
            case m.Put() | m.Drop() | m.Revoked() | m.Passed():
                self._change(message)
            case m.Begins() | m.Routes() | m.Revocations() | m.Ends():
                self._load(message)
            case m.Bus(marks=marks):
                self._clock.take(marks)
                self._notice_sleep()
                if (marks.looked_at or 0.0) > self._woke_at:
                    self._slept = False
                self._note_state()
            case m.Repaired():
                self._repaired()
            case m.Look() | m.Measure() | m.Accept() | m.Drain():
                self._pass_on(message)
            case _:
                assert_never(message)

    def _change(self, message: m.Put | m.Drop | m.Revoked | m.Passed) -> None:
        for table in (self.table, self._coming):
            if table is not None:
                _apply(message, table)
        self.noted["applied"] += 1
        if message.at is not None:
            self.lag_seconds = max(0.0, self._wall() - message.at)
        match message:
            case m.Put(sid=sid) | m.Drop(sid=sid):
                self._on_change((sid,))
            case m.Revoked(sid=sid):
                self._on_change(None if sid is None else (sid,))
            case m.Passed():
                pass

    def _load(self, message: m.Begins | m.Routes | m.Revocations | m.Ends) -> None:
        if isinstance(message, m.Begins):
            old = None if message.anew else self.table
            fresh = RouteTable(message.head, RouteReader())
            self._coming = fresh if old is None else old.copy(message.head)
            return
        coming = self._coming
        if coming is None:
            return
        match message:
            case m.Routes(entries=entries):
                for sid, entry in entries:
                    if entry is None:
                        coming.drop(sid)
                    else:
                        coming.put(sid, entry)
            case m.Revocations(members=members):
                self._revoke(coming, members)
            case m.Ends():
                self._adopt(coming, message.hash)

    def _revoke(self, coming: RouteTable, members: dict[str, float]) -> None:
        for member, score in members.items():
            coming.load_revocation(member, score)
        # They come first, and hold for the table in use, too: why wait for the rest?
        table = self.table
        fresh = {} if table is None else _unknown(members, table)
        if table is not None and fresh:
            for member, score in fresh.items():
                table.load_revocation(member, score)
            self._on_change(None)

    def _adopt(self, coming: RouteTable, wanted: int) -> None:
        self._coming = None
        if coming.hash != wanted:
            self._stray()
            return
        self.table = coming
        self.noted["snapshot"] += 1
        self._on_change(None)

    def _stray(self) -> None:
        self.noted["snapshot_refused"] += 1
        log.error("this worker's table is not the supervisor's: asking for the whole one")
        self._send(m.Strayed())

    def _pass_on(self, message: m.Look | m.Measure | m.Accept | m.Drain) -> None:
        worker = self.worker
        if worker is None:
            return
        match message:
            case m.Look(number=number):
                self._compare(message)
                self._send(worker.standing(number))
            case m.Measure(number=number):
                self._send(worker.measured(number))
            case m.Accept():
                worker.accept()
            case m.Drain():
                worker.drain()

    def _compare(self, look: m.Look) -> None:
        table = self.table
        held = None if table is None else (table.epoch, table.seq, table.hash)
        wanted = None if look.epoch is None else (look.epoch, look.seq, look.hash)
        if self._coming is None and held != wanted:
            self._stray()

    # Repairs: one is asked for at a time, and serves all who wait by then.

    async def repair(self, seconds: float | None = None) -> None:
        """Return when the table is what Redis held after this call, or *seconds* are over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        if not self._asked:
            self._ask()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.patience if seconds is None else seconds):
                await waiter

    def _ask(self) -> None:
        self._asked, self._waiting = self._waiting, []
        self._repairs += 1
        self._asked_at = self._monotonic()
        self._send(m.Repair(self._repairs, self.patience))

    def _repaired(self) -> None:
        self._notice_sleep()
        asked, self._asked = self._asked, []
        if self._asked_at <= self._woke_at:
            # Asked before a stop: the answer says what was so then, and so it is asked again.
            self._waiting = [*asked, *self._waiting]
            asked = []
        else:
            self._slept = False
        for waiter in asked:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting = [waiter for waiter in self._waiting if not waiter.done()]
        if self._waiting:
            self._ask()

    def end_grant(self, sid: str, jti: str) -> None:
        """Hold the grants of the token *jti* to be revoked from now on; see :class:`Feed`.

        Here at once, by the supervisor at the others: nobody waits for it to end what is here.
        """
        event = GrantRevoked(epoch="-", seq=0, at=event_time(self._wall()), sid=sid, jti=jti)
        held = [table.revoke(event) for table in (self.table, self._coming) if table is not None]
        self._send(m.SignOut(sid, jti))
        if any(held):
            self.noted["signed_out"] += 1
            self._on_change((sid,))

    # The bus

    async def run(self) -> None:
        """Notice, without being told, when the bus has been lost, and when its grace is over."""
        while True:
            self._notice_sleep()
            self._note_state()
            until_closed = self._clock.closes_at() - self._monotonic()
            soon = 0.0 < until_closed < _LOOK_SECONDS
            await asyncio.sleep(until_closed + 0.001 if soon else _LOOK_SECONDS)

    def _note_state(self) -> None:
        state = self.bus
        if state is self._was:
            return
        self._was = state
        if state is Bus.CLOSED:
            self._on_closed()


def _unknown(members: dict[str, float], table: RouteTable) -> dict[str, float]:
    known = table.revocations
    return {member: score for member, score in members.items() if known.get(member, 0.0) < score}


def _apply(message: m.Put | m.Drop | m.Revoked | m.Passed, table: RouteTable) -> None:
    match message:
        case m.Put(sid=sid, entry=entry):
            table.put(sid, entry)
        case m.Drop(sid=sid, ended=ended):
            table.drop(sid)
            if ended is not None:
                table.note_ended(sid, ended)
        case m.Revoked(member=member, score=score):
            table.load_revocation(member, score)
        case m.Passed():
            pass
    table.seq = message.seq
