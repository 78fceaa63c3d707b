"""An HTTP/1.1 client for tests, in which each test writes every byte that is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

READ_SECONDS = 10.0
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@dataclass(frozen=True)
class Answer:
    """One response; header names are in lower case, repeated ones joined by a line feed."""

    status: int
    headers: dict[str, str]
    body: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


def code_of(answer: Answer) -> str:
    """Return the code in a JSON refusal, and check the response's form."""
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"].startswith("application/json")
    body = json.loads(answer.body)
    assert set(body) == {"code", "message"}
    return str(body["code"])


class Connection:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, address: tuple[str, int]) -> Connection:
        """Connect to *address*."""
        return cls(*await asyncio.open_connection(*address))

    async def send(self, data: bytes) -> None:
        """Send *data*."""
        self.writer.write(data)
        await self.writer.drain()

    async def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Answer:
        """Send a request and return its response."""
        await self.send(make_request(method, path, headers, body))
        return await self.answer(method)

    async def answer(self, method: str = "GET") -> Answer:
        """Read one response."""
        async with asyncio.timeout(READ_SECONDS):
            head = await self.reader.readuntil(b"\r\n\r\n")
            status, headers = read_head(head)
            body = b""
            if method == "HEAD" or status in (101, 204, 304):
                pass
            elif headers.get("transfer-encoding") == "chunked":
                body = await self._chunks()
            elif "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            else:
                body = await self.reader.read()
        return Answer(status, headers, body)

    async def _chunks(self) -> bytes:
        body = b""
        while True:
            size = int((await self.reader.readline()).split(b";")[0], 16)
            body += await self.reader.readexactly(size)
            await self.reader.readline()
            if not size:
                return body

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        try:
            async with asyncio.timeout(1):
                await self.writer.wait_closed()
        except (OSError, TimeoutError):
            self.writer.transport.abort()


def make_request(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """Return the bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in headers.items())]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def read_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Return status and headers of a response head."""
    start, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name = name.lower()
        headers[name] = f"{headers[name]}\n{value.strip()}" if name in headers else value.strip()
    return int(start.split(" ")[1]), headers


async def http(
    address: tuple[str, int],
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes = b"",
) -> Answer:
    """Send one request on a connection of its own, and return the response."""
    connection = await Connection.open(address)
    try:
        return await connection.request(method, path, headers, body)
    finally:
        await connection.close()
