"""Tests the connection registry: which connections end and when, and the connection quotas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from ipaddress import ip_network
from math import inf
from typing import Any

import msgspec
import pytest

from gateway.core.access.access_right import (
    DRAINING,
    GRANT_ENDED,
    GRANT_REVOKED,
    SESSION_ENDED,
    AccessRight,
    EndReason,
)
from gateway.live import ConnectionRegistry
from shared.networks import Network
from shared.routes.table import RouteTable
from tests.gateway.relay.harness import BASE, GRANT, OTHER_SID, SID, route, table_of


class Connection:
    kind = "websocket"

    def __init__(self, table: RouteTable, sid: str = SID, **grant: Any) -> None:
        known = table.route(sid)
        assert known is not None
        own = msgspec.structs.replace(GRANT, sid=sid, **grant)
        self.access_right = AccessRight(route=known, host=f"{sid}.{BASE}", grant=own)
        self.ended: list[EndReason] = []

    def end(self, ending: EndReason) -> None:
        self.ended.append(ending)

    def check_stalls(self) -> None:
        """This connection never stalls."""

    @property
    def client(self) -> str:
        return self.access_right.user or ""

    def buffered_bytes(self) -> int:
        return 0

    def shed(self) -> None:
        """This connection buffers nothing."""


class RecordingObserver:
    """Records attached and detached connections."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def attached(self, kind: str, access_right: AccessRight) -> None:
        self.seen.append(("attached", kind, access_right))

    def detached(self, kind: str, access_right: AccessRight, reason: str | None) -> None:
        self.seen.append(("detached", kind, access_right, reason))


class Registry:
    """A ConnectionRegistry and its route table."""

    def __init__(self, **limits: Any) -> None:
        self.table: RouteTable | None = table_of(route(1), route(1, sid=OTHER_SID))
        loop = asyncio.get_running_loop()
        self.told = RecordingObserver()
        self.live = ConnectionRegistry(
            table=lambda: self.table, wall=time.time, loop=loop, observers=[self.told], **limits
        )

    def connect(self, sid: str = SID, **grant: Any) -> Connection:
        assert self.table is not None
        connection = Connection(self.table, sid, **grant)
        self.live.add(connection)
        return connection


async def test_only_ended_access_is_closed_and_only_once() -> None:
    r = Registry()
    mine, other = r.connect(), r.connect(OTHER_SID)
    r.live.review()
    assert (mine.ended, other.ended) == ([], [])
    r.table = table_of(route(1, sid=OTHER_SID))
    r.live.review((SID,))
    r.live.review((SID,))
    r.live.review()
    assert mine.ended == [SESSION_ENDED]
    assert other.ended == []
    assert len(r.live) == 1


async def test_only_the_named_sessions_are_reviewed() -> None:
    r = Registry()
    mine = r.connect()
    r.table = table_of()
    r.live.review((OTHER_SID, "c" * 26))
    assert mine.ended == []
    r.live.review()
    assert mine.ended == [SESSION_ENDED]


class CountedProxies(tuple[Network, ...]):
    """Counts how often an address is compared with them."""

    comparisons = 0

    def __iter__(self) -> Iterator[Network]:
        type(self).comparisons += 1
        return super().__iter__()


async def test_the_address_of_a_visitor_is_read_once() -> None:
    """While memory is short, all connections are counted by client, four times a second."""
    trusted = CountedProxies([ip_network("fd00::/8")])
    r = Registry(max_per_address=10, trusted=trusted)
    known = table_of(route(1, public=True, hosts=[f"{SID}.{BASE}", "demo.example.org"])).route(SID)
    assert known is not None
    for address, client in (("2001:db8::7", "\x002001:db8::/64"), ("fd00::1", "")):
        before = trusted.comparisons
        right = AccessRight(route=known, host="demo.example.org", grant=None, address=address)
        assert {r.live.client_of(right) for _ in range(100)} == {client}
        assert trusted.comparisons == before + 1


