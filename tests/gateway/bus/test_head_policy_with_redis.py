"""Tests that a new gateway accepts a table only if a leader confirmed it since Redis restarted."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from redis.asyncio import Redis

from gateway.bus.head_policy import ANOTHER_SERVER, check_fresh
from gateway.core.bus_state import Bus
from shared.bus import BusReader, Publisher, connect
from shared.errors import PublishRefused, SnapshotRefused
from shared.events import Head
from tests.gateway.bus.following import (
    KEYS,
    ONE,
    TWO,
    encode,
    following,
    held,
    make_route,
    published,
)
from tests.gateway.process import GatewayProcess
from tests.programs import RedisServer, redis_program
from tests.waiting import until


def test_a_new_gateway_refuses_a_table_begun_on_another_redis_process() -> None:
    head = Head(epoch="e", seq=1, term=1, routes=0, revoked=0)
    check_fresh(head)
    with pytest.raises(SnapshotRefused, match="another Redis process"):
        check_fresh(msgspec.structs.replace(head, moved=True))


async def test_the_head_in_redis_cannot_hide_a_changed_server(redis: Redis) -> None:
    publisher, reader = await published(redis), BusReader(redis, KEYS)
    await redis.hset(KEYS.head, "moved", "true")
    assert not (await reader.head() or pytest.fail("no head")).moved
    await redis.hset(KEYS.head, mapping={"moved": "false", "server": "another"})
    assert (await reader.head() or pytest.fail("no head")).moved
    assert await publisher.has_lost()
    snapshot = await reader.snapshot()
    assert snapshot is not None
    assert snapshot.head.moved


@asynccontextmanager
async def restored(folder: Path) -> AsyncIterator[tuple[RedisServer, Redis, Publisher]]:
    """Provide a Redis that restarted with its content from before a session was withdrawn."""
    server = RedisServer(redis_program(), folder, keeps=True)
    server.start()
    client = connect(server.url)
    try:
        publisher = Publisher(client, KEYS, term=1)
        routes = {sid: encode(make_route(sid)) for sid in (ONE, TWO)}
        await publisher.rebuild(routes, {}, epoch="e1", now=time.time())
        await client.save()
        await publisher.remove(ONE, "ended", now=time.time())
        await publisher.revoke(at=time.time(), sid=TWO, sub="ada")
        server.kill()
        server.start()
        yield server, client, publisher
    finally:
        await client.aclose()
        server.kill()


async def test_an_old_redis_file_does_not_restore_withdrawn_routes(tmp_path: Path) -> None:
    async with restored(tmp_path) as (_, client, publisher), following(client) as seen:
        await until(lambda: seen.follower.last_error == ANOTHER_SERVER)
        await until(lambda: seen.follower.clock._polled_at is not None)
        assert seen.follower.table is None
        assert seen.bus() is Bus.STARTING
        # The leader is back: it detects the restart, and rebuilds.
        with pytest.raises(PublishRefused, match="server"):
            await publisher.remove(ONE, "ended", now=time.time())
        revoked = {f"sub:{TWO}:ada": time.time() + 86400}
        routes = {TWO: encode(make_route(TWO))}
        await publisher.rebuild(routes, revoked, epoch="e2", now=time.time())
        await seen.until_equal(publisher)
        assert held(seen.follower.table) == {TWO}
        assert seen.follower.last_error is None


async def test_a_gateway_with_a_newer_table_keeps_serving_it(tmp_path: Path) -> None:
    server = RedisServer(redis_program(), tmp_path, keeps=True)
    server.start()
    client = connect(server.url)
    try:
        publisher = Publisher(client, KEYS, term=1)
        await publisher.rebuild({TWO: encode(make_route(TWO))}, {}, epoch="e1", now=time.time())
        async with following(client) as seen:
            await seen.until_equal(publisher)
            await client.save()
            server.kill()
            server.start()
            await until(lambda: seen.bus() is Bus.FOLLOWING)
            await publisher_rebuilds(client)
            await until(lambda: seen.position()[0] == "e2")
            assert None not in seen.changes[1:-1]
    finally:
        await client.aclose()
        server.kill()


async def publisher_rebuilds(client: Redis) -> None:
    """Let the next leader rebuild."""
    publisher = Publisher(client, KEYS, term=2)
    await publisher.rebuild({TWO: encode(make_route(TWO))}, {}, epoch="e2", now=time.time())


async def test_readiness_states_the_reason_until_a_leader_has_rebuilt(tmp_path: Path) -> None:
    async with restored(tmp_path) as (server, client, _):
        gateway = GatewayProcess(tmp_path, server.url)
        try:
            await gateway.start(ready=False)
            ready = await gateway.ask_ops("/readyz")
            assert ready.status == 503
            assert (await gateway.ask(ONE, "GET", "/")).status == 503
            await said(gateway, "another Redis process")
            await publisher_rebuilds(client)
            await said(gateway, "")
        finally:
            gateway.kill()


async def said(gateway: GatewayProcess, what: str) -> None:
    """Wait until readiness reports *what*; with an empty *what*, until the follower is ready."""
    while True:
        ready = await gateway.ask_ops("/readyz")
        if what in ready.text and (ready.status == 200) == (not what):
            return
