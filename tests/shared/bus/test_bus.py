"""Tests the bus on a real Redis: one publisher, in order, that detects any loss."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError

from deploy.local.redis import redis_program
from shared.bus import BusReader, Keys, Publisher, connect, parse_head
from shared.errors import BusUnavailable, PublishRefused
from shared.events import (
    GrantRevoked,
    Heartbeat,
    RouteRemoved,
    RouteUpserted,
    decode_event,
    event_time,
)
from shared.routes.route import RouteReader
from shared.routes.table import Outcome, RouteTable
from tests.programs import RedisServer
from tests.shared.samples import SID, encode, make_route, make_sid

KEYS = Keys("test")
NOW = 1_800_000_000.25
ROUTE = encode(make_route())


@pytest.fixture
async def publisher(redis: Redis) -> Publisher:
    publisher = Publisher(redis, KEYS, term=1)
    await publisher.rebuild({}, {}, epoch="e1", now=NOW)
    return publisher


@pytest.fixture
def reader(redis: Redis) -> BusReader:
    return BusReader(redis, KEYS)


async def table_of(reader: BusReader) -> RouteTable:
    snapshot = await reader.snapshot()
    assert snapshot is not None
    table = RouteTable(snapshot.head, RouteReader())
    for sid, raw in snapshot.routes.items():
        table.load_route(sid, raw)
    for member, score in snapshot.revoked.items():
        table.load_revocation(member, score)
    table.complete()
    return table


async def reason_of(call: Awaitable[None]) -> str:
    with pytest.raises(PublishRefused) as refused:
        await call
    return refused.value.reason


async def test_a_route_that_somebody_has_written_far_too_long_is_the_only_unreadable_one(
    publisher: Publisher, reader: BusReader, redis: Redis
) -> None:
    for sid in (SID, make_sid(2)):
        await publisher.upsert(sid, encode(make_route(sid)), now=NOW)
    await redis.hset(KEYS.routes, make_sid(2), b"x" * (2 << 20))
    table = await table_of(reader)
    assert table.unreadable == 1
    assert table.route(SID) is not None


async def test_a_follower_that_applies_the_events_equals_the_snapshot(
    publisher: Publisher, reader: BusReader
) -> None:
    table = await table_of(reader)
    async with reader.subscribe() as messages:
        await publisher.upsert(SID, ROUTE, now=NOW)
        await publisher.upsert(make_sid(2), encode(make_route(make_sid(2))), now=NOW)
        await publisher.revoke(at=NOW, sid=SID, sub="ada")
        await publisher.revoke(at=NOW, kid="k1")
        await publisher.remove(make_sid(2), "job ended", now=NOW)
        await publisher.beat(now=NOW)
        outcomes, kinds = [], []
        for _ in range(6):
            event = decode_event(await asyncio.wait_for(anext(messages), 5))
            kinds.append(type(event))
            outcomes.append(table.apply(event))
    assert kinds == [
        RouteUpserted,
        RouteUpserted,
        GrantRevoked,
        GrantRevoked,
        RouteRemoved,
        Heartbeat,
    ]
    assert outcomes == [Outcome.APPLIED] * 5 + [Outcome.CURRENT]
    fresh = await table_of(reader)
    assert (table.seq, table.hash) == (fresh.seq, fresh.hash)
    assert dict(table.revocations) == dict(fresh.revocations)
    assert list(fresh) == [SID]


async def test_the_log_in_redis_holds_the_published_events(
    publisher: Publisher, redis: Redis
) -> None:
    async with BusReader(redis, KEYS).subscribe() as messages:
        await publisher.upsert(SID, ROUTE, now=NOW)
        sent = await asyncio.wait_for(anext(messages), 5)
    entries: Any = await redis.xrange(KEYS.log)
    assert entries == [(b"1-0", {b"event": sent})]


Loss = Callable[[Redis], Awaitable[Any]]


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (lambda redis: redis.flushall(), "missing"),
        (lambda redis: redis.delete(KEYS.head), "missing"),
        (lambda redis: redis.delete(KEYS.routes), "counts"),
        (lambda redis: redis.zadd(KEYS.revoked, {"jti:x": 1.0}), "counts"),
        (lambda redis: redis.hset(KEYS.head, "epoch", "e0"), "epoch"),
        (lambda redis: redis.hset(KEYS.head, "seq", 0), "seq"),
        (lambda redis: redis.hset(KEYS.head, "seq", 7), "seq"),
        (lambda redis: redis.hset(KEYS.head, "term", 2), "term"),
    ],
)
async def test_a_changed_redis_is_detected_before_the_next_write(
    publisher: Publisher, redis: Redis, loss: Loss, reason: str
) -> None:
    await publisher.upsert(SID, ROUTE, now=NOW)
    await loss(redis)
    before = await _dump(redis)
    assert await reason_of(publisher.beat(now=NOW)) == reason
    assert await reason_of(publisher.upsert(make_sid(3), ROUTE, now=NOW)) == reason
    assert await reason_of(publisher.revoke(at=NOW, sid=SID)) == reason
    assert await _dump(redis) == before


async def _dump(redis: Redis) -> dict[Any, Any]:
    return {key: await redis.dump(key) for key in await redis.keys()}


async def test_a_write_whose_response_was_lost_is_applied_once(
    publisher: Publisher, reader: BusReader
) -> None:
    await publisher.upsert(SID, ROUTE, now=NOW)
    publisher.seq -= 1  # as if the reply were lost
    async with reader.subscribe() as messages:
        await publisher.upsert(SID, ROUTE, now=NOW)
        await publisher.beat(now=NOW)
        assert isinstance(decode_event(await anext(messages)), Heartbeat)
    head = await reader.head()
    assert head is not None
    assert head.seq == publisher.seq == 1


async def test_a_failed_append_to_the_log_writes_nothing(
    publisher: Publisher, reader: BusReader, redis: Redis
) -> None:
    # An event of another epoch with a higher number: it came back alone.
    await redis.xadd(KEYS.log, {"event": b"of another epoch"}, id="99-0")
    before = await reader.snapshot()
    assert await reason_of(publisher.upsert(SID, ROUTE, now=NOW)) == "log"
    assert await reader.snapshot() == before
    await publisher.rebuild({SID: ROUTE}, {}, epoch="e2", now=NOW)
    await publisher.upsert(SID, ROUTE, now=NOW)


async def test_a_rebuild_replaces_everything_under_a_new_epoch(
    publisher: Publisher, reader: BusReader, redis: Redis
) -> None:
    await publisher.upsert(make_sid(9), ROUTE, now=NOW)
    routes = {make_sid(n): encode(make_route(make_sid(n))) for n in range(2500)}
    async with reader.subscribe() as messages:
        await publisher.rebuild(routes, {"jti:a": NOW}, epoch="e2", now=NOW, since=NOW)
        beat = decode_event(await asyncio.wait_for(anext(messages), 5))
    assert (type(beat), beat.epoch, beat.seq) == (Heartbeat, "e2", 0)
    snapshot = await reader.snapshot()
    assert snapshot is not None
    assert (snapshot.routes, snapshot.revoked) == (routes, {"jti:a": NOW})
    assert (snapshot.head.routes, snapshot.head.revoked, snapshot.head.since) == (2500, 1, NOW)
    assert not await redis.exists(KEYS.log, *KEYS.pending("e2"))
    assert await redis.ttl(KEYS.routes) == -1
    assert await redis.ttl(KEYS.revoked) == -1
    await publisher.upsert(SID, ROUTE, now=NOW)


async def test_a_leader_with_an_old_term_can_neither_publish_nor_rebuild(
    publisher: Publisher, reader: BusReader, redis: Redis
) -> None:
    new = Publisher(redis, KEYS, term=2)
    await new.rebuild({SID: ROUTE}, {}, epoch="e2", now=NOW)
    assert await reason_of(publisher.beat(now=NOW)) == "term"
    assert await reason_of(publisher.rebuild({}, {}, epoch="e3", now=NOW)) == "term"
    head = await reader.head()
    assert head is not None
    assert (head.epoch, head.routes) == ("e2", 1)


async def test_a_heartbeat_drops_expired_revocations(
    publisher: Publisher, reader: BusReader
) -> None:
    await publisher.revoke(at=NOW - 86400 - 1, sid=SID)
    await publisher.revoke(at=NOW, sid=SID, jti="t")
    await publisher.beat(now=NOW)
    snapshot = await reader.snapshot()
    assert snapshot is not None
    assert (set(snapshot.revoked), snapshot.head.revoked) == ({"jti:t"}, 1)
    await publisher.beat(now=NOW)


async def test_events_of_two_publishers_never_interleave(publisher: Publisher) -> None:
    calls = [publisher.upsert(make_sid(n), ROUTE, now=NOW) for n in range(50)]
    await asyncio.gather(*calls, *(publisher.beat(now=NOW) for _ in range(10)))
    assert publisher.seq == 50


async def test_the_first_use_of_a_token_decides(publisher: Publisher, reader: BusReader) -> None:
    del publisher
    now = time.time()
    first = await reader.mark_used("t-1", "open", kept_until=now + 60, now=now)
    second = await reader.mark_used("t-1", "bearer", kept_until=now + 60, now=now)
    assert (first.before, second.before) == (None, "open")
    assert first.head is not None
    assert first.head.epoch == "e1"


async def test_one_of_simultaneous_uses_of_a_token_is_first(reader: BusReader) -> None:
    now = time.time()
    marks = await asyncio.gather(
        *(reader.mark_used("t", "open", kept_until=now + 60, now=now) for _ in range(20))
    )
    assert [mark.before for mark in marks].count(None) == 1
    assert all(mark.head is None for mark in marks)


async def test_a_used_token_mark_expires_with_its_token(reader: BusReader, redis: Redis) -> None:
    await reader.mark_used("t", "open", kept_until=NOW + 59.5, now=NOW)
    assert 0 < await redis.ttl(KEYS.used("t")) <= 60


async def test_a_redis_out_of_memory_serves_reads_and_refuses_used_token_marks(
    publisher: Publisher, reader: BusReader, redis: Redis
) -> None:
    await publisher.upsert(SID, ROUTE, now=NOW)
    await redis.config_set("maxmemory", "1")
    try:
        head = await reader.head()
        assert head is not None
        assert head.seq == 1
        assert (await table_of(reader)).route(SID) is not None
        assert [decode_event(raw).seq for raw in (await reader.log_after(0)).events] == [1]
        with pytest.raises(BusUnavailable, match="it is out of memory"):
            await reader.mark_used("t1", "open", kept_until=NOW + 60, now=NOW)
    finally:
        await redis.config_set("maxmemory", "0")
    assert (await reader.mark_used("t1", "open", kept_until=NOW + 60, now=NOW)).before is None


async def test_a_redis_that_cannot_save_to_disk_is_reported(tmp_path: Path) -> None:
    with RedisServer(redis_program(), tmp_path, keeps=True) as server:
        (tmp_path / "dump.rdb").mkdir()  # takes the place of the file that it would write
        client = connect(server.url)
        await client.config_set("save", "3600 100000")
        await client.bgsave()
        while (await client.info("persistence"))["rdb_last_bgsave_status"] != "err":
            await asyncio.sleep(0.02)
        with pytest.raises(BusUnavailable, match="it cannot save to its disk"):
            await Publisher(client, KEYS, term=1).rebuild({}, {}, epoch="e1", now=NOW)
        await client.aclose()


async def test_a_redis_out_of_memory_still_announces_revocations(
    publisher: Publisher, reader: BusReader, redis: Redis
) -> None:
    await redis.config_set("maxmemory", "1")
    try:
        async with reader.subscribe() as messages:
            at = event_time(NOW)
            await publisher.notice(GrantRevoked(epoch="-", seq=0, at=at, sid=SID, sub="ada"))
            event = decode_event(await anext(messages))
            assert isinstance(event, GrantRevoked)
            assert (event.epoch, event.sid, event.sub) == ("e1", SID, "ada")
    finally:
        await redis.config_set("maxmemory", "0")


async def test_a_read_of_a_redis_out_of_memory_is_refused_if_its_content_changes_meanwhile(
    publisher: Publisher, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = BusReader(redis, KEYS)
    await publisher.upsert(SID, ROUTE, now=NOW)
    await redis.config_set("maxmemory", "1")
    outcome = await outcome_out_of_memory(redis)
    # If the transaction is refused, this command changes the content; it needs no memory.
    take = Pipeline.zrange

    def zrange(pipe: Pipeline, *args: Any, **options: Any) -> Any:
        if not pipe.explicit_transaction and not pipe.is_transaction:
            pipe.hdel(KEYS.head, "last")
        return take(pipe, *args, **options)

    monkeypatch.setattr(Pipeline, "zrange", zrange)
    try:
        with outcome:
            await reader.snapshot()
    finally:
        await redis.config_set("maxmemory", "0")


async def outcome_out_of_memory(redis: Redis) -> AbstractContextManager[object]:
    """Return the expected outcome: newer servers also read in a transaction without memory."""
    try:
        async with redis.pipeline(transaction=True) as pipe:
            pipe.hgetall(KEYS.head)
            await pipe.execute()
    except ResponseError:
        return pytest.raises(BusUnavailable, match="changed")
    return nullcontext()


async def test_an_empty_redis_yields_no_snapshot(redis: Redis, reader: BusReader) -> None:
    assert await reader.head() is None
    assert await reader.snapshot() is None
    await redis.hset(KEYS.head, "epoch", "half")
    assert await reader.snapshot() is None


async def test_an_unknown_event_during_a_read_in_pages_leaves_the_table_readable(
    publisher: Publisher, redis: Redis
) -> None:
    routes = {make_sid(number): ROUTE for number in range(600)}
    await publisher.rebuild(routes, {}, epoch="e1", now=NOW)

    class Meanwhile(BusReader):
        async def _pages(self, scan: Any, key: str, expected: int) -> dict[str, Any]:
            found = await super()._pages(scan, key, expected)
            if key == KEYS.routes:
                event = b'{"v":2,"epoch":"e1","seq":1,"type":"RouteNarrowed"}'
                await redis.xadd(KEYS.log, {"event": event}, id="1-0")
                await redis.hset(KEYS.head, "seq", 1)
                publisher.seq = 1
                await publisher.upsert(SID, ROUTE, now=NOW)
            return found

    snapshot = await Meanwhile(redis, KEYS).snapshot()
    assert snapshot is not None
    assert snapshot.head.seq == 2
    assert SID in snapshot.routes
    assert snapshot.passed_unknown
    later = await BusReader(redis, KEYS).snapshot()
    assert later is not None
    assert not later.passed_unknown


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {b"epoch": b"e"},
        {b"epoch": b"e", b"seq": b"x", b"term": b"1"},
        {b"\xff": b"\xff"},
        {b"epoch": b"e", b"seq": b"9" * 30, b"term": b"1", b"routes": b"0", b"revoked": b"0"},
        {b"epoch": b"e", b"seq": b"\xff", b"term": b"1", b"routes": b"0", b"revoked": b"0"},
    ],
)
def test_a_malformed_head_is_read_as_none(fields: dict[bytes, bytes]) -> None:
    assert parse_head(fields) is None


async def test_a_stopped_redis_is_unavailable_and_empty_after_restart(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with RedisServer(redis_program(), tmp_path_factory.mktemp("bus")) as server:
        client = connect(server.url)
        reader, publisher = BusReader(client, KEYS), Publisher(client, KEYS, term=1)
        await publisher.rebuild({}, {}, epoch="e1", now=NOW)
        async with reader.subscribe() as messages:
            server.kill()
            with pytest.raises(BusUnavailable):
                await asyncio.wait_for(anext(messages), 5)
        with pytest.raises(BusUnavailable):
            await publisher.upsert(SID, ROUTE, now=NOW)
        with pytest.raises(BusUnavailable):
            await reader.head()
        server.start()
        assert await reason_of(publisher.upsert(SID, ROUTE, now=NOW)) == "missing"
        await client.aclose()


async def test_a_cancelled_call_never_returns_a_result(redis: Redis) -> None:
    reader = BusReader(redis, KEYS)
    await reader.head()
    for steps in [*range(12)] * 20:
        call = asyncio.create_task(reader.head())
        for _ in range(steps):
            await asyncio.sleep(0)
        if call.cancel():
            with pytest.raises(asyncio.CancelledError):
                await call
