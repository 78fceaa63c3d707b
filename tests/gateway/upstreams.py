"""Small raw servers behind the gateway, which record every byte that they receive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from websockets.asyncio.server import ServerConnection, serve

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class App:
    """An HTTP app that answers hello, and keeps the heads of its requests."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.heads: list[bytes] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests without a body until the connection ends."""
        self.connections += 1
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            self.heads.append(head)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        writer.close()


@asynccontextmanager
async def listening_on(handle: Handle, *, port: int = 0) -> AsyncIterator[int]:
    """Serve *handle* on a loopback port, a free one by default; return the port."""
    handling: set[asyncio.Task[None]] = set()

    async def handle_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handling.add(task)
        try:
            await handle(reader, writer)
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            handling.discard(task)
            # The gateway pools connections; they must not outlive the test's loop.
            writer.transport.abort()

    server = await asyncio.start_server(handle_one, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in handling:
            task.cancel()
        await asyncio.gather(*handling)
        await asyncio.sleep(0)


@asynccontextmanager
async def web_app() -> AsyncIterator[App]:
    """Run an :class:`App`."""
    app = App()
    async with listening_on(app.handle) as app.port:
        yield app


@asynccontextmanager
async def echo_sockets() -> AsyncIterator[int]:
    """Run a WebSocket server that echoes; return its port."""

    async def echo(socket: ServerConnection) -> None:
        async for message in socket:
            await socket.send(message)

    async with serve(echo, "127.0.0.1", 0) as server:
        yield next(iter(server.sockets)).getsockname()[1]
