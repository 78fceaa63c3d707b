"""Reads and writes the gateway's own tunnels as a client does: bytes in binary messages."""

from __future__ import annotations

import asyncio

from tests.contract import frames
from tests.contract.streams import DEADLINE_SECONDS, Stream, StreamEnded


class Pipe:
    """The bytes of all binary messages; text messages are kept apart, and pings are answered."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.texts: list[str] = []
        self.close: frames.Frame | None = None
        self._bytes = bytearray()

    def write(self, data: bytes, *, opcode: int = frames.BINARY) -> None:
        """Send *data* as one message."""
        self.stream.send(frames.encode(opcode, data, mask=frames.MASK))

    async def _turn(self) -> None:
        frame = await frames.read_frame(self.stream)
        match frame.opcode:
            case frames.PING:
                self.write(frame.payload, opcode=frames.PONG)
            case frames.CLOSE:
                self.close = frame
                raise StreamEnded(f"closed with {frame.code}")
            case frames.TEXT:
                self.texts.append(frame.payload.decode())
            case frames.BINARY | frames.CONTINUATION:
                self._bytes += frame.payload

    async def read(self, count: int, seconds: float = DEADLINE_SECONDS) -> bytes:
        """Return the next *count* bytes."""
        async with asyncio.timeout(seconds):
            while len(self._bytes) < count:
                await self._turn()
        data = bytes(self._bytes[:count])
        del self._bytes[:count]
        return data

    async def text(self, seconds: float = DEADLINE_SECONDS) -> str:
        """Return the next text message."""
        async with asyncio.timeout(seconds):
            while not self.texts:
                await self._turn()
        return self.texts.pop(0)

    async def closed(self) -> int | None:
        """Return the close code of the connection."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while self.close is None:
                try:
                    await self._turn()
                except StreamEnded:
                    if self.close is None:
                        raise
        return self.close.code
