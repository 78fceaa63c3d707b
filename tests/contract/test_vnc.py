"""Tests desktops: RFB (RFC 6143) over TCP behind the gateway, in WebSocket messages before it."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.contract import frames
from tests.contract.conftest import Serve
from tests.contract.pipe import Pipe
from tests.contract.rig import Rig, Session, running_rig
from tests.contract.streams import Stream, StreamEnded
from tests.contract.upstream import PATIENCE_SECONDS, App

OFFER = ("Sec-WebSocket-Protocol", "binary")
SERVER_INIT = (
    (640).to_bytes(2, "big")
    + (480).to_bytes(2, "big")
    + bytes.fromhex("20180001 00ff00ff00ff 100800 000000".replace(" ", ""))
    + (4).to_bytes(4, "big")
    + b"exam"
)
VNC = {"kind": "vnc", "target": {"scheme": "tcp"}}


class Desktop:
    """A fake RFB server without a password; ``messages`` holds the bytes after the handshake."""

    def __init__(self) -> None:
        self.shared: list[int] = []
        self.ready: list[Stream] = []

    async def __call__(self, app: App, stream: Stream) -> None:
        stream.send(b"RFB 003.008\n")
        assert await stream.read_exactly(12, PATIENCE_SECONDS) == b"RFB 003.008\n"
        stream.send(b"\x01\x01")
        assert await stream.read_exactly(1, PATIENCE_SECONDS) == b"\x01"
        stream.send(bytes(4))
        self.shared += await stream.read_exactly(1, PATIENCE_SECONDS)
        stream.send(SERVER_INIT)
        self.ready.append(stream)
        await stream.until_ended(PATIENCE_SECONDS)


async def connected(rig: Rig, session: Session, **claims: Any) -> Pipe:
    """Return a tunnel to the desktop of *session*."""
    own = rig.own(session, await rig.opened(session, **claims))
    stream, response = await rig.upgrade(session, "/.fumarole/connect", [*own, OFFER])
    assert response.status == 101, response
    assert response.get("Sec-WebSocket-Protocol") == "binary"
    assert response.get("Sec-WebSocket-Accept") == frames.accept_value(frames.KEY)
    return Pipe(stream)


async def shaken(pipe: Pipe) -> None:
    """Do the client's part of the RFB handshake."""
    assert await pipe.read(12) == b"RFB 003.008\n"
    pipe.write(b"RFB 003.008\n")
    assert await pipe.read(2) == b"\x01\x01"
    pipe.write(b"\x01")
    assert await pipe.read(4) == bytes(4)
    pipe.write(b"\x01")
    assert await pipe.read(len(SERVER_INIT)) == SERVER_INIT


async def desktop(rig: Rig, serve: Serve, **claims: Any) -> tuple[Pipe, Stream, Session]:
    """Return both ends of a desktop after the handshake."""
    server = Desktop()
    session = await rig.session(await serve(server), **VNC)
    pipe = await connected(rig, session, **claims)
    await shaken(pipe)
    while not server.ready:
        await asyncio.sleep(0.005)
    return pipe, server.ready[0], session


SET_PIXEL_FORMAT = b"\x00\x00\x00\x00" + SERVER_INIT[4:20]
SET_ENCODINGS = (
    b"\x02\x00\x00\x02" + (0).to_bytes(4, "big") + (-223 & 0xFFFFFFFF).to_bytes(4, "big")
)
UPDATE_REQUEST = b"\x03\x00" + bytes(4) + (640).to_bytes(2, "big") + (480).to_bytes(2, "big")
KEY = b"\x04\x01\x00\x00\xde\xad\xbe\xef"
POINTER = b"\x05\x01\xde\xad\xbe\xef"
CUT_TEXT = b"\x06\x00\x00\x00\x00\x00\x00\x04\xde\xad\xbe\xef"
CUT_TEXT_EXTENDED = (
    b"\x06\x00\x00\x00" + (-8 & 0xFFFFFFFF).to_bytes(4, "big") + b"\xde\xad\xbe\xef" * 2
)
QEMU_KEY = b"\xff\x00\x00\x01\xde\xad\xbe\xef\xde\xad\xbe\xef"
SET_DESKTOP_SIZE = b"\xfb\x00\xde\xad\xbe\xef\x00\x00"
READING = (SET_PIXEL_FORMAT, SET_ENCODINGS, UPDATE_REQUEST)
MARK = b"\xde\xad\xbe\xef"
SIZES = {0: 20, 3: 10, 4: 8, 5: 6}


