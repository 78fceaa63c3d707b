"""Tests a replica that does not publish: it waits for the publisher, within bounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from pathlib import Path

import pytest
from redis.asyncio import Redis

from controller.sessions.gateways import IN_VAIN_SECONDS, PATIENCE_SECONDS, PublishedRoutes
from shared.bus import BusReader, Keys, Publisher, connect
from tests.gateway.bus.following import encode, make_route, sid_of

KEYS = Keys("test")
SIDS = [sid_of(number) for number in range(3)]


class CountingReader(BusReader):
    """A bus reader that counts the reads of Redis."""

    count = 0

    async def routes_of(self, sids: Collection[str]) -> dict[str, bytes]:
        self.count += 1
        return await super().routes_of(sids)


@pytest.fixture
async def publisher(redis: Redis) -> Publisher:
    one = Publisher(redis, KEYS, term=1)
    await one.rebuild({}, {}, epoch="e1", now=time.time())
    return one


async def publish(publisher: Publisher, *sids: str) -> None:
    for sid in sids:
        await publisher.upsert(sid, encode(make_route(sid)), now=time.time())


async def test_a_wait_ends_once_redis_has_all_sessions(redis: Redis, publisher: Publisher) -> None:
    dirty_set = CountingReader(redis, KEYS)
    published = PublishedRoutes(dirty_set, lambda: None)
    published.patience = 60.0
    waiting = asyncio.create_task(published.until_published(SIDS))
    await publish(publisher, *SIDS[:2])
    seen = dirty_set.count
    async with asyncio.timeout(20):
        while dirty_set.count < seen + 3:
            await asyncio.sleep(0.01)
    assert not waiting.done()
    await publish(publisher, SIDS[2])
    await asyncio.wait_for(waiting, 20)


async def test_after_a_timeout_later_waits_are_shorter_until_a_publication(
    redis: Redis, publisher: Publisher
) -> None:
    published = PublishedRoutes(BusReader(redis, KEYS), lambda: None)
    published.patience = 0.05
    await publish(publisher, *SIDS[:2])
    await published.until_published(SIDS)
    assert published.patience == IN_VAIN_SECONDS
    await publish(publisher, SIDS[2])
    published.patience = 60.0
    await published.until_published(SIDS)
    assert published.patience == PATIENCE_SECONDS


async def test_an_unavailable_redis_delays_no_caller(tmp_path: Path) -> None:
    client = connect(f"unix://{tmp_path}/nothing.sock")
    published = PublishedRoutes(BusReader(client, KEYS), lambda: None)
    published.patience = 60.0
    await asyncio.wait_for(published.until_published(SIDS), 20)
    assert published.patience == IN_VAIN_SECONDS
    assert await published.states_of(SIDS[:1]) == {SIDS[0]: "starting"}
    await client.aclose()


async def test_a_published_route_is_returned_and_an_unreadable_one_is_not_ready(
    redis: Redis, publisher: Publisher
) -> None:
    published = PublishedRoutes(BusReader(redis, KEYS), lambda: None)
    ready, closing, damaged, missing = (sid_of(number) for number in range(4))
    await publish(publisher, ready)
    route = make_route(closing, state="closing")
    await publisher.upsert(closing, encode(route), now=time.time())
    await publisher.upsert(damaged, encode(make_route(ready)), now=time.time())
    assert await published.states_of([ready, closing, damaged, missing]) == {
        ready: "ready",
        closing: "starting",
        damaged: "starting",
        missing: "starting",
    }
