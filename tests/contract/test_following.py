"""What a gateway makes of the bus: every gap and every fault of it, with one gateway and Redis."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.conftest import Serve
from tests.contract.frames import alive, last_frame
from tests.contract.rig import Rig, Session, running_rig
from tests.contract.streams import Stream
from tests.contract.tokens import new_jti
from tests.contract.upstream import App, websocket

# A gateway reads the head every 2 s, and repairs then.
REPAIR_SECONDS = 4.0


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def own_rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with running_rig(tmp_path_factory.mktemp("following")) as rig:
        yield rig


@pytest_asyncio.fixture(loop_scope="session")
async def rig(own_rig: Rig) -> AsyncIterator[Rig]:
    """A gateway whose bus a test may break; it is whole again before the next one."""
    yield own_rig
    own_rig.close_streams()
    own_rig.beating = True
    await own_rig.bus.rebuild()
    await own_rig.settled()


async def status(rig: Rig, session: Session, cookie: str) -> int:
    return (await rig.get(session, fields=[("Cookie", cookie)])).status


async def becomes(rig: Rig, session: Session, cookie: str, wanted: int) -> None:
    """Wait until a request is answered with *wanted*, as long as a repair may take."""
    deadline = time.monotonic() + REPAIR_SECONDS
    while (found := await status(rig, session, cookie)) != wanted:
        assert time.monotonic() < deadline, f"still {found}"
        await asyncio.sleep(0.05)


async def stays(rig: Rig, session: Session, cookie: str, wanted: int, seconds: float) -> None:
    """Assert that every request is answered with *wanted* for some time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert await status(rig, session, cookie) == wanted
        await asyncio.sleep(0.1)


async def opened_with_tunnel(rig: Rig, app: App) -> tuple[Session, str, Stream]:
    session = await rig.session(app)
    cookie = await rig.opened(session, iat=int(time.time()) - 2)
    return session, cookie, await rig.tunnel(session, cookie)


# Lost messages


async def test_a_lost_message_is_noticed_by_the_next(rig: Rig, serve: Serve) -> None:
    session, cookie, stream = await opened_with_tunnel(rig, await serve(websocket()))
    rig.beating = False
    await rig.bus.change("GrantRevoked", sid=session.sid)
    await rig.settled()
    assert (await last_frame(stream, 1.0)).code == 4401
    assert await status(rig, session, cookie) == 401


async def test_a_lost_message_that_is_the_last_is_noticed_too(rig: Rig, serve: Serve) -> None:
    session, cookie, stream = await opened_with_tunnel(rig, await serve(websocket()))
    rig.beating = False
    await rig.bus.change("GrantRevoked", sid=session.sid)
    assert (await last_frame(stream, REPAIR_SECONDS)).code == 4401
    assert await status(rig, session, cookie) == 401


async def test_a_lost_message_without_a_log_is_repaired_by_the_snapshot(
    rig: Rig, serve: Serve
) -> None:
    session, cookie, stream = await opened_with_tunnel(rig, await serve(websocket()))
    await rig.bus.change("RouteRemoved", sid=session.sid, reason="the job ended")
    await rig.bus.redis.delete(rig.bus.key("log"))
    await rig.settled()
    assert (await last_frame(stream, 1.0)).code == 4410
    assert await status(rig, session, cookie) == 410


async def test_a_heartbeat_that_is_ahead_tells_of_a_lost_message(rig: Rig, serve: Serve) -> None:
    session, _, stream = await opened_with_tunnel(rig, await serve(websocket()))
    await rig.bus.change("GrantRevoked", sid=session.sid)
    await rig.bus.beat()
    assert (await last_frame(stream, 1.5)).code == 4401
    assert (await rig.get(session)).status == 401


async def test_an_opening_waits_for_a_route_that_was_not_announced(rig: Rig, serve: Serve) -> None:
    rig.beating = False
    session = rig.make_session(await serve())
    await rig.bus.change("RouteUpserted", sid=session.sid, route=session.route)
    start = time.monotonic()
    answer = await rig.post_open(session, rig.token(session))
    assert answer.status == 303
    assert time.monotonic() - start < 1.0


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


