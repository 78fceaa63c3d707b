"""A proxy before Redis that loses, doubles and delays messages, or holds requests back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

LATE_SECONDS = 0.5


class LossyProxy:
    """Forwards everything; messages of subscriptions may be lost, doubled or delayed.

    While the proxy holds, no request reaches Redis. All held requests arrive when it lets go.

    Args:
        target: The port of the Redis behind the proxy.
        random: Decides the fate of each message.
    """

    def __init__(self, target: int, random: Random) -> None:
        self._target = target
        self._random = random
        self._pairs: set[asyncio.Task[None]] = set()
        self.loss = 0.0
        self.port = 0
        self.lost = self.doubled = self.delayed = 0
        self._passing = asyncio.Event()
        self._passing.set()
        self._kept = b""

    def hold(self) -> None:
        """Hold all requests from now on."""
        self._kept = b""
        self._passing.clear()

    async def until_kept(self, what: bytes) -> None:
        """Wait until the proxy holds *what*."""
        while what not in self._kept:
            await asyncio.sleep(0.01)

    def forward_held(self) -> None:
        """Forward the held requests."""
        self._passing.set()

    @property
    def url(self) -> str:
        """The proxy's URL."""
        return f"redis://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[LossyProxy]:
        """Run the proxy."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for pair in self._pairs:
                pair.cancel()
            await asyncio.gather(*self._pairs, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pairs.add(task)
        try:
            with suppress(OSError):
                to, back = await asyncio.open_connection("127.0.0.1", self._target, limit=2**24)
                try:
                    await self._pass(reader, writer, to, back)
                finally:
                    back.close()
        finally:
            writer.close()
            self._pairs.discard(task)

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        to: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        ways = {
            asyncio.ensure_future(self._copy(reader, back)),
            asyncio.ensure_future(self._filter(to, writer)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not self._passing.is_set():
                self._kept += data
                await self._passing.wait()
            writer.write(data)
            await writer.drain()

    async def _filter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            reply = await _read_reply(reader)
            if not reply.startswith(b"*3\r\n$7\r\nmessage\r\n"):
                writer.write(reply)
                await writer.drain()
                continue
            for _ in range(self._times()):
                if self._random.random() < self.loss:
                    self.delayed += 1
                    loop.call_later(self._random.random() * LATE_SECONDS, _write, writer, reply)
                else:
                    writer.write(reply)

    def _times(self) -> int:
        if self._random.random() < self.loss:
            self.lost += 1
            return 0
        if self._random.random() < self.loss:
            self.doubled += 1
            return 2
        return 1


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    if not writer.is_closing():
        writer.write(data)


async def _read_reply(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes of one whole RESP2 reply."""
    line = await reader.readuntil(b"\r\n")
    if line[:1] == b"$" and line != b"$-1\r\n":
        return line + await reader.readexactly(int(line[1:]) + 2)
    if line[:1] == b"*" and line != b"*-1\r\n":
        parts = [await _read_reply(reader) for _ in range(int(line[1:]))]
        return b"".join([line, *parts])
    return line
