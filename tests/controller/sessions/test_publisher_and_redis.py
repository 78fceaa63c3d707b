"""Tests the publisher's repair of what Redis loses, holds from elsewhere, or does not confirm."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from controller.sessions.desired import DesiredRoutes
from controller.sessions.gateways import Notices, PublishedRoutes
from controller.sessions.publisher import RIVAL, YIELD_SECONDS, RoutePublisher
from controller.sessions.service import SessionService
from controller.sessions.session_requests import SessionItem
from controller.store.database import Store
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.instance import ensure_position, read_store_metadata
from shared.bus import BusReader, Keys, Publisher, connect
from shared.routes.route import digest
from tests.clock import Clock
from tests.controller.new_stores import new_sqlite
from tests.controller.running import eventually
from tests.controller.samples import make_pod
from tests.controller.sessions.publishing import LETTERS, Silent, World, publishing
from tests.controller.sessions.test_publisher_and_store import _is_published
from tests.programs import RedisServer
from tests.redis_tls import Authority, tls_redis


async def test_no_content_of_redis_ends_a_session(
    store: Store, redis: Redis, clock: Clock, job: None
) -> None:
    del job
    async with publishing(store, redis, clock) as world:
        sid = await world.open(endpoint="lab")
        await world.until(sid, lambda route: True)
    keys = Keys("test")
    await redis.set(keys.store, f"another {1 << 40}")
    await redis.delete(keys.routes)
    far = clock.now + 10 * 86400
    nonsense: dict[Any, float] = {"": far, "sub:": 1.0, "all:x\0": far, b"\xff": clock.now}
    await redis.zadd(keys.revoked, nonsense | {"kid:" + "x" * 999: clock.now})
    async with publishing(store, redis, clock) as world:
        await world.until(sid, lambda route: True)
        snapshot = await world.reader.snapshot()
        assert snapshot is not None
        assert snapshot.revoked == {}
    await redis.delete(keys.store)
    await redis.hset(keys.store, "of", "another kind")
    async with publishing(store, redis, clock) as world:
        await eventually(lambda: _is_published(world))
        noted: Any = await redis.get(keys.store)
        assert len(noted.split()) == 2


async def test_foreign_writes_to_redis_are_detected(world: World) -> None:
    # An API in another process cannot wake this publisher.
    published = PublishedRoutes(world.reader, lambda: None)
    service = SessionService(
        store=world.store,
        base_domain="apps.example.com",
        clock=world.clock,
        random=os.urandom,
        states_of=published.states_of,
        until_published=published.until_published,
        enqueue=lambda _job: None,
        tell=Notices(world.redis, Keys("test")).tell,
    )
    (view,) = (await service.open([SessionItem(job="j1", rank=0, endpoint="lab")])).views
    await world.until(view.sid, lambda route: True)
    world.show(make_pod())
    await world.until_ready(view.sid)
    revoked_of = await service.revoke(view.sid, sub="eve")
    assert revoked_of is not None
    assert revoked_of.state == "ready"

    async def revoked() -> bool:
        snapshot = await world.reader.snapshot()
        return snapshot is not None and f"sub:{view.sid}:eve" in snapshot.revoked

    await eventually(revoked)
    await service.end(view.sid)
    await world.until_gone(view.sid)


async def test_an_unbuildable_route_does_not_delay_revocations(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid = await world.open(endpoint="lab")

    async def fail(*_args: object) -> dict[str, Any]:
        raise StoreUnavailable("no terminal can be assigned")

    monkeypatch.setattr(DesiredRoutes, "of", fail)
    await world.sessions.revoke(sid, sub="eve")

    async def revoked() -> bool:
        snapshot = await world.reader.snapshot()
        return snapshot is not None and f"sub:{sid}:eve" in snapshot.revoked

    await eventually(revoked)


async def test_the_first_epoch_reports_no_data_loss(world: World) -> None:
    await world.open(endpoint="lab")
    head = await world.reader.head()
    assert head is not None
    assert head.since is None


async def test_a_new_publisher_changes_no_route(
    world: World, store: Store, redis: Redis, clock: Clock
) -> None:
    world.show(make_pod())
    sid = await world.open(endpoint="lab")
    before = await world.until_ready(sid)
    old = await world.reader.head()
    async with publishing(store, redis, clock) as second:
        second.show(make_pod())

        async def taken_over() -> bool:
            head = await second.reader.head()
            return head is not None and old is not None and head.epoch != old.epoch

        await eventually(taken_over)
        after = await second.until_ready(sid)
        assert after["target"] == before["target"]
        head = await second.reader.head()
        assert head is not None
        assert head.since is None
        # The first publisher learns from its heartbeat that it lost leadership.
        with pytest.raises(LeadershipLost):
            await asyncio.wait_for(world.task, 8)


async def test_of_two_stores_with_one_instance_the_first_publishes(
    world: World, redis: Redis, clock: Clock, tmp_path: Path
) -> None:
    sid = await world.open(endpoint="lab")
    await world.until(sid, lambda route: True)
    (tmp_path / "other").mkdir()
    other, again = Store(new_sqlite(tmp_path / "other")), asyncio.Event()

    async def sleep(seconds: float) -> None:
        await (again.wait() if seconds == YIELD_SECONDS else asyncio.sleep(seconds))

    await other.open()
    async with other.write() as transaction:
        await ensure_position(transaction, new_identity="other")
    async with publishing(other, redis, clock, sleep=sleep) as second:

        async def both_say_so() -> bool:
            return all(RIVAL in one.publisher.problems for one in (world, second))

        await eventually(both_say_so)
        await eventually(lambda: _is_published(world))
        await world.until(sid, lambda route: True)
        assert "routes are not published to Redis" in second.publisher.problems
        # Once the other publisher is gone, it is this one's turn.
        world.task.cancel()
        again.set()
        await eventually(lambda: _is_published(second))
        assert await second.route(sid) is None
    await other.close()


async def test_data_lost_by_redis_is_republished_and_the_loss_announced(world: World) -> None:
    world.show(make_pod())
    sid = await world.open(endpoint="lab")
    await world.until_ready(sid)
    await world.sessions.revoke(sid, jti="t1")
    await world.redis.flushall()
    await world.until_ready(sid)
    snapshot = await world.reader.snapshot()
    assert snapshot is not None
    assert "jti:t1" in snapshot.revoked
    assert snapshot.head.since == world.clock()


async def test_an_evicted_route_counts_as_data_loss(world: World) -> None:
    sid = await world.open(endpoint="lab")
    await world.redis.hdel(Keys("test").routes, sid)
    await world.until(sid, lambda route: True)
    head = await world.reader.head()
    assert head is not None
    assert head.since == world.clock()


async def test_a_data_loss_of_redis_is_a_problem_until_republished(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid = await world.open(endpoint="lab")
    goes_on, rebuild = asyncio.Event(), world.publisher._bus.rebuild

    async def later(*given: Any, **named: Any) -> None:
        await goes_on.wait()
        await rebuild(*given, **named)

    monkeypatch.setattr(world.publisher._bus, "rebuild", later)
    await world.redis.hdel(Keys("test").routes, sid)
    problems = await eventually(lambda: _why_not(world.publisher))
    assert problems == ("routes are not published to Redis", "publish refused: counts")
    goes_on.set()
    await world.until(sid, lambda route: True)
    await eventually(lambda: _is_published(world))
    assert world.publisher.problems == ()
    # The published table is complete without a further read of the store.
    snapshot = await world.reader.snapshot()
    assert snapshot is not None
    description = world.publisher.describe()
    assert (description["routes"], description["hash"]) == (
        1,
        f"{digest(sid, snapshot.routes[sid]):016x}",
    )


async def test_a_redis_restored_to_an_older_state_is_detected(world: World) -> None:
    # Surely published: opening waits for the publication, but only within a deadline.
    first = await world.open(endpoint="lab")
    await world.until(first, lambda route: True)
    copy = await dump(world.redis)
    second = await world.open(endpoint="lab")
    await world.until(second, lambda route: True)
    await restore(world.redis, copy)
    await world.until(second, lambda route: True)
    assert await world.route(first) is not None
    head = await world.reader.head()
    assert head is not None
    assert head.since == world.clock()


async def dump(redis: Redis) -> dict[bytes, bytes]:
    """Return all keys as of one moment."""
    keys: Any = await redis.keys("*")
    async with redis.pipeline(transaction=True) as pipe:
        for key in keys:
            pipe.dump(key)
        return dict(zip(keys, await pipe.execute(), strict=True))


async def restore(redis: Redis, copy: dict[bytes, bytes]) -> None:
    """Restore all keys in one transaction, because the publisher's heartbeat continues."""
    async with redis.pipeline(transaction=True) as pipe:
        for key, value in copy.items():
            pipe.restore(key, 0, value, replace=True)
        await pipe.execute()