# Messages that are wrong


async def test_what_comes_twice_counts_once(rig: Rig, serve: Serve) -> None:
    session, cookie, stream = await opened_with_tunnel(rig, await serve(websocket()))
    for _ in range(3):
        event = await rig.bus.upsert(session.sid, session.route)
        await rig.bus.announce(event)
        await rig.bus.announce(event)
    await rig.settled()
    await alive(stream)
    assert await status(rig, session, cookie) == 200


async def test_what_comes_late_raises_nothing_from_the_dead(rig: Rig, serve: Serve) -> None:
    session, cookie, _ = await opened_with_tunnel(rig, await serve(websocket()))
    old = await rig.bus.upsert(session.sid, session.route)
    await rig.bus.remove(session.sid)
    await rig.settled()
    await rig.bus.announce(old)
    await stays(rig, session, cookie, 410, 0.5)
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
    session, cookie, stream = await opened_with_tunnel(rig, await serve(websocket()))
    for kind in ("RouteRemoved", "GrantRevoked"):
        event = rig.bus.event(kind, seq=rig.bus.seq + 1, sid=session.sid, reason="x")
        await rig.bus.announce(event | {"epoch": "another"})
    await stays(rig, session, cookie, 200, 0.5)
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
    session, cookie, stream = await opened_with_tunnel(rig, await serve(websocket()))
    for text in NONSENSE.values():
        await rig.bus.redis.publish(rig.bus.key("events"), text)
    await alive(stream)
    assert await status(rig, session, cookie) == 200
    await rig.bus.revoke(sid=session.sid)
    assert (await last_frame(stream, 1.0)).code == 4401


@pytest.mark.parametrize("shell", [{"type": "RouteMoved"}, {"v": 2}, {"v": 2, "type": "New"}])
async def test_what_is_not_known_yet_passes_as_applied(
    rig: Rig, serve: Serve, shell: dict[str, Any]
) -> None:
    session, cookie, stream = await opened_with_tunnel(rig, await serve(websocket()))
    kind = shell.get("type", "RouteRemoved")
    for _ in range(3):
        event = await rig.bus.change("Unknown", sid=session.sid)
        await rig.bus.announce(event | {"type": kind} | shell | {"extra": {"a": 1}})
    await alive(stream)
    await rig.settled()
    assert await status(rig, session, cookie) == 200
    await rig.bus.revoke(sid=session.sid)
    assert (await last_frame(stream, 1.0)).code == 4401


async def test_unknown_fields_are_ignored(rig: Rig, serve: Serve) -> None:
    session, _, stream = await opened_with_tunnel(rig, await serve(websocket()))
    event = await rig.bus.change("GrantRevoked", sid=session.sid)
    await rig.bus.announce(event | {"because": "why not", "more": [1]})
    assert (await last_frame(stream, 1.0)).code == 4401


# Epochs and snapshots


async def test_a_new_epoch_with_the_same_routes_disturbs_nobody(rig: Rig, serve: Serve) -> None:
    session, cookie, stream = await opened_with_tunnel(rig, await serve(websocket()))
    for _ in range(3):
        await rig.bus.rebuild()
        await rig.settled()
        await alive(stream)
        assert await status(rig, session, cookie) == 200


async def test_a_new_epoch_brings_what_has_changed(rig: Rig, serve: Serve) -> None:
    app = await serve(websocket())
    removed, moved, revoked, kept = [await opened_with_tunnel(rig, app) for _ in range(4)]
    rig.bus.routes.pop(removed[0].sid)
    route = moved[0].route
    route = route | {"target": route["target"] | {"id": "the next pod"}}
    rig.bus.routes[route["sid"]] = json.dumps(route)
    rig.bus.revoked[f"all:{revoked[0].sid}"] = time.time() + 86400
    await rig.bus.rebuild()
    assert (await last_frame(removed[2], REPAIR_SECONDS)).code == 4410
    assert (await last_frame(moved[2], REPAIR_SECONDS)).code == 1012
    assert (await last_frame(revoked[2], REPAIR_SECONDS)).code == 4401
    await alive(kept[2])
    expected = {removed[0].sid: 410, moved[0].sid: 200, revoked[0].sid: 401, kept[0].sid: 200}
    for session, cookie, _ in (removed, moved, revoked, kept):
        assert await status(rig, session, cookie) == expected[session.sid]


