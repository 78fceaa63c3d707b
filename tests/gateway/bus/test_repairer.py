"""Tests repairs of a table that is behind: from the log or a snapshot, and never backwards."""

from __future__ import annotations

import asyncio
import gc
import time

import msgspec
import pytest
from redis.asyncio import Redis

from gateway.bus.holder import UNKNOWN_SECONDS
from gateway.core.bus_state import Bus
from tests.gateway.bus.following import (
    BASE,
    KEYS,
    ONE,
    TWO,
    Unheard,
    encode,
    following,
    held,
    make_route,
    published,
    sid_of,
)
from tests.waiting import until


async def test_lost_events_are_read_from_the_log_without_a_table_load(redis: Redis) -> None:
    publisher = await published(redis)
    async with following(redis, spread=0.99) as seen:
        await seen.until_equal(publisher)
        publisher._keys = Unheard("test")
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
async def test_beyond_the_log_the_whole_table_is_loaded(redis: Redis, log: str) -> None:
    publisher = await published(redis)
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        publisher._keys = Unheard("test")
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


async def test_a_new_table_restores_no_revoked_grant(redis: Redis) -> None:
    publisher = await published(redis, make_route(ONE))
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        await publisher.revoke(at=time.time(), sid=ONE, jti="t1")
        await seen.until_equal(publisher)
        # The new table comes from a store that was read before the revocation was in it.
        await publisher.rebuild({ONE: encode(make_route(ONE))}, {}, epoch="e2", now=time.time())
        await seen.until_equal(publisher)
        table = seen.follower.table
        assert table is not None
        assert "jti:t1" in table.revocations


async def test_a_replaced_table_frees_its_routes(redis: Redis) -> None:
    publisher = await published(redis, make_route(ONE))
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        old = seen.follower.table
        assert old is not None
        assert len(old) > 0
        await publisher.rebuild({TWO: encode(make_route(TWO))}, {}, epoch="e2", now=time.time())
        await until(lambda: len(old) == 0)
        assert held(seen.follower.table) == {TWO}


async def test_a_new_epoch_replaces_the_table(redis: Redis) -> None:
    publisher = await published(redis, make_route(ONE))
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        await publisher.rebuild(
            {TWO: encode(make_route(TWO))}, {}, epoch="e2", now=time.time(), since=time.time()
        )
        await seen.until_equal(publisher)
        assert held(seen.follower.table) == {TWO}
        assert seen.changes == [None, None]


async def test_a_redis_that_lost_writes_restores_no_withdrawn_route(redis: Redis) -> None:
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
        # Nobody knows what else Redis lost, so no session can be opened with it.
        seen.clock.ahead += 6
        await asyncio.sleep(0.3)
        assert seen.bus() is Bus.LOST
        # The publisher detects the loss too, and rebuilds.
        await publisher.rebuild({TWO: encode(make_route(TWO))}, {}, epoch="e2", now=time.time())
        await until(lambda: seen.bus() is Bus.FOLLOWING)
        assert held(seen.follower.table) == {TWO}


async def test_a_snapshot_with_wrong_counts_is_not_applied(redis: Redis) -> None:
    publisher = await published(redis, make_route(ONE))
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        await redis.hset(KEYS.head, mapping={"epoch": "e2", "routes": 7})
        await until(lambda: seen.follower.noted["snapshot_refused"] >= 1)
        assert held(seen.follower.table) == {ONE}
        assert seen.position() == ("e1", 0)


async def test_an_unknown_event_advances_the_sequence_and_loads_one_snapshot(redis: Redis) -> None:
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
        # One that comes soon after that snapshot waits for the next one; its effect is not lost.
        route = encode(make_route(ONE))
        await redis.hset(KEYS.routes, ONE, route)
        await redis.hset(KEYS.head, mapping={"seq": 4, "routes": 1})
        await redis.publish(KEYS.events, msgspec.json.encode(strange | {"seq": 4}))
        await until(lambda: seen.follower.noted["unknown"] == 4)
        assert held(seen.follower.table) == set()
        seen.clock.ahead += UNKNOWN_SECONDS
        await until(lambda: held(seen.follower.table) == {ONE})
        seen.clock.ahead += UNKNOWN_SECONDS
        await asyncio.sleep(1.5)
        assert seen.follower.noted["snapshot"] == 3


async def test_a_large_table_is_loaded_without_blocking_the_loop(redis: Redis) -> None:
    routes = [make_route(sid_of(number)) for number in range(5000)]
    publisher = await published(redis, *routes)
    longest = 0.0

    async def watch() -> None:
        # Processor time, so that other programs do not count.
        nonlocal longest
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, before = max(longest, now - before), now

    # Garbage of other tests is not the follower's.
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
    # Loading the table in one piece would take 100 ms.
    assert longest < 0.03


async def test_events_received_during_a_snapshot_load_are_not_lost(redis: Redis) -> None:
    publisher = await published(redis, *(make_route(sid_of(n)) for n in range(3000)))
    async with following(redis) as seen:
        for number in range(3000, 3100):
            sid = sid_of(number)
            await publisher.upsert(sid, encode(make_route(sid)), now=time.time())
        await seen.until_equal(publisher)
        assert len(held(seen.follower.table)) == 3100


async def test_non_utf_8_values_in_redis_do_not_stop_the_follower(redis: Redis) -> None:
    publisher = await published(redis, make_route(ONE))
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        async with redis.pipeline(transaction=True) as pipe:
            pipe.hset(KEYS.routes, b"\xff\xfe", b"\xff")
            pipe.zadd(KEYS.revoked, {b"\xff": time.time() + 9e4})
            pipe.hset(
                KEYS.head, mapping={"epoch": b"\xff", "routes": 2, "revoked": 1, b"\xff": b"\xff"}
            )
            await pipe.execute()
        await until(lambda: seen.position()[0] == "\ufffd")
        table = seen.follower.table
        assert table is not None
        assert table.route(ONE) is not None
        assert table.unreadable == 1
        await publisher.rebuild({TWO: encode(make_route(TWO))}, {}, epoch="e2", now=time.time())
        await seen.until_equal(publisher)
        assert held(seen.follower.table) == {TWO}
