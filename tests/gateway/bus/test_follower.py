"""Tests that the follower applies events in order on a real Redis."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.core.bus_state import Bus
from shared.bus import BusReader, Publisher, connect
from shared.events import GrantRevoked, Head, event_time
from tests.gateway.bus.following import (
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
from tests.programs import RedisServer, redis_program
from tests.waiting import until


async def test_without_redis_the_follower_is_starting_and_connects_once_it_is_there(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway.bus.follower")
    server = RedisServer(redis_program(), tmp_path_factory.mktemp("late"))
    client = connect(server.url)
    try:
        async with following(client) as seen:
            await asyncio.sleep(0.6)
            assert seen.bus() is Bus.STARTING
            assert not seen.follower.serving
            server.start()
            await published(client, make_route(ONE))
            await until(lambda: seen.follower.serving)
            assert held(seen.follower.table) == {ONE}
            assert seen.follower.opening
        # However often the follower has tried.
        logged = [one.message for one in caplog.records if one.name == "gateway.bus.follower"]
        assert logged == ["no subscription to Redis", "subscribed to Redis again"]
    finally:
        await client.aclose()
        server.kill()


async def test_a_redis_without_a_head_serves_no_route(redis: Redis) -> None:
    await redis.hset(KEYS.routes, ONE, encode(make_route(ONE)))
    async with following(redis) as seen:
        await asyncio.sleep(0.3)
        assert seen.follower.table is None
        assert seen.bus() is Bus.STARTING


async def test_events_are_applied_in_order_and_reported(redis: Redis) -> None:
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


async def test_a_sign_out_before_the_first_table_is_applied_to_it(redis: Redis) -> None:
    publisher = await published(redis, make_route(ONE))
    async with following(redis) as seen:
        seen.follower.end_grant(ONE, "token")
        await seen.until_equal(publisher)
        table = seen.follower.table
        assert table is not None
        grant: dict[str, Any] = {"sid": ONE, "sub": "ada", "kid": "k1", "issued_at": time.time()}
        assert table.is_revoked(jti="token", **grant)
        assert not table.is_revoked(jti="another", **grant)
        assert seen.follower.noted["signed_out"] == 1


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
        # The median, because other programs share this machine's cores.
        assert sorted(took)[10] < 0.05


async def test_a_lost_event_is_detected_by_the_next_one(redis: Redis) -> None:
    publisher = await published(redis)
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        # The publisher writes as usual, but announces on a channel without subscribers.
        publisher._keys = Unheard("test")
        await publisher.upsert(ONE, encode(make_route(ONE)), now=time.time())
        publisher._keys = KEYS
        await publisher.upsert(TWO, encode(make_route(TWO)), now=time.time())
        await seen.until_equal(publisher)
        assert held(seen.follower.table) == {ONE, TWO}
        assert seen.follower.noted["gap"] >= 1


async def test_a_revocation_after_a_lost_event_takes_effect_at_once(
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


async def test_a_notice_has_no_sequence_number(redis: Redis) -> None:
    publisher = await published(redis, make_route(ONE))
    replica = Publisher(redis, KEYS, term=1)
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        at = time.time()
        await replica.notice(GrantRevoked(epoch="-", seq=0, at=event_time(at), sid=ONE))
        await until(lambda: seen.follower.noted["early"] == 1)
        # The leader publishes the revocation once more, in its place in the sequence.
        await publisher.revoke(at=at, sid=ONE)
        await publisher.upsert(TWO, encode(make_route(TWO)), now=time.time())
        await seen.until_equal(publisher)
        assert seen.follower.noted["gap"] == seen.follower.noted["log"] == 0


_PUBLISH_MANY = "for _ = 1, 4000 do redis.call('publish', KEYS[1], ARGV[1]) end"


async def test_a_burst_of_events_takes_many_short_turns(redis: Redis) -> None:
    publisher = await published(redis, make_route(ONE))
    longest = 0.0

    async def watch() -> None:
        # Processor time, so that other programs do not count.
        nonlocal longest
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, before = max(longest, now - before), now

    async with following(redis) as seen:
        await seen.until_equal(publisher)
        # Garbage of other tests is not the follower's.
        gc.collect()
        gc.freeze()
        watcher = asyncio.create_task(watch())
        known = GrantRevoked(epoch="e0", seq=1, at=event_time(time.time()), sid=ONE, jti="t1")
        await redis.eval(_PUBLISH_MANY, 1, KEYS.events, known.encode())
        await publisher.upsert(TWO, encode(make_route(TWO)), now=time.time())
        await seen.until_equal(publisher)
        watcher.cancel()
    # In one turn, the events of one read take 12 ms with this loop, and 35 ms with uvloop.
    assert longest < 0.006


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


NESTED = b'{"v":1,"epoch":"e1","seq":9,"type":"Heartbeat","x":' + b"[" * 100_000


@pytest.mark.parametrize("message", [b"{", b"\xff", b'{"v":1,"type":"GrantRevoked"}', NESTED])
async def test_an_undecodable_message_polls_the_head_at_once(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, message: bytes
) -> None:
    """It may stand where a revocation was: the follower must not wait for the next poll."""
    monkeypatch.setattr("gateway.bus.head_poller.HEAD_SECONDS", 3600.0)
    publisher = await published(redis, make_route(ONE))
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        await asyncio.sleep(0.3)  # a look that was requested at the start
        publisher._keys = Unheard("test")
        await publisher.revoke(at=time.time(), sid=ONE, jti="t1")
        await asyncio.sleep(0.3)
        assert seen.position()[1] < publisher.seq
        await redis.publish(KEYS.events, message)
        await seen.until_equal(publisher)
        assert seen.follower.noted["malformed"] == 1


async def test_a_flood_of_undecodable_messages_does_not_flood_redis_with_polls(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    read_head = BusReader.head

    async def counted(reader: BusReader) -> Head | None:
        nonlocal looks
        looks += 1
        return await read_head(reader)

    monkeypatch.setattr(BusReader, "head", counted)
    publisher = await published(redis)
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        began, looks = time.monotonic(), 0
        for _ in range(2000):
            await redis.publish(KEYS.events, b"{")
        await until(lambda: seen.follower.noted["malformed"] == 2000)
        assert 0 < looks <= 10 * (time.monotonic() - began) + 3


async def test_a_lost_bus_stops_openings_then_all_requests_and_recovers(
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


async def test_after_its_grace_a_silent_controller_stops_new_dials_but_closes_no_connection(
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
