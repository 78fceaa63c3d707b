"""The publisher with a real Redis and a real store; what the cluster shows is put in by hand."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.spec.accepted import public_spec
from controller.sessions.desired import DesiredRoutes
from controller.sessions.notices import Notices
from controller.sessions.published import PublishedRoutes
from controller.sessions.publisher import RoutePublisher
from controller.sessions.service import SessionService, Wanted
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
from controller.store.jobs.job_rows import ask_to_end, find_job, insert_job
from controller.store.sessions.hubs import Hub, refresh_hub, remove_hub
from controller.store.sessions.session_rows import Session, find_session, insert_session, make_sid
from controller.store.vault import Vault
from shared.bus import BusReader, Keys, Publisher, connect
from shared.errors import BusUnavailable
from shared.events import GrantRevoked, decode_event, event_time
from shared.link import Seal
from shared.routes import digest
from tests.controller.conftest import Clock
from tests.controller.running import eventually
from tests.controller.samples import UID, make_job, make_pod, make_record, relist
from tests.programs import RedisServer
from tests.redis_tls import Authority, tls_redis

LINK_KEY = os.urandom(32)
HUB = Hub(id="hub-1", host="10.9.0.1", port=8082)
JOB = make_job(
    interactive={
        "lab": {"kind": "web", "port": 8888},
        "desk": {"kind": "vnc", "port": 5900, "password": {"parameter": "p"}},
    },
    parameters={"p": {"type": "secret", "value": "canary"}},
)


@dataclass
class World:
    """A store, a picture and a Redis, and whoever publishes from the first two to the third."""

    store: Store
    redis: Redis
    clock: Clock
    informer: InformerCache
    publisher: RoutePublisher
    sessions: SessionService
    reader: BusReader
    task: asyncio.Task[None]

    async def open(self, **wanted: Any) -> str:
        (view,) = await self.sessions.open([Wanted(job="j1", rank=0, **wanted)])
        return view.sid

    async def route(self, sid: str) -> dict[str, Any] | None:
        snapshot = await self.reader.snapshot()
        raw = snapshot.routes.get(sid) if snapshot else None
        return json.loads(raw) if raw else None

    async def until(self, sid: str, check: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            route = await self.route(sid)
            return route if route is not None and check(route) else None

        return await eventually(look, seconds=8.0)

    async def until_ready(self, sid: str) -> dict[str, Any]:
        return await self.until(sid, lambda route: route["state"] == "ready")

    async def until_gone(self, sid: str) -> None:
        async def look() -> bool:
            return await self.route(sid) is None

        await eventually(look, seconds=8.0)

    async def last_removed(self, sid: str) -> dict[str, Any]:
        """Return how the session ended, as gateways were told."""
        logged: Any = await self.redis.xrevrange(Keys("test").log)
        events = [json.loads(fields[b"event"]) for _, fields in logged]
        (told,) = [one for one in events if one["type"] == "RouteRemoved" and one["sid"] == sid]
        status: dict[str, Any] = told["status"]
        return status

    def show(self, *pods: Any) -> None:
        relist(self.informer.pods, *pods)


LETTERS = str.maketrans("0189", "abcd")
Start = Callable[[], Awaitable[World]]


@asynccontextmanager
async def publishing(
    store: Store,
    redis: Redis,
    clock: Clock,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[World]:
    wake: list[Callable[[str], None]] = []
    informer = InformerCache(None, instance="test", changed=lambda job: [w(job) for w in wake])  # type: ignore[arg-type]  # no cluster here
    async with store.write() as transaction:
        term = await raise_term(transaction)
        revision = (await read_store_metadata(transaction)).revision
    if meanwhile is not None:
        await meanwhile()
    keys = Keys("test")
    publisher = RoutePublisher(
        store=store,
        bus=Publisher(redis, keys, term=term),
        desired=DesiredRoutes(
            store,
            term=term,
            informer=informer,
            vault=Vault([LINK_KEY]),
            base_domain="apps.example.com",
        ),
        seal=Seal(LINK_KEY),
        clock=clock,
        random=os.urandom,
        revision=revision,
    )
    wake.append(publisher.job_changed)
    published = PublishedRoutes(BusReader(redis, keys), lambda: publisher)
    sessions = SessionService(
        store=store,
        base_domain="apps.example.com",
        clock=clock,
        random=os.urandom,
        states_of=published.states_of,
        until_published=published.until_published,
        wake=publisher.wake,
        tell=Notices(redis, keys).tell,
    )
    task = asyncio.create_task(publisher.run())
    try:
        yield World(
            store, redis, clock, informer, publisher, sessions, BusReader(redis, keys), task
        )
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
async def job(store: Store) -> None:
    record = make_record(
        uid=UID,
        state="RUNNING",
        message=None,
        spec=public_spec(JOB),
        sealed=Vault([LINK_KEY]).seal("j1", JOB.secrets(), random=os.urandom),
    )
    async with store.write() as transaction:
        await insert_job(transaction, record, labels={})


@pytest.fixture
async def world(store: Store, redis: Redis, clock: Clock, job: None) -> AsyncIterator[World]:
    async with publishing(store, redis, clock) as one:
        yield one


async def test_a_route_follows_its_pod(world: World) -> None:
    sid = await world.open(endpoint="lab")
    await world.until(sid, lambda route: route["state"] == "starting")
    world.show(make_pod())
    first = await world.until_ready(sid)
    assert first["target"]["id"] == "pod-0"
    world.show(make_pod(deleting=True))
    gone = await world.until(sid, lambda route: route["state"] == "starting")
    assert gone["target"] is None
    assert gone["rev"] > first["rev"]
    world.show(make_pod(uid="pod-next"))
    after = await world.until_ready(sid)
    assert (after["target"]["host"], after["target"]["id"]) == ("10.0.0.1", "pod-next")


async def test_a_session_that_cannot_be_made_out_is_starting_and_not_withdrawn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Withdrawn is final: gateways do not let it come back."""
    world.show(make_pod())
    sid = await world.open(endpoint="lab")
    await world.until_ready(sid)

    def fail(record: object) -> None:
        raise KeyError("a field of a later version")

    with monkeypatch.context() as patched:
        patched.setattr("controller.sessions.desired.read_known", fail)
        world.publisher.wake("j1")
        route = await world.until(sid, lambda route: route["state"] == "starting")
        assert route["target"] is None
        assert route["hosts"][0].startswith(sid)
    world.publisher.wake("j1")
    await world.until_ready(sid)


