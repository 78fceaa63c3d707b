"""Tests epochs, snapshots and lost revocations: only a better table replaces a table."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.conftest import Serve
from tests.contract.frames import alive, last_frame
from tests.contract.rig import REPAIR_SECONDS, Rig, Session
from tests.contract.tokens import new_jti
from tests.contract.upstream import websocket

# Epochs and snapshots


async def test_a_new_epoch_with_the_same_routes_closes_no_connection(
    rig: Rig, serve: Serve
) -> None:
    session, cookie, stream = await rig.opened_with_tunnel(await serve(websocket()))
    for _ in range(3):
        await rig.bus.rebuild()
        await rig.settled()
        await alive(stream)
        assert await rig.status(session, cookie) == 200


async def test_a_new_epoch_applies_changed_routes(rig: Rig, serve: Serve) -> None:
    app = await serve(websocket())
    removed, moved, revoked, kept = [await rig.opened_with_tunnel(app) for _ in range(4)]
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
        assert await rig.status(session, cookie) == expected[session.sid]


async def test_a_new_epoch_without_an_event_is_detected(rig: Rig, serve: Serve) -> None:
    session, cookie, _ = await rig.opened_with_tunnel(await serve(websocket()))
    rig.beating = False
    rig.bus.routes.pop(session.sid)
    pipe = rig.bus.redis.pipeline(transaction=True)
    pipe.hdel(rig.bus.key("routes"), session.sid)
    routes = str(len(rig.bus.routes))
    pipe.hset(rig.bus.key("head"), mapping={"epoch": "silent", "seq": "0", "routes": routes})
    await pipe.execute()
    await rig.becomes(session, cookie, 410)


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
    """Write another epoch whose counts do not match the data in Redis."""
    await rig.bus.redis.delete(rig.bus.key("routes"))
    await rig.bus.redis.hset(rig.bus.key("head"), mapping={"epoch": "half", "seq": "0"})


SPOILS = (roll_back, lose_the_head, lose_routes, flush, half_an_epoch)


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
async def test_an_inconsistent_snapshot_is_never_applied(
    rig: Rig, serve: Serve, spoil: Spoil
) -> None:
    app = await serve(websocket())
    session, cookie, stream = await rig.opened_with_tunnel(app)
    rig.beating = False
    await spoil(rig, session)
    await rig.bus.redis.publish(rig.bus.key("events"), json.dumps(rig.bus.event("Heartbeat")))
    await rig.stays(session, cookie, 200, 2.6)
    await alive(stream)
    # The current table stays in use until a better one exists.
    rig.bus.routes.pop(session.sid)
    await rig.bus.rebuild()
    await rig.becomes(session, cookie, 410)
    assert (await last_frame(stream, 1.0)).code == 4410


@pytest.mark.parametrize("spoil", [lose_the_head, flush], ids=lambda spoil: spoil.__name__)
async def test_without_a_head_nothing_is_opened(rig: Rig, serve: Serve, spoil: Spoil) -> None:
    session = await rig.session(await serve())
    rig.beating = False
    await spoil(rig, rig.make_session())
    response = await rig.post_open(session, rig.token(session))
    assert response.status == 503
    assert int(response.get("Retry-After") or "0") >= 1
    bearer = [("Fumarole-Token", rig.token(session))]
    assert (await rig.get(session, fields=bearer)).status == 503
    await rig.bus.rebuild()
    await rig.settled()
    assert (await rig.post_open(session, rig.token(session))).status == 303


async def test_with_a_head_of_another_epoch_nothing_is_opened(rig: Rig, serve: Serve) -> None:
    """The gateway must not open sessions by a table that differs from Redis' content."""
    session = await rig.session(await serve())
    rig.beating = False
    await rig.bus.redis.hset(rig.bus.key("head"), mapping={"epoch": "half", "routes": "9999"})
    assert (await rig.post_open(session, rig.token(session))).status == 503


# ``since``: Redis cannot report revocations that it has lost


async def test_a_token_issued_before_redis_lost_data_is_refused(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve())
    now = int(time.time())
    await rig.bus.rebuild(since=now - 20)
    await rig.settled()
    jti = new_jti()
    response = await rig.post_open(session, rig.token(session, iat=now - 15, jti=jti))
    assert response.status == 503
    assert response.get("Retry-After") is not None
    assert not await rig.bus.redis.exists(rig.bus.key(f"used:{jti}"))
    bearer = [("Fumarole-Token", rig.token(session, iat=now - 15))]
    assert (await rig.get(session, fields=bearer)).status == 503
    # A token issued ten seconds after the loss is late enough.
    assert (await rig.post_open(session, rig.token(session, iat=now - 9))).status == 303
    bearer = [("Fumarole-Token", rig.token(session, iat=now - 9))]
    assert (await rig.get(session, fields=bearer)).status == 200


async def test_right_after_redis_lost_data_every_token_is_refused(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve())
    cookie = await rig.opened(session)
    await rig.bus.rebuild(since=time.time())
    await rig.settled()
    assert (await rig.post_open(session, rig.token(session))).status == 503
    assert await rig.status(session, cookie) == 200


async def test_without_data_loss_no_token_has_to_wait(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve())
    token = rig.token(session)
    await rig.bus.rebuild()
    await rig.settled()
    assert (await rig.post_open(session, token)).status == 303


