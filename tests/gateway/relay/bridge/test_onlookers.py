"""Viewers of a real desktop through a real gateway: nothing that they send has an effect."""

from __future__ import annotations

import asyncio
import random
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

import pytest
from websockets.exceptions import ConnectionClosed
from Xlib import X

from tests.deploy.local.apps.test_desktop import RfbClient
from tests.gateway.browser import open_socket
from tests.gateway.conftest import World
from tests.gateway.pages.test_clipboard import shake_hands
from tests.gateway.xvnc import screen_of, xvnc

KEY = struct.pack(">BBHI", 4, 1, 0, 0x61)
POINTER = struct.pack(">BBHH", 5, 1, 10, 10)
SCREEN = struct.pack(">IHHHHI", 0, 0, 0, 800, 600, 0)

NOISE = {
    "key": KEY,
    "pointer": POINTER,
    "cut text": b"\6\0\0\0" + (5).to_bytes(4, "big") + b"hello",
    "capabilities": struct.pack(">BxxxiII", 6, -8, 0x1F000001, 1 << 20),
    "notify": struct.pack(">BxxxiI", 6, -4, 1 << 27 | 1),
    "provide": struct.pack(">BxxxiI", 6, -20, 1 << 28 | 1) + zlib.compress(b"\0\0\0\2hi")[:16],
    "resize": struct.pack(">BxHHBx", 251, 800, 600, 1) + SCREEN,
    "key of QEMU": struct.pack(">BBHII", 255, 0, 1, 0x61, 30),
    "shutdown": b"\xfa\0\1\2",
    "encodings": struct.pack(">BxH6i", 2, 6, 0, -308, -258, -316, -1063131698, -309),
    "fence": b"\xf8" + bytes(3) + struct.pack(">IB", 1 << 31, 2) + b"\4\5",
    "update": b"\3\1" + bytes(4) + struct.pack(">HH", 640, 480),
}


def noise(chance: random.Random) -> list[bytes]:
    """Return a viewer's bytes in random pieces: messages, some of them corrupted, and any bytes."""
    messages = list(NOISE.values()) + chance.choices(list(NOISE.values()), k=40)
    chance.shuffle(messages)
    for at in chance.sample(range(20, len(messages)), 6):
        spoilt = bytearray(messages[at])
        spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
        messages[at] = bytes(spoilt)
    whole = b"".join(messages) + chance.randbytes(200)
    marks = sorted([0, *(chance.randrange(len(whole)) for _ in range(30)), len(whole)])
    return [whole[one:other] for one, other in pairwise(marks) if other > one]


async def make_noise(world: World, sid: str, cookie: str, pieces: list[bytes]) -> None:
    """Connect, send *pieces*, and stay until the desktop or the gateway has read them."""
    async with open_socket(world.gateway, sid, cookie=cookie, protocol="binary") as socket:
        await shake_hands(socket)
        with suppress(ConnectionClosed, TimeoutError):
            for piece in pieces:
                await socket.send(piece)
            async with asyncio.timeout(0.3):
                while True:
                    await socket.recv()


@asynccontextmanager
async def viewer_of(port: int) -> AsyncIterator[RfbClient]:
    """A client of the desktop itself, without the gateway."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = RfbClient(reader, writer)
    await client.shake_hands()
    yield client
    writer.close()
    await writer.wait_closed()


@pytest.mark.needs("xvnc")
async def test_fuzzed_input_of_a_viewer_changes_no_byte_and_no_pixel(world: World) -> None:
    async with xvnc("-SecurityTypes", "None") as server, screen_of(server) as screen:
        port = server.port
        sid = await world.publish(kind="vnc", port=port)
        async with viewer_of(port) as direct:
            await direct.update(incremental=False)
            before = direct.screen.tobytes()
            screen.take()
            screen.seen.clear()
            view = await world.gateway.open(sid, kind="vnc", mode="view")
            for seed in range(8):
                await make_noise(world, sid, view, noise(random.Random(seed)))
            screen.take()
            assert (screen.seen, screen.size) == ([], (640, 480))
            assert screen.clipboard_is_empty
            await direct.update(incremental=False)
            assert direct.screen.tobytes() == before
        # The same from somebody who may: else nothing would have been shown.
        control = await world.gateway.open(sid, kind="vnc", sub="grace")
        async with open_socket(world.gateway, sid, cookie=control, protocol="binary") as socket:
            await shake_hands(socket)
            for name in ("encodings", "key", "pointer", "resize", "cut text"):
                await socket.send(NOISE[name])
            await screen.until(lambda: screen.size == (800, 600))
            await screen.until(lambda: {X.KeyPress, X.ButtonPress} <= set(screen.seen))
            await screen.until(lambda: not screen.clipboard_is_empty)