async def test_a_new_epoch_that_nobody_announced_is_noticed(rig: Rig, serve: Serve) -> None:
    session, cookie, _ = await opened_with_tunnel(rig, await serve(websocket()))
    rig.beating = False
    rig.bus.routes.pop(session.sid)
    pipe = rig.bus.redis.pipeline(transaction=True)
    pipe.hdel(rig.bus.key("routes"), session.sid)
    routes = str(len(rig.bus.routes))
    pipe.hset(rig.bus.key("head"), mapping={"epoch": "silent", "seq": "0", "routes": routes})
    await pipe.execute()
    await becomes(rig, session, cookie, 410)


Spoil = Callable[[Rig, Session], Any]


async def roll_back(rig: Rig, session: Session) -> None:
    pipe = rig.bus.redis.pipeline(transaction=True)
    pipe.hdel(rig.bus.key("routes"), session.sid)
    pipe.hset(rig.bus.key("head"), "seq", str(rig.bus.seq - 2))
    pipe.hset(rig.bus.key("head"), "routes", str(len(rig.bus.routes) - 1))
    pipe.delete(rig.bus.key("log"))
    await pipe.execute()


async def lose_the_head(rig: Rig, session: Session) -> None:
    await rig.bus.redis.hdel(rig.bus.key("routes"), session.sid)
    await rig.bus.redis.delete(rig.bus.key("head"))


async def lose_routes(rig: Rig, session: Session) -> None:
    await rig.bus.redis.delete(rig.bus.key("routes"))
    await rig.bus.redis.hset(rig.bus.key("head"), "seq", str(rig.bus.seq + 1))
    await rig.bus.redis.delete(rig.bus.key("log"))


async def flush(rig: Rig, session: Session) -> None:
    await rig.bus.redis.flushall()


async def half_an_epoch(rig: Rig, session: Session) -> None:
    """Another epoch whose counts do not fit what is there."""
    await rig.bus.redis.delete(rig.bus.key("routes"))
    await rig.bus.redis.hset(rig.bus.key("head"), mapping={"epoch": "half", "seq": "0"})


SPOILS = (roll_back, lose_the_head, lose_routes, flush, half_an_epoch)


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
async def test_a_snapshot_that_does_not_fit_is_never_applied(
    rig: Rig, serve: Serve, spoil: Spoil
) -> None:
    app = await serve(websocket())
    session, cookie, stream = await opened_with_tunnel(rig, app)
    rig.beating = False
    await spoil(rig, session)
    await rig.bus.redis.publish(rig.bus.key("events"), json.dumps(rig.bus.event("Heartbeat")))
    await stays(rig, session, cookie, 200, 2.6)
    await alive(stream)
    # The table in use stays until there is a better one.
    rig.bus.routes.pop(session.sid)
    await rig.bus.rebuild()
    await becomes(rig, session, cookie, 410)
    assert (await last_frame(stream, 1.0)).code == 4410


@pytest.mark.parametrize("spoil", [lose_the_head, flush], ids=lambda spoil: spoil.__name__)
async def test_without_a_head_nothing_is_opened(rig: Rig, serve: Serve, spoil: Spoil) -> None:
    session = await rig.session(await serve())
    rig.beating = False
    await spoil(rig, rig.make_session())
    answer = await rig.post_open(session, rig.token(session))
    assert answer.status == 503
    assert int(answer.get("Retry-After") or "0") >= 1
    bearer = [("Fumarole-Token", rig.token(session))]
    assert (await rig.get(session, fields=bearer)).status == 503
    await rig.bus.rebuild()
    await rig.settled()
    assert (await rig.post_open(session, rig.token(session))).status == 303


