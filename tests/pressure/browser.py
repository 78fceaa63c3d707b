"""A browser whose every byte, read, FIN and reset the test decides."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from contextlib import suppress

READ_BYTES = 1 << 16
PATIENCE_SECONDS = 10.0
_RESET = struct.pack("ii", 1, 0)


class GatewayClosed(Exception):
    """The gateway has ended the connection."""


class Browser:
    """A connection to the gateway, with TLS if *context* is given.

    It reads only on request, so unread bytes stay in the kernel.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        self.sock = sock
        self.address: tuple[str, int] = sock.getsockname()[:2]
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = asyncio.get_running_loop()
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        if context is not None:
            self._tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")
        self._unread = bytearray()

    # Writing

    async def send(self, data: bytes, seconds: float = PATIENCE_SECONDS) -> None:
        """Send all of *data*; raise Gone if the gateway has ended the connection."""
        await self.send_raw(self.seal(data), seconds)

    def seal(self, data: bytes) -> bytes:
        """Return the wire bytes of *data*: under TLS, one record."""
        if self._tls is None:
            return data
        self._tls.write(data)
        return self._out.read()

    async def send_raw(self, data: bytes, seconds: float = PATIENCE_SECONDS) -> None:
        """Send *data* below TLS."""
        try:
            async with asyncio.timeout(seconds):
                await self._loop.sock_sendall(self.sock, data)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise GatewayClosed(str(error)) from error

    async def dribble(self, data: bytes, pause: float = 0.01) -> None:
        """Send *data* byte by byte."""
        for place in range(len(data)):
            await self.send(data[place : place + 1])
            await asyncio.sleep(pause)

    async def flood(self, data: bytes, *, most: int, seconds: float) -> int:
        """Send *data* again and again, and return how many bytes the gateway took.

        Ends after *most* bytes or *seconds*, or when the gateway has ended the connection.
        """
        taken = 0
        with suppress(GatewayClosed, TimeoutError):
            async with asyncio.timeout(seconds):
                while taken < most:
                    await self.send(data, seconds)
                    taken += len(data)
                    await asyncio.sleep(0)
        return taken

    # Reading

    async def handshake(self) -> None:
        """Do the TLS handshake, if the connection uses TLS."""
        while self._tls is not None:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.send_raw(self._out.read())
                await self._receive()
            else:
                await self.send_raw(self._out.read())
                return

    async def _receive(self) -> None:
        try:
            # A read that finds data does not let the loop run.
            await asyncio.sleep(0)
            data = await self._loop.sock_recv(self.sock, READ_BYTES)
        except ConnectionError as error:
            raise GatewayClosed(str(error)) from error
        if not data:
            raise GatewayClosed("FIN")
        if self._tls is None:
            self._unread += data
        else:
            self._in.write(data)

    async def more(self) -> None:
        """Wait for more bytes; raise Gone at the end."""
        if self._tls is None:
            return await self._receive()
        while True:
            try:
                piece = self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                await self._receive()
            except ssl.SSLError as error:
                raise GatewayClosed(str(error)) from error
            else:
                if not piece:
                    raise GatewayClosed("close_notify")
                self._unread += piece
                return None

    def forget(self) -> None:
        """Drop the bytes read so far."""
        self._unread.clear()

    async def read_exactly(self, count: int, seconds: float = PATIENCE_SECONDS) -> bytes:
        """Return the next *count* bytes."""
        async with asyncio.timeout(seconds):
            while len(self._unread) < count:
                await self.more()
        return self._take(count)

    async def read_until(self, mark: bytes, seconds: float = PATIENCE_SECONDS) -> bytes:
        """Return the bytes up to and including *mark*."""
        async with asyncio.timeout(seconds):
            while (place := self._unread.find(mark)) < 0:
                await self.more()
        return self._take(place + len(mark))

    def _take(self, count: int) -> bytes:
        data = bytes(self._unread[:count])
        del self._unread[:count]
        return data

    async def status(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Return the status of the next response head."""
        return int((await self.read_until(b"\r\n\r\n", seconds)).split(b" ", 2)[1])

    async def read_to_end(self, seconds: float = PATIENCE_SECONDS) -> bytes:
        """Return all bytes until the gateway ends the connection, or the time is over."""
        with suppress(GatewayClosed, TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    await self.more()
        return self._take(len(self._unread))

    async def read_at(self, rate: int, seconds: float) -> int:
        """Read *rate* bytes a second for *seconds*; return the number of bytes.

        Raises:
            Gone: If the connection ended.
        """
        count, began = 0, time.monotonic()
        while time.monotonic() - began < seconds:
            due = int(rate * (time.monotonic() - began))
            if due > count:
                self._take_from_kernel(due - count)
                count = due
            await asyncio.sleep(0.02)
        return count

    def _take_from_kernel(self, count: int) -> None:
        """Take up to *count* raw bytes out of the kernel."""
        with suppress(BlockingIOError):
            try:
                if not self.sock.recv(count):
                    raise GatewayClosed("FIN")
            except ConnectionError as error:
                raise GatewayClosed(str(error)) from error

    # Ends

    def fin(self) -> None:
        """Send FIN; under TLS without a close_notify, as a killed process does."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    async def close_notify(self) -> None:
        """Send TLS' close_notify; no FIN follows."""
        assert self._tls is not None
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        await self.send_raw(self._out.read())

    def reset(self) -> None:
        """Send RST."""
        with suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self.sock.fileno() >= 0:
            self._loop.remove_reader(self.sock)
            self._loop.remove_writer(self.sock)
        self.sock.close()