async def test_nobody_is_led_to_a_pod_that_went_while_others_were_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sids = [await world.open(endpoint="lab") for _ in range(2)]
    upsert, told = world.publisher._bus.upsert, list[dict[str, Any]]()

    async def slowly(sid: str, raw: bytes, *, now: float) -> None:
        told.append(json.loads(raw))
        await upsert(sid, raw, now=now)
        world.show(make_pod(deleting=True))

    monkeypatch.setattr(world.publisher._bus, "upsert", slowly)
    world.show(make_pod())

    async def withdrawn() -> bool:
        return bool(told) and told[-1]["target"] is None

    await eventually(withdrawn)
    assert [one["target"] is not None for one in told] == [True, False]
    route = await world.route(told[0]["sid"])
    assert route is not None
    assert route["state"] == "starting"
    assert {one["sid"] for one in told} <= set(sids)


async def test_a_change_does_not_wait_behind_all_that_is_looked_at_now_and_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.sessions.snapshot.AT_ONCE", 1)
    world.show(make_pod())
    sid = await world.open(endpoint="lab")
    await world.until_ready(sid)
    looked: list[list[str]] = []
    take = world.publisher._world.dirty_set.take

    def taking(most: int) -> list[str]:
        looked.append(take(most))
        return looked[-1]

    monkeypatch.setattr(world.publisher._world.dirty_set, "take", taking)
    others = [f"other{number}" for number in range(20)]
    world.publisher._world.dirty_set.add_later(others)
    world.show(make_pod(uid="next"))
    await world.until(sid, lambda route: (route["target"] or {}).get("id") == "next")
    assert looked[0] == ["j1"]

    async def all_looked_at() -> bool:
        return [job for some in looked for job in some if job != "j1"] == others

    await eventually(all_looked_at)


async def test_opening_is_answered_when_gateways_know_the_session(world: World) -> None:
    sid = await world.open(endpoint="lab")
    assert await world.route(sid) is not None


