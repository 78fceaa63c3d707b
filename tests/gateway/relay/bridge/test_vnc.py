"""Desktops through a real gateway: bytes in both directions, hidden passwords, view mode."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import random
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from gateway.core.rfb.handshake import answer_challenge
from shared.link import Seal
from tests.gateway.browser import ClientConnection, open_socket
from tests.gateway.conftest import World, running_gateway, world_of
from tests.gateway.upstreams import listening_on

VERSION = b"RFB 003.008\n"
OK = bytes(4)
CHALLENGE = bytes(range(100, 116))
KEY = struct.pack(">BBHI", 4, 1, 0, 0x61)
POINTER = struct.pack(">BBHH", 5, 1, 10, 10)
UPDATE = b"\x03\x01" + bytes(8)


class Desktop:
    """A raw RFB server, with or without a password, that keeps what it is sent."""

    def __init__(self, password: str | None = None) -> None:
        self.password = password
        self.init = b""
        self.received = bytearray()
        self.connections = 0
        self.closed = asyncio.Event()
        self.writer: asyncio.StreamWriter | None = None

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client."""
        self.connections += 1
        self.writer = writer
        try:
            await self._shake_hands(reader, writer)
            while data := await reader.read(65536):
                self.received += data
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        self.closed.set()
        writer.close()

    async def _shake_hands(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(VERSION)
        assert await reader.readexactly(12) == VERSION
        security = b"\x01" if self.password is None else b"\x02"
        writer.write(b"\x01" + security)
        assert await reader.readexactly(1) == security
        if self.password is not None:
            writer.write(CHALLENGE)
            response = await reader.readexactly(16)
            if response != answer_challenge(self.password, CHALLENGE):
                writer.write(b"\0\0\0\1\0\0\0\2no")
                return
        writer.write(OK)
        self.init = await reader.readexactly(1)
        writer.write(b"SERVER-INIT")


class Viewer:
    """The browser's side: RFB regardless of message boundaries."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.unread = b""

    async def read(self, count: int) -> bytes:
        async with asyncio.timeout(5):
            while len(self.unread) < count:
                message = await self.socket.recv()
                assert isinstance(message, bytes)
                self.unread += message
        data, self.unread = self.unread[:count], self.unread[count:]
        return data

    async def shake_hands(self) -> None:
        """Connect as noVNC does, without a password."""
        assert await self.read(12) == VERSION
        await self.socket.send(VERSION)
        assert await self.read(2) == b"\x01\x01"
        await self.socket.send(b"\x01")
        assert await self.read(4) == OK
        await self.socket.send(b"\x00")
        assert await self.read(11) == b"SERVER-INIT"


@asynccontextmanager
async def viewing(world: World, sid: str, **claims: str) -> AsyncIterator[Viewer]:
    cookie = await world.gateway.open(sid, kind="vnc", **claims)
    async with open_socket(world.gateway, sid, cookie=cookie, protocol="binary") as socket:
        assert socket.subprotocol == "binary"
        yield Viewer(socket)


async def eventually(received: bytearray, expected: bytes) -> None:
    async with asyncio.timeout(5):
        while bytes(received) != expected:
            await asyncio.sleep(0.005)


async def test_a_desktop_without_password_is_relayed_byte_for_byte(world: World) -> None:
    desktop = Desktop()
    async with listening_on(desktop.handle) as port:
        sid = await world.publish(kind="vnc", port=port)
        async with viewing(world, sid) as viewer:
            await viewer.shake_hands()
            await viewer.socket.send(KEY + POINTER)
            await eventually(desktop.received, KEY + POINTER)
        async with asyncio.timeout(5):
            await desktop.closed.wait()
        assert desktop.init == b"\x00"


async def test_a_sealed_password_opens_the_desktop_and_never_reaches_the_browser(
    world: World,
) -> None:
    desktop = Desktop("hunter22")
    seal = Seal(world.gateway.link_key)
    async with listening_on(desktop.handle) as port:
        sid = await world.publish(kind="vnc", port=port)
        sealed = seal.seal({"vnc_password": "hunter22"}, sid=sid, rev=1, random=os.urandom)
        await world.change(sid, kind="vnc", port=port, sealed=sealed)
        async with viewing(world, sid) as viewer:
            await viewer.shake_hands()
            await viewer.socket.send(KEY)
            await eventually(desktop.received, KEY)


async def test_a_password_sealed_with_the_next_link_key_opens_the_desktop(
    tmp_path: Path,
) -> None:
    old, new = os.urandom(32), os.urandom(32)
    keys = tmp_path / "both"
    keys.write_bytes(base64.b64encode(old) + b"\n" + base64.b64encode(new) + b"\n")
    desktop = Desktop("hunter22")
    async with AsyncExitStack() as stack:
        rotating = running_gateway(tmp_path, FUMAROLE_LINK_KEY_FILE=str(keys))
        gateway = await asyncio.to_thread(stack.enter_context, rotating)
        world = await stack.enter_async_context(world_of(gateway))
        port = await stack.enter_async_context(listening_on(desktop.handle))
        sid = await world.publish(kind="vnc", port=port)
        # The controller was restarted first.
        secrets = {"vnc_password": "hunter22"}
        sealed = Seal(new, old).seal(secrets, sid=sid, rev=1, random=os.urandom)
        await world.change(sid, kind="vnc", port=port, sealed=sealed)
        async with viewing(world, sid) as viewer:
            await viewer.shake_hands()
            await viewer.socket.send(KEY)
            await eventually(desktop.received, KEY)


async def test_a_password_sealed_for_another_route_is_not_used(world: World) -> None:
    desktop = Desktop("hunter22")
    seal = Seal(world.gateway.link_key)
    async with listening_on(desktop.handle) as port:
        sid = await world.publish(kind="vnc", port=port)
        sealed = seal.seal({"vnc_password": "hunter22"}, sid=sid, rev=7, random=os.urandom)
        await world.change(sid, kind="vnc", port=port, sealed=sealed)
        with pytest.raises(InvalidStatus) as refused:
            async with viewing(world, sid):
                pass
        assert refused.value.response.status_code == 503
        assert desktop.connections == 0


async def test_without_a_sealed_password_the_browser_is_asked(world: World) -> None:
    desktop = Desktop("hunter22")
    async with listening_on(desktop.handle) as port:
        sid = await world.publish(kind="vnc", port=port)
        async with viewing(world, sid, mode="view") as viewer:
            assert await viewer.read(12) == VERSION
            await viewer.socket.send(VERSION)
            assert await viewer.read(2) == b"\x01\x02"
            await viewer.socket.send(b"\x02")
            assert await viewer.read(16) == CHALLENGE
            await viewer.socket.send(answer_challenge("hunter22", CHALLENGE))
            assert await viewer.read(4) == OK


async def test_a_desktop_viewer_sends_no_input_and_disconnects_no_user(world: World) -> None:
    desktop = Desktop()
    async with listening_on(desktop.handle) as port:
        sid = await world.publish(kind="vnc", port=port)
        async with viewing(world, sid, mode="view") as viewer:
            await viewer.shake_hands()
            await viewer.socket.send(KEY + UPDATE + POINTER)
            for byte in KEY + UPDATE:
                await viewer.socket.send(bytes((byte,)))
            await eventually(desktop.received, UPDATE + UPDATE)
            assert desktop.init == b"\x01"


async def test_a_viewer_that_sends_an_unknown_message_is_disconnected(world: World) -> None:
    desktop = Desktop()
    async with listening_on(desktop.handle) as port:
        sid = await world.publish(kind="vnc", port=port)
        async with viewing(world, sid, mode="view") as viewer:
            await viewer.shake_hands()
            await viewer.socket.send(b"\xfd" + bytes(20))
            with pytest.raises(ConnectionClosed) as closed:
                await viewer.read(1)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008
        assert desktop.received == b""


async def test_a_text_frame_is_refused_as_rfb(world: World) -> None:
    desktop = Desktop()
    async with listening_on(desktop.handle) as port:
        sid = await world.publish(kind="vnc", port=port)
        async with viewing(world, sid) as viewer:
            await viewer.shake_hands()
            await viewer.socket.send("text")
            with pytest.raises(ConnectionClosed) as closed:
                await viewer.read(1)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1003


async def test_an_unreachable_desktop_is_502(world: World) -> None:
    async with listening_on(Desktop().handle) as port:
        pass
    sid = await world.publish(kind="vnc", port=port)
    with pytest.raises(InvalidStatus) as refused:
        async with viewing(world, sid):
            pass
    assert refused.value.response.status_code == 502


@pytest.mark.parametrize("scheme", ["tcp", "ws", "wss"])
@pytest.mark.parametrize("host", ["a..b", "user@x", "[", "\u00fc" * 70, ".x"])
async def test_a_desktop_with_an_invalid_host_is_502(world: World, scheme: str, host: str) -> None:
    sid = await world.publish(kind="vnc", target={"scheme": scheme, "host": host})
    with pytest.raises(InvalidStatus) as refused:
        async with viewing(world, sid):
            pass
    assert refused.value.response.status_code == 502


async def test_another_subprotocol_is_refused_and_nothing_is_dialled(world: World) -> None:
    desktop = Desktop()
    async with listening_on(desktop.handle) as port:
        sid = await world.publish(kind="vnc", port=port)
        cookie = await world.gateway.open(sid, kind="vnc")
        with pytest.raises(InvalidStatus) as refused:
            await open_socket(world.gateway, sid, cookie=cookie, protocol="chat")
        assert refused.value.response.status_code == 400
        assert desktop.connections == 0


async def test_a_desktop_that_goes_away_ends_the_connection(world: World) -> None:
    desktop = Desktop()
    async with listening_on(desktop.handle) as port:
        sid = await world.publish(kind="vnc", port=port)
        async with viewing(world, sid) as viewer:
            await viewer.shake_hands()
            assert desktop.writer is not None
            desktop.writer.close()
            with pytest.raises(ConnectionClosed) as closed:
                await viewer.read(1)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012


async def test_thirty_two_megabytes_are_relayed_both_ways_despite_stalls(world: World) -> None:
    chance = random.Random(7)
    size = 32 << 20
    block = chance.randbytes(1 << 20)
    expected = hashlib.sha256(block * 32).hexdigest()
    got = hashlib.sha256()
    done = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def push() -> None:
            for _ in range(32):
                writer.write(block)
                await writer.drain()
                await asyncio.sleep(chance.random() / 100)

        pushing = asyncio.create_task(push())
        left = size
        while left:
            data = await reader.read(65536)
            got.update(data)
            left -= len(data)
        await pushing
        done.set()
        writer.close()

    async with listening_on(handle) as port:
        sid = await world.publish(kind="vnc", port=port)
        async with viewing(world, sid) as viewer:

            async def pull() -> str:
                taken, left = hashlib.sha256(), size
                while left:
                    message = await viewer.socket.recv()
                    assert isinstance(message, bytes)
                    taken.update(message)
                    left -= len(message)
                return taken.hexdigest()

            pulling = asyncio.create_task(pull())
            await asyncio.sleep(0.2)
            for _ in range(32):
                view, at = memoryview(block), 0
                while at < len(block):
                    step = chance.randrange(1, 300_000)
                    await viewer.socket.send(view[at : at + step])
                    at += step
            async with asyncio.timeout(30):
                assert await pulling == expected
                await done.wait()
    assert got.hexdigest() == expected


async def test_a_viewer_that_does_not_read_applies_backpressure_to_the_desktop(
    world: World,
) -> None:
    sent = 0

    async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            while True:
                writer.write(bytes(65536))
                await writer.drain()
                sent += 65536
        except ConnectionError:
            pass
        writer.close()

    async with listening_on(handle) as port:
        sid = await world.publish(kind="vnc", port=port)
        cookie = await world.gateway.open(sid, kind="vnc")
        async with open_socket(
            world.gateway, sid, cookie=cookie, protocol="binary", max_queue=1
        ) as socket:
            last = -1
            async with asyncio.timeout(10):
                while sent != last:
                    last = sent
                    await asyncio.sleep(0.3)
            # What the kernel's buffers of two connections hold, and little of ours.
            assert last < 24 << 20
            socket.transport.abort()


@asynccontextmanager
async def socket_desktop() -> AsyncIterator[int]:
    """A desktop that speaks WebSocket, at the path /websockify only."""

    async def serve_one(socket: ServerConnection) -> None:
        assert socket.request is not None
        assert socket.request.path == "/websockify"
        assert "Cookie" not in socket.request.headers
        async for message in socket:
            await socket.send(message)

    async with serve(
        serve_one, "127.0.0.1", 0, subprotocols=[Subprotocol("binary")], max_size=None
    ) as server:
        yield next(iter(server.sockets)).getsockname()[1]


async def test_a_desktop_that_speaks_websocket_is_reached_at_its_path(world: World) -> None:
    async with socket_desktop() as port:
        sid = await world.publish(
            kind="vnc", port=port, target={"scheme": "ws", "base_path": "/websockify"}
        )
        async with viewing(world, sid) as viewer:
            data = random.Random(3).randbytes(900_000)
            await viewer.socket.send(data)
            assert await viewer.read(len(data)) == data