async def test_a_withdrawn_key_ends_its_grants_everywhere() -> None:
    r = Registry()
    both = [r.connect(), r.connect(OTHER_SID)]
    assert r.table is not None
    r.table.load_revocation("kid:k1", time.time() + 86400)
    r.live.review()
    assert [one.ended for one in both] == [[GRANT_REVOKED]] * 2


async def test_each_grant_expires_without_an_event() -> None:
    r = Registry()
    soon = r.connect(ends_at=time.time() + 0.2)
    later = r.connect(ends_at=time.time() + 0.7)
    last = r.connect()
    await asyncio.sleep(0.55)
    assert (soon.ended, later.ended) == ([GRANT_ENDED], [])
    await asyncio.sleep(0.5)
    assert (later.ended, last.ended) == ([GRANT_ENDED], [])
    assert len(r.live) == 1


async def test_a_session_is_checked_when_its_next_right_ends_and_every_hour() -> None:
    table, now = table_of(route(1)), time.time()
    loop = asyncio.get_running_loop()
    live = ConnectionRegistry(table=lambda: table, wall=lambda: now, loop=loop)
    for seconds, expected in ((7200.0, 3600.0), (60.0, 60.0), (0.5, 0.5), (-1.0, 0.0)):
        # Of all rights in the session, the first to end decides.
        live.add(Connection(table, ends_at=now + seconds))
        (session,) = live._sessions.values()
        assert live.next_look(session, 100.0) == pytest.approx(100.0 + expected, abs=1e-3)
    for one in live.members():
        live.discard(one)
    live.add(Connection(table, ends_at=inf))
    (session,) = live._sessions.values()
    assert live.next_look(session, 100.0) == 0.0
    live.close()


async def test_a_grant_that_a_step_of_the_system_clock_ended_is_closed_within_two_seconds() -> None:
    # As after a suspended machine: the loop's clock did not move.
    table, clock = table_of(route(1)), [time.time()]
    loop = asyncio.get_running_loop()
    live = ConnectionRegistry(table=lambda: table, wall=lambda: clock[0], loop=loop)
    over = Connection(table, ends_at=clock[0] + 600.0)
    good = Connection(table, ends_at=clock[0] + 7200.0)
    live.add(over)
    live.add(good)
    watch = asyncio.create_task(live.watch_clock())
    await asyncio.sleep(0)
    clock[0] += 700.0
    await asyncio.sleep(1.5)
    assert (over.ended, good.ended) == ([GRANT_ENDED], [])
    watch.cancel()
    live.close()


async def test_a_clock_that_is_set_back_and_corrected_ends_nothing_early() -> None:
    table, clock = table_of(route(1)), [time.time()]
    loop = asyncio.get_running_loop()
    live = ConnectionRegistry(table=lambda: table, wall=lambda: clock[0], loop=loop)
    mine = Connection(table, ends_at=clock[0] + 600.0)
    live.add(mine)
    watch = asyncio.create_task(live.watch_clock())
    for step in (-3600.0, 3600.0):
        await asyncio.sleep(1.1)
        clock[0] += step
    await asyncio.sleep(1.1)
    assert mine.ended == []
    watch.cancel()
    live.close()


async def test_an_expiring_route_closes_its_connections_at_expiry() -> None:
    r = Registry()
    r.table = table_of(route(1, expires_at=time.time() + 0.2))
    mine = r.connect()
    await asyncio.sleep(0.5)
    assert [ending.close_code for ending in mine.ended] == [4410]


async def test_a_route_with_shortened_expiry_closes_connections_earlier() -> None:
    r = Registry()
    mine = r.connect()
    r.table = table_of(route(1, rev=2, expires_at=time.time() + 0.2))
    r.live.review((SID,))
    assert mine.ended == []
    await asyncio.sleep(0.5)
    assert [ending.close_code for ending in mine.ended] == [4410]


async def test_closed_connections_are_forgotten() -> None:
    r = Registry()
    mine = r.connect()
    r.live.add(mine)
    assert len(r.live) == 1
    r.live.discard(mine)
    r.live.discard(mine)
    assert len(r.live) == 0
    r.live.end_all(DRAINING)
    assert mine.ended == []


