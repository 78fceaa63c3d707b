"""Tests when and how often the publisher reads and publishes, with a real Redis and store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from redis.asyncio import Redis

from controller.sessions import publisher as module
from controller.sessions.restored import recover_from_redis
from controller.sessions.snapshot import SnapshotReader
from controller.store.database import Store
from controller.store.sessions.session_rows import Session, insert_session
from shared.bus import Keys, Publisher, connect
from shared.errors import BusUnavailable
from tests.clock import Clock
from tests.controller.running import eventually
from tests.controller.samples import make_pod
from tests.controller.sessions.publishing import Silent, Sleep, World, publishing
from tests.shared.samples import make_sid

FIRST, SECOND = make_sid(1), make_sid(2)


async def insert(store: Store, sid: str) -> None:
    """Open a session as another process does: this publisher is not woken."""
    one = Session(
        sid=sid, job_id="j1", rank=0, kind="web", endpoint="lab", port=8888, base_path="/",
        created_at=1.0,
    )  # fmt: skip
    async with store.write() as transaction:
        await insert_session(transaction, one)


def counted(function: Callable[..., Awaitable[Any]], calls: list[Any]) -> Callable[..., Any]:
    """Wrap *function* so that its calls are appended to *calls*."""

    async def called(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return await function(*given, **named)

    return called


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the publisher's periods very long, so that it acts only when woken."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 600.0)
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 600.0)


@pytest.mark.usefixtures("job")
async def test_before_the_first_publication_the_publisher_reports_a_problem(
    store: Store, clock: Clock
) -> None:
    nowhere, sleep = connect("redis://127.0.0.1:1/0"), Sleep(held=True)
    async with publishing(store, nowhere, clock, sleep=sleep) as one:
        publisher, calls = one.publisher, list[Any]()
        publisher._bus.head = counted(publisher._bus.head, calls)  # type: ignore[method-assign]  # counted
        description = publisher.describe()
        assert (description["published"], description["routes"], description["changed_jobs"]) == (
            False,
            0,
            0,
        )
        assert (description["term"], description["epoch"], description["hash"]) == (1, "", "0" * 16)
        assert publisher.problems == ("routes are not published to Redis",)
        assert (publisher.count, publisher.routes()) == (0, [])
        assert publisher.state_of(FIRST) == "starting"

        async def why() -> bool:
            return len(publisher.problems) == 2

        await eventually(why)
        # The read is repeated after a pause, and not continuously.
        assert (len(calls), sleep.asked) == (1, [0.25])
        sleep.end()
        await sleep.until_asked(2)
        assert (len(calls), sleep.asked) == (2, [0.25, 0.25])
    await nowhere.aclose()


@pytest.mark.usefixtures("job")
async def test_a_wait_for_sessions_ends_once_gateways_know_all(
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


async def test_every_wait_has_a_deadline(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.01)
    async with asyncio.timeout(5):
        await world.publisher.until_published([SECOND])
    assert await world.route(SECOND) is None


@pytest.mark.usefixtures("job")
async def test_unreported_changes_are_found_each_minute(
    store: Store, redis: Redis, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady, looks = Clock(64.0), list[Any]()
    resync = counted(SnapshotReader.resync, looks)
    monkeypatch.setattr(SnapshotReader, "resync", resync)
    async with publishing(store, redis, clock, monotonic=steady) as one:
        sid = await one.open(endpoint="lab")
        await one.until(sid, lambda route: True)
        # Everything was read at the start, and each opening notifies the publisher.
        for steady.now in (64.0, 123.75):
            for _ in range(2):
                await one.open(endpoint="lab")
        assert len(looks) == 1
        monkeypatch.setattr(one.publisher._snapshots, "concerns", lambda _job: False)
        one.show(make_pod())
        steady.now = 124.0
        await one.until_ready(sid)
        assert len(looks) == 2


@pytest.mark.usefixtures("job")
async def test_a_heartbeat_is_published_each_second(
    store: Store, redis: Redis, clock: Clock
) -> None:
    steady = Clock(64.0)
    async with publishing(store, redis, clock, monotonic=steady) as one:
        await eventually(partial(is_published, one))
        async with one.reader.subscribe() as messages:

            async def told_with_two() -> list[str]:
                # A due heartbeat is published in the round of a change, so two changes show it.
                for _ in range(2):
                    await one.open(endpoint="lab")
                return [await next_type(messages) for _ in range(2)]

            assert await told_with_two() == ["RouteUpserted"] * 2
            steady.now += 0.875
            assert await told_with_two() == ["RouteUpserted"] * 2
            steady.now += 0.125
            assert await next_type(messages) == "Heartbeat"
            assert await told_with_two() == ["RouteUpserted"] * 2


async def next_type(messages: AsyncIterator[bytes]) -> str:
    async with asyncio.timeout(5):
        return str(json.loads(await anext(messages))["type"])


async def test_a_heartbeat_is_published_without_changes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 600.0)
    async with world.reader.subscribe() as messages:
        while await next_type(messages) != "Heartbeat":
            pass
        assert await next_type(messages) == "Heartbeat"


@pytest.mark.usefixtures("job")
async def test_after_an_unanswered_write_a_heartbeat_reads_the_state_of_redis(
    store: Store, redis: Redis, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with publishing(store, redis, clock, monotonic=Clock(64.0)) as one:
        await eventually(partial(is_published, one))
        bus = one.publisher._bus
        bus._publish = Silent(bus._publish, [True])  # type: ignore[assignment]  # a wrapper
        async with one.reader.subscribe() as messages:
            await one.open(endpoint="lab")
            assert await next_type(messages) == "RouteUpserted"
            # No time has passed.
            assert await next_type(messages) == "Heartbeat"
            await eventually(partial(is_over, caplog))


async def is_over(caplog: pytest.LogCaptureFixture) -> bool:
    """Return whether exactly one outage was logged, and its end."""
    message = ("cannot publish routes", "routes are published again")
    return tuple(one for one in caplog.messages if one in message) == message


@pytest.mark.usefixtures("job")
async def test_an_outage_ends_with_the_first_published_table(
    store: Store,
    redis: Redis,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    head, failures = Publisher.head, [BusUnavailable("away"), BusUnavailable("away")]

    async def away(self: Publisher) -> Any:
        if failures:
            raise failures.pop()
        return await head(self)

    monkeypatch.setattr(Publisher, "head", away)
    async with publishing(store, redis, clock, monotonic=Clock(64.0)) as one:
        await eventually(partial(is_published, one))
        # No heartbeat is due that could show it.
        await eventually(partial(is_over, caplog))


@pytest.mark.usefixtures("job")
async def test_only_the_first_table_merges_the_state_of_redis(
    store: Store, redis: Redis, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[Any]()
    monkeypatch.setattr(module, "recover_from_redis", counted(recover_from_redis, calls))
    async with publishing(store, redis, clock) as one:
        sid = await one.open(endpoint="lab")
        await one.until(sid, lambda route: True)
        # From now on Redis may be damaged.
        await redis.hdel(Keys("test").routes, sid)
        await one.until(sid, lambda route: True)
        assert len(calls) == 1


@pytest.mark.usefixtures("job", "patient")
async def test_changes_of_a_burst_are_processed_together(
    store: Store, redis: Redis, clock: Clock
) -> None:
    sleep, looks = Sleep(), list[Any]()
    async with publishing(store, redis, clock, monotonic=Clock(64.0), sleep=sleep) as one:
        await one.open(endpoint="lab")
        sleep.held, world = True, one.publisher._snapshots
        one.publisher.look_at_store()
        await sleep.until_asked(len(sleep.asked) + 1)
        world.next = counted(world.next, looks)  # type: ignore[method-assign]  # counted
        for sid in (FIRST, SECOND):
            await insert(store, sid)
            one.publisher.look_at_store()
        assert looks == []
        sleep.held = False
        sleep.end()
        for sid in (FIRST, SECOND):
            await one.until(sid, lambda route: True)
        assert len(looks) == 1
        assert sleep.asked[0] == 0.0
        assert sleep.asked[1:] == pytest.approx([0.02] * len(sleep.asked[1:]))


@pytest.mark.usefixtures("job", "patient")
async def test_every_notification_wakes_the_publisher(
    store: Store, redis: Redis, clock: Clock
) -> None:
    sleep = Sleep()
    async with publishing(store, redis, clock, sleep=sleep) as one:
        await eventually(partial(is_published, one))
        await sleep.until_idle()
        sid = await one.open(endpoint="lab")
        await one.until(sid, lambda route: True)
        await sleep.until_idle()
        one.show(make_pod())
        await one.until_ready(sid)
        await sleep.until_idle()
        await insert(store, FIRST)
        one.publisher.look_at_store()
        await one.until(FIRST, lambda route: True)


@pytest.mark.usefixtures("job", "patient")
async def test_an_opening_during_a_rebuild_does_not_wait(
    store: Store, redis: Redis, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuild = Publisher.rebuild

    async def meanwhile(self: Publisher, *given: Any, **named: Any) -> None:
        await insert(store, FIRST)
        await rebuild(self, *given, **named)

    monkeypatch.setattr(Publisher, "rebuild", meanwhile)
    async with publishing(store, redis, clock) as one:
        await one.until(FIRST, lambda route: True)


@pytest.mark.usefixtures("job", "patient")
async def test_the_published_position_is_stored_if_changed(
    store: Store, redis: Redis, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep, kept = Sleep(), list[Any]()
    monkeypatch.setattr(Publisher, "note_store", counted(Publisher.note_store, kept))
    async with publishing(store, redis, clock, sleep=sleep) as one:
        await eventually(partial(is_published, one))
        await one.open(endpoint="lab")
        await sleep.until_idle()
        before = len(kept)
        for _ in range(2):
            one.publisher.enqueue("j1")
            await sleep.until_idle()
        assert len(kept) == before


@pytest.mark.usefixtures("patient")
async def test_changes_beyond_one_batch_do_not_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.sessions.snapshot.AT_ONCE", 1)
    await world.open(endpoint="lab")
    world.publisher._snapshots.dirty_set.add_later([f"other{number}" for number in range(5)])
    world.publisher.enqueue("j1")

    async def all_processed() -> bool:
        return not world.publisher.describe()["changed_jobs"]

    await eventually(all_processed, seconds=8.0)


@pytest.mark.usefixtures("job")
async def test_a_revision_increases_under_another_leader(
    store: Store, redis: Redis, clock: Clock
) -> None:
    await insert(store, FIRST)
    revisions = []
    for uid in ("p1", "p2"):
        async with publishing(store, redis, clock) as one:
            await eventually(partial(is_published, one))
            # Only a signed route names its epoch.
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


async def test_a_job_without_sessions_leaves_no_state(world: World) -> None:
    sid = await world.open(endpoint="lab")
    await world.until(sid, lambda route: True)
    await world.sessions.end(sid)
    await world.until_gone(sid)

    async def forgotten() -> bool:
        return world.publisher.count == 0

    await eventually(forgotten)
    assert world.publisher._sids_of == {}
    assert world.publisher.describe()["hash"] == "0" * 16
