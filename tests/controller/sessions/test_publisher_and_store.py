"""Tests publishers over stores that are unavailable, restored or new: which one may publish."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from redis.asyncio import Redis

from controller.sessions import gateways
from controller.sessions.desired import DesiredRoutes
from controller.sessions.gateways import Notices
from controller.store import tables
from controller.store.database import Store
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.instance import (
    raise_revision,
    raise_term,
    raise_term_to,
    read_leadership,
    read_store_metadata,
)
from controller.store.sessions.session_rows import Session, find_session, insert_session, make_sid
from shared.bus import Keys, Publisher, connect
from shared.errors import BusUnavailable
from shared.events import GrantRevoked, decode_event, event_time
from tests.clock import Clock
from tests.controller.running import eventually
from tests.controller.samples import make_pod
from tests.controller.sessions.publishing import World, publishing


async def test_a_store_restored_from_an_hour_ago_restores_no_access(
    store: Store, redis: Redis, clock: Clock, job: None
) -> None:
    del job
    async with publishing(store, redis, clock) as world:
        ended, shared, kept = [await world.open(endpoint="lab") for _ in range(3)]
        for sid in (ended, shared, kept):
            await world.until(sid, lambda route: True)
        async with store.read() as transaction:
            then = await read_store_metadata(transaction)
        await world.sessions.end(ended)
        await world.sessions.revoke(shared, sub="mallory")
        await world.sessions.revoke(shared, jti="token-1")
        await world.sessions.revoke_key("key-1")

        async def noted() -> bool:
            noted: Any = await redis.get(Keys("test").store)
            return int(noted.split()[1]) >= then.revision + 4

        await eventually(noted)
        await world.until_gone(ended)
        revoked = await world.reader.snapshot()
        assert revoked is not None
        assert len(revoked.revoked) == 3
    async with store.write() as transaction:
        again = sa.update(tables.sessions).where(tables.sessions.c.sid == ended)
        await transaction.execute(
            again.values(ended_at=None, end_reason=None, revision=then.revision)
        )
        await transaction.execute(sa.delete(tables.revocations))
        back = {"revision": then.revision, "epoch": then.epoch, "seq": then.seq}
        await transaction.execute(sa.update(tables.position).values(**back))
    fresh = replace(await session_of(store, kept), sid=make_sid(os.urandom))

    async def meanwhile() -> None:
        # The API and the leader's other components go on: soon the revision is the higher one.
        async with store.write() as transaction:
            await raise_revision(transaction, 50)
            await insert_session(transaction, fresh)

    async with publishing(store, redis, clock, meanwhile) as world:
        await eventually(lambda: _is_published(world))
        assert await world.route(ended) is None
        assert await world.route(kept) is not None
        assert await world.route(fresh.sid) is not None
        now = await world.reader.snapshot()
        assert now is not None
        assert now.head.epoch != revoked.head.epoch
        assert now.revoked == revoked.revoked
        last = (await session_of(store, ended)).end_reason
        assert last == "ended"
        # Publishing continues from there: a session opened without a publisher has not ended.
        opened = replace(await session_of(store, kept), sid=make_sid(os.urandom))
        async with store.read() as transaction:
            assert (await read_store_metadata(transaction)).revision > then.revision + 4
    async with store.write() as transaction:
        await insert_session(transaction, opened)
    async with publishing(store, redis, clock) as world:
        await world.until(opened.sid, lambda route: True)
        # Redis was lost, and the store still knows everything.
        await redis.flushall()
        await eventually(lambda: _is_rebuilt(world, now.head.epoch))
        lost = await world.reader.snapshot()
        assert lost is not None
        assert lost.revoked.keys() == revoked.revoked.keys()


async def _is_published(world: World) -> bool:
    return world.publisher.is_published


async def _is_rebuilt(world: World, epoch: str) -> bool:
    head = await world.reader.head()
    return head is not None and head.epoch != epoch


async def session_of(store: Store, sid: str) -> Session:
    async with store.read() as transaction:
        session = await find_session(transaction, sid)
    assert session is not None
    return session


async def test_heartbeats_continue_during_a_store_outage(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world.show(make_pod())
    sid = await world.open(endpoint="lab")
    before = await world.until_ready(sid)
    head = await world.reader.head()

    @asynccontextmanager
    async def away() -> AsyncIterator[Any]:
        if world.store:
            raise StoreUnavailable("away")
        yield

    async with world.reader.subscribe() as messages:
        monkeypatch.setattr(world.store, "read", away)
        async with asyncio.timeout(8):
            async for message in messages:
                if json.loads(message)["type"] == "Heartbeat":
                    break
    assert await world.reader.head() == head
    assert await world.route(sid) == before
    monkeypatch.undo()
    world.show()
    await world.until(sid, lambda route: route["state"] == "starting")

    async def told() -> bool:
        news = [one for one in caplog.messages if "changes of sessions" in one]
        return news == ["cannot read changes of sessions", "changes of sessions are read again"]

    await eventually(told)


async def test_a_standby_publishes_a_revocation_at_once(world: World) -> None:
    sid = await world.open(endpoint="lab")
    world.task.cancel()
    await asyncio.wait([world.task])
    # No replica leads.
    async with world.reader.subscribe() as messages:
        await world.sessions.revoke(sid, sub="eve")
        event = decode_event(await asyncio.wait_for(anext(messages), 5))
        await world.sessions.revoke_key("k1")
        other = decode_event(await asyncio.wait_for(anext(messages), 5))
    head = await world.reader.head()
    assert head is not None
    assert isinstance(event, GrantRevoked)
    assert isinstance(other, GrantRevoked)
    assert (event.epoch, event.seq, event.sub, other.kid) == (head.epoch, head.seq, "eve", "k1")
    # The next leader has the revocations in its table.
    async with publishing(world.store, world.redis, world.clock) as second:

        async def revoked() -> bool:
            snapshot = await second.reader.snapshot()
            return snapshot is not None and {f"sub:{sid}:eve", "kid:k1"} <= set(snapshot.revoked)

        await eventually(revoked)


async def test_a_replica_with_an_old_store_publishes_nothing(world: World) -> None:
    await world.open(endpoint="lab")
    await world.redis.hset(Keys("test").head, "term", 99)
    async with world.reader.subscribe() as messages:
        event = GrantRevoked(epoch="-", seq=0, at=event_time(1.0), kid="k1")
        await Notices(world.redis, Keys("test")).tell(event, term=98)
        await Notices(world.redis, Keys("test")).tell(event, term=99)
        published = decode_event(await asyncio.wait_for(anext(messages), 5))
        assert isinstance(published, GrantRevoked)
        await world.redis.publish(Keys("test").events, b"end")
        assert await asyncio.wait_for(anext(messages), 5) == b"end"


async def test_a_notice_that_redis_does_not_take_in_time_is_logged_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gateways, "NOTICE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = connect(f"redis://127.0.0.1:{silent.getsockname()[1]}")
        event = GrantRevoked(epoch="-", seq=0, at=event_time(1.0), kid="k1")
        await gateways.Notices(client, Keys("test")).tell(event, term=1)
        await client.aclose()
    assert [one.why for one in caplog.records] == ["Redis does not respond in time"]  # type: ignore[attr-defined]  # of the log line


async def test_a_leader_fenced_by_the_store_stops(
    world: World,
) -> None:
    # If it were cut off together with a part of Redis, Redis would never refuse it.
    async with world.store.write() as transaction:
        await raise_term(transaction)
    with pytest.raises(LeadershipLost):
        await asyncio.wait_for(world.task, 8)


async def test_a_new_store_beside_an_old_redis_leads_at_the_second_start(
    store: Store, redis: Redis, clock: Clock, job: None
) -> None:
    del job
    await Publisher(redis, Keys("test"), term=70).rebuild({}, {}, epoch="old", now=1.0)
    async with publishing(store, redis, clock) as first:
        with pytest.raises(LeadershipLost):
            await asyncio.wait_for(first.task, 8)
    async with publishing(store, redis, clock) as second:
        await second.until(await second.open(endpoint="lab"), lambda route: True)
        head = await second.reader.head()
        assert head is not None
        assert head.term == 71


async def test_a_store_restored_from_before_many_leaders_leads_at_the_second_start(
    store: Store, redis: Redis, clock: Clock, job: None
) -> None:
    del job
    async with store.read() as transaction:
        then = await read_store_metadata(transaction)
    async with store.write() as transaction:
        await raise_term_to(transaction, 70)
    async with publishing(store, redis, clock) as world:
        sid = await world.open(endpoint="lab")
        await world.until(sid, lambda route: True)

        async def noted() -> bool:
            noted: Any = await redis.get(Keys("test").store)
            return noted is not None and int(noted.split()[1]) > then.revision

        await eventually(noted)
    async with store.write() as transaction:
        await transaction.execute(sa.update(tables.leadership).values(term=1))
        back = {"revision": then.revision, "epoch": "older"}
        await transaction.execute(sa.update(tables.position).values(**back))
    async with publishing(store, redis, clock) as first:
        with pytest.raises(LeadershipLost):
            await asyncio.wait_for(first.task, 8)
    async with publishing(store, redis, clock) as second:
        await eventually(lambda: _is_published(second), seconds=8.0)
        assert await second.route(sid) is not None


@pytest.mark.parametrize("trouble", [BusUnavailable("gone"), StoreUnavailable("gone")])
async def test_jobs_processed_during_an_outage_are_processed_again(
    world: World, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    sid = await world.open(endpoint="lab")
    world.show(make_pod())
    world.publisher.enqueue("j1")
    await world.until_ready(sid)
    failed: list[Any] = []
    real = DesiredRoutes.of

    async def fails_once(self: DesiredRoutes, *given: Any) -> Any:
        if not failed:
            failed.append(given)
            raise trouble
        return await real(self, *given)

    monkeypatch.setattr(DesiredRoutes, "of", fails_once)
    # Only the cluster changed: the store has nothing new to read.
    world.show()
    world.publisher.enqueue("j1")
    await world.until(sid, lambda route: route["state"] == "starting")
    assert failed


async def test_a_leader_that_has_published_and_is_replaced_raises_no_term(world: World) -> None:
    async def told() -> bool:
        async with world.store.read() as transaction:
            return (await read_store_metadata(transaction)).epoch is not None

    await eventually(told)
    term = world.publisher.describe()["term"]
    await Publisher(world.redis, Keys("test"), term=term + 70).rebuild({}, {}, epoch="new", now=1.0)
    with pytest.raises(LeadershipLost):
        await asyncio.wait_for(world.task, 8)
    async with world.store.read() as transaction:
        assert (await read_leadership(transaction)).term == term