def types_of(data: bytes) -> list[int]:
    """Return the types of the client messages in *data*; an unknown type ends the list."""
    types, place = [], 0
    while place < len(data):
        kind = data[place]
        types.append(kind)
        if kind in SIZES:
            place += SIZES[kind]
        elif kind == 2:
            place += 4 + 4 * int.from_bytes(data[place + 2 : place + 4], "big")
        else:
            return types
    return types


async def test_bytes_are_relayed_in_both_directions(rig: Rig, serve: Serve) -> None:
    pipe, server, _ = await desktop(rig, serve)
    pipe.write(b"".join(READING) + KEY + POINTER + CUT_TEXT)
    expected = b"".join(READING) + KEY + POINTER + CUT_TEXT
    assert await server.read_exactly(len(expected)) == expected
    update = b"\x00\x00\x00\x01" + bytes(8) + bytes(4) + random.Random(3).randbytes(300_000)
    server.send(update)
    assert await pipe.read(len(update)) == update


async def test_a_desktop_opens_on_a_gateway_that_never_saw_its_session_before(
    tmp_path: Path, serve: Serve
) -> None:
    app = await serve(Desktop())
    async with running_rig(tmp_path) as rig:
        session = await rig.session(app, **VNC)
        own = rig.own(session, await rig.opened(session))
        # The new process shares nothing with the old one but the grant key.
        await rig.process.kill()
        await rig.process.start()
        for _ in range(2):
            stream, response = await rig.upgrade(session, "/.fumarole/connect", [*own, OFFER])
            assert response.status == 101, response
            await shaken(Pipe(stream))


async def test_messages_cut_anywhere_are_the_same_bytes(rig: Rig, serve: Serve) -> None:
    pipe, server, _ = await desktop(rig, serve)
    data = b"".join(READING) + KEY + POINTER + CUT_TEXT
    for byte in data:
        pipe.write(bytes([byte]))
    assert await server.read_exactly(len(data)) == data
    parts = [data[:7], data[7:8], data[8:]]
    for number, part in enumerate(parts):
        opcode = frames.BINARY if number == 0 else frames.CONTINUATION
        last = number == len(parts) - 1
        pipe.stream.send(frames.encode(opcode, part, mask=frames.MASK, fin=last))
    assert await server.read_exactly(len(data)) == data


async def test_large_updates_are_relayed_unchanged(rig: Rig, serve: Serve) -> None:
    pipe, server, _ = await desktop(rig, serve)
    pixels = random.Random(4).randbytes(6 << 20)
    server.send(pixels)
    assert await pipe.read(len(pixels), 20.0) == pixels


# View only


@pytest.mark.parametrize("cut", [1, 3, 7, 1000], ids=lambda cut: f"pieces of {cut}")
async def test_input_of_a_viewer_is_dropped(rig: Rig, serve: Serve, cut: int) -> None:
    pipe, server, _ = await desktop(rig, serve, mode="view")
    data = SET_PIXEL_FORMAT + KEY + SET_ENCODINGS + POINTER + CUT_TEXT + POINTER + KEY
    data += UPDATE_REQUEST
    for start in range(0, len(data), cut):
        pipe.write(data[start : start + cut])
    await server.until(lambda: server.unread.endswith(UPDATE_REQUEST), "the update request")
    assert types_of(server.unread) == [0, 2, 3]
    assert MARK not in server.unread
    assert server.unread.startswith(SET_PIXEL_FORMAT)
    server.send(b"update")
    assert await pipe.read(6) == b"update"


@pytest.mark.parametrize(
    "message",
    [CUT_TEXT_EXTENDED, QEMU_KEY, SET_DESKTOP_SIZE, b"\xfa\xde\xad\xbe\xef", b"\x07" + MARK * 3],
    ids=["extended clipboard", "QEMU key", "desktop size", "xvp", "unknown"],
)
async def test_a_viewer_cannot_reach_the_desktop_by_another_path(
    rig: Rig, serve: Serve, message: bytes
) -> None:
    pipe, server, _ = await desktop(rig, serve, mode="view")
    pipe.write(UPDATE_REQUEST + message + KEY + POINTER)
    # The gateway may drop an unknown message, or end the connection.
    with suppress(StreamEnded):
        await server.until(lambda: UPDATE_REQUEST in server.unread, "the update request")
    pipe.write(UPDATE_REQUEST)
    await asyncio.sleep(0.3)
    assert MARK not in server.unread
    assert set(types_of(server.unread)) <= {3}