async def test_all_can_be_ended_without_blocking_the_loop() -> None:
    r = Registry()
    many = [r.connect() for _ in range(1200)]
    r.live.end_all(DRAINING)
    assert sum(bool(one.ended) for one in many) == 500
    await asyncio.sleep(0.05)
    assert all(one.ended == [DRAINING] for one in many)


async def test_no_connection_is_closed_before_the_first_table() -> None:
    r = Registry()
    mine = r.connect()
    r.table = None
    r.live.review()
    assert mine.ended == []


async def test_the_pool_is_reviewed_with_each_review() -> None:
    r = Registry()
    seen: list[object] = []

    def review(sids: Iterable[str] | None, table: RouteTable, now: float) -> None:
        seen.append(sids if sids is None else set(sids))

    r.live.review_pool = review
    r.live.review()
    r.live.review((SID,))
    assert seen == [None, {SID}]


async def test_connections_are_limited_per_session_and_per_user() -> None:
    loop = asyncio.get_running_loop()
    r = Registry()
    live = ConnectionRegistry(
        table=lambda: r.table, wall=time.time, loop=loop, max_per_session=3, max_per_user=2
    )

    def member(sub: str) -> Connection:
        assert r.table is not None
        return Connection(r.table, sub=sub)

    mine = [member(sub="ada"), member(sub="ada")]
    for one in mine:
        assert live.has_room(one.access_right)
        live.add(one)
        live.add(one)
    assert not live.has_room(mine[0].access_right), "the user's second was the last"
    other = member(sub="eve")
    assert live.has_room(other.access_right)
    live.add(other)
    assert not live.has_room(member(sub="bob").access_right), "the session is full"
    live.discard(mine[0])
    live.discard(mine[0])
    assert live.has_room(mine[0].access_right)
    for one in (mine[1], other):
        live.discard(one)
    assert len(live) == 0
    live.close()


async def test_anonymous_connections_are_limited_per_address() -> None:
    loop = asyncio.get_running_loop()
    r = Registry()
    live = ConnectionRegistry(
        table=lambda: r.table,
        wall=time.time,
        loop=loop,
        max_per_user=1,
        max_per_address=2,
        trusted=[ip_network("192.0.2.0/24")],
    )

    def visitor(address: str) -> Connection:
        assert r.table is not None
        one = Connection(r.table)
        one.access_right = AccessRight(
            route=one.access_right.route, host="demo.example.org", grant=None
        )
        one.access_right.address = address
        return one

    assert r.table is not None
    mine = [visitor("2001:db8::1"), visitor("2001:db8::2")]
    for one in mine:
        assert live.has_room(one.access_right)
        live.add(one)
        live.add(one)
    assert not live.has_room(visitor("2001:db8::3").access_right), "of one /64"
    assert live.has_room(visitor("2001:db8:0:1::1").access_right)
    assert live.has_room(Connection(r.table, sub="2001:db8::/64").access_right), "is no address"
    for one in (visitor("192.0.2.1") for _ in range(3)):
        assert live.has_room(one.access_right), "a proxy's are many people's"
        live.add(one)
    live.discard(mine[0])
    live.discard(mine[0])
    assert live.has_room(mine[0].access_right)
    live.close()


async def test_without_limits_every_connection_is_admitted() -> None:
    r = Registry()
    mine = [r.connect() for _ in range(3)]
    assert r.live.has_room(mine[0].access_right)
    mine[0].access_right.user, mine[0].access_right.address = None, "2001:db8::1"
    for _ in range(3):
        visitor = Connection(table_of(route(1)))
        visitor.access_right = mine[0].access_right
        r.live.add(visitor)
    assert r.live.has_room(mine[0].access_right)


