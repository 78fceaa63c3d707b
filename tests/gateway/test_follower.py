"""The follower keeps the table in step with a real Redis, whatever is lost on the way."""

from __future__ import annotations

import asyncio
import gc
import time

import msgspec
import pytest
from redis.asyncio import Redis

from gateway.core.bus_state import Bus
from shared.bus import BusReader, Publisher, connect
from shared.errors import BusUnavailable
from shared.events import GrantRevoked, Head, event_time
from shared.routes import RouteTable
from tests.gateway.following import (
    BASE,
    KEYS,
    encode,
    following,
    make_route,
    published,
    sid_of,
    until,
)
from tests.programs import RedisServer, redis_program

ONE, TWO = sid_of(1), sid_of(2)


def held(table: RouteTable | None) -> set[str]:
    assert table is not None
    return set(table)


async def test_without_a_redis_it_is_starting_and_takes_it_up_when_it_comes(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = RedisServer(redis_program(), tmp_path_factory.mktemp("late"))
    client = connect(server.url)
    try:
        async with following(client) as seen:
            await asyncio.sleep(0.2)
            assert seen.bus() is Bus.STARTING
            assert not seen.follower.serving
            server.start()
            await published(client, make_route(ONE))
            await until(lambda: seen.follower.serving)
            assert held(seen.follower.table) == {ONE}
            assert seen.follower.opening
    finally:
        await client.aclose()
        server.kill()


async def test_a_redis_without_a_head_is_not_served_from(redis: Redis) -> None:
    await redis.hset(KEYS.routes, ONE, encode(make_route(ONE)))
    async with following(redis) as seen:
        await asyncio.sleep(0.3)
        assert seen.follower.table is None
        assert seen.bus() is Bus.STARTING


async def test_events_are_applied_in_order_and_told(redis: Redis) -> None:
    publisher = await published(redis, make_route(ONE))
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        await publisher.upsert(TWO, encode(make_route(TWO)), now=time.time())
        await publisher.revoke(at=time.time(), sid=TWO, sub="ada")
        await publisher.revoke(at=time.time(), kid="k1")
        await publisher.remove(ONE, "ended", now=time.time())
        await seen.until_equal(publisher)
        assert held(seen.follower.table) == {TWO}
        assert seen.changes == [None, (TWO,), (TWO,), None, (ONE,)]
        assert seen.follower.noted["snapshot"] == 1
        assert 0 <= seen.follower.lag_seconds < 5


async def test_an_event_is_routable_within_50_ms(redis: Redis) -> None:
    publisher = await published(redis)
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        took = []
        for number in range(20):
            sid = sid_of(number)
            await publisher.upsert(sid, encode(make_route(sid)), now=time.time())
            start = time.perf_counter()
            while sid not in held(seen.follower.table):
                await asyncio.sleep(0)
            took.append(time.perf_counter() - start)
        # The median: neighbours share this machine's cores.
        assert sorted(took)[10] < 0.05


async def test_a_lost_event_is_noticed_by_the_next_one(redis: Redis) -> None:
    publisher = await published(redis)
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        # Written as the publisher does, but announced on a channel that nobody hears.
        publisher._keys = _Deaf("test")
        await publisher.upsert(ONE, encode(make_route(ONE)), now=time.time())
        publisher._keys = KEYS
        await publisher.upsert(TWO, encode(make_route(TWO)), now=time.time())
        await seen.until_equal(publisher)
        assert held(seen.follower.table) == {ONE, TWO}
        assert seen.follower.noted["gap"] >= 1


async def test_what_was_lost_is_read_from_the_log_and_not_the_whole_table(redis: Redis) -> None:
    publisher = await published(redis)
    async with following(redis, spread=0.99) as seen:
        await seen.until_equal(publisher)
        publisher._keys = _Deaf("test")
        for number in range(600):
            sid = sid_of(number)
            await publisher.upsert(sid, encode(make_route(sid)), now=time.time())
        await publisher.remove(sid_of(7), "ended", now=time.time())
        await publisher.revoke(at=time.time(), kid="k1")
        publisher._keys = KEYS
        await publisher.upsert(TWO, encode(make_route(TWO)), now=time.time())
        await seen.until_equal(publisher)
        assert held(seen.follower.table) == {sid_of(n) for n in range(600)} - {sid_of(7)}
        assert seen.follower.noted["snapshot"] == 1
        assert seen.follower.noted["log"] == 603
        assert seen.follower.table is not None
        assert "kid:k1" in seen.follower.table.revocations


@pytest.mark.parametrize("log", ["absent", "damaged", "short"])
async def test_where_the_log_does_not_reach_the_whole_table_is_read(redis: Redis, log: str) -> None:
    publisher = await published(redis)
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        publisher._keys = _Deaf("test")
        for number in range(5):
            sid = sid_of(number)
            await publisher.upsert(sid, encode(make_route(sid)), now=time.time())
        await redis.delete(KEYS.log)
        if log == "damaged":
            await redis.xadd(KEYS.log, {"event": b"{"}, id="1-0")
        if log == "short":
            await redis.xadd(KEYS.log, {"event": b"{}"}, id="5-0")
        await seen.until_equal(publisher)
        assert held(seen.follower.table) == {sid_of(n) for n in range(5)}
        assert seen.follower.noted["snapshot"] == 2


async def test_a_revocation_counts_at_once_though_what_came_before_it_was_lost(
    redis: Redis,
) -> None:
    publisher = await published(redis, make_route(ONE))
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        at = event_time(time.time())
        lost = GrantRevoked(epoch="e1", seq=9, at=at, sid=ONE, sub="ada").encode()
        foreign = GrantRevoked(epoch="e0", seq=9, at=at, kid="k1").encode()
        await redis.publish(KEYS.events, foreign)
        await redis.publish(KEYS.events, lost)
        await until(lambda: seen.follower.noted["early"] == 1)
        assert seen.changes == [None, (ONE,)]
        assert seen.position() == ("e1", 0)
        table = seen.follower.table
        assert table is not None
        assert set(table.revocations) == {f"sub:{ONE}:ada"}


async def test_a_notice_has_no_place_in_the_order(redis: Redis) -> None:
    publisher = await published(redis, make_route(ONE))
    replica = Publisher(redis, KEYS, term=1)
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        at = time.time()
        await replica.notice(GrantRevoked(epoch="-", seq=0, at=event_time(at), sid=ONE))
        await until(lambda: seen.follower.noted["early"] == 1)
        # The leader tells it once more, in its place.
        await publisher.revoke(at=at, sid=ONE)
        await publisher.upsert(TWO, encode(make_route(TWO)), now=time.time())
        await seen.until_equal(publisher)
        assert seen.follower.noted["gap"] == seen.follower.noted["log"] == 0


async def test_another_table_brings_no_grant_back(redis: Redis) -> None:
    publisher = await published(redis, make_route(ONE))
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        await publisher.revoke(at=time.time(), sid=ONE, jti="t1")
        await seen.until_equal(publisher)
        # Made from a store that was read before the revocation was in it.
        await publisher.rebuild({ONE: encode(make_route(ONE))}, {}, epoch="e2", now=time.time())
        await seen.until_equal(publisher)
        table = seen.follower.table
        assert table is not None
        assert "jti:t1" in table.revocations


async def test_a_process_that_was_stopped_looks_before_it_serves_on(redis: Redis) -> None:
    publisher = await published(redis, make_route(ONE))
    async with following(redis, grace=10) as seen:
        await seen.until_equal(publisher)
        assert not seen.stale()
        publisher._keys = _Deaf("test")
        await publisher.remove(ONE, "ended", now=time.time())
        # Longer than the grace: by the clock alone everything would be closed.
        seen.clock.ahead += 20
        assert seen.stale()
        await seen.follower.repair()
        assert not seen.stale()
        assert (held(seen.follower.table), seen.follower.opening) == (set(), True)
        assert seen.closed == 0
        assert seen.follower.noted["slept"] == 1


async def test_who_was_stopped_waits_for_its_look_also_where_it_takes_long(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = await published(redis, make_route(ONE))
    look = BusReader.head

    async def slow(self: BusReader) -> Head | None:
        await asyncio.sleep(0.8)
        return await look(self)

    async with following(redis) as seen:
        await seen.until_equal(publisher)
        publisher._keys = _Deaf("test")
        await publisher.remove(ONE, "ended", now=time.time())
        monkeypatch.setattr(BusReader, "head", slow)
        # Not so long that the bus would count as lost.
        seen.clock.ahead += 4.5
        assert seen.stale()
        await seen.follower.repair()
        assert held(seen.follower.table) == set()


async def test_a_look_during_which_the_process_was_stopped_says_nothing(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = await published(redis, make_route(ONE))
    look = BusReader.head
    stopped = asyncio.Event()

    async def late(self: BusReader) -> Head | None:
        if stopped.is_set():
            return await look(self)
        stopped.set()
        seen.clock.ahead += 20
        raise BusUnavailable("its time is over")

    async with following(redis) as seen:
        await seen.until_equal(publisher)
        publisher._keys = _Deaf("test")
        await publisher.remove(ONE, "ended", now=time.time())
        monkeypatch.setattr(BusReader, "head", late)
        await stopped.wait()
        while seen.stale():
            await asyncio.sleep(0)
        assert held(seen.follower.table) == set()


async def test_a_lost_last_event_is_noticed_by_the_head_within_its_two_seconds(
    redis: Redis,
) -> None:
    publisher = await published(redis)
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        publisher._keys = _Deaf("test")
        await publisher.upsert(ONE, encode(make_route(ONE)), now=time.time())
        start = time.monotonic()
        await seen.until_equal(publisher)
        assert time.monotonic() - start < 3.0


class _Deaf(type(KEYS)):  # type: ignore[misc]
    @property
    def events(self) -> str:
        return "nobody-listens"


async def test_a_request_may_ask_for_one_repair_and_gets_it_at_once(redis: Redis) -> None:
    publisher = await published(redis)
    async with following(redis, spread=0.99) as seen:
        await seen.until_equal(publisher)
        publisher._keys = _Deaf("test")
        await publisher.upsert(ONE, encode(make_route(ONE)), now=time.time())
        start = time.monotonic()
        await seen.follower.repair()
        assert time.monotonic() - start < 0.5
        assert held(seen.follower.table) == {ONE}


async def test_many_who_ask_for_a_repair_cost_few_looks_at_the_head(redis: Redis) -> None:
    publisher = await published(redis)
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        before = await _calls(redis)
        for _ in range(10):
            await asyncio.gather(*(seen.follower.repair() for _ in range(50)))
        assert await _calls(redis) - before <= 15


async def _calls(redis: Redis) -> int:
    stats = await redis.info("commandstats")
    return int(stats["cmdstat_hgetall"]["calls"])


async def test_a_repair_without_a_redis_ends_in_time_and_fails_nobody(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with RedisServer(redis_program(), tmp_path_factory.mktemp("gone")) as server:
        client = connect(server.url)
        publisher = await published(client)
        async with following(client) as seen:
            await seen.until_equal(publisher)
            server.kill()
            start = time.monotonic()
            await seen.follower.repair()
            assert time.monotonic() - start < 0.7
        await client.aclose()


async def test_another_epoch_replaces_the_table(redis: Redis) -> None:
    publisher = await published(redis, make_route(ONE))
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        await publisher.rebuild(
            {TWO: encode(make_route(TWO))}, {}, epoch="e2", now=time.time(), since=time.time()
        )
        await seen.until_equal(publisher)
        assert held(seen.follower.table) == {TWO}
        assert seen.changes == [None, None]


async def test_a_redis_that_forgot_acknowledged_writes_takes_nothing_back(redis: Redis) -> None:
    publisher = await published(redis)
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        await publisher.upsert(ONE, encode(make_route(ONE)), now=time.time())
        await seen.until_equal(publisher)
        await redis.hset(KEYS.head, mapping={"seq": 0, "routes": 0})
        await redis.delete(KEYS.routes)
        await seen.follower.repair()
        assert held(seen.follower.table) == {ONE}
        assert seen.follower.noted["rollback"] >= 1
        # And as nobody knows what else it forgot, nothing can be opened with it.
        seen.clock.ahead += 6
        await asyncio.sleep(0.3)
        assert seen.bus() is Bus.LOST
        # The publisher notices, too, and rebuilds.
        await publisher.rebuild({TWO: encode(make_route(TWO))}, {}, epoch="e2", now=time.time())
        await until(lambda: seen.bus() is Bus.FOLLOWING)
        assert held(seen.follower.table) == {TWO}


async def test_a_snapshot_whose_counts_do_not_fit_is_not_taken(redis: Redis) -> None:
    publisher = await published(redis, make_route(ONE))
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        await redis.hset(KEYS.head, mapping={"epoch": "e2", "routes": 7})
        await until(lambda: seen.follower.noted["snapshot_refused"] >= 1)
        assert held(seen.follower.table) == {ONE}
        assert seen.position() == ("e1", 0)


async def test_a_malformed_message_is_counted_and_dropped(redis: Redis) -> None:
    publisher = await published(redis)
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        for message in (b"", b"{", b"[]", b'{"v":1}', b"\xff\xfe", b'"x"'):
            await redis.publish(KEYS.events, message)
        await publisher.upsert(ONE, encode(make_route(ONE)), now=time.time())
        await seen.until_equal(publisher)
        assert seen.follower.noted["malformed"] == 6
        assert seen.follower.noted["snapshot"] == 1


async def test_an_unknown_event_takes_its_place_and_asks_for_one_snapshot(redis: Redis) -> None:
    publisher = await published(redis)
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        for seq in (1, 2, 3):
            strange = {"v": 2, "epoch": "e1", "seq": seq, "type": "RouteNarrowed"}
            await redis.hset(KEYS.head, "seq", seq)
            await redis.publish(KEYS.events, msgspec.json.encode(strange))
        await until(lambda: seen.follower.noted["unknown"] == 3)
        await until(lambda: seen.follower.noted["snapshot"] == 2)
        await asyncio.sleep(0.2)
        assert seen.follower.noted["snapshot"] == 2
        assert seen.position() == ("e1", 3)


async def test_a_large_table_is_loaded_without_holding_up_the_loop(redis: Redis) -> None:
    routes = [make_route(sid_of(number)) for number in range(5000)]
    publisher = await published(redis, *routes)
    longest = 0.0

    async def watch() -> None:
        # The processor's time, so that busy neighbours do not count.
        nonlocal longest
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, before = max(longest, now - before), now

    # What other tests have left to be collected is not the follower's.
    gc.collect()
    gc.freeze()
    watcher = asyncio.create_task(watch())
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        table = seen.follower.table
        assert table is not None
        assert len(table) == 5000
        found = table.find(f"{sid_of(4999)}.{BASE}").route
        assert found is not None
        assert found.sid == sid_of(4999)
    watcher.cancel()
    gc.unfreeze()
    # Loading it in one piece would take 100 ms.
    assert longest < 0.03


async def test_events_that_come_while_a_snapshot_is_loaded_are_not_lost(redis: Redis) -> None:
    publisher = await published(redis, *(make_route(sid_of(n)) for n in range(3000)))
    async with following(redis) as seen:
        for number in range(3000, 3100):
            sid = sid_of(number)
            await publisher.upsert(sid, encode(make_route(sid)), now=time.time())
        await seen.until_equal(publisher)
        assert len(held(seen.follower.table)) == 3100


async def test_a_lost_bus_opens_nothing_then_serves_nothing_and_then_recovers(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = RedisServer(redis_program(), tmp_path_factory.mktemp("lost"))
    server.start()
    client = connect(server.url)
    publisher = await published(client, make_route(ONE))
    try:
        async with following(client, grace=60) as seen:
            await seen.until_equal(publisher)
            server.kill()
            seen.clock.ahead += 6
            assert (seen.follower.opening, seen.follower.serving) == (False, True)
            seen.clock.ahead += 60
            assert not seen.follower.serving
            await until(lambda: seen.closed == 1)
            server.start()
            await published(client, make_route(TWO), epoch="e2")
            await until(lambda: seen.follower.opening)
            assert held(seen.follower.table) == {TWO}
            assert seen.closed == 1
    finally:
        await client.aclose()
        server.kill()


async def test_a_dead_controller_closes_nothing_but_dials_nothing_after_its_grace(
    redis: Redis,
) -> None:
    publisher = await published(redis, make_route(ONE))
    async with following(redis, grace=60) as seen:
        await seen.until_equal(publisher)
        await publisher.beat(now=time.time())
        await asyncio.sleep(0.05)
        assert seen.dialling()
        seen.clock.ahead += 61
        assert not seen.dialling()
        await until(lambda: seen.bus() is Bus.FOLLOWING)
        assert seen.closed == 0
        await publisher.beat(now=time.time())
        await until(seen.dialling)
