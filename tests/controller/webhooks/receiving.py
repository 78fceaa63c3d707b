"""Provides webhook receivers on loopback, with scripted responses."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from controller.site.webhook_receivers import Receiver

SECRET = bytes(range(32))
LOOPBACK = (ip_network("127.0.0.0/8"),)


@dataclass
class Request:
    """A received request."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[bytes | None]]


def response(status: int, *fields: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


async def accept(_request: Request, _writer: asyncio.StreamWriter) -> bytes:
    return response(204)


class Server:
    """Records requests and sends the scripted responses; None closes the connection."""

    def __init__(self, answer: Answer = accept) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.connections = 0
        # Bound at once: before it listens, connections are refused, and the port stays reserved.
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def numbers(self) -> list[int]:
        """The numbers of the received updates, in order."""
        return [one.json["id"] for one in self.requests if "id" in one.json]

    def close(self) -> None:
        """Free the port if the server never listened."""
        self._socket.close()

    @asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
        server = await asyncio.start_server(self._begin, sock=self._socket, ssl=tls)
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._tasks.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await _read(reader)
                self.requests.append(request)
                given = await self.answer(request, writer)
                if given is None:
                    return
                writer.write(given)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    line, *fields = head.strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in fields)}
    body = await reader.readexactly(int(headers["content-length"]))
    return Request(line, headers, body)


def make_receiver(url: str, **fields: Any) -> Receiver:
    values: dict[str, Any] = {"name": "one", "secrets": (SECRET,), "networks": LOOPBACK}
    return Receiver(url=url, **values | fields)
