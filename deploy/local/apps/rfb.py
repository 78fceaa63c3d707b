"""A small RFB 3.8 server (RFC 6143) that shows a painting and accepts pointer and keys.

Raw encoding, true colour at 32 bits a pixel, no authentication: it stands behind a gateway.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image

from deploy.local.apps.painting import HEIGHT, WHOLE, WIDTH, Box, Painting

VERSION = b"RFB 003.008\n"
NO_SECURITY = 1
MAX_CUT_TEXT = 1 << 20
_HANDSHAKE_SECONDS = 10.0


class ProtocolError(Exception):
    """The client sent a message that RFC 6143 or this server does not know."""


@dataclass(frozen=True, slots=True)
class PixelFormat:
    """The client's layout of 32-bit pixels: the byte of each colour (RFC 6143, 7.4)."""

    red: int = 2
    green: int = 1
    blue: int = 0

    @classmethod
    def read(cls, data: bytes) -> PixelFormat:
        """Return the format in a PIXEL_FORMAT structure of 16 bytes.

        Raises:
            ProtocolError: Unless it is true colour, 32 bits, with whole bytes for colours.
        """
        bits, _, big, true, *limits, red, green, blue = struct.unpack(">BBBBHHHBBB3x", data)
        if bits != 32 or not true or limits != [255] * 3 or any(s % 8 for s in (red, green, blue)):
            raise ProtocolError("only true colour at 32 bits a pixel is offered")
        places = [shift // 8 for shift in (red, green, blue)]
        return cls(*(3 - place for place in places) if big else places)

    def encode(self, image: Image.Image) -> bytes:
        """Return the pixels of *image*."""
        bands = dict(zip((self.red, self.green, self.blue), image.split(), strict=True))
        empty = Image.new("L", image.size)
        return Image.merge("RGBX", [bands.get(place, empty) for place in range(4)]).tobytes()

    @staticmethod
    def structure() -> bytes:
        """Return the PIXEL_FORMAT that this server announces."""
        return struct.pack(">BBBBHHHBBB3x", 32, 24, 0, 1, 255, 255, 255, 16, 8, 0)


class Viewer:
    """One connected client."""

    def __init__(
        self,
        painting: Painting,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        changed: Callable[[Box], None],
    ) -> None:
        self._painting = painting
        self._reader = reader
        self._writer = writer
        self._changed = changed
        self._format = PixelFormat()
        self._dirty: list[Box] = []
        self._asked = False
        self._down = False

    async def serve(self, name: str) -> None:
        """Speak RFB until the client disconnects.

        Raises:
            ProtocolError: If the client sends an unknown message.
        """
        async with asyncio.timeout(_HANDSHAKE_SECONDS):
            await self._handshake(name)
        while True:
            await self._message((await self._reader.readexactly(1))[0])
            self.flush()
            await self._writer.drain()

    async def _handshake(self, name: str) -> None:
        self._writer.write(VERSION)
        if await self._reader.readexactly(12) != VERSION:
            raise ProtocolError("only RFB 3.8 is spoken")
        self._writer.write(bytes([1, NO_SECURITY]))
        if await self._reader.readexactly(1) != bytes([NO_SECURITY]):
            raise ProtocolError("no such security type was offered")
        self._writer.write(struct.pack(">I", 0))
        await self._reader.readexactly(1)  # ClientInit: every client may share
        title = name.encode()
        self._writer.write(struct.pack(">HH", WIDTH, HEIGHT) + PixelFormat.structure())
        self._writer.write(struct.pack(">I", len(title)) + title)

    async def _message(self, kind: int) -> None:
        read = self._reader.readexactly
        match kind:
            case 0:
                self._format = PixelFormat.read((await read(19))[3:])
            case 2:
                count = struct.unpack(">xH", await read(3))[0]
                await read(4 * count)
            case 3:
                incremental = (await read(9))[0]
                self._dirty += [] if incremental else [WHOLE]
                self._asked = True
            case 4:
                down, keysym = struct.unpack(">BxxI", await read(7))
                self._key(keysym if down else 0)
            case 5:
                self._pointer(*struct.unpack(">BHH", await read(5)))
            case 6:
                length = struct.unpack(">3xI", await read(7))[0]
                if length > MAX_CUT_TEXT:
                    raise ProtocolError("the cut text is too long")
                await read(length)
            case _:
                raise ProtocolError(f"unknown message {kind}")

    def _key(self, keysym: int) -> None:
        box = self._painting.key(keysym)
        if box is not None:
            self._changed(box)

    def _pointer(self, buttons: int, x: int, y: int) -> None:
        if buttons & 1:
            self._changed(self._painting.press(x, y))
        else:
            self._painting.release()

    def invalidate(self, box: Box) -> None:
        """Record that *box* has to be shown again."""
        self._dirty.append(box)
        self.flush()

    def flush(self) -> None:
        """Send the changes, if the client has requested them and is not behind."""
        if not self._asked or not self._dirty or self._writer.transport.get_write_buffer_size():
            return
        boxes = [WHOLE] if WHOLE in self._dirty or len(self._dirty) > 32 else self._dirty
        self._dirty, self._asked = [], False
        self._writer.write(struct.pack(">BxH", 0, len(boxes)))
        for box in boxes:
            self._writer.write(struct.pack(">HHHHi", box.left, box.top, box.width, box.height, 0))
            part = self._painting.image.crop((box.left, box.top, box.right, box.bottom))
            self._writer.write(self._format.encode(part))


class RfbServer:
    """Shows one painting to any number of viewers."""

    def __init__(self, painting: Painting, name: str) -> None:
        self._painting = painting
        self._name = name
        self._viewers: set[Viewer] = set()

    def changed(self, box: Box) -> None:
        """Show *box* again to every viewer."""
        for viewer in self._viewers:
            viewer.invalidate(box)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        viewer = Viewer(self._painting, reader, writer, self.changed)
        self._viewers.add(viewer)
        try:
            await viewer.serve(self._name)
        except (ProtocolError, TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # the client disconnected, or is no RFB client; the others stay
        finally:
            self._viewers.discard(viewer)
            writer.close()