# Failures of Redis itself


async def test_a_gateway_recovers_after_redis_was_killed(rig: Rig, serve: Serve) -> None:
    session, cookie, stream = await rig.opened_with_tunnel(await serve(websocket()))
    bearer = [("Fumarole-Token", rig.token(session))]
    assert (await rig.get(session, fields=bearer)).status == 200
    rig.beating = False
    rig.server.kill()
    # The gateway serves known routes as before.
    await alive(stream)
    assert await rig.status(session, cookie) == 200
    assert (await rig.process.ops_response("/readyz")).status == 200
    # Operations that need the bus fail.
    response = await rig.post_open(session, rig.token(session))
    assert response.status == 503
    assert response.get("Retry-After") is not None
    fresh = [("Fumarole-Token", rig.token(session))]
    assert (await rig.get(session, fields=fresh)).status == 503
    assert (await rig.get(session, fields=[("Fumarole-Token", "x")])).status == 401
    rig.server.start()
    await asyncio.sleep(0.2)
    assert await rig.status(session, cookie) == 200
    await rig.bus.rebuild(since=time.time() - 60)
    await rig.settled()
    await alive(stream)
    assert await rig.status(session, cookie) == 200
    assert (await rig.post_open(session, rig.token(session))).status == 303


async def test_a_revocation_made_during_a_redis_outage_is_applied_afterwards(
    rig: Rig, serve: Serve
) -> None:
    session, cookie, stream = await rig.opened_with_tunnel(await serve(websocket()))
    rig.beating = False
    rig.server.kill()
    await asyncio.sleep(0.3)
    rig.bus.revoked[f"sub:{session.sid}:{session.sub}"] = time.time() + 86400
    rig.server.start()
    await rig.bus.rebuild(since=time.time() - 60)
    assert (await last_frame(stream, REPAIR_SECONDS)).code == 4401
    assert await rig.status(session, cookie) == 401


# Revocations in snapshots


async def revoked_in_snapshot(rig: Rig, member: str, at: float) -> None:
    """Rebuild with *member* revoked at a time."""
    rig.bus.revoked[member] = at + 86400
    await rig.bus.rebuild()
    await rig.settled()
    del rig.bus.revoked[member]


async def test_a_revocations_time_is_read_from_its_score(rig: Rig, serve: Serve) -> None:
    app = await serve()
    now = int(time.time())
    for scope in ("sub", "all"):
        session = await rig.session(app)
        before = await rig.opened(session, iat=now - 50)
        after = await rig.opened(session, iat=now - 20)
        member = f"sub:{session.sid}:{session.sub}" if scope == "sub" else f"all:{session.sid}"
        await revoked_in_snapshot(rig, member, now - 35)
        assert await rig.status(session, before) == 401
        assert await rig.status(session, after) == 200
        assert (await rig.post_open(session, rig.token(session, iat=now - 40))).status == 401
        assert (await rig.post_open(session, rig.token(session, iat=now - 30))).status == 303


@pytest.mark.parametrize("name", ["a:b", ":", "a::b:", "jti:x", "ü ö", "{x}", "a*"])
async def test_any_name_can_be_revoked(rig: Rig, serve: Serve, name: str) -> None:
    app = await serve()
    session = await rig.session(app)
    iat = int(time.time()) - 5
    his, hers = await rig.opened(session, sub=name, iat=iat), await rig.opened(session, iat=iat)
    await revoked_in_snapshot(rig, f"sub:{session.sid}:{name}", time.time())
    assert await rig.status(session, his) == 401
    assert await rig.status(session, hers) == 200
    # The same by an event.
    session = await rig.session(app)
    his, hers = await rig.opened(session, sub=name, iat=iat), await rig.opened(session, iat=iat)
    await rig.bus.revoke(sid=session.sid, sub=name)
    await rig.settled()
    assert await rig.status(session, his) == 401
    assert await rig.status(session, hers) == 200


@pytest.mark.parametrize("jti", ["a:b", "!~", "jti:sub:x", "%20", "\\", '"', "{x}", "x" * 128])
async def test_a_token_of_any_identifier_opens_once_and_can_be_revoked(
    rig: Rig, serve: Serve, jti: str
) -> None:
    session = await rig.session(await serve())
    jti = (jti + new_jti())[:128] if len(jti) < 100 else jti
    token = rig.token(session, jti=jti)
    opened = await rig.post_open(session, token)
    assert opened.status == 303
    assert await rig.bus.redis.get(rig.bus.key(f"used:{jti}")) == b"open"
    assert (await rig.post_open(session, token)).status == 401
    cookie = rig.cookie_of(opened)
    assert await rig.status(session, cookie) == 200
    await revoked_in_snapshot(rig, f"jti:{jti}", time.time())
    assert await rig.status(session, cookie) == 401


async def test_a_new_epoch_does_not_restore_a_revoked_grant(rig: Rig, serve: Serve) -> None:
    session, cookie, _ = await rig.opened_with_tunnel(await serve(websocket()))
    await rig.bus.revoke(sid=session.sid)
    await rig.settled()
    for _ in range(2):
        await rig.bus.rebuild()
        await rig.settled()
        assert await rig.status(session, cookie) == 401