async def test_a_session_that_ends_is_gone_for_good(world: World) -> None:
    world.show(make_pod())
    sid, other = await world.open(endpoint="lab"), await world.open(endpoint="lab")
    await world.until_ready(sid)
    await world.sessions.end(sid)
    await world.until_gone(sid)
    route = await world.route(other)
    assert route is not None
    assert (route["status"]["phase"], route["status"]["app"]) == ("ready", "lab")
    told = await world.last_removed(sid)
    assert (told["phase"], told["app"]) == ("closed", "lab")


async def test_a_job_that_is_to_end_has_no_routes_left(world: World) -> None:
    sid = await world.open(endpoint="lab")
    async with world.store.write() as transaction:
        record = await find_job(transaction, "j1")
        assert record is not None
        await ask_to_end(transaction, record, now=1.0)
    world.publisher.wake("j1")
    await world.until_gone(sid)
    assert (await world.last_removed(sid))["phase"] == "stopped"


async def test_a_job_without_sessions_has_nothing_looked_at(world: World) -> None:
    sid = await world.open(endpoint="lab")
    world.show(make_pod(uid="p1"))
    await world.until_ready(sid)

    async def nothing_waits() -> bool:
        return not world.publisher.describe()["changed_jobs"]

    await eventually(nothing_waits)
    for number in range(100):
        world.publisher.job_changed(f"other-{number}")
    assert not world.publisher.describe()["changed_jobs"]
    world.publisher.job_changed("j1")
    assert world.publisher.describe()["changed_jobs"] == 1
    await eventually(nothing_waits)


async def test_only_gateways_can_read_a_password(world: World) -> None:
    world.show(make_pod())
    sid = await world.open(endpoint="desk")
    route = await world.until_ready(sid)
    assert "canary" not in json.dumps(route)
    opened = Seal(LINK_KEY).open(route["sealed"], sid=sid, rev=route["rev"])
    assert opened == {"vnc_password": "canary"}


async def test_a_terminal_is_assigned_before_it_is_published(world: World) -> None:
    world.show(make_pod())
    sid = await world.open(kind="terminal")
    waiting = await world.until(sid, lambda route: True)
    assert waiting["message"] == "no terminal hub is running"
    async with world.store.write() as transaction:
        await refresh_hub(transaction, HUB, now=world.clock())
    route = await world.until_ready(sid)
    assert route["target"]["id"] == "hub-1/pod-0"
    async with world.store.read() as transaction:
        session = await find_session(transaction, sid)
    assert session is not None
    assert (session.hub_id, session.pod_uid) == ("hub-1", "pod-0")


async def test_a_terminal_that_ended_since_it_was_read_has_no_route(world: World) -> None:
    world.show(make_pod())
    sid = await world.open(kind="terminal")
    async with world.store.read() as transaction:
        session = await find_session(transaction, sid)
        record = await find_job(transaction, "j1")
    assert session is not None
    assert record is not None
    desired = world.publisher._desired
    assert await desired.of([session], {"j1": record}, {HUB.id: HUB})
    await world.sessions.end(sid)
    assert await desired.of([session], {"j1": record}, {HUB.id: HUB}) == {}


async def test_a_terminal_whose_hub_goes_is_published_anew_elsewhere(world: World) -> None:
    world.show(make_pod())
    async with world.store.write() as transaction:
        await refresh_hub(transaction, HUB, now=world.clock())
    sid = await world.open(kind="terminal")
    await world.until_ready(sid)
    other = Hub(id="hub-2", host="10.9.0.2", port=8082)
    async with world.store.write() as transaction:
        await remove_hub(transaction, HUB.id)
        await refresh_hub(transaction, other, now=world.clock())
    route = await world.until(sid, lambda route: (route["target"] or {}).get("port") == 8082
                              and route["target"]["id"] == "hub-2/pod-0")  # fmt: skip
    assert route["target"]["host"] == "10.9.0.2"


