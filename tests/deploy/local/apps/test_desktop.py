"""Tests that the desktop app shows pixels over RFB and reacts to input, with and without Xvnc."""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from PIL import Image

from deploy.local.apps.painting import WHOLE, Painting
from deploy.local.apps.rfb import PixelFormat, ProtocolError
from deploy.local.ports import Ports

ROOT = Path(__file__).parents[4]
PORTS = Ports()
INK = (255, 196, 84)
START_SECONDS = 15.0


class RfbClient:
    """The parts of RFC 6143 that are needed to see pixels and to click."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.screen = Image.new("RGB", (1, 1))

    async def shake_hands(self) -> str:
        read = self._reader.readexactly
        assert await read(12) == b"RFB 003.008\n"
        self._writer.write(b"RFB 003.008\n")
        assert 1 in await read((await read(1))[0])
        self._writer.write(b"\x01")
        assert await read(4) == bytes(4)
        self._writer.write(b"\x01")
        width, height = struct.unpack(">HH16x", await read(20))
        self.screen = Image.new("RGB", (width, height))
        name = await read(struct.unpack(">I", await read(4))[0])
        pixels = struct.pack(">BBBBHHHBBB3x", 32, 24, 0, 1, 255, 255, 255, 0, 8, 16)
        self._writer.write(bytes(4) + pixels + struct.pack(">BxHi", 2, 1, 0))
        return name.decode()

    async def update(self, *, incremental: bool) -> None:
        width, height = self.screen.size
        self._writer.write(struct.pack(">BBHHHH", 3, incremental, 0, 0, width, height))
        read = self._reader.readexactly
        kind, count = struct.unpack(">BxH", await read(4))
        assert kind == 0
        for _ in range(count):
            x, y, w, h, encoding = struct.unpack(">HHHHi", await read(12))
            assert encoding == 0
            part = Image.frombytes("RGB", (w, h), await read(w * h * 4), "raw", "RGBX")
            self.screen.paste(part, (x, y))

    async def update_until(self, x: int, y: int, colour: tuple[int, int, int]) -> None:
        async with asyncio.timeout(START_SECONDS):
            while self.screen.getpixel((x, y)) != colour:
                await self.update(incremental=True)

    def point(self, x: int, y: int, *, down: bool) -> None:
        self._writer.write(struct.pack(">BBHH", 5, down, x, y))

    def type(self, text: str) -> None:
        for character in text:
            for down in (1, 0):
                self._writer.write(struct.pack(">BBxxI", 4, down, ord(character)))


@asynccontextmanager
async def desktop(*options: str) -> AsyncIterator[int]:
    port = PORTS.take()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.local.apps.desktop", f"--port={port}", *options,
        cwd=ROOT, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield port
    finally:
        process.terminate()
        _, errors = await asyncio.wait_for(process.communicate(), START_SECONDS)
    assert process.returncode == 0, errors.decode()


@asynccontextmanager
async def viewer(port: int) -> AsyncIterator[RfbClient]:
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                await asyncio.sleep(0.05)
    client = RfbClient(reader, writer)
    assert "Fumarole" in await client.shake_hands()
    yield client
    writer.close()
    await writer.wait_closed()


async def look_click_and_type(port: int) -> None:
    async with viewer(port) as client:
        await client.update(incremental=False)
        # With Xvnc, the window may appear a moment after the display.
        async with asyncio.timeout(START_SECONDS):
            while len(client.screen.getcolors(1 << 24) or []) < 50:
                await client.update(incremental=True)
        assert client.screen.getpixel((300, 300)) != INK
        client.point(300, 300, down=True)
        client.point(380, 300, down=True)
        client.point(380, 300, down=False)
        await client.update_until(340, 300, INK)
        before = client.screen.copy()
        client.type("Ab")
        async with asyncio.timeout(START_SECONDS):
            while before.crop((40, 700, 300, 740)) == client.screen.crop((40, 700, 300, 740)):
                await client.update(incremental=True)


async def test_the_test_vnc_server_shows_and_reacts() -> None:
    async with desktop("--plain") as port:
        await look_click_and_type(port)


@pytest.mark.needs("xvnc")
async def test_xvnc_shows_and_reacts() -> None:
    async with desktop() as port:
        await look_click_and_type(port)


async def test_two_viewers_see_the_same_and_a_faulty_one_disturbs_neither() -> None:
    async with desktop("--plain") as port, viewer(port) as one, viewer(port) as two:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.read(1000) == b"RFB 003.008\n"
        writer.close()
        one.point(200, 400, down=True)
        await two.update(incremental=False)
        await two.update_until(200, 400, INK)


def test_pixels_have_the_requested_format() -> None:
    image = Image.new("RGB", (1, 1), (1, 2, 3))
    little = struct.pack(">BBBBHHHBBB3x", 32, 24, 0, 1, 255, 255, 255, 16, 8, 0)
    big = struct.pack(">BBBBHHHBBB3x", 32, 24, 1, 1, 255, 255, 255, 16, 8, 0)
    assert PixelFormat.read(little).encode(image) == bytes([3, 2, 1, 0])
    assert PixelFormat.read(big).encode(image) == bytes([0, 1, 2, 3])


@pytest.mark.parametrize("changed", [{0: 8}, {3: 0}, {4: 1}, {10: 5}])
def test_pixels_of_other_kinds_are_refused(changed: dict[int, int]) -> None:
    data = bytearray(PixelFormat.structure())
    for index, value in changed.items():
        data[index] = value
    with pytest.raises(ProtocolError):
        PixelFormat.read(bytes(data))


def test_keys_type_and_erase_text() -> None:
    painting = Painting("test")
    empty = painting.image.copy()
    assert painting.key(ord("x")) is not None
    assert painting.image != empty
    painting.key(0xFF08)
    assert painting.image == empty
    assert painting.key(0xFFE1) is None


def test_pointer_positions_are_clamped() -> None:
    box = Painting("test").press(70000, -5)
    assert box.right <= WHOLE.right
    assert box.top >= 0
