"""A link to PostgreSQL that a test can cut: what is sent goes nowhere, and nobody is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path


class Link:
    """A TCP port that leads to a server's Unix socket, while it is not cut."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def cut(self) -> None:
        """Let nothing pass any more, in either direction; connections stay."""
        self._whole.clear()

    def mend(self) -> None:
        """Let everything pass again, also what waited meanwhile."""
        self._whole.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there: asyncio.StreamWriter | None = None
        try:
            await self._whole.wait()
            back, there = await asyncio.open_unix_connection(str(self._socket))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(reader, there))
                tasks.create_task(self._pump(back, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for one in (writer, there):
                if one is not None:
                    one.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._whole.wait()
            writer.write(data)
            await writer.drain()
        # Both directions end together.
        raise ConnectionResetError

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await self._serve(reader, writer)


@asynccontextmanager
async def linked(socket: Path) -> AsyncIterator[Link]:
    """Run a link for as long as the block lasts."""
    link = Link(socket)
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
