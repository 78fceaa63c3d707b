"""Tests how a gateway ends open connections: close code, deadline, no byte afterwards."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from tests.contract.conftest import Serve
from tests.contract.frames import (
    BINARY,
    MASK,
    TEXT,
    alive,
    encode,
    last_frame,
    read_frame,
)
from tests.contract.messages import read_response, request, response
from tests.contract.rig import Rig
from tests.contract.streams import Stream, StreamEnded
from tests.contract.tokens import new_jti
from tests.contract.upstream import PATIENCE_SECONDS, App, listen, websocket
from tests.timing import timed

# The gateway promises 250 ms from the time it knows of a revocation; the rest is for this machine.
BOUND_SECONDS = 0.25 + 0.35


async def chatter(stream: Stream) -> None:
    """Send a frame every few milliseconds until the peer ends."""
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
async def test_after_a_revocation_no_byte_is_forwarded(rig: Rig, serve: Serve, what: str) -> None:
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


async def test_a_revocation_ends_a_response_in_progress(rig: Rig, serve: Serve) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.request(stream)
        stream.send(response("200 OK", "Transfer-Encoding: chunked"))
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


async def test_a_revocation_ends_an_upload_in_progress(rig: Rig, serve: Serve) -> None:
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


async def test_a_keep_alive_connection_does_not_outlive_its_grant(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session, own = await rig.entered(app)
    stream = await rig.connect()
    data = request("GET", "/", host=session.host, fields=own)
    stream.send(data)
    assert (await read_response(stream)).status == 200
    await rig.bus.revoke(sid=session.sid)
    await rig.settled()
    if not stream.ended:
        stream.send(data)
        with suppress(StreamEnded):
            assert (await read_response(stream)).status == 401
    assert len(app.requests) == 1


async def test_a_revocation_ends_a_hundred_tunnels_within_the_deadline(
    rig: Rig, serve: Serve
) -> None:
    session = await rig.session(await serve(websocket(listen)))
    cookie = await rig.opened(session)
    streams = [await rig.tunnel(session, cookie) for _ in range(100)]
    await rig.bus.revoke(sid=session.sid)
    with timed(rig.process.pid) as took:
        closes = await asyncio.gather(*(last_frame(stream, 20.0) for stream in streams))
    assert took.seconds < 2 * BOUND_SECONDS
    assert {frame.code for frame in closes} == {4401}


# Positions at which the Close may stand


async def test_a_close_frame_is_sent_between_two_fragments(rig: Rig, serve: Serve) -> None:
    async def talk(stream: Stream) -> None:
        stream.send(encode(TEXT, b"half", fin=False))
        await listen(stream)

    session, own = await rig.entered(await serve(websocket(talk)))
    stream = await rig.tunnel(session, own[1][1])
    assert (await read_frame(stream)).payload == b"half"
    await rig.bus.revoke(sid=session.sid)
    assert (await read_frame(stream)).code == 4401


@pytest.mark.parametrize("sent", [1, 3, 5, 100])
async def test_a_connection_within_an_unfinished_frame_is_reset(
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
    # No Close stands within a frame: the reader would take it for data.
    assert frame.startswith(stream.unread)


async def test_an_app_gets_a_short_time_to_finish_its_frame(rig: Rig, serve: Serve) -> None:
    go = asyncio.Event()
    frame = encode(BINARY, b"x" * 300)

    async def talk(stream: Stream) -> None:
        stream.send(frame[:50])
        await go.wait()
        stream.send(frame[50:] + encode(TEXT, b"late"))
        await listen(stream)

    session, own = await rig.entered(await serve(websocket(talk)))
    stream = await rig.tunnel(session, own[1][1])
    await stream.until(lambda: len(stream.unread) == 50, "the half of a frame")
    await rig.bus.revoke(sid=session.sid)
    await rig.applied()
    go.set()
    assert (await read_frame(stream)).payload == b"x" * 300
    assert (await read_frame(stream)).code == 4401
    assert await stream.read_to_end() == b""


async def test_a_client_that_does_not_close_is_closed_after_two_seconds(
    rig: Rig, serve: Serve
) -> None:
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


async def test_a_client_that_keeps_sending_still_reads_the_close_code(
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