@pytest.mark.needs("redis-tls")
async def test_an_untrusted_redis_is_reported_and_receives_nothing(
    store: Store, clock: Clock, tmp_path: Path
) -> None:
    async with tls_redis(tmp_path, "test") as server:
        client = connect(server.url("controller", authority=Authority(tmp_path / "others")))
        async with publishing(store, client, clock) as world:
            problems = await eventually(lambda: _why_not(world.publisher))
            assert problems[0] == "routes are not published to Redis"
            assert "its certificate is not trusted" in problems[1]
        await client.aclose()
        client = connect(server.url("controller"))
        async with publishing(store, client, clock) as world:

            async def published() -> bool:
                return not world.publisher.problems

            await eventually(published)
        await client.aclose()


async def _why_not(publisher: RoutePublisher) -> tuple[str, ...] | None:
    return publisher.problems if len(publisher.problems) > 1 else None


async def test_the_published_position_is_stored(world: World) -> None:
    await world.open(endpoint="lab")

    async def kept() -> bool:
        head = await world.reader.head()
        async with world.store.read() as transaction:
            position = await read_store_metadata(transaction)
        return head is not None and (position.epoch, position.seq) == (head.epoch, head.seq)

    await eventually(kept)


async def test_a_returned_redis_receives_the_whole_table(
    redis_server: RedisServer,
    store: Store,
    clock: Clock,
    job: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    redis = connect(redis_server.url)
    await redis.flushall()
    async with publishing(store, redis, clock) as world:
        sid = await world.open(endpoint="lab")
        redis_server.kill()
        try:
            world.show(make_pod())
            await asyncio.sleep(1.0)
            assert not world.publisher.is_published
        finally:
            redis_server.start()
        await world.until_ready(sid)
        message = "routes are published again"
        async with asyncio.timeout(8):
            while message not in caplog.messages:
                await asyncio.sleep(0.05)
        # Meanwhile the publisher has tried several times.
        for line in ("cannot publish routes", message):
            assert caplog.messages.count(line) == 1
    await redis.aclose()


async def test_the_published_table_equals_a_gateways_table(world: World) -> None:
    world.show(make_pod())
    sids = [await world.open(endpoint="lab") for _ in range(3)]
    await world.until_ready(sids[0])
    await world.sessions.end(sids[1])
    await world.until_gone(sids[1])
    await world.until_ready(sids[2])
    snapshot = await world.reader.snapshot()
    assert snapshot is not None
    shares = [digest(sid, raw) for sid, raw in snapshot.routes.items()]
    description = world.publisher.describe()
    assert description["hash"] == f"{shares[0] ^ shares[1]:016x}"
    assert (description["epoch"], description["seq"]) == (snapshot.head.epoch, snapshot.head.seq)
    assert (description["routes"], description["published"]) == (2, True)


@pytest.mark.parametrize("answers", [[True], [False], [True, True, False], [False, True, False]])
async def test_an_unanswered_write_is_resolved_without_rebuild(
    world: World, answers: list[bool]
) -> None:
    first = await world.open(endpoint="lab")
    # Opening waits for the publication, but only within a deadline.
    await eventually(lambda: _is_published(world))
    await world.until(first, lambda route: True)
    epoch = world.publisher.describe()["epoch"]
    bus = world.publisher._bus
    bus._publish = Silent(bus._publish, list(answers))  # type: ignore[assignment]  # a wrapper
    world.show(make_pod())
    second = await world.open(endpoint="lab")
    await world.until_ready(first)
    await world.until_ready(second)
    await world.sessions.end(second)
    await world.until_gone(second)
    description = world.publisher.describe()
    head = await world.reader.head()
    assert head is not None
    assert (description["epoch"], head.epoch, head.seq) == (epoch, epoch, description["seq"])
    snapshot = await world.reader.snapshot()
    assert snapshot is not None
    assert description["hash"] == f"{digest(first, snapshot.routes[first]):016x}"
    # An event whose delivery is confirmed later is not published again.
    logged: Any = await world.redis.xrevrange(Keys("test").log)
    events = [json.loads(fields[b"event"]) for _, fields in logged]
    ready = [one["sid"] for one in events if (one.get("route") or {}).get("state") == "ready"]
    assert sorted(ready) == sorted((first, second))


async def test_concurrent_rebuilds_are_not_mixed(redis: Redis) -> None:
    keys = Keys("test")
    old, new = Publisher(redis, keys, term=1), Publisher(redis, keys, term=2)
    stale = {f"{n:026d}".translate(LETTERS): b'{"old":1}' for n in range(1500)}
    await asyncio.gather(
        old.rebuild(stale, {}, epoch="old", now=1.0),
        new.rebuild(dict.fromkeys(stale, b'{"new":1}'), {}, epoch="new", now=1.0),
        return_exceptions=True,
    )
    snapshot = await BusReader(redis, keys).snapshot()
    assert snapshot is not None
    assert snapshot.head.epoch == "new"
    assert set(snapshot.routes.values()) == {b'{"new":1}'}


async def of_another_store(redis: Redis, clock: Clock) -> Publisher:
    """Fill Redis as another installation's controller does, in its term 70."""
    theirs = Publisher(redis, Keys("test"), term=70)
    await theirs.rebuild({}, {}, epoch="theirs", now=clock())
    await redis.set(Keys("test").store, "theirs 9")
    return theirs


async def test_a_redis_with_a_foreign_table_is_taken_over_at_the_second_start(
    store: Store, redis: Redis, clock: Clock, job: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a foreign backup replaced ours. One term per restart would take many restarts."""
    del job
    monkeypatch.setattr("shared.bus.publisher.LISTEN_SECONDS", 0.2)
    async with publishing(store, redis, clock) as world:
        await world.until(await world.open(endpoint="lab"), lambda route: True)
        await eventually(lambda: _is_published(world))
        await of_another_store(redis, clock)
        with pytest.raises(LeadershipLost):
            await asyncio.wait_for(world.task, 8)
    async with publishing(store, redis, clock) as world:
        await eventually(lambda: _is_published(world))
        head = await world.reader.head()
        assert head is not None
        assert head.term == 71


async def test_a_rival_store_with_a_higher_term_does_not_end_leadership(
    store: Store, redis: Redis, clock: Clock, job: None
) -> None:
    del job
    gave_way = asyncio.Event()

    async def sleep(seconds: float) -> None:
        if seconds == YIELD_SECONDS:
            gave_way.set()
            await asyncio.Event().wait()
        await asyncio.sleep(seconds)

    async with publishing(store, redis, clock, sleep=sleep) as world:
        await world.until(await world.open(endpoint="lab"), lambda route: True)
        await eventually(lambda: _is_published(world))
        theirs = await of_another_store(redis, clock)
        while not gave_way.is_set():
            await theirs.beat(now=clock())
            await asyncio.sleep(0.05)
            assert not world.task.done()
        assert RIVAL in world.publisher.problems