async def test_keys_hidden_in_the_handshake_are_dropped(rig: Rig, serve: Serve) -> None:
    server = Desktop()
    session = await rig.session(await serve(server), **VNC)
    pipe = await connected(rig, session, mode="view")
    pipe.write(b"RFB 003.008\n\x01\x01" + KEY + POINTER + UPDATE_REQUEST)
    while not server.ready:
        await asyncio.sleep(0.005)
    inside = server.ready[0]
    await inside.until(lambda: UPDATE_REQUEST in inside.unread, "the update request")
    assert inside.unread == UPDATE_REQUEST


# Access, and ends


async def test_the_app_is_not_dialled_for_an_unauthorized_user(rig: Rig, serve: Serve) -> None:
    app = await serve(Desktop())
    session = await rig.session(app, **VNC)
    for fields in ([], [("Origin", session.origin)], [("Cookie", "fumarole=x")]):
        _, response = await rig.upgrade(session, "/.fumarole/connect", [*fields, OFFER])
        assert response.status == 401
    assert app.connections == []


async def test_a_desktops_host_serves_only_gateway_pages(rig: Rig, serve: Serve) -> None:
    app = await serve(Desktop())
    session = await rig.session(app, **VNC)
    own = rig.own(session, await rig.opened(session))
    page = await rig.get(session, fields=[*own, ("Accept", "text/html")])
    assert page.status == 200
    assert (page.get("Content-Type") or "").startswith("text/html")
    policy = page.get("Content-Security-Policy") or ""
    assert "'unsafe-inline'" not in policy.partition("style-src")[0]
    for method, target, status in (("POST", "/", 405), ("GET", "/x", 404), ("DELETE", "/", 405)):
        response = await rig.get(session, target, own, method=method)
        assert response.status == status, (method, target)
    _, response = await rig.upgrade(session, "/", own)
    assert response.status == 200  # the page: nothing upgrades there
    assert app.connections == []


async def test_a_bearer_token_opens_a_desktop(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve(Desktop()), **VNC)
    fields = [("Fumarole-Token", rig.token(session)), OFFER]
    stream, response = await rig.upgrade(session, "/.fumarole/connect", fields)
    assert response.status == 101
    await shaken(Pipe(stream))


@pytest.mark.parametrize(
    ("change", "code"),
    [("revoke", 4401), ("remove", 4410), ("starting", 1012), ("target", 1012), ("expired", 4410)],
)
async def test_a_desktop_is_closed_with_the_code_of_its_reason(
    rig: Rig, serve: Serve, change: str, code: int
) -> None:
    pipe, server, session = await desktop(rig, serve)
    await rig.end(session, change)
    assert await pipe.closed() == code
    await server.until_ended()


async def test_after_a_revocation_no_key_is_forwarded(rig: Rig, serve: Serve) -> None:
    pipe, server, session = await desktop(rig, serve)

    async def type_on() -> None:
        while not pipe.stream.transport.is_closing():
            pipe.write(KEY)
            await asyncio.sleep(0.004)

    typing = asyncio.create_task(type_on())
    try:
        await server.until(lambda: KEY in server.received, "a key")
        await rig.bus.revoke(sid=session.sid)
        await asyncio.sleep(0.6)
        seen = len(server.received)
        await asyncio.sleep(0.3)
        assert len(server.received) == seen
        assert await pipe.closed() == 4401
    finally:
        typing.cancel()


async def test_when_the_client_disconnects_the_desktop_connection_is_closed(
    rig: Rig, serve: Serve
) -> None:
    pipe, server, _ = await desktop(rig, serve)
    pipe.stream.reset()
    await server.until_ended()


async def test_a_ping_gets_a_pong(rig: Rig, serve: Serve) -> None:
    pipe, _, _ = await desktop(rig, serve)
    pipe.write(b"are you there", opcode=frames.PING)
    frame = await frames.read_frame(pipe.stream)
    assert (frame.opcode, frame.payload) == (frames.PONG, b"are you there")
