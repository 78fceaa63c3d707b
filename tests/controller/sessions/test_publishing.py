"""When the publisher looks, how often, and who is told: with a real Redis and a real store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from redis.asyncio import Redis

from controller.sessions import publisher as module
from controller.store.database import Store
from controller.store.sessions.session_rows import Session, insert_session
from shared.bus import Keys, connect
from tests.controller.conftest import Clock
from tests.controller.running import eventually
from tests.controller.samples import make_pod
from tests.controller.sessions.publishing import World, publishing
from tests.shared.samples import make_sid

FIRST, SECOND = make_sid(1), make_sid(2)


async def insert(store: Store, sid: str) -> None:
    """Open a session as another process does: nobody is woken."""
    one = Session(
        sid=sid, job_id="j1", rank=0, kind="web", endpoint="lab", port=8888, base_path="/",
        created_at=1.0,
    )  # fmt: skip
    async with store.write() as transaction:
        await insert_session(transaction, one)


def counted(function: Callable[..., Awaitable[Any]], calls: list[Any]) -> Callable[..., Any]:
    """Return *function*, whose calls are put down."""

    async def called(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return await function(*given, **named)

    return called


@pytest.mark.usefixtures("job")
async def test_before_anything_is_published_that_is_what_is_told(
    store: Store, clock: Clock
) -> None:
    nowhere = connect("redis://127.0.0.1:1/0")
    async with publishing(store, nowhere, clock) as one:
        publisher, calls = one.publisher, list[Any]()
        publisher._bus.head = counted(publisher._bus.head, calls)  # type: ignore[method-assign]  # counted
        told = publisher.describe()
        assert (told["published"], told["routes"], told["changed_jobs"]) == (False, 0, 0)
        assert (told["term"], told["epoch"], told["hash"]) == (1, "", "0" * 16)
        assert publisher.problems == ("routes are not published to Redis",)
        assert (publisher.count, publisher.routes()) == (0, [])
        assert publisher.state_of(FIRST) == "starting"

        async def why() -> bool:
            return len(publisher.problems) == 2

        await eventually(why)
        # It is asked for again after a while, and not all the time.
        await asyncio.sleep(0.4)
        assert len(calls) <= 3
    await nowhere.aclose()


@pytest.mark.usefixtures("job")
async def test_who_waits_for_sessions_goes_on_when_gateways_know_all_of_them(
    store: Store, redis: Redis, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 600.0)
    await insert(store, FIRST)
    async with publishing(store, redis, clock) as one, asyncio.timeout(20):
        publisher = one.publisher
        await publisher.until_published([FIRST])
        assert publisher.is_published
        assert publisher.problems == ()
        assert publisher.state_of(FIRST) == "starting"
        waits = asyncio.create_task(publisher.until_published([FIRST, SECOND]))
        one.show(make_pod())
        await one.until_ready(FIRST)
        assert publisher.state_of(FIRST) == "ready"
        assert not waits.done()
        await insert(store, SECOND)
        publisher.look_at_store()
        await waits
        assert await one.route(SECOND) is not None
        assert sorted(route.sid for route in publisher.routes()) == [FIRST, SECOND]
        assert publisher.count == 2


async def test_nobody_waits_for_good(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.01)
    async with asyncio.timeout(5):
        await world.publisher.until_published([SECOND])
    assert await world.route(SECOND) is None


async def test_what_nobody_told_of_is_found_now_and_then(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publisher, looks = world.publisher, list[Any]()
    sid = await world.open(endpoint="lab")
    await world.until(sid, lambda route: True)
    look_at_all = counted(publisher._world.look_at_all, looks)
    monkeypatch.setattr(publisher._world, "look_at_all", look_at_all)
    for number in range(3):
        # Each is a round of its own.
        await insert(world.store, make_sid(number))
        publisher.look_at_store()
        await world.until(make_sid(number), lambda route: True)
    monkeypatch.setattr(publisher._world, "concerns", lambda _job: False)
    world.show(make_pod())
    assert looks == []
    publisher._resync_at = 0.0
    await world.until_ready(sid)
    assert len(looks) == 1


@pytest.mark.usefixtures("job")
async def test_a_revision_goes_up_also_under_another_leader(
    store: Store, redis: Redis, clock: Clock
) -> None:
    await insert(store, FIRST)
    revisions = []
    for uid in ("p1", "p2"):
        async with publishing(store, redis, clock) as one:
            await eventually(partial(is_published, one))
            # Only a signed route says to which epoch it belongs.
            route = await one.route(FIRST)
            assert route is not None
            assert "epoch" not in route
            one.show(make_pod(uid=uid))
            ready = await one.until_ready(FIRST)
            assert ready["target"]["id"] == uid
            revisions += [route["rev"], ready["rev"]]
        clock.now += 1
    assert revisions == sorted(set(revisions))


async def is_published(one: World) -> bool:
    return one.publisher.is_published


@pytest.mark.usefixtures("job")
async def test_a_redis_that_was_exchanged_between_two_leaders_may_have_forgotten_tokens(
    store: Store, redis: Redis, clock: Clock
) -> None:
    await insert(store, FIRST)
    async with publishing(store, redis, clock) as one:
        await one.until(FIRST, lambda route: True)
    await redis.hset(Keys("test").head, "server", "another")
    async with publishing(store, redis, clock) as one:
        await one.until(FIRST, lambda route: True)
        await eventually(lambda: is_published(one))
        head = await one.reader.head()
        assert head is not None
        assert head.since == clock.now


async def test_of_a_job_whose_sessions_have_ended_nothing_is_left(world: World) -> None:
    sid = await world.open(endpoint="lab")
    await world.until(sid, lambda route: True)
    await world.sessions.end(sid)
    await world.until_gone(sid)

    async def forgotten() -> bool:
        return world.publisher.count == 0

    await eventually(forgotten)
    assert world.publisher._sids_of == {}
    assert world.publisher.describe()["hash"] == "0" * 16
