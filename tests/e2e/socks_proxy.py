"""A SOCKS 5 proxy (RFC 1928) between a browser and everything else; tests can cut it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self


class Wire:
    """Passes connections on to ports of this machine, unless the wire is cut."""

    def __init__(self) -> None:
        self._whole = asyncio.Event()
        self._whole.set()
        self._refuses = False
        self._browsers: set[asyncio.StreamWriter] = set()
        self.url = ""

    @classmethod
    @asynccontextmanager
    async def laid(cls) -> AsyncIterator[Self]:
        """Run a wire; ``url`` is the proxy's URL for a browser."""
        wire = cls()
        server = await asyncio.start_server(wire._serve, "127.0.0.1", 0)
        wire.url = f"socks5://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield wire
        finally:
            server.close()
            wire.mend()
            for browser in wire._browsers.copy():
                browser.transport.abort()

    def cut(self, *, silently: bool) -> None:
        """Stop forwarding: silently, or with a reset of all current and future connections."""
        self._whole.clear()
        self._refuses = not silently
        if not silently:
            for browser in self._browsers.copy():
                browser.transport.abort()

    def mend(self) -> None:
        """Forward the bytes that were sent meanwhile, and all later bytes."""
        self._refuses = False
        self._whole.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._browsers.add(writer)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._connect(reader, writer)
        finally:
            self._browsers.discard(writer)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            return
        await reader.readexactly((await reader.readexactly(2))[1])
        writer.write(b"\x05\x00")
        kind = (await reader.readexactly(4))[3]
        size = (await reader.readexactly(1))[0] if kind == 3 else {1: 4, 4: 16}[kind]
        await reader.readexactly(size)
        port = int.from_bytes(await reader.readexactly(2))
        await self._whole.wait()
        # Every name is below localhost, so the name does not matter.
        there, back = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        ways = [
            asyncio.ensure_future(self._pass(*way)) for way in ((reader, back), (there, writer))
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            back.transport.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._whole.wait()
            writer.write(data)
            await writer.drain()
        await self._whole.wait()
