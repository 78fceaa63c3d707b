"""Apps behind the gateway: raw servers that record every connection and every byte."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

from tests.contract.frames import CLOSE, accept_value, encode, read_frame
from tests.contract.messages import Request, read_request, read_request_head, response
from tests.contract.streams import Stream, StreamEnded

# How long an app waits for its next request: longer than any test.
PATIENCE_SECONDS = 60.0
OK = response("200 OK", "Content-Type: text/plain", body=b"ok")


class App:
    """A server on a loopback address that plays *script* on each connection.

    Without *port*, the kernel chooses one; *listener* is a socket that listens already.
    """

    def __init__(
        self,
        script: Script | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        listener: socket.socket | None = None,
    ) -> None:
        self.script = script or friendly
        self._listener = listener
        self.host = host
        self.port = port
        self.connections: list[Stream] = []
        self.requests: list[Request] = []
        self.failures: list[BaseException] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> tuple[str, int]:
        """The address on which the app listens."""
        return self.host, self.port

    @property
    def received(self) -> bytes:
        """Every byte of every connection."""
        return b"".join(bytes(stream.received) for stream in self.connections)

    async def request(self, stream: Stream) -> Request:
        """Return the next request on *stream*, and record it."""
        self.requests.append(await read_request(stream, PATIENCE_SECONDS))
        return self.requests[-1]

    async def head(self, stream: Stream) -> Request:
        """Return the head of the next request on *stream*, and record it."""
        self.requests.append(await read_request_head(stream, PATIENCE_SECONDS))
        return self.requests[-1]

    def _accept(self, stream: Stream) -> None:
        self.connections.append(stream)
        task = asyncio.create_task(self._play(stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _play(self, stream: Stream) -> None:
        try:
            await self.script(self, stream)
        except StreamEnded:
            pass
        except Exception as error:
            self.failures.append(error)
        finally:
            stream.close()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if self._listener is None:
            made = loop.create_server(lambda: Stream(self._accept), self.host, self.port)
        else:
            made = loop.create_server(lambda: Stream(self._accept), sock=self._listener)
        self._server = await made
        self.host, self.port = self._server.sockets[0].getsockname()[:2]
        return self

    def stop_listening(self) -> None:
        """Close the listener; open connections stay."""
        self._server.close()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for stream in self.connections:
            stream.close()
        if error is None and self.failures:
            raise self.failures[0]


Script = Callable[[App, Stream], Awaitable[None]]
Talk = Callable[[Stream], Awaitable[None]]


async def friendly(app: App, stream: Stream) -> None:
    """Respond to every request with ok."""
    while True:
        request = await app.request(stream)
        stream.send(OK.removesuffix(b"ok") if request.method == "HEAD" else OK)


def responding(*responses: bytes | Sequence[bytes]) -> Script:
    """Return a script that sends *responses* in turn, and repeats the last one."""

    async def script(app: App, stream: Stream) -> None:
        while True:
            await app.request(stream)
            turn = min(len(app.requests), len(responses)) - 1
            pieces = responses[turn]
            for piece in [pieces] if isinstance(pieces, bytes) else pieces:
                stream.send(piece)
                await asyncio.sleep(0.005)

    return script


def raw_response(data: bytes, *, then_close: bool = False) -> Script:
    """Return a script that sends *data* after each request, and optionally ends the connection."""

    async def script(app: App, stream: Stream) -> None:
        while True:
            await app.request(stream)
            stream.send(data)
            if then_close:
                return

    return script


def websocket(talk: Talk | None = None, *fields: str) -> Script:
    """Return a script that accepts upgrades and plays *talk* (by default an echo).

    Other requests get an ok.
    """

    async def script(app: App, stream: Stream) -> None:
        while True:
            request = await app.request(stream)
            key = request.get("Sec-WebSocket-Key")
            if request.get("Upgrade") is None or key is None:
                stream.send(OK)
                continue
            stream.send(upgrade_response(key, *fields))
            await (talk or echo)(stream)
            return

    return script


def upgrade_response(key: str, *fields: str) -> bytes:
    """Return the 101 response to an upgrade with *key*."""
    accept = f"Sec-WebSocket-Accept: {accept_value(key)}"
    return response(
        "101 Switching Protocols", "Connection: Upgrade", "Upgrade: websocket", accept, *fields
    )


async def echo(stream: Stream) -> None:
    """Send each frame back; end after a Close."""
    while True:
        frame = await read_frame(stream, PATIENCE_SECONDS)
        stream.send(encode(frame.opcode, frame.payload, fin=frame.fin))
        if frame.opcode == CLOSE:
            return


async def listen(stream: Stream) -> None:
    """Send nothing until the peer ends."""
    await stream.until_ended(PATIENCE_SECONDS)
