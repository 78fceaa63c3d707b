"""TCP connections that record every byte; every wait on them has a deadline."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

DEADLINE_SECONDS = 5.0


class StreamEnded(Exception):
    """The peer ended the connection before the awaited bytes arrived."""


class Source(Protocol):
    """A source of bytes for messages and frames."""

    async def read_until(self, mark: bytes, seconds: float) -> bytes:
        """Return the bytes up to and including *mark*."""

    async def read_exactly(self, count: int, seconds: float) -> bytes:
        """Return the next *count* bytes."""

    async def read_to_end(self, seconds: float) -> bytes:
        """Return all bytes until the peer ends."""


class Stream(asyncio.Protocol):
    """One end of a TCP connection; ``received`` keeps all bytes that arrived."""

    def __init__(self, on_open: Callable[[Stream], None] | None = None) -> None:
        self.received = bytearray()
        self.ended = False
        self.error: Exception | None = None
        self._place = 0
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._on_open = on_open

    def __repr__(self) -> str:
        return f"Stream({bytes(self.received[:60])!r}…, ended={self.ended}, error={self.error!r})"

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._changed.set()

    def eof_received(self) -> bool:
        self.ended = True
        self._changed.set()
        return True  # our side stays open until the test closes it

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        self.error = self.error or error
        self._changed.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # Writing

    def send(self, data: bytes) -> None:
        """Send exactly *data*."""
        self.transport.write(data)

    async def drain(self, seconds: float = DEADLINE_SECONDS) -> None:
        """Wait until the transport takes more bytes."""
        async with asyncio.timeout(seconds):
            await self._writable.wait()

    async def dribble(self, data: bytes, pieces: int = 1) -> None:
        """Send *data* in pieces of *pieces* bytes, so that it arrives in pieces."""
        for start in range(0, len(data), pieces):
            self.send(data[start : start + pieces])
            await asyncio.sleep(0.001)

    def half_close(self) -> None:
        """Shut down the sending direction."""
        self.transport.write_eof()

    def close(self) -> None:
        """End the connection in both directions."""
        if hasattr(self, "transport"):
            self.transport.close()

    def reset(self) -> None:
        """End the connection with a reset."""
        if self.transport.is_closing():
            return
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        endpoint = self.transport.get_extra_info("socket")
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.transport.abort()

    # Reading

    @property
    def unread(self) -> bytes:
        """The bytes that arrived and were not read yet."""
        return bytes(self.received[self._place :])

    async def until(
        self, done: Callable[[], bool], what: str, seconds: float = DEADLINE_SECONDS
    ) -> None:
        """Wait for *done*.

        Raises:
            Ended: If the peer ended first.
            TimeoutError: If the deadline passed; the message names *what*.
        """
        try:
            async with asyncio.timeout(seconds):
                while not done():
                    if self.ended:
                        raise StreamEnded(f"{what} did not come: {self!r}")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            message = f"{what} did not come in {seconds} s; unread {self.unread[:200]!r}"
            raise TimeoutError(message) from None

    async def read_until(self, mark: bytes, seconds: float = DEADLINE_SECONDS) -> bytes:
        """Return the bytes up to and including *mark*."""
        start = self._place
        await self.until(lambda: self.received.find(mark, start) >= 0, repr(mark), seconds)
        self._place = self.received.find(mark, start) + len(mark)
        return bytes(self.received[start : self._place])

    async def read_exactly(self, count: int, seconds: float = DEADLINE_SECONDS) -> bytes:
        """Return the next *count* bytes."""
        end = self._place + count
        await self.until(lambda: len(self.received) >= end, f"{count} bytes", seconds)
        start, self._place = self._place, end
        return bytes(self.received[start:end])

    async def read_to_end(self, seconds: float = DEADLINE_SECONDS) -> bytes:
        """Return all bytes until the peer ends."""
        await self.until_ended(seconds)
        start, self._place = self._place, len(self.received)
        return bytes(self.received[start:])

    async def until_ended(self, seconds: float = DEADLINE_SECONDS) -> None:
        """Wait until the peer has ended, by FIN or reset."""
        try:
            await self.until(lambda: False, "the end", seconds)
        except StreamEnded:
            return

    async def silent_for(self, seconds: float) -> None:
        """Assert that no byte arrives for *seconds*."""
        before = len(self.received)
        await asyncio.sleep(seconds)
        news = bytes(self.received[before:])
        assert not news, f"something came: {news[:200]!r}"


async def connect(address: tuple[str, int], source: str | None = None) -> Stream:
    """Return a connection to *address* from the loopback address *source*."""
    loop = asyncio.get_running_loop()
    local = (source, 0) if source else None
    async with asyncio.timeout(DEADLINE_SECONDS):
        _, stream = await loop.create_connection(Stream, *address, local_addr=local)
    return stream