async def test_with_a_head_of_another_epoch_nothing_is_opened(rig: Rig, serve: Serve) -> None:
    """The gateway must not open by a table that is not what Redis holds."""
    session = await rig.session(await serve())
    rig.beating = False
    await rig.bus.redis.hset(rig.bus.key("head"), mapping={"epoch": "half", "routes": "9999"})
    assert (await rig.post_open(session, rig.token(session))).status == 503


# since: what Redis has forgotten cannot be asked


async def test_a_token_older_than_the_loss_is_not_taken(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve())
    now = int(time.time())
    await rig.bus.rebuild(since=now - 20)
    await rig.settled()
    jti = new_jti()
    answer = await rig.post_open(session, rig.token(session, iat=now - 15, jti=jti))
    assert answer.status == 503
    assert answer.get("Retry-After") is not None
    assert not await rig.bus.redis.exists(rig.bus.key(f"used:{jti}"))
    bearer = [("Fumarole-Token", rig.token(session, iat=now - 15))]
    assert (await rig.get(session, fields=bearer)).status == 503
    # Ten seconds behind the loss is late enough.
    assert (await rig.post_open(session, rig.token(session, iat=now - 9))).status == 303
    bearer = [("Fumarole-Token", rig.token(session, iat=now - 9))]
    assert (await rig.get(session, fields=bearer)).status == 200


async def test_right_after_the_loss_no_token_is_taken(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve())
    cookie = await rig.opened(session)
    await rig.bus.rebuild(since=time.time())
    await rig.settled()
    assert (await rig.post_open(session, rig.token(session))).status == 503
    assert await status(rig, session, cookie) == 200


async def test_without_a_loss_there_is_nothing_to_wait_for(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve())
    token = rig.token(session)
    await rig.bus.rebuild()
    await rig.settled()
    assert (await rig.post_open(session, token)).status == 303


# Redis itself


async def test_redis_killed_and_back(rig: Rig, serve: Serve) -> None:
    session, cookie, stream = await opened_with_tunnel(rig, await serve(websocket()))
    bearer = [("Fumarole-Token", rig.token(session))]
    assert (await rig.get(session, fields=bearer)).status == 200
    rig.beating = False
    rig.server.kill()
    # What is known is served, as if nothing had happened.
    await alive(stream)
    assert await status(rig, session, cookie) == 200
    assert (await rig.process.ops_answer("/readyz")).status == 200
    # What needs the bus is not.
    answer = await rig.post_open(session, rig.token(session))
    assert answer.status == 503
    assert answer.get("Retry-After") is not None
    fresh = [("Fumarole-Token", rig.token(session))]
    assert (await rig.get(session, fields=fresh)).status == 503
    assert (await rig.get(session, fields=[("Fumarole-Token", "x")])).status == 401
    rig.server.start()
    await asyncio.sleep(0.2)
    assert await status(rig, session, cookie) == 200
    await rig.bus.rebuild(since=time.time() - 60)
    await rig.settled()
    await alive(stream)
    assert await status(rig, session, cookie) == 200
    assert (await rig.post_open(session, rig.token(session))).status == 303


async def test_what_was_revoked_while_redis_was_away_is_known_with_it(
    rig: Rig, serve: Serve
) -> None:
    session, cookie, stream = await opened_with_tunnel(rig, await serve(websocket()))
    rig.beating = False
    rig.server.kill()
    await asyncio.sleep(0.3)
    rig.bus.revoked[f"sub:{session.sid}:{session.sub}"] = time.time() + 86400
    rig.server.start()
    await rig.bus.rebuild(since=time.time() - 60)
    assert (await last_frame(stream, REPAIR_SECONDS)).code == 4401
    assert await status(rig, session, cookie) == 401