async def test_a_limit_of_one_is_one_connection() -> None:
    for limit in ("max_per_session", "max_per_user"):
        r = Registry(**{limit: 1})
        assert r.table is not None
        asked = Connection(r.table).access_right
        assert r.live.has_room(asked)
        mine = r.connect()
        assert not r.live.has_room(asked), limit
        r.live.discard(mine)
        assert r.live.has_room(asked)


async def test_observers_receive_each_start_and_end_once_with_the_reason() -> None:
    r = Registry()
    mine, other = r.connect(), r.connect(OTHER_SID)
    r.live.add(mine)
    assert r.live.kinds == {"websocket": 2}
    r.live.discard(mine)
    r.live.end([other], DRAINING)
    r.live.discard(other)
    assert r.told.seen == [
        ("attached", "websocket", mine.access_right),
        ("attached", "websocket", other.access_right),
        ("detached", "websocket", mine.access_right, None),
        ("detached", "websocket", other.access_right, DRAINING.close_reason),
    ]
    assert r.live.kinds == {"websocket": 0}


async def test_a_successor_replaces_a_connection_without_notification() -> None:
    r = Registry()
    mine = r.connect()
    assert r.table is not None
    successor = Connection(r.table)
    successor.kind = "page"
    r.live.replace(mine, successor)
    r.live.discard(mine)
    assert r.live.members() == [successor]
    assert r.live.kinds == {"websocket": 0, "page": 1}
    assert len(r.told.seen) == 1
    r.live.end_all(DRAINING)
    assert (mine.ended, successor.ended) == ([], [DRAINING])


async def test_nothing_is_kept_of_connections_that_have_closed() -> None:
    r = Registry()
    for waits in (0.0, 0.3):  # the wheel has put a connection into a bucket by then
        connections = [r.connect(ends_at=time.time() + 600) for _ in range(2)]
        await asyncio.sleep(waits)
        for connection in connections:
            r.live.discard(connection)
        assert (r.live._sessions, r.live._of_user) == ({}, {})
        assert (r.live._wheel._buckets, r.live._wheel._new) == ({}, set())


async def test_a_session_without_grants_is_not_reviewed() -> None:
    r = Registry()
    mine = r.connect(ends_at=time.time() + 0.05)
    async with asyncio.timeout(30):
        while not mine.ended:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    assert (r.live._wheel._buckets, r.live._wheel._timer) == ({}, None)


async def test_access_that_ended_without_a_table_is_closed_with_the_next_table() -> None:
    r = Registry()
    soon, later = r.connect(ends_at=time.time() + 0.1), r.connect(ends_at=time.time() + 3600)
    table, r.table = r.table, None
    await asyncio.sleep(0.5)
    assert soon.ended == []
    r.table = table
    for _ in range(100):
        if soon.ended:
            break
        await asyncio.sleep(0.1)
    assert (soon.ended, later.ended) == ([GRANT_ENDED], [])


async def test_a_closed_registry_closes_no_connection() -> None:
    r = Registry()
    mine = r.connect(ends_at=time.time() + 0.2)
    r.live.close()
    await asyncio.sleep(0.5)
    assert mine.ended == []


async def test_an_ending_connection_is_registered_until_it_closed() -> None:
    r = Registry()
    one = r.connect()
    r.live.end([one], DRAINING)
    assert len(r.live) == 0
    assert r.live.closing == {one}
    r.live.discard(one)
    assert not r.live.closing


async def test_a_connection_that_closes_during_a_review_is_removed() -> None:
    registry = Registry()
    members = [registry.connect() for _ in range(1600)]
    registry.live.end_all(DRAINING)
    # Some are ended in later turns; the browsers of these leave meanwhile.
    waiting = [member for member in registry.live.closing if not member.ended]  # type: ignore[attr-defined]  # ours
    assert len(waiting) >= 300
    for member in waiting[:300]:
        registry.live.discard(member)
    for _ in range(10):
        await asyncio.sleep(0)
    ended = [member for member in members if member.ended]
    assert len(ended) == 1300
    for member in ended:
        registry.live.discard(member)
    assert not registry.live.closing
    assert len(registry.live) == 0
