"""The feed: a worker's table is the supervisor's, however it came there; on real sockets."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import msgspec
import pytest

from gateway.bus.feed import Feed
from gateway.core.bus_state import Bus, BusClock, Marks
from gateway.workers import messages as m
from gateway.workers.fed import Fed
from gateway.workers.feeding import Broadcast, Feeding, ToldClock
from shared.events import Event, GrantRevoked, Head, RouteRemoved, RouteUpserted, event_time
from shared.routes import RouteReader, RouteTable
from tests.gateway.bus.following import encode, make_route, sid_of

GRACE = {"bus_grace_seconds": 1.0, "controller_grace_seconds": 1.0}


class Source(Feed):
    """The supervisor's feed, changed by hand, and what is made of it for workers."""

    def __init__(self) -> None:
        self.clock = ToldClock(**GRACE)
        super().__init__(clock=self.clock, monotonic=time.monotonic)
        self.broadcast = Broadcast(self.clock, table=lambda: self.table)
        self.repairs = 0

    async def repair(self, seconds: float | None = None) -> None:
        assert seconds is not None, "the worker says for how long"
        self.repairs += 1

    async def run(self) -> None:
        raise NotImplementedError

    def end_grant(self, sid: str, jti: str) -> None:
        assert self.table is not None
        at = event_time(time.time())
        event = GrantRevoked(epoch=self.table.epoch, seq=self.table.seq, at=at, sid=sid, jti=jti)
        self.table.revoke(event)
        self.broadcast.on_event(event)
        self.broadcast.on_change((sid,))

    def take(self, table: RouteTable) -> None:
        """Exchange the table."""
        self.table = table
        self.broadcast.on_change(None)

    def apply(self, event: Event) -> None:
        """Apply the next event."""
        assert self.table is not None
        self.table.apply(event)
        self.broadcast.on_event(event)
        self.broadcast.on_change(())

    def put(self, number: int, **changes: object) -> None:
        """Change a route."""
        assert self.table is not None
        route = msgspec.Raw(encode(make_route(sid_of(number), **changes)))
        at, seq = event_time(time.time()), self.table.seq + 1
        self.apply(
            RouteUpserted(epoch=self.table.epoch, seq=seq, at=at, sid=sid_of(number), route=route)
        )

    def drop(self, number: int) -> None:
        """End a session."""
        assert self.table is not None
        seq = self.table.seq + 1
        self.apply(RouteRemoved(epoch=self.table.epoch, seq=seq, sid=sid_of(number)))

    def revoke(self, jti: str) -> None:
        """Revoke a token."""
        assert self.table is not None
        seq, at = self.table.seq + 1, event_time(time.time())
        event = GrantRevoked(epoch=self.table.epoch, seq=seq, at=at, sid=sid_of(0), jti=jti)
        self.apply(event)


def table_of(numbers: Iterable[int], *, epoch: str = "one", seq: int = 0) -> RouteTable:
    """Return a table of these routes."""
    head = Head(epoch=epoch, seq=seq, term=1, routes=0, revoked=0)
    table = RouteTable(head, RouteReader())
    for number in numbers:
        table.load_route(sid_of(number), encode(make_route(sid_of(number))))
    return table


