"""Tests routes that follow jobs, pods and sessions, with a real Redis and a real store."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.store.instance import Hub, refresh_hub, remove_hub
from controller.store.jobs.job_rows import find_job, request_end
from controller.store.sessions.session_rows import find_session
from shared.link import Seal
from tests.controller.running import eventually
from tests.controller.samples import make_pod
from tests.controller.sessions.publishing import HUB, LINK_KEY, World


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


async def test_an_undecidable_session_is_starting_and_not_withdrawn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A withdrawal would be final: gateways do not accept the session again."""
    world.show(make_pod())
    sid = await world.open(endpoint="lab")
    await world.until_ready(sid)

    def fail(record: object) -> None:
        raise KeyError("a field of a later version")

    with monkeypatch.context() as patched:
        patched.setattr("controller.sessions.desired.read_known", fail)
        world.publisher.enqueue("j1")
        route = await world.until(sid, lambda route: route["state"] == "starting")
        assert route["target"] is None
        assert route["hosts"][0].startswith(sid)
    world.publisher.enqueue("j1")
    await world.until_ready(sid)


async def test_no_route_leads_to_a_pod_removed_during_publication(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sids = [await world.open(endpoint="lab") for _ in range(2)]
    upsert, reported = world.publisher._bus.upsert, list[dict[str, Any]]()

    async def slowly(sid: str, raw: bytes, *, now: float) -> None:
        reported.append(json.loads(raw))
        await upsert(sid, raw, now=now)
        world.show(make_pod(deleting=True))

    monkeypatch.setattr(world.publisher._bus, "upsert", slowly)
    world.show(make_pod())

    async def withdrawn() -> bool:
        return bool(reported) and reported[-1]["target"] is None

    await eventually(withdrawn)
    assert [one["target"] is not None for one in reported] == [True, False]
    route = await world.route(reported[0]["sid"])
    assert route is not None
    assert route["state"] == "starting"
    assert {one["sid"] for one in reported} <= set(sids)


async def test_a_change_does_not_wait_for_the_periodic_resync(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.sessions.snapshot.AT_ONCE", 1)
    world.show(make_pod())
    sid = await world.open(endpoint="lab")
    await world.until_ready(sid)
    looked: list[list[str]] = []
    take = world.publisher._snapshots.dirty_set.take

    def taking(most: int) -> list[str]:
        looked.append(take(most))
        return looked[-1]

    monkeypatch.setattr(world.publisher._snapshots.dirty_set, "take", taking)
    others = [f"other{number}" for number in range(20)]
    world.publisher._snapshots.dirty_set.add_later(others)
    world.show(make_pod(uid="next"))
    await world.until(sid, lambda route: (route["target"] or {}).get("id") == "next")
    assert looked[0] == ["j1"]

    async def all_processed() -> bool:
        return [job for some in looked for job in some if job != "j1"] == others

    await eventually(all_processed)


async def test_an_opening_returns_once_gateways_know_the_session(world: World) -> None:
    sid = await world.open(endpoint="lab")
    assert await world.route(sid) is not None


async def test_an_ended_session_never_returns(world: World) -> None:
    world.show(make_pod())
    sid, other = await world.open(endpoint="lab"), await world.open(endpoint="lab")
    await world.until_ready(sid)
    await world.sessions.end(sid)
    await world.until_gone(sid)
    route = await world.route(other)
    assert route is not None
    assert (route["status"]["phase"], route["status"]["app"]) == ("ready", "lab")
    removed = await world.last_removed(sid)
    assert (removed["phase"], removed["app"]) == ("closed", "lab")


async def test_an_ending_job_has_no_routes(world: World) -> None:
    sid = await world.open(endpoint="lab")
    async with world.store.write() as transaction:
        record = await find_job(transaction, "j1")
        assert record is not None
        await request_end(transaction, record, now=1.0)
    world.publisher.enqueue("j1")
    await world.until_gone(sid)
    assert (await world.last_removed(sid))["phase"] == "stopped"


async def test_a_job_without_sessions_is_not_read(world: World) -> None:
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


async def test_a_terminal_that_ended_meanwhile_has_no_route(world: World) -> None:
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


async def test_a_terminal_whose_hub_is_gone_moves_to_another_hub(world: World) -> None:
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
