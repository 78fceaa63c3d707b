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

# Lost messages


async def test_a_lost_event_is_detected_by_the_next_event(rig: Rig, serve: Serve) -> None:
    session, cookie, stream = await rig.opened_with_tunnel(await serve(websocket()))
    rig.beating = False
    await rig.bus.change("GrantRevoked", sid=session.sid)
    await rig.settled()
    assert (await last_frame(stream, 1.0)).code == 4401
    assert await rig.status(session, cookie) == 401


async def test_a_lost_last_event_is_detected_by_polling_the_head(rig: Rig, serve: Serve) -> None:
    session, cookie, stream = await rig.opened_with_tunnel(await serve(websocket()))
    rig.beating = False
    await rig.bus.change("GrantRevoked", sid=session.sid)
    assert (await last_frame(stream, REPAIR_SECONDS)).code == 4401
    assert await rig.status(session, cookie) == 401


async def test_a_lost_event_without_a_log_is_repaired_by_the_snapshot(
    rig: Rig, serve: Serve
) -> None:
    session, cookie, stream = await rig.opened_with_tunnel(await serve(websocket()))
    await rig.bus.change("RouteRemoved", sid=session.sid, reason="the job ended")
    await rig.bus.redis.delete(rig.bus.key("log"))
    await rig.settled()
    assert (await last_frame(stream, 1.0)).code == 4410
    assert await rig.status(session, cookie) == 410


async def test_a_heartbeat_with_a_later_sequence_reveals_a_lost_event(
    rig: Rig, serve: Serve
) -> None:
    session, _, stream = await rig.opened_with_tunnel(await serve(websocket()))
    await rig.bus.change("GrantRevoked", sid=session.sid)
    await rig.bus.beat()
    assert (await last_frame(stream, 1.5)).code == 4401
    assert (await rig.get(session)).status == 401


async def test_opening_a_session_waits_for_a_route_whose_event_was_lost(
    rig: Rig, serve: Serve
) -> None:
    rig.beating = False
    session = rig.make_session(await serve())
    await rig.bus.change("RouteUpserted", sid=session.sid, route=session.route)
    with timed(rig.process.pid) as took:
        response = await rig.post_open(session, rig.token(session))
    assert response.status == 303
    assert took.seconds < 1.0


async def test_many_lost_events_are_repaired(rig: Rig, serve: Serve) -> None:
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


async def test_a_repeated_event_is_applied_once(rig: Rig, serve: Serve) -> None:
    session, cookie, stream = await rig.opened_with_tunnel(await serve(websocket()))
    for _ in range(3):
        event = await rig.bus.upsert(session.sid, session.route)
        await rig.bus.announce(event)
        await rig.bus.announce(event)
    await rig.settled()
    await alive(stream)
    assert await rig.status(session, cookie) == 200


async def test_a_late_event_does_not_restore_a_removed_route(rig: Rig, serve: Serve) -> None:
    session, cookie, _ = await rig.opened_with_tunnel(await serve(websocket()))
    old = await rig.bus.upsert(session.sid, session.route)
    await rig.bus.remove(session.sid)
    await rig.settled()
    await rig.bus.announce(old)
    await rig.stays(session, cookie, 410, 0.5)
    assert (await rig.get(session)).status == 404


async def test_an_event_ahead_of_the_head_in_redis_is_not_applied(rig: Rig, serve: Serve) -> None:
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


async def test_an_event_of_another_epoch_is_not_applied(rig: Rig, serve: Serve) -> None:
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


async def test_malformed_messages_on_the_channel_are_ignored(rig: Rig, serve: Serve) -> None:
    session, cookie, stream = await rig.opened_with_tunnel(await serve(websocket()))
    for text in NONSENSE.values():
        await rig.bus.redis.publish(rig.bus.key("events"), text)
    await alive(stream)
    assert await rig.status(session, cookie) == 200
    await rig.bus.revoke(sid=session.sid)
    assert (await last_frame(stream, 1.0)).code == 4401


@pytest.mark.parametrize("shell", [{"type": "RouteMoved"}, {"v": 2}, {"v": 2, "type": "New"}])
async def test_an_unknown_event_type_advances_the_sequence(
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
