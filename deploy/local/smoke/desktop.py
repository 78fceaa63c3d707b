"""Uses a desktop: makes the RFB handshake over the WebSocket, and reads a whole picture."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import WSMsgType

from deploy.local.smoke.failure import SmokeFailed
from deploy.local.smoke.gateway import Opened
from deploy.local.smoke.work import Stopwatch

VERSION: Final = b"RFB 003.008\n"
_NO_SECURITY: Final = 1
_SET_PIXEL_FORMAT, _SET_ENCODINGS, _UPDATE_REQUEST = 0, 2, 3
_FRAMEBUFFER_UPDATE, _COLOUR_MAP, _BELL, _CUT_TEXT = 0, 1, 2, 3
_RAW: Final = 0
_MOST_RECTANGLES: Final = 10_000
PAINTED_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.2


class Bytes:
    """The byte stream that the binary messages of a WebSocket make up (RFC 6143, 7)."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool]) -> None:
        self._socket = socket
        self._data = bytearray()

    async def exactly(self, count: int) -> bytes:
        """Return the next *count* bytes."""
        while len(self._data) < count:
            message = await self._socket.receive()
            if message.type is not WSMsgType.BINARY:
                raise SmokeFailed(f"the desktop closed with {self._socket.close_code}")
            self._data += message.data
        taken = bytes(self._data[:count])
        del self._data[:count]
        return taken

    async def unpack(self, layout: str) -> tuple[int, ...]:
        """Return the next numbers in the format *layout* (big-endian)."""
        return struct.unpack(f">{layout}", await self.exactly(struct.calcsize(f">{layout}")))


@dataclass(frozen=True, slots=True)
class Screen:
    """A desktop's size."""

    width: int
    height: int


async def use(opened: Opened, watch: Stopwatch) -> str:
    """Return the size of the picture that the desktop sent, in words."""
    async with opened.websocket("/.fumarole/connect", "binary") as socket:
        stream = Bytes(socket)
        version = await stream.exactly(len(VERSION))
        watch.first_byte()
        if not version.startswith(b"RFB 003."):
            raise SmokeFailed("what answers is no RFB server")
        await socket.send_bytes(VERSION)
        screen = await _initialised(socket, stream)
        covered, colours = await _painted(socket, stream, screen)
        if covered < screen.width * screen.height or colours < 2:
            raise SmokeFailed(f"the picture has {covered} pixels in {colours} colours")
    return f"{screen.width}×{screen.height} pixels"


async def _initialised(socket: aiohttp.ClientWebSocketResponse[bool], stream: Bytes) -> Screen:
    """Return the screen's size, after security and initialisation (RFC 6143, 7.1 to 7.3)."""
    (count,) = await stream.unpack("B")
    kinds = await stream.exactly(count)
    if _NO_SECURITY not in kinds:
        raise SmokeFailed("the desktop asks for a password that the gateway should have given")
    await socket.send_bytes(bytes([_NO_SECURITY]))
    if (await stream.unpack("I"))[0] != 0:
        raise SmokeFailed("the desktop refuses")
    await socket.send_bytes(b"\x01")  # shared
    width, height = await stream.unpack("HH16x")
    (length,) = await stream.unpack("I")
    await stream.exactly(length)
    return Screen(width, height)


async def _painted(
    socket: aiohttp.ClientWebSocketResponse[bool], stream: Bytes, screen: Screen
) -> tuple[int, int]:
    """Return the pixels and colours of a whole picture, once a program has painted one.

    The server is ready a moment before the program, and shows one colour until then.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PAINTED_SECONDS
    while True:
        await socket.send_bytes(_ask_for(screen))
        covered, colours = await _picture(stream)
        if colours > 1 or loop.time() > deadline:
            return covered, colours
        await asyncio.sleep(_LOOK_SECONDS)


def _ask_for(screen: Screen) -> bytes:
    """Return the request for one whole picture, raw, in 32-bit pixels."""
    pixels = struct.pack(">BBBBHHHBBB3x", 32, 24, 0, 1, 255, 255, 255, 16, 8, 0)
    return (
        struct.pack(">B3x", _SET_PIXEL_FORMAT)
        + pixels
        + struct.pack(">BxHi", _SET_ENCODINGS, 1, _RAW)
        + struct.pack(">BBHHHH", _UPDATE_REQUEST, 0, 0, 0, screen.width, screen.height)
    )


async def _picture(stream: Bytes) -> tuple[int, int]:
    """Return the number of pixels in the first update, and of the colours among them."""
    while (kind := (await stream.unpack("B"))[0]) != _FRAMEBUFFER_UPDATE:
        match kind:
            case 2:  # bell
                pass
            case 3:  # cut text
                (length,) = await stream.unpack("3xI")
                await stream.exactly(length)
            case _:
                raise SmokeFailed(f"the desktop sent message {kind}")
    (rectangles,) = await stream.unpack("xH")
    covered, colours = 0, set[bytes]()
    for _ in range(min(rectangles, _MOST_RECTANGLES)):
        _, _, width, height, encoding = await stream.unpack("HHHHi")
        if encoding != _RAW:
            raise SmokeFailed(f"the desktop chose encoding {encoding}")
        pixels = await stream.exactly(width * height * 4)
        covered += width * height
        colours |= {pixels[at : at + 3] for at in range(0, len(pixels), 4)}
    return covered, len(colours)