async def test_a_store_of_an_hour_ago_gives_nothing_back(
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
        # The API and the leader's other parts do not wait: soon the revision is the higher one.
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
        # It goes on from there: what was opened while nobody published has not ended.
        opened = replace(await session_of(store, kept), sid=make_sid(os.urandom))
        async with store.read() as transaction:
            assert (await read_store_metadata(transaction)).revision > then.revision + 4
    async with store.write() as transaction:
        await insert_session(transaction, opened)
    async with publishing(store, redis, clock) as world:
        await world.until(opened.sid, lambda route: True)
        # Redis was lost, and the store knows what it knew.
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


async def test_whatever_stands_in_redis_is_no_reason_to_end_anything(
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


async def test_what_another_process_wrote_is_noticed(world: World) -> None:
    # An API of its own has no way to wake this publisher.
    published = PublishedRoutes(world.reader, lambda: None)
    service = SessionService(
        store=world.store,
        base_domain="apps.example.com",
        clock=world.clock,
        random=os.urandom,
        states_of=published.states_of,
        until_published=published.until_published,
        wake=lambda _job: None,
        tell=Notices(world.redis, Keys("test")).tell,
    )
    (view,) = await service.open([Wanted(job="j1", rank=0, endpoint="lab")])
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


async def test_routes_that_cannot_be_made_keep_no_revocation_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid = await world.open(endpoint="lab")

    async def fail(*_args: object) -> dict[str, Any]:
        raise StoreUnavailable("no terminal can be assigned")

    monkeypatch.setattr(world.publisher._desired, "of", fail)
    await world.sessions.revoke(sid, sub="eve")

    async def revoked() -> bool:
        snapshot = await world.reader.snapshot()
        return snapshot is not None and f"sub:{sid}:eve" in snapshot.revoked

    await eventually(revoked)


async def test_the_first_epoch_of_all_has_lost_nothing(world: World) -> None:
    await world.open(endpoint="lab")
    head = await world.reader.head()
    assert head is not None
    assert head.since is None


async def test_another_publisher_that_begins_disturbs_nobody(
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
        # The first one learns by its heartbeat that it leads no more.
        with pytest.raises(LeadershipLost):
            await asyncio.wait_for(world.task, 8)


async def test_what_redis_loses_is_there_again_and_the_loss_is_told(world: World) -> None:
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


async def test_a_route_that_redis_evicted_is_a_loss(world: World) -> None:
    sid = await world.open(endpoint="lab")
    await world.redis.hdel(Keys("test").routes, sid)
    await world.until(sid, lambda route: True)
    head = await world.reader.head()
    assert head is not None
    assert head.since == world.clock()


async def test_a_redis_that_went_back_is_noticed(world: World) -> None:
    # Published for certain: opening waits for that with patience, but not for good.
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
    """Return all keys as they are at one moment."""
    keys: Any = await redis.keys("*")
    async with redis.pipeline(transaction=True) as pipe:
        for key in keys:
            pipe.dump(key)
        return dict(zip(keys, await pipe.execute(), strict=True))


async def restore(redis: Redis, copy: dict[bytes, bytes]) -> None:
    """Put them back, all at the same moment: the publisher's heart beats all the time."""
    async with redis.pipeline(transaction=True) as pipe:
        for key, value in copy.items():
            pipe.restore(key, 0, value, replace=True)
        await pipe.execute()


@pytest.mark.needs("redis-tls")
async def test_a_redis_that_is_not_trusted_is_said_and_nothing_is_published(
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


async def test_how_far_redis_was_told_is_kept(world: World) -> None:
    await world.open(endpoint="lab")

    async def kept() -> bool:
        head = await world.reader.head()
        async with world.store.read() as transaction:
            position = await read_store_metadata(transaction)
        return head is not None and (position.epoch, position.seq) == (head.epoch, head.seq)

    await eventually(kept)


async def test_while_the_store_is_away_the_heartbeat_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_a_redis_that_comes_back_is_told_everything(
    redis_server: RedisServer, store: Store, clock: Clock, job: None
) -> None:
    redis = connect(redis_server.url)
    await redis.flushall()
    async with publishing(store, redis, clock) as world:
        sid = await world.open(endpoint="lab")
        redis_server.kill()
        try:
            world.show(make_pod())
            await asyncio.sleep(0.3)
            assert not world.publisher.is_published
        finally:
            redis_server.start()
        await world.until_ready(sid)
    await redis.aclose()


async def test_what_is_told_is_what_a_gateway_has(world: World) -> None:
    world.show(make_pod())
    sids = [await world.open(endpoint="lab") for _ in range(3)]
    await world.until_ready(sids[0])
    await world.sessions.end(sids[1])
    await world.until_gone(sids[1])
    await world.until_ready(sids[2])
    snapshot = await world.reader.snapshot()
    assert snapshot is not None
    shares = [digest(sid, raw) for sid, raw in snapshot.routes.items()]
    told = world.publisher.describe()
    assert told["hash"] == f"{shares[0] ^ shares[1]:016x}"
    assert (told["epoch"], told["seq"]) == (snapshot.head.epoch, snapshot.head.seq)
    assert (told["routes"], told["published"]) == (2, True)


class _Silent:
    """Stands before the publisher's script: answers are lost, and calls after them, too."""

    def __init__(self, script: Any, answers: list[bool]) -> None:
        self.script = script
        self.answers = answers

    async def __call__(self, **call: Any) -> Any:
        arrives = self.answers.pop(0) if self.answers else None
        if arrives is False:
            raise RedisConnectionError("lost on the way there")
        answer = await self.script(**call)
        if arrives:
            raise RedisConnectionError("lost on the way back")
        return answer


@pytest.mark.parametrize("answers", [[True], [False], [True, True, False], [False, True, False]])
async def test_a_call_that_was_not_answered_is_settled_and_nothing_is_built_anew(
    world: World, answers: list[bool]
) -> None:
    first = await world.open(endpoint="lab")
    epoch = world.publisher.describe()["epoch"]
    bus = world.publisher._bus
    bus._publish = _Silent(bus._publish, list(answers))  # type: ignore[assignment]  # it wraps it
    world.show(make_pod())
    second = await world.open(endpoint="lab")
    await world.until_ready(first)
    await world.until_ready(second)
    await world.sessions.end(second)
    await world.until_gone(second)
    told = world.publisher.describe()
    head = await world.reader.head()
    assert head is not None
    assert (told["epoch"], head.epoch, head.seq) == (epoch, epoch, told["seq"])
    snapshot = await world.reader.snapshot()
    assert snapshot is not None
    assert told["hash"] == f"{digest(first, snapshot.routes[first]):016x}"


async def test_a_revocation_is_told_at_once_by_who_does_not_lead(world: World) -> None:
    sid = await world.open(endpoint="lab")
    world.task.cancel()
    await asyncio.wait([world.task])
    # Nobody leads.
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
    # And the next leader has them in its table.
    async with publishing(world.store, world.redis, world.clock) as second:

        async def revoked() -> bool:
            snapshot = await second.reader.snapshot()
            return snapshot is not None and {f"sub:{sid}:eve", "kid:k1"} <= set(snapshot.revoked)

        await eventually(revoked)


async def test_a_replica_with_an_old_store_tells_nothing(world: World) -> None:
    await world.open(endpoint="lab")
    await world.redis.hset(Keys("test").head, "term", 99)
    async with world.reader.subscribe() as messages:
        event = GrantRevoked(epoch="-", seq=0, at=event_time(1.0), kid="k1")
        await Notices(world.redis, Keys("test")).tell(event, term=98)
        await Notices(world.redis, Keys("test")).tell(event, term=99)
        told = decode_event(await asyncio.wait_for(anext(messages), 5))
        assert isinstance(told, GrantRevoked)
        await world.redis.publish(Keys("test").events, b"end")
        assert await asyncio.wait_for(anext(messages), 5) == b"end"


async def test_what_two_publishers_fill_in_at_once_is_not_mixed(redis: Redis) -> None:
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


async def test_a_leader_that_the_store_does_not_know_any_more_stops_by_itself(
    world: World,
) -> None:
    # Cut off together with a part of Redis, it would never be refused there.
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
async def test_what_was_looked_at_while_redis_or_store_went_away_is_looked_at_again(
    world: World, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    sid = await world.open(endpoint="lab")
    world.show(make_pod())
    world.publisher.wake("j1")
    await world.until_ready(sid)
    failed: list[Any] = []
    real = DesiredRoutes.of

    async def fails_once(self: DesiredRoutes, *given: Any) -> Any:
        if not failed:
            failed.append(given)
            raise trouble
        return await real(self, *given)

    monkeypatch.setattr(DesiredRoutes, "of", fails_once)
    # Only the cluster shows it: the store has nothing new that would be read again.
    world.show()
    world.publisher.wake("j1")
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