class Reader:
    """A worker's end."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, ...] | None] = []
        self.sent: list[m.Up] = []
        self.seen: list[m.Down] = []
        self.closed = 0
        self.accepts = 0
        self.transport: asyncio.Transport | None = None
        self.fed = Fed(
            clock=BusClock(**GRACE),
            monotonic=time.monotonic,
            wall=time.time,
            send=self.send,
            on_change=lambda sids: self.changes.append(None if sids is None else tuple(sids)),
            on_closed=self._close,
        )
        self.fed.worker = self

    def _close(self) -> None:
        self.closed += 1

    def send(self, message: m.Up) -> None:
        self.sent.append(message)
        if self.transport is not None:
            self.transport.write(m.encode(message))

    def standing(self, number: int) -> m.Standing:
        table = self.fed.table
        seq, epoch = (table.seq, table.epoch) if table else (0, None)
        return m.Standing(number, epoch, seq, table.hash if table else 0, 0.0, 0, True, ())

    def measured(self, number: int) -> m.Measured:
        return m.Measured(number, ())

    def accept(self) -> None:
        self.accepts += 1

    def drain(self) -> None:
        pass

    def is_equal(self, source: Source) -> bool:
        mine, its = self.fed.table, source.table
        return (
            mine is not None
            and its is not None
            and (mine.epoch, mine.seq, mine.hash) == (its.epoch, its.seq, its.hash)
            and dict(mine.revocations) == dict(its.revocations)
        )


class Link(asyncio.Protocol):
    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.frames = m.Frames()

    def data_received(self, data: bytes) -> None:
        for body in self.frames.feed(data):
            message = m.decode_down(body)
            self.reader.seen.append(message)
            self.reader.fed.take(message)


@asynccontextmanager
async def fed_by(source: Source) -> AsyncIterator[tuple[Feeding, Reader]]:
    """Give a feeding and its reader, joined by a socket."""
    ours, theirs = socket.socketpair()
    reader = Reader()
    feeding = Feeding(
        source.broadcast, source, on_standing=lambda _told: None, on_measured=lambda _told: None
    )
    running = asyncio.create_task(feeding.run(ours))
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_unix_connection(lambda: Link(reader), sock=theirs)
    reader.transport = transport
    try:
        yield feeding, reader
    finally:
        transport.abort()
        await asyncio.wait_for(running, 5)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.002)


async def test_a_worker_accepts_once_it_has_the_whole_table() -> None:
    source = Source()
    source.take(table_of(range(1000)))
    async with fed_by(source) as (_, reader):
        await until(lambda: reader.accepts == 1)
        assert reader.is_equal(source)
        kinds = [type(message) for message in reader.seen]
        assert kinds.index(m.Ends) < kinds.index(m.Accept)


async def test_before_there_is_a_table_a_worker_accepts_and_knows_nothing() -> None:
    source = Source()
    async with fed_by(source) as (_, reader):
        await until(lambda: reader.accepts == 1)
        assert reader.fed.table is None
        assert not reader.fed.serving
        source.take(table_of([1]))
        await until(lambda: reader.is_equal(source))


async def test_changes_reach_the_worker_in_order_and_tell_what_changed() -> None:
    source = Source()
    source.take(table_of([1, 2]))
    async with fed_by(source) as (_, reader):
        await until(lambda: reader.is_equal(source))
        reader.changes.clear()
        source.put(3)
        source.drop(1)
        source.revoke("j")
        await until(lambda: reader.is_equal(source))
        assert reader.changes == [(sid_of(3),), (sid_of(1),), (sid_of(0),)]
        assert 0 <= reader.fed.lag_seconds < 10


async def test_of_another_epoch_only_what_differs_is_sent() -> None:
    source = Source()
    source.take(table_of(range(500)))
    async with fed_by(source) as (_, reader):
        await until(lambda: reader.is_equal(source))
        before = reader.fed.table
        reader.seen.clear()
        source.take(table_of(range(3, 502), epoch="two"))
        await until(lambda: reader.is_equal(source))
        assert reader.fed.table is not before  # what was concluded from the old one is void
        sent = [sid for one in reader.seen if isinstance(one, m.Routes) for sid, _ in one.entries]
        assert sorted(sent) == sorted(sid_of(number) for number in (0, 1, 2, 500, 501))


async def test_a_change_while_a_table_is_sent_counts_for_both_tables() -> None:
    source = Source()
    source.take(table_of(range(2000)))
    async with fed_by(source) as (_, reader):
        await until(lambda: reader.is_equal(source))
        source.take(table_of(range(5000), epoch="two", seq=7))
        await until(lambda: any(isinstance(one, m.Begins) and not one.anew for one in reader.seen))
        before = reader.fed.table
        source.revoke("meanwhile")
        source.drop(1)
        await until(lambda: before is not None and sid_of(1) not in before)
        assert before is not None
        assert "jti:meanwhile" in before.revocations
        await until(lambda: reader.is_equal(source))


async def test_revocations_of_another_table_hold_before_its_routes_are_there() -> None:
    source = Source()
    source.take(table_of(range(300)))
    async with fed_by(source) as (_, reader):
        await until(lambda: reader.is_equal(source))
        old, fresh = reader.fed.table, table_of(range(5000), epoch="two")
        fresh.load_revocation("jti:lost", time.time() + 1000)
        source.take(fresh)
        await until(lambda: old is not None and "jti:lost" in old.revocations)
        await until(lambda: reader.is_equal(source))


async def test_whoever_falls_behind_the_journal_is_sent_the_table() -> None:
    source = Source()
    source.broadcast.journal._most_bytes = 20_000
    source.take(table_of(range(10)))
    async with fed_by(source) as (feeding, reader):
        await until(lambda: reader.is_equal(source))
        assert reader.transport is not None
        reader.transport.pause_reading()
        for number in range(3000):
            source.put(number % 50, message="x" * 300, rev=number)
            if number % 100 == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert source.broadcast.journal._bytes <= 20_000
        moved = feeding.moved
        await asyncio.sleep(0.05)
        assert feeding.moved == moved  # it waits, and nothing piles up
        reader.transport.resume_reading()
        await until(lambda: reader.is_equal(source))
        assert sum(isinstance(one, m.Begins) for one in reader.seen) >= 2


async def test_a_table_that_strayed_is_noticed_and_sent_anew() -> None:
    source = Source()
    source.take(table_of(range(10)))
    async with fed_by(source) as (feeding, reader):
        await until(lambda: reader.is_equal(source))
        assert reader.fed.table is not None
        reader.fed.table.drop(sid_of(4))
        feeding.look(1)
        await until(lambda: reader.is_equal(source))
        assert m.Strayed() in reader.sent
        assert reader.fed.noted["snapshot_refused"] == 1
        source.put(4, rev=9)
        await until(lambda: reader.is_equal(source))


async def test_a_repair_is_asked_for_once_for_all_who_wait() -> None:
    source = Source()
    source.take(table_of([1]))
    async with fed_by(source) as (_, reader):
        await until(lambda: reader.is_equal(source))
        await asyncio.wait_for(asyncio.gather(*(reader.fed.repair() for _ in range(50))), 5)
        assert 1 <= source.repairs <= 3


async def test_a_repair_that_is_not_answered_does_not_hold_up_for_long() -> None:
    reader = Reader()
    start = time.monotonic()
    await reader.fed.repair()
    assert 0.4 < time.monotonic() - start < 5.0


async def test_the_state_of_the_bus_follows_the_table() -> None:
    source = Source()
    source.take(table_of([1]))
    now = time.monotonic()
    async with fed_by(source) as (_, reader):
        source.clock.heard(now)
        source.clock.subscribed(now)
        source.clock.good(now)
        await until(lambda: reader.fed.bus is Bus.FOLLOWING)
        assert reader.fed.opening
        assert reader.fed.dialling


async def test_a_worker_notices_a_lost_bus_by_itself() -> None:
    reader = Reader()
    reader.fed.table = table_of([1])
    now = time.monotonic()
    # Good 5.8 s ago: lost since 0.8 s, and 0.2 s before its grace of 1 s is over.
    reader.fed.take(m.Bus(Marks(now - 5.8, now, None, now)))
    assert reader.fed.bus is Bus.LOST
    running = asyncio.create_task(reader.fed.run())
    await until(lambda: reader.closed == 1)
    assert not reader.fed.serving
    running.cancel()


def is_stale(reader: Reader) -> bool:
    return reader.fed.stale


async def test_what_the_kernel_takes_is_no_sign_of_a_worker() -> None:
    source = Source()
    source.take(table_of(range(10)))
    async with fed_by(source) as (feeding, reader):
        await until(lambda: reader.is_equal(source))
        assert reader.transport is not None
        reader.transport.pause_reading()
        moved = feeding.moved
        for number in range(20):
            source.clock.heard(time.monotonic())
            source.put(number)
            feeding.look(number)
            await asyncio.sleep(0.005)
        assert feeding.moved == moved
        reader.transport.resume_reading()
        await until(lambda: feeding.moved > moved)


async def test_large_routes_go_in_small_pieces() -> None:
    source = Source()
    table = table_of(range(20))
    for number in range(20):
        route = encode(make_route(sid_of(number), message="x" * 200_000))
        table.load_route(sid_of(number), route)
    source.take(table)
    async with fed_by(source) as (_, reader):
        await until(lambda: reader.is_equal(source))
        sizes = [len(m.encode(one)) for one in reader.seen if isinstance(one, m.Routes)]
        assert len(sizes) == 10
        assert max(sizes) < 500_000


async def test_a_worker_that_was_stopped_asks_before_it_serves_on() -> None:
    source = Source()
    source.take(table_of([1]))
    async with fed_by(source) as (_, reader):
        await until(lambda: reader.is_equal(source))
        ahead = 0.0
        reader.fed._monotonic = lambda: time.monotonic() + ahead
        assert not is_stale(reader)
        ahead = 60.0
        assert is_stale(reader)
        running = asyncio.create_task(reader.fed.run())
        await until(lambda: reader.fed.noted["slept"] == 1)
        assert is_stale(reader)  # to have noticed it is not enough
        await reader.fed.repair()
        assert source.repairs == 1
        assert not is_stale(reader)
        running.cancel()


@pytest.mark.parametrize("noticed", [False, True])
async def test_an_answer_to_what_was_asked_before_a_stop_does_not_end_the_sleep(
    noticed: bool,
) -> None:
    source = Source()
    source.take(table_of([1]))
    async with fed_by(source) as (_, reader):
        await until(lambda: reader.is_equal(source))
        ahead = 0.0
        sent: list[m.Up] = []
        fed = reader.fed
        fed._monotonic = lambda: time.monotonic() + ahead
        send, fed._send = fed._send, sent.append  # the supervisor is stopped as well
        fed.take(m.Bus(source.clock.marks))
        waiting = asyncio.create_task(fed.repair(60.0))
        await until(lambda: len(sent) == 1)
        ahead = 60.0
        if noticed:
            fed._notice_sleep()
        before_the_stop = time.monotonic()
        fed.take(m.Repaired(1))
        fed.take(m.Bus(Marks(None, 0.0, None, before_the_stop)))
        assert is_stale(reader)
        await asyncio.sleep(0)
        assert not waiting.done()
        # It is asked once more, and that answer counts.
        assert [one.number for one in sent if isinstance(one, m.Repair)] == [1, 2]
        fed._send = send
        fed.take(m.Repaired(2))
        assert not is_stale(reader)
        await waiting


async def test_a_supervisor_that_stands_still_does_not_hold_up_requests() -> None:
    reader = Reader()
    reader.fed.table = table_of([1])
    now = time.monotonic()
    reader.fed.take(m.Bus(Marks(now - 30.0, now, None, now - 30.0)))
    assert not reader.fed.stale


async def test_the_table_before_is_let_go_once_no_worker_holds_it() -> None:
    source = Source()
    source.take(table_of(range(10)))
    async with fed_by(source) as (_, reader):
        await until(lambda: reader.is_equal(source))
        source.take(table_of(range(10), epoch="two"))
        assert source.broadcast.replaced is not None
        await until(lambda: reader.is_equal(source))
        assert source.broadcast.replaced is None
