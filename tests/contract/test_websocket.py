"""Tests WebSockets of apps: the app does the handshake, and frames cross unchanged."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import random
from contextlib import suppress

import pytest

from tests.contract import frames
from tests.contract.conftest import Serve
from tests.contract.frames import BINARY, CLOSE, MASK, PING, PONG, TEXT, encode, read_frame
from tests.contract.messages import read_response, request, response
from tests.contract.rig import Rig
from tests.contract.streams import Stream, StreamEnded
from tests.contract.upstream import (
    PATIENCE_SECONDS,
    App,
    listen,
    raw_response,
    upgrade_response,
    websocket,
)

# The handshake


async def test_the_websocket_handshake_is_relayed_between_client_and_app(
    rig: Rig, serve: Serve
) -> None:
    app = await serve(websocket(None, "Sec-WebSocket-Protocol: kernel.v1", "X-App: 1"))
    session, own = await rig.entered(app)
    offer = ("Sec-WebSocket-Protocol", "kernel.v1, kernel.v2")
    _, one = await rig.upgrade(session, "/api?x=1", [*own, offer, ("X-Client", "2")])
    assert one.status == 101
    assert one.get("Sec-WebSocket-Accept") == frames.accept_value(frames.KEY)
    assert one.get("Sec-WebSocket-Protocol") == "kernel.v1"
    assert (one.get("Upgrade") or "").lower() == "websocket"
    assert (one.get("Connection") or "").lower() == "upgrade"
    assert one.get("X-App") == "1"
    asked = app.requests[0]
    assert asked.target == "/api?x=1"
    assert asked.get("Sec-WebSocket-Protocol") == "kernel.v1, kernel.v2"
    assert asked.get("Sec-WebSocket-Version") == "13"
    assert (asked.get("Upgrade") or "").lower() == "websocket"
    assert (asked.get("Connection") or "").lower() == "upgrade"
    assert asked.get("X-Client") == "2"
    assert asked.get("Origin") == session.origin


@pytest.mark.parametrize(
    "spelling",
    [
        [("Connection", "keep-alive, Upgrade"), ("Upgrade", "websocket")],
        [("Connection", "upgrade"), ("Upgrade", "WebSocket")],
        [("connection", "UPGRADE"), ("UPGRADE", "WEBSOCKET")],
        [("Connection", "keep-alive"), ("Connection", "Upgrade"), ("Upgrade", "websocket")],
        [("Connection", "keep-alive,Upgrade"), ("Upgrade", "websocket")],
    ],
    ids=str,
)
async def test_the_handshake_of_every_browser_is_accepted(
    rig: Rig, serve: Serve, spelling: list[tuple[str, str]]
) -> None:
    session, own = await rig.entered(await serve(websocket()))
    fields = [*own, *spelling, *frames.HANDSHAKE[2:]]
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=fields))
    assert (await read_response(stream)).status == 101


async def test_a_connection_that_has_served_requests_becomes_a_tunnel(
    rig: Rig, serve: Serve
) -> None:
    session, own = await rig.entered(await serve(websocket()))
    stream = await rig.connect()
    plain = request("GET", "/", host=session.host, fields=own)
    upgrade = request("GET", "/", host=session.host, fields=[*own, *frames.HANDSHAKE])
    stream.send(plain + plain + upgrade)
    statuses = [(await read_response(stream)).status for _ in range(3)]
    assert statuses == [200, 200, 101]
    await frames.alive(stream)


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        ("permessage-deflate", {"permessage-deflate"}),
        (
            "permessage-deflate; client_max_window_bits",
            {"permessage-deflate", "client_max_window_bits"},
        ),
        ("x-webkit-deflate-frame", None),
        ("foo, permessage-deflate; server_no_context_takeover, bar; baz=1",
         {"permessage-deflate", "server_no_context_takeover"}),
        ("permessage-bzip2", None),
        ("permessage-deflated", None),
    ],
)  # fmt: skip
async def test_only_the_extension_permessage_deflate_is_forwarded(
    rig: Rig, serve: Serve, offered: str, expected: set[str] | None
) -> None:
    app = await serve(websocket())
    session, own = await rig.entered(app)
    _, one = await rig.upgrade(session, "/", [*own, ("Sec-WebSocket-Extensions", offered)])
    assert one.status == 101
    value = app.requests[0].get("Sec-WebSocket-Extensions")
    got = None if value is None else {word.strip() for word in value.replace(",", ";").split(";")}
    assert got == expected


async def test_the_apps_choice_of_compression_is_relayed(rig: Rig, serve: Serve) -> None:
    chosen = "permessage-deflate; server_no_context_takeover"
    session, own = await rig.entered(
        await serve(websocket(None, f"Sec-WebSocket-Extensions: {chosen}"))
    )
    offer = ("Sec-WebSocket-Extensions", "permessage-deflate")
    _, one = await rig.upgrade(session, "/", [*own, offer])
    assert one.get("Sec-WebSocket-Extensions") == chosen


async def test_compressed_frames_are_relayed_unchanged(rig: Rig, serve: Serve) -> None:
    async def talk(stream: Stream) -> None:
        frame = await read_frame(stream, PATIENCE_SECONDS)
        assert frame.raw[0] == 0xC1
        stream.send(bytes([0xC1]) + encode(TEXT, frame.payload)[1:])
        await listen(stream)

    accepted = "Sec-WebSocket-Extensions: permessage-deflate"
    session, own = await rig.entered(await serve(websocket(talk, accepted)))
    offer = ("Sec-WebSocket-Extensions", "permessage-deflate")
    stream, _ = await rig.upgrade(session, "/", [*own, offer])
    compressed = bytes([0xC1]) + encode(TEXT, b"\xf2H\xcd\xc9\xc9\x07\x00", mask=MASK)[1:]
    stream.send(compressed)
    frame = await read_frame(stream)
    assert (frame.raw[0], frame.payload) == (0xC1, b"\xf2H\xcd\xc9\xc9\x07\x00")


async def test_no_101_is_sent_before_the_101_of_the_app(rig: Rig, serve: Serve) -> None:
    async def script(app: App, stream: Stream) -> None:
        one = await app.request(stream)
        await asyncio.sleep(0.4)
        stream.send(upgrade_response(one.get("Sec-WebSocket-Key") or ""))
        await listen(stream)

    session, own = await rig.entered(await serve(script))
    stream = await rig.connect()
    fields = [*frames.HANDSHAKE, *own]
    stream.send(request("GET", "/", host=session.host, fields=fields))
    await stream.silent_for(0.3)
    assert (await read_response(stream)).status == 101


@pytest.mark.parametrize(
    "raw",
    [
        response("400 Bad Request", body=b"no"),
        response("401 Unauthorized", "WWW-Authenticate: Basic", body=b"no"),
        response("403 Forbidden", "X-App: 1", body=b"no"),
        response("404 Not Found", "Transfer-Encoding: chunked") + b"2\r\nno\r\n0\r\n\r\n",
        response("302 Found", "Location: /login", body=b"no"),
        response("426 Upgrade Required", "Sec-WebSocket-Version: 13", body=b"no"),
        response("200 OK", body=b"no"),
        response("500 Oh", body=b"no"),
    ],
)
async def test_the_response_of_an_app_that_refuses_the_upgrade_is_relayed(
    rig: Rig, serve: Serve, raw: bytes
) -> None:
    session, own = await rig.entered(await serve(raw_response(raw)))
    _, one = await rig.upgrade(session, "/", own)
    assert str(one.status).encode() == raw[9:12]
    assert one.body == b"no"


@pytest.mark.parametrize(
    "fields",
    [
        ["Connection: Upgrade", "Upgrade: websocket"],
        ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Accept: nonsense"],
        ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Accept:"],
        ["Connection: Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Accept: {frames.KEY}"],
    ],
    ids=["none", "nonsense", "empty", "the key itself"],
)
async def test_a_101_with_a_wrong_accept_value_is_502(
    rig: Rig, serve: Serve, fields: list[str]
) -> None:
    raw = response("101 Switching Protocols", *fields) + encode(TEXT, b"evil")
    app = await serve(raw_response(raw))
    session, own = await rig.entered(app)
    stream, one = await rig.upgrade(session, "/", own)
    assert one.status == 502
    assert b"evil" not in stream.received
    await app.connections[0].until_ended()


async def test_the_accept_value_matches_the_clients_own_key(rig: Rig, serve: Serve) -> None:
    session, own = await rig.entered(await serve(websocket()))
    key = base64.b64encode(os.urandom(16)).decode()
    fields = [*frames.HANDSHAKE[:3], ("Sec-WebSocket-Key", key), *own]
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=fields))
    assert (await read_response(stream)).get("Sec-WebSocket-Accept") == frames.accept_value(key)


# Frames


async def test_frames_are_relayed_byte_for_byte_in_both_directions(rig: Rig, serve: Serve) -> None:
    down = [
        encode(TEXT, "grüße".encode()),
        encode(BINARY, b""),
        encode(PING, b"ping"),
        encode(BINARY, bytes(125)),
        encode(BINARY, bytes(126)),
        encode(BINARY, bytes(65535)),
        encode(TEXT, b"a", fin=False) + encode(PONG, b"") + encode(frames.CONTINUATION, b"b"),
        encode(BINARY, bytes(65536)),
        # A length that is not encoded in the shortest form is for the peers to judge, not the
        # gateway.
        b"\x82\x7e\x00\x01x",
        b"\x82\x7f\x00\x00\x00\x00\x00\x00\x00\x01x",
    ]
    texts = (b"x", b"", bytes(200), bytes(70000))
    up = [encode(BINARY, text, mask=MASK) for text in texts]
    up += [encode(TEXT, b"no mask to speak of", mask=bytes(4)), encode(PING, b"x", mask=MASK)]

    async def talk(stream: Stream) -> None:
        for frame in down:
            stream.send(frame)
        await listen(stream)

    app = await serve(websocket(talk))
    session, own = await rig.entered(app)
    stream = await rig.tunnel(session, own[1][1])
    for frame in up:
        stream.send(frame)
    assert await stream.read_exactly(len(b"".join(down))) == b"".join(down)
    inside = app.connections[0]
    await inside.until(lambda: inside.received.endswith(b"".join(up)), "the frames")


async def test_frames_right_behind_the_101_arrive(rig: Rig, serve: Serve) -> None:
    async def script(app: App, stream: Stream) -> None:
        one = await app.request(stream)
        key = one.get("Sec-WebSocket-Key") or ""
        stream.send(upgrade_response(key) + encode(TEXT, b"at once") + encode(TEXT, b"half")[:3])
        await asyncio.sleep(0.05)
        stream.send(encode(TEXT, b"half")[3:])
        await listen(stream)

    session, own = await rig.entered(await serve(script))
    stream = await rig.tunnel(session, own[1][1])
    assert (await read_frame(stream)).payload == b"at once"
    assert (await read_frame(stream)).payload == b"half"


@pytest.mark.parametrize("direction", ["down", "up"])
async def test_large_messages_are_relayed_unchanged(rig: Rig, serve: Serve, direction: str) -> None:
    dice = random.Random(5)
    messages = [dice.randbytes(size) for size in (1, 8 << 20, 70_000, 3 << 20)]
    got: list[bytes] = []

    async def say(stream: Stream, mask: bytes | None) -> None:
        for message in messages:
            stream.send(encode(BINARY, message, mask=mask))
            await stream.drain(PATIENCE_SECONDS)

    async def hear(stream: Stream) -> None:
        for _ in messages:
            frame = await read_frame(stream, PATIENCE_SECONDS)
            got.append(hashlib.sha256(frame.payload).digest())

    done = asyncio.Event()

    async def talk(stream: Stream) -> None:
        await (say(stream, None) if direction == "down" else hear(stream))
        done.set()
        await listen(stream)

    session, own = await rig.entered(await serve(websocket(talk)))
    stream = await rig.tunnel(session, own[1][1])
    await (hear(stream) if direction == "down" else say(stream, MASK))
    await asyncio.wait_for(done.wait(), PATIENCE_SECONDS)
    assert got == [hashlib.sha256(message).digest() for message in messages]


async def test_a_slow_reader_loses_nothing(rig: Rig, serve: Serve) -> None:
    total = 24 << 20

    async def talk(stream: Stream) -> None:
        for n in range(total >> 16):
            stream.send(encode(BINARY, n.to_bytes(4, "big") * 16384))
            await stream.drain(PATIENCE_SECONDS)
        await listen(stream)

    session, own = await rig.entered(await serve(websocket(talk)))
    stream = await rig.tunnel(session, own[1][1])
    stream.transport.pause_reading()
    await asyncio.sleep(0.5)
    stream.transport.resume_reading()
    for n in range(total >> 16):
        frame = await read_frame(stream, PATIENCE_SECONDS)
        assert frame.payload == n.to_bytes(4, "big") * 16384


# Ends


@pytest.mark.parametrize("code", [1000, 1001, 1003, 1011, 1012, 3000, 4000, 4401, 4999])
async def test_close_codes_are_relayed_unchanged_in_both_directions(
    rig: Rig, serve: Serve, code: int
) -> None:
    async def talk(stream: Stream) -> None:
        stream.send(frames.close(code, "why"))
        await read_frame(stream, PATIENCE_SECONDS)

    session, own = await rig.entered(await serve(websocket(talk)))
    stream = await rig.tunnel(session, own[1][1])
    frame = await read_frame(stream)
    assert (frame.code, frame.payload[2:]) == (code, b"why")
    stream.send(frames.close(code, mask=MASK))
    assert await stream.read_to_end() == b""

    app = await serve(websocket())
    session, own = await rig.entered(app)
    stream = await rig.tunnel(session, own[1][1])
    stream.send(frames.close(code, "bye", mask=MASK))
    assert (await read_frame(stream)).code == code
    inside = app.connections[0]
    assert bytes(inside.received).endswith(frames.close(code, "bye", mask=MASK))


async def test_a_close_without_a_code_is_relayed(rig: Rig, serve: Serve) -> None:
    async def talk(stream: Stream) -> None:
        stream.send(encode(CLOSE))
        await listen(stream)

    session, own = await rig.entered(await serve(websocket(talk)))
    stream = await rig.tunnel(session, own[1][1])
    assert (await read_frame(stream)).payload == b""


async def test_when_the_app_disconnects_the_client_is_closed(rig: Rig, serve: Serve) -> None:
    async def talk(stream: Stream) -> None:
        await read_frame(stream, PATIENCE_SECONDS)

    session, own = await rig.entered(await serve(websocket(talk)))
    stream = await rig.tunnel(session, own[1][1])
    await stream.silent_for(0.05)
    stream.send(encode(TEXT, b"go", mask=MASK))
    await stream.until_ended()


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_when_the_client_disconnects_the_upstream_connection_is_closed(
    rig: Rig, serve: Serve, how: str
) -> None:
    app = await serve(websocket(listen))
    session, own = await rig.entered(app)
    stream = await rig.tunnel(session, own[1][1])
    getattr(stream, how)()
    await app.connections[0].until_ended()


async def test_an_app_that_closes_on_an_upgrade_is_502(rig: Rig, serve: Serve) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.request(stream)

    session, own = await rig.entered(await serve(script))
    _, one = await rig.upgrade(session, "/", own)
    assert one.status == 502


async def test_requests_after_a_refused_upgrade_are_authorized_anew(rig: Rig, serve: Serve) -> None:
    """Bytes that a client sends early for a tunnel must not reach the app in another way."""
    app = await serve(raw_response(response("200 OK", body=b"no")))
    session, own = await rig.entered(app)
    stream = await rig.connect()
    fields = [*frames.HANDSHAKE, *own]
    smuggled = f"GET /smuggled HTTP/1.1\r\nHost: {session.host}\r\n\r\n".encode()
    stream.send(request("GET", "/", host=session.host, fields=fields) + smuggled)
    assert (await read_response(stream)).status == 200
    with suppress(StreamEnded):
        assert (await read_response(stream)).status == 401
    assert b"/smuggled" not in app.received
