"""Provides a TCP relay to a server that a test can stall silently or reset."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path


class Link:
    """A TCP port that relays to a server's Unix socket or local port until a test cuts it."""

    def __init__(self, server: Path | int) -> None:
        self._server = server
        self._broken = False
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    def cut(self) -> None:
        """Stall both directions; connections stay open."""
        self._whole.clear()

    def mend(self) -> None:
        """Relay again, including the bytes that arrived meanwhile."""
        self._broken = False
        self._whole.set()

    def sever(self) -> None:
        """Reset all connections and each new one from now on."""
        self._broken = True
        for writer in self._writers:
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._server, Path):
            return await asyncio.open_unix_connection(str(self._server))
        return await asyncio.open_connection("127.0.0.1", self._server)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there: asyncio.StreamWriter | None = None
        self._writers.add(writer)
        try:
            await self._whole.wait()
            if self._broken:
                return
            back, there = await self._connect()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(reader, there))
                tasks.create_task(self._pump(back, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            for one in (writer, there):
                if one is not None:
                    one.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._whole.wait()
            writer.write(data)
            await writer.drain()
        # When one direction ends, the other ends too.
        raise ConnectionResetError

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await self._serve(reader, writer)


@asynccontextmanager
async def linked(to: Path | int) -> AsyncIterator[Link]:
    """Run a link to a Unix socket or a local port until the block ends."""
    link = Link(to)
    server = await asyncio.start_server(link._accept, "127.0.0.1", 0)
    link.port = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        server.close()
        link.mend()
        for task in list(link._tasks):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*link._tasks, return_exceptions=True)
