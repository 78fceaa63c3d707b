"""Tests the follower's metrics and descriptions, with and without a table."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, generate_latest
from redis.asyncio import Redis

from gateway.bus.metrics import TableMetrics, describe
from tests.gateway.bus.following import BASE, encode, following, make_route, published, sid_of

ONE, TWO, THREE = sid_of(1), sid_of(2), sid_of(3)


async def test_before_the_first_table_only_the_state_is_exported(redis: Redis) -> None:
    async with following(redis) as seen:
        description = describe(seen.follower)
        assert description["bus"] == "starting"
        assert "epoch" not in description
        registry = CollectorRegistry()
        registry.register(TableMetrics(seen.follower))
        text = generate_latest(registry).decode()
        assert 'fumarole_gateway_bus{state="starting"} 1.0' in text
        assert "fumarole_gateway_routes " not in text


async def test_a_table_is_exported_with_its_hash_and_unserved_routes(
    redis: Redis,
) -> None:
    shared = "link.example"
    routes = [make_route(ONE, hosts=[f"{ONE}.{BASE}", shared], sealed="secret", public=True)]
    routes.append(make_route(TWO, hosts=[f"{TWO}.{BASE}", shared], public=True))
    publisher = await published(redis, *routes)
    await publisher.upsert(THREE, b"{}", now=time.time())
    async with following(redis) as seen:
        await seen.until_equal(publisher)
        table = seen.follower.table
        assert table is not None
        description = describe(seen.follower)
        assert description["hash"] == f"{table.hash:016x}"
        assert (description["routes"], description["unreadable"], description["ambiguous"]) == (
            3,
            1,
            1,
        )
        assert description["states"] == {"starting": 0, "ready": 2, "closing": 0}
        assert "secret" not in str(description)
        registry = CollectorRegistry()
        registry.register(TableMetrics(seen.follower))
        text = generate_latest(registry).decode()
        assert 'fumarole_gateway_routes{state="ready"} 2.0' in text
        assert "fumarole_gateway_routes_unreadable 1.0" in text
        assert f'hash="{table.hash:016x}"' in text


async def test_followers_have_equal_hashes_for_any_order_of_routes(redis: Redis) -> None:
    publisher = await published(redis)
    async with following(redis) as first:
        await first.until_equal(publisher)
        for sid in (TWO, ONE, THREE):
            await publisher.upsert(sid, encode(make_route(sid)), now=time.time())
        await publisher.remove(THREE, "ended", now=time.time())
        await first.until_equal(publisher)
        async with following(redis) as second:
            await second.until_equal(publisher)
            one, other = describe(first.follower), describe(second.follower)
            assert one["hash"] == other["hash"]
            assert int(one["hash"], 16) != 0
