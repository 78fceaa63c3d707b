"""Tests how a gateway follows the bus: every gap and fault, with one gateway and one Redis."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contract.conftest import Serve
from tests.contract.frames import alive, last_frame
from tests.contract.rig import REPAIR_SECONDS, Rig
from tests.contract.upstream import websocket
from tests.timing import timed


@pytest.fixture
def rig(fragile: Rig) -> Rig:
    """Provide a gateway whose bus a test may break."""
    return fragile


# Lost messages


async def test_a_lost_message_is_noticed_by_the_next(rig: Rig, serve: Serve) -> None:
    session, cookie, stream = await rig.opened_with_tunnel(await serve(websocket()))
    rig.beating = False
    await rig.bus.change("GrantRevoked", sid=session.sid)
    await rig.settled()
    assert (await last_frame(stream, 1.0)).code == 4401
    assert await rig.status(session, cookie) == 401


async def test_a_lost_message_that_is_the_last_is_noticed_too(rig: Rig, serve: Serve) -> None:
    session, cookie, stream = await rig.opened_with_tunnel(await serve(websocket()))
    rig.beating = False
    await rig.bus.change("GrantRevoked", sid=session.sid)
    assert (await last_frame(stream, REPAIR_SECONDS)).code == 4401
    assert await rig.status(session, cookie) == 401


async def test_a_lost_message_without_a_log_is_repaired_by_the_snapshot(
    rig: Rig, serve: Serve
) -> None:
    session, cookie, stream = await rig.opened_with_tunnel(await serve(websocket()))
    await rig.bus.change("RouteRemoved", sid=session.sid, reason="the job ended")
    await rig.bus.redis.delete(rig.bus.key("log"))
    await rig.settled()
    assert (await last_frame(stream, 1.0)).code == 4410
    assert await rig.status(session, cookie) == 410


async def test_a_heartbeat_that_is_ahead_tells_of_a_lost_message(rig: Rig, serve: Serve) -> None:
    session, _, stream = await rig.opened_with_tunnel(await serve(websocket()))
    await rig.bus.change("GrantRevoked", sid=session.sid)
    await rig.bus.beat()
    assert (await last_frame(stream, 1.5)).code == 4401
    assert (await rig.get(session)).status == 401


async def test_an_opening_waits_for_a_route_that_was_not_announced(rig: Rig, serve: Serve) -> None:
    rig.beating = False
    session = rig.make_session(await serve())
    await rig.bus.change("RouteUpserted", sid=session.sid, route=session.route)
    with timed(rig.process.pid) as took:
        answer = await rig.post_open(session, rig.token(session))
    assert answer.status == 303
    assert took.seconds < 1.0


async def test_many_lost_messages_are_made_up_for(rig: Rig, serve: Serve) -> None:
    app = await serve()
    sessions = [rig.make_session(app) for _ in range(60)]
    for number, session in enumerate(sessions):
        event = await rig.bus.change("RouteUpserted", sid=session.sid, route=session.route)
        if number % 3 == 0:
            await rig.bus.announce(event)
    await rig.settled()
    for session in sessions:
        assert (await rig.get(session)).status == 401


# Wrong messages


async def test_what_comes_twice_counts_once(rig: Rig, serve: Serve) -> None:
    session, cookie, stream = await rig.opened_with_tunnel(await serve(websocket()))
    for _ in range(3):
        event = await rig.bus.upsert(session.sid, session.route)
        await rig.bus.announce(event)
        await rig.bus.announce(event)
    await rig.settled()
    await alive(stream)
    assert await rig.status(session, cookie) == 200


async def test_what_comes_late_raises_nothing_from_the_dead(rig: Rig, serve: Serve) -> None:
    session, cookie, _ = await rig.opened_with_tunnel(await serve(websocket()))
    old = await rig.bus.upsert(session.sid, session.route)
    await rig.bus.remove(session.sid)
    await rig.settled()
    await rig.bus.announce(old)
    await rig.stays(session, cookie, 410, 0.5)
    assert (await rig.get(session)).status == 404


async def test_what_is_ahead_of_redis_is_not_believed(rig: Rig, serve: Serve) -> None:
    thief = await serve()
    session = rig.make_session(thief)
    for ahead in (1, 5, 1000):
        event = rig.bus.event(
            "RouteUpserted", seq=rig.bus.seq + ahead, sid=session.sid, route=session.route
        )
        if ahead > 1:
            await rig.bus.announce(event)
    await asyncio.sleep(0.3)
    assert (await rig.get(session)).status == 404
    await rig.settled()


async def test_another_epochs_message_is_not_believed(rig: Rig, serve: Serve) -> None:
    session, cookie, stream = await rig.opened_with_tunnel(await serve(websocket()))
    for kind in ("RouteRemoved", "GrantRevoked"):
        event = rig.bus.event(kind, seq=rig.bus.seq + 1, sid=session.sid, reason="x")
        await rig.bus.announce(event | {"epoch": "another"})
    await rig.stays(session, cookie, 200, 0.5)
    await alive(stream)


NONSENSE: dict[str, str | bytes] = {
    "empty": "",
    "no JSON": "nonsense",
    "half": '{"v":1,"epoch":',
    "bytes": b"\xff\xfe\x00",
    "list": "[]",
    "null": "null",
    "empty object": "{}",
    "no seq": '{"v":1,"epoch":"x","type":"Heartbeat"}',
    "no epoch": '{"v":1,"seq":1,"type":"Heartbeat"}',
    "no type": '{"v":1,"epoch":"x","seq":1}',
    "no version": '{"epoch":"x","seq":1,"type":"Heartbeat"}',
    "text as seq": '{"v":1,"epoch":"x","seq":"1","type":"Heartbeat"}',
    "negative seq": '{"v":1,"epoch":"x","seq":-1,"type":"Heartbeat"}',
    "huge seq": '{"v":1,"epoch":"x","seq":1e400,"type":"Heartbeat"}',
    "deep": "[" * 5000,
}


async def test_nonsense_on_the_channel_does_no_harm(rig: Rig, serve: Serve) -> None:
    session, cookie, stream = await rig.opened_with_tunnel(await serve(websocket()))
    for text in NONSENSE.values():
        await rig.bus.redis.publish(rig.bus.key("events"), text)
    await alive(stream)
    assert await rig.status(session, cookie) == 200
    await rig.bus.revoke(sid=session.sid)
    assert (await last_frame(stream, 1.0)).code == 4401


@pytest.mark.parametrize("shell", [{"type": "RouteMoved"}, {"v": 2}, {"v": 2, "type": "New"}])
async def test_what_is_not_known_yet_passes_as_applied(
    rig: Rig, serve: Serve, shell: dict[str, Any]
) -> None:
    session, cookie, stream = await rig.opened_with_tunnel(await serve(websocket()))
    kind = shell.get("type", "RouteRemoved")
    for _ in range(3):
        event = await rig.bus.change("Unknown", sid=session.sid)
        await rig.bus.announce(event | {"type": kind} | shell | {"extra": {"a": 1}})
    await alive(stream)
    await rig.settled()
    assert await rig.status(session, cookie) == 200
    await rig.bus.revoke(sid=session.sid)
    assert (await last_frame(stream, 1.0)).code == 4401


async def test_unknown_fields_are_ignored(rig: Rig, serve: Serve) -> None:
    session, _, stream = await rig.opened_with_tunnel(await serve(websocket()))
    event = await rig.bus.change("GrantRevoked", sid=session.sid)
    await rig.bus.announce(event | {"because": "why not", "more": [1]})
    assert (await last_frame(stream, 1.0)).code == 4401
