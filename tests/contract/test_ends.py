"""How what is open ends: with the right code, in time, and with no byte after it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from tests.contract.conftest import Serve
from tests.contract.frames import (
    BINARY,
    CLOSE,
    MASK,
    PING,
    TEXT,
    alive,
    encode,
    last_frame,
    read_frame,
)
from tests.contract.messages import answer, read_answer, request
from tests.contract.rig import Rig
from tests.contract.streams import Ended, Stream
from tests.contract.tokens import new_jti
from tests.contract.upstream import OK, PATIENCE_SECONDS, App, echo, listen, websocket

# 250 ms are promised from when a revocation is known; the rest is for this machine.
BOUND_SECONDS = 0.25 + 0.35


async def chatter(stream: Stream) -> None:
    """Send a frame every few milliseconds until the other side ends."""
    while not stream.ended:
        stream.send(encode(TEXT, b"tick"))
        await asyncio.sleep(0.004)


# Revocation

REVOCATIONS = ("jti", "sub", "all", "kid")


def revocation(what: str, **ids: str) -> dict[str, str]:
    """Return the fields of a GrantRevoked."""
    names = {"jti": ("sid", "jti"), "sub": ("sid", "sub"), "all": ("sid",), "kid": ("kid",)}
    return {name: ids[name] for name in names[what]}


@pytest.mark.parametrize("what", REVOCATIONS)
async def test_a_revocation_ends_its_tunnels_and_no_others(
    rig: Rig, serve: Serve, what: str
) -> None:
    key = rig.keys.spare[1]
    app = await serve(websocket())
    session, other = await rig.session(app), await rig.session(app)
    jti = new_jti()
    iat = int(time.time()) - 2
    cookie = await rig.opened(session, key if what == "kid" else None, jti=jti, iat=iat)
    hers = await rig.tunnel(session, cookie)
    his = await rig.tunnel(session, await rig.opened(session, sub="bob", iat=iat))
    elsewhere = await rig.tunnel(other, await rig.opened(other, sub=session.sub, iat=iat))
    inside = app.connections[0]
    await rig.bus.revoke(**revocation(what, sid=session.sid, jti=jti, sub=session.sub, kid=key.kid))
    frame = await last_frame(hers)
    assert frame.code == 4401
    assert await hers.read_to_end() == b""
    await inside.until_ended()
    if what == "all":
        assert (await last_frame(his)).code == 4401
    else:
        await alive(his)
    await alive(elsewhere)
    assert (await rig.get(session, fields=[("Cookie", cookie)])).status == 401


@pytest.mark.parametrize("what", ["jti", "sub", "all"])
async def test_after_a_revocation_no_byte_passes(rig: Rig, serve: Serve, what: str) -> None:
    app = await serve(websocket(chatter))
    session = await rig.session(app)
    jti = new_jti()
    iat = int(time.time()) - 2
    stream = await rig.tunnel(session, await rig.opened(session, jti=jti, iat=iat))
    inside = app.connections[0]

    async def talk() -> None:
        while not stream.transport.is_closing():
            stream.send(encode(BINARY, b"tock", mask=MASK))
            await asyncio.sleep(0.004)

    talking = asyncio.create_task(talk())
    try:
        await inside.until(lambda: b"tick" in stream.received, "traffic")
        await rig.bus.revoke(**revocation(what, sid=session.sid, jti=jti, sub=session.sub))
        await asyncio.sleep(BOUND_SECONDS)
        seen = len(stream.received), len(inside.received)
        await asyncio.sleep(0.3)
        assert (len(stream.received), len(inside.received)) == seen
        assert (await last_frame(stream)).code == 4401
        assert stream.unread == b""
        assert stream.ended
    finally:
        talking.cancel()


async def test_a_bearers_tunnel_ends_with_its_token(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve(websocket()))
    jti = new_jti()
    fields = [("Fumarole-Token", rig.token(session, jti=jti))]
    stream, one = await rig.upgrade(session, "/", fields)
    assert one.status == 101
    await rig.bus.revoke(sid=session.sid, jti=jti)
    assert (await last_frame(stream)).code == 4401
    assert (await rig.get(session, fields=fields)).status == 401


async def test_a_revocation_ends_an_answer_under_way(rig: Rig, serve: Serve) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.request(stream)
        stream.send(answer("200 OK", "Transfer-Encoding: chunked"))
        while not stream.ended:
            stream.send(b"4\r\ntick\r\n")
            await asyncio.sleep(0.004)

    app = await serve(script)
    session, own = await rig.entered(app)
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=own))
    await stream.read_until(b"tick")
    await rig.bus.revoke(sid=session.sid)
    await stream.until_ended(BOUND_SECONDS)
    assert not stream.received.endswith(b"0\r\n\r\n")
    await app.connections[0].until_ended()


async def test_a_revocation_ends_an_upload_under_way(rig: Rig, serve: Serve) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.head(stream)
        await stream.until_ended(PATIENCE_SECONDS)

    app = await serve(script)
    session, own = await rig.entered(app)
    stream = await rig.connect()
    fields = [*own, ("Content-Length", "1000000")]
    stream.send(request("POST", "/", host=session.host, fields=fields) + b"x" * 1000)
    while not app.connections or b"xxx" not in app.connections[0].received:
        await asyncio.sleep(0.01)
    await rig.bus.revoke(sid=session.sid)
    await app.connections[0].until_ended(BOUND_SECONDS)
    await stream.until_ended(3.0)


async def test_a_kept_connection_is_no_grant(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session, own = await rig.entered(app)
    stream = await rig.connect()
    data = request("GET", "/", host=session.host, fields=own)
    stream.send(data)
    assert (await read_answer(stream)).status == 200
    await rig.bus.revoke(sid=session.sid)
    await rig.settled()
    if not stream.ended:
        stream.send(data)
        with suppress(Ended):
            assert (await read_answer(stream)).status == 401
    assert len(app.requests) == 1


async def test_a_hundred_tunnels_end_at_once(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve(websocket(listen)))
    cookie = await rig.opened(session)
    streams = [await rig.tunnel(session, cookie) for _ in range(100)]
    await rig.bus.revoke(sid=session.sid)
    start = time.monotonic()
    closes = await asyncio.gather(*(last_frame(stream) for stream in streams))
    assert time.monotonic() - start < 2 * BOUND_SECONDS
    assert {frame.code for frame in closes} == {4401}


# Where the Close may stand


async def test_a_close_may_stand_between_two_fragments(rig: Rig, serve: Serve) -> None:
    async def talk(stream: Stream) -> None:
        stream.send(encode(TEXT, b"half", fin=False))
        await listen(stream)

    session, own = await rig.entered(await serve(websocket(talk)))
    stream = await rig.tunnel(session, own[1][1])
    assert (await read_frame(stream)).payload == b"half"
    await rig.bus.revoke(sid=session.sid)
    assert (await read_frame(stream)).code == 4401


@pytest.mark.parametrize("sent", [1, 3, 5, 100])
async def test_within_a_frame_that_goes_on_the_connection_is_reset(
    rig: Rig, serve: Serve, sent: int
) -> None:
    frame = encode(BINARY, b"x" * 300)

    async def talk(stream: Stream) -> None:
        stream.send(encode(TEXT, b"first") + frame[:sent])
        await listen(stream)

    session, own = await rig.entered(await serve(websocket(talk)))
    stream = await rig.tunnel(session, own[1][1])
    assert (await read_frame(stream)).payload == b"first"
    await rig.bus.revoke(sid=session.sid)
    await stream.until_ended(BOUND_SECONDS)
    # No Close within a frame: whoever reads would take it for data.
    assert frame.startswith(stream.unread)


async def test_an_app_has_a_moment_to_finish_its_frame(rig: Rig, serve: Serve) -> None:
    go = asyncio.Event()
    frame = encode(BINARY, b"x" * 300)

    async def talk(stream: Stream) -> None:
        stream.send(frame[:50])
        await go.wait()
        await asyncio.sleep(0.03)
        stream.send(frame[50:] + encode(TEXT, b"late"))
        await listen(stream)

    session, own = await rig.entered(await serve(websocket(talk)))
    stream = await rig.tunnel(session, own[1][1])
    await stream.until(lambda: len(stream.unread) == 50, "the half of a frame")
    await rig.bus.revoke(sid=session.sid)
    go.set()
    assert (await read_frame(stream)).payload == b"x" * 300
    assert (await read_frame(stream)).code == 4401
    assert await stream.read_to_end() == b""


async def test_who_does_not_close_is_closed_after_two_seconds(rig: Rig, serve: Serve) -> None:
    app = await serve(websocket(listen))
    session, own = await rig.entered(app)
    stream = await rig.tunnel(session, own[1][1])
    await rig.bus.revoke(sid=session.sid)
    assert (await last_frame(stream)).code == 4401
    await stream.until_ended(BOUND_SECONDS)
    start, before = time.monotonic(), len(app.received)
    while not stream.transport.is_closing():
        assert time.monotonic() - start < 4.0, "the gateway holds the socket"
        stream.send(encode(BINARY, b"still here", mask=MASK))
        await asyncio.sleep(0.05)
    assert time.monotonic() - start > 1.0
    assert len(app.received) == before


async def test_a_client_that_never_stops_sending_still_reads_the_code(
    rig: Rig, serve: Serve
) -> None:
    session, own = await rig.entered(await serve(websocket(listen)))
    stream = await rig.tunnel(session, own[1][1])
    for _ in range(50):
        stream.send(encode(BINARY, bytes(60_000), mask=MASK))
    await rig.bus.revoke(sid=session.sid)
    for _ in range(50):
        stream.send(encode(BINARY, bytes(60_000), mask=MASK))
        await asyncio.sleep(0)
    assert (await last_frame(stream)).code == 4401


# The route


async def ended_by(rig: Rig, serve: Serve, **change: Any) -> tuple[int | None, int, int]:
    """Return the code that a tunnel ends with after *change*, and what a cookie gets then."""
    app = await serve(websocket())
    session, own = await rig.entered(app)
    stream = await rig.tunnel(session, own[1][1])
    assert (await rig.get(session, fields=own)).status == 200
    if change.pop("remove", False):
        await rig.bus.remove(session.sid)
    else:
        await rig.announce_change(session, **change)
    code = (await last_frame(stream)).code
    await app.connections[0].until_ended()
    if "target" in change:
        await app.connections[1].until_ended()  # The pooled one, which was the request's.
    before = len(app.connections)
    status = (await rig.get(session, fields=own)).status
    return code, status, len(app.connections) - before


async def test_a_session_that_has_ended_ends_its_tunnels(rig: Rig, serve: Serve) -> None:
    assert await ended_by(rig, serve, remove=True) == (4410, 410, 0)


async def test_a_session_that_starts_again_ends_its_tunnels(rig: Rig, serve: Serve) -> None:
    assert await ended_by(rig, serve, state="starting") == (1012, 503, 0)


async def test_a_session_that_has_expired_ends_its_tunnels(rig: Rig, serve: Serve) -> None:
    assert await ended_by(rig, serve, expires_at=time.time() - 1) == (4410, 410, 0)


async def test_a_session_that_expires_soon_ends_its_tunnels_then(rig: Rig, serve: Serve) -> None:
    start = time.monotonic()
    assert await ended_by(rig, serve, expires_at=time.time() + 1) == (4410, 410, 0)
    assert 0.8 < time.monotonic() - start < 2.5


async def test_a_session_that_expires_ends_its_tunnels(rig: Rig, serve: Serve) -> None:
    session, own = await rig.entered(await serve(websocket()), expires_at=time.time() + 1.5)
    stream = await rig.tunnel(session, own[1][1])
    await alive(stream)
    assert (await last_frame(stream)).code == 4410


async def test_another_target_at_the_same_address_ends_tunnels_and_keeps_grants(
    rig: Rig, serve: Serve
) -> None:
    assert await ended_by(rig, serve, target={"id": "the next pod"}) == (1012, 200, 1)


async def test_the_same_target_at_another_state_of_its_route_ends_nothing(
    rig: Rig, serve: Serve
) -> None:
    app = await serve(websocket())
    session, own = await rig.entered(app)
    stream = await rig.tunnel(session, own[1][1])
    for change in ({"message": "hello"}, {"expires_at": time.time() + 60}, {"expires_at": None}):
        await rig.change(session, **change)
    await rig.change(session)
    await alive(stream)


async def test_closing_lets_what_is_open_go_on(rig: Rig, serve: Serve) -> None:
    app = await serve(websocket())
    session, own = await rig.entered(app)
    stream = await rig.tunnel(session, own[1][1])
    await rig.change(session, state="closing")
    await alive(stream)
    assert (await rig.get(session, fields=own)).status == 410
    assert (await rig.upgrade(session, "/", own))[1].status == 410
    await alive(stream)


async def test_closing_lets_an_answer_under_way_go_on(rig: Rig, serve: Serve) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.request(stream)
        stream.send(answer("200 OK", "Content-Length: 10") + b"hello")
        await asyncio.sleep(0.5)
        stream.send(b"world")

    session, own = await rig.entered(await serve(script))
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=own))
    await stream.read_until(b"hello")
    await rig.change(session, state="closing")
    await stream.read_until(b"world")


@pytest.mark.parametrize("head_sent", [False, True])
async def test_another_target_ends_requests_under_way(
    rig: Rig, serve: Serve, head_sent: bool
) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.request(stream)
        if head_sent:
            stream.send(answer("200 OK", "Content-Length: 10") + b"hello")
        await asyncio.sleep(1.0)
        stream.send(b"world" if head_sent else OK)

    app = await serve(script)
    session, own = await rig.entered(app)
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=own))
    while not app.requests:
        await asyncio.sleep(0.01)
    if head_sent:
        await stream.read_until(b"hello")
    await rig.announce_change(session, target={"id": "the next pod"})
    if head_sent:
        await stream.until_ended(0.8)
        assert b"world" not in stream.received
    else:
        assert (await read_answer(stream, seconds=0.8)).status == 503
    await app.connections[0].until_ended(0.8)


async def test_another_address_is_used_at_once(rig: Rig, serve: Serve) -> None:
    old, new = await serve(), await serve()
    session, own = await rig.entered(old)
    assert (await rig.get(session, fields=own)).status == 200
    await rig.change(session, target={"port": new.port, "id": "the next pod"})
    for _ in range(3):
        assert (await rig.get(session, fields=own)).status == 200
    assert (len(old.requests), len(new.requests)) == (1, 3)


# max_age


async def test_a_tunnel_ends_with_its_grant_and_pings_do_not_prolong_it(
    rig: Rig, serve: Serve
) -> None:
    session = await rig.session(await serve(websocket(echo)))
    # Issued 30 s ago: the grant is counted from then.
    cookie = await rig.opened(session, iat=int(time.time()) - 30, max_age=32)
    stream = await rig.tunnel(session, cookie)
    start = time.monotonic()
    while True:
        stream.send(encode(PING, b"x", mask=MASK))
        frame = await read_frame(stream)
        if frame.opcode == CLOSE:
            break
        await rig.get(session, fields=[("Cookie", cookie)])
        await asyncio.sleep(0.05)
    assert frame.code == 4401
    assert 0.5 < time.monotonic() - start < 3.0
    assert (await rig.get(session, fields=[("Cookie", cookie)])).status == 401


async def test_a_bearers_tunnel_ends_with_max_age(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve(websocket(listen)))
    fields = [("Fumarole-Token", rig.token(session, max_age=1))]
    stream, one = await rig.upgrade(session, "/", fields)
    assert one.status == 101
    assert (await last_frame(stream)).code == 4401


async def test_an_answer_under_way_ends_with_its_grant(rig: Rig, serve: Serve) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.request(stream)
        stream.send(answer("200 OK", "Content-Length: 10") + b"hello")
        await listen(stream)

    session = await rig.session(await serve(script))
    cookie = await rig.opened(session, max_age=1)
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=[("Cookie", cookie)]))
    await stream.read_until(b"hello")
    await stream.until_ended(3.0)


async def test_opening_again_prolongs_nothing_that_is_open(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve(websocket(listen)))
    first = await rig.opened(session, max_age=2)
    stream = await rig.tunnel(session, first)
    again = await rig.post_open(session, rig.token(session), [("Cookie", first)])
    assert again.status == 303
    assert (await last_frame(stream, 4.0)).code == 4401
    fresh = [("Cookie", rig.cookie_of(again)), ("Origin", session.origin)]
    assert (await rig.upgrade(session, "/", fresh))[1].status == 101
