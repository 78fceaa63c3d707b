"""Tests head polling: what it detects, how often it runs, and after a suspended process."""

from __future__ import annotations

import asyncio
import time

import pytest
from redis.asyncio import Redis

from gateway.bus import holder
from shared.bus import BusReader, Publisher, connect
from shared.errors import BusUnavailable
from shared.events import Head
from tests.gateway.bus.following import (
    ONE,
    Following,
    Unheard,
    encode,
    following,
    held,
    make_route,
    published,
)
from tests.programs import RedisServer, redis_program
from tests.timing import timed


async def test_a_suspended_process_polls_the_head_before_it_serves_again(redis: Redis) -> None:
    publisher = await published(redis, make_route(ONE))
    async with following(redis, grace=10) as seen:
        await seen.until_equal(publisher)
        assert not seen.stale()
        publisher._keys = Unheard("test")
        await publisher.remove(ONE, "ended", now=time.time())
        # Longer than the grace period: by the clock alone, every connection would be closed.
        seen.clock.ahead += 20
        assert seen.stale()
        await seen.follower.repair()
        assert not seen.stale()
        assert (held(seen.follower.table), seen.follower.opening) == (set(), True)
        assert seen.closed == 0
        assert seen.follower.noted["slept"] == 1


async def test_after_a_suspension_a_slow_poll_is_awaited(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = await published(redis, make_route(ONE))
    look = BusReader.head

    async def slow(self: BusReader) -> Head | None:
        await asyncio.sleep(0.8)
        return await look(self)

    async with following(redis) as seen:
        await seen.until_equal(publisher)
        publisher._keys = Unheard("test")
        await publisher.remove(ONE, "ended", now=time.time())
        monkeypatch.setattr(BusReader, "head", slow)
        # Not long enough for the bus to count as lost.
        seen.clock.ahead += 4.5
        assert seen.stale()
        await seen.follower.repair()
        assert held(seen.follower.table) == set()


async def test_a_poll_during_which_the_process_was_suspended_is_discarded(
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
        publisher._keys = Unheard("test")
        await publisher.remove(ONE, "ended", now=time.time())
        monkeypatch.setattr(BusReader, "head", late)
        await stopped.wait()
        while seen.stale():
            await asyncio.sleep(0)
        assert held(seen.follower.table) == set()


def stop_before_the_next_answer(
    seen: Following, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> asyncio.Event:
    """Suspend the process after Redis has answered and before the answer is read."""
    look = BusReader.head
    stopped = asyncio.Event()

    async def late(self: BusReader) -> Head | None:
        head = await look(self)
        if not stopped.is_set():
            publisher._keys = Unheard("test")
            await publisher.remove(ONE, "ended", now=time.time())
            seen.clock.ahead += 4.5
            stopped.set()
        return head

    monkeypatch.setattr(BusReader, "head", late)
    return stopped


async def test_a_response_from_before_a_suspension_is_discarded(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = await published(redis, make_route(ONE))
    async with following(redis, grace=10) as seen:
        await seen.until_equal(publisher)
        stopped = stop_before_the_next_answer(seen, publisher, monkeypatch)
        await stopped.wait()
        while seen.stale():
            await asyncio.sleep(0)
        assert held(seen.follower.table) == set()


async def test_a_repair_interrupted_by_a_suspension_polls_again(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = await published(redis, make_route(ONE))
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        stopped = stop_before_the_next_answer(seen, publisher, monkeypatch)
        monkeypatch.setattr(holder, "REPAIR_SECONDS", 10.0)
        await seen.follower.repair()
        assert stopped.is_set()
        assert not seen.stale()
        assert held(seen.follower.table) == set()


async def test_a_lost_last_event_is_detected_by_the_head_within_two_seconds(
    redis: Redis,
) -> None:
    publisher = await published(redis)
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        publisher._keys = Unheard("test")
        await publisher.upsert(ONE, encode(make_route(ONE)), now=time.time())
        with timed() as took:
            await seen.until_equal(publisher)
        assert took.seconds < 3.0


async def test_a_request_can_trigger_one_immediate_repair(redis: Redis) -> None:
    publisher = await published(redis)
    async with following(redis, spread=0.99) as seen:
        await seen.until_equal(publisher)
        publisher._keys = Unheard("test")
        await publisher.upsert(ONE, encode(make_route(ONE)), now=time.time())
        with timed() as took:
            await seen.follower.repair()
        assert took.seconds < 0.5
        assert held(seen.follower.table) == {ONE}


async def test_many_requested_repairs_share_few_polls_of_the_head(redis: Redis) -> None:
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


async def test_a_repair_without_redis_ends_at_its_deadline_without_error(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with RedisServer(redis_program(), tmp_path_factory.mktemp("gone")) as server:
        client = connect(server.url)
        publisher = await published(client)
        async with following(client) as seen:
            await seen.until_equal(publisher)
            server.kill()
            with timed() as took:
                await seen.follower.repair()
            assert took.seconds < 0.7
        await client.aclose()
