"""Honest sessions in a separate program: their app, their browsers, and their observations.

Every response is compared to the byte. Every round trip is timed in a process that no attacker
shares. The program prints its app's port, and reads its sessions from one line of JSON. For each
further line it prints the observations since the previous one. It ends with its input.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, Final

import uvloop

from tests.contract import frames
from tests.contract.messages import request

BODY_BYTES: Final = 4096
TRIP_SECONDS: Final = 30.0
WORKS: Final = ("get", "upload", "socket")


@dataclass
class HonestResults:
    """The observations of honest sessions; times in seconds."""

    trips: int = 0
    wrong: list[str] = field(default_factory=list)
    p50: float = 0.0
    p95: float = 0.0
    slowest: float = 0.0


def body_of(name: str) -> bytes:
    """Return the app's content at *name*."""
    return hashlib.shake_128(name.encode()).digest(BODY_BYTES)


def main() -> None:
    """Run the app and the browsers."""
    uvloop.run(_run())


async def _run() -> None:
    app = await asyncio.start_server(_App().serve, "127.0.0.1", 0)
    print(app.sockets[0].getsockname()[1], flush=True)
    orders = json.loads(await asyncio.to_thread(sys.stdin.readline))
    browsers = [
        _Browser(number=number, **orders["all"], **one)
        for number, one in enumerate(orders["sessions"])
    ]
    tasks = [asyncio.create_task(browser.work()) for browser in browsers]
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(asdict(_sum(browsers))), flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _sum(browsers: list[_Browser]) -> HonestResults:
    """Return the observations of *browsers* since the last request."""
    times, wrong = [0.0], list[str]()
    for browser in browsers:
        times += browser.times
        wrong += browser.wrong
        if browser.began is not None:
            times.append(time.monotonic() - browser.began)  # a trip that still waits counts
        browser.times, browser.wrong = [], []
    times.sort()
    p50, p95 = (times[min(len(times) - 1, int(part * len(times)))] for part in (0.5, 0.95))
    return HonestResults(len(times) - 1, wrong[:20], p50, p95, times[-1])


class _App:
    """Answers GETs with bytes made from the path, and echoes uploads and frames."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._response(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _response(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        names = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:-2])
        if "upgrade" in names:
            return await self._echo(head, reader, writer)
        body = await reader.readexactly(int(names.get("content-length", "0")))
        body = body or body_of(head.split(" ")[1])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return await writer.drain()

    async def _echo(
        self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        keys = [line for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key")]
        accept = frames.accept_value(keys[0].partition(": ")[2])
        writer.write(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
        )
        while True:
            payload = await _read_frame(reader)
            writer.write(frames.encode(frames.BINARY, payload))
            await writer.drain()


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the payload of the next frame, which has at most 64 KiB."""
    first = await reader.readexactly(2)
    size = first[1] & 0x7F
    if size == 126:
        size = int.from_bytes(await reader.readexactly(2), "big")
    mask = await reader.readexactly(4) if first[1] & 0x80 else bytes(4)
    payload = await reader.readexactly(size)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")


@cache
def _context() -> ssl.SSLContext:
    """Return the TLS context of all browsers: making one blocks the app here for 20 ms."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class _Browser:
    """One session's browser: a round trip every *pause* seconds, on one connection."""

    def __init__(self, *, number: int, **told: Any) -> None:
        self.number = number
        self.told = told
        self.began: float | None = None
        self.times: list[float] = []
        self.wrong: list[str] = []

    async def work(self) -> None:
        """Make round trips until cancelled; a connection that ends is a fault, and is replaced."""
        await asyncio.sleep(self.told["pause"] * (self.number % 100) / 100)
        while True:
            try:
                async with asyncio.timeout(TRIP_SECONDS):
                    reader, writer = await self._connect()
                await self._trips(reader, writer)
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                self.wrong.append(f"{self.told['work']} {self.number}: {error!r}")
                await asyncio.sleep(0.2)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = _context() if self.told["tls"] else None
        reader, writer = await asyncio.open_connection(*self.told["address"], ssl=context)
        if self.told["work"] == "socket":
            fields = [*frames.HANDSHAKE, ("Origin", self.told["origin"])]
            writer.write(self._head("GET", "/echo", fields))
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        return reader, writer

    def _head(
        self, method: str, path: str, more: list[tuple[str, str]], body: bytes | None = None
    ) -> bytes:
        fields = [("Cookie", self.told["cookie"]), *more]
        return request(method, path, host=self.told["host"], fields=fields, body=body)

    async def _trips(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for turn in range(10**9):
            name = f"/{self.number}/{turn}"
            began = self.began = time.monotonic()
            async with asyncio.timeout(TRIP_SECONDS):
                found = await self._trip(name, reader, writer)
            self.times.append(time.monotonic() - began)
            self.began = None
            if found != body_of(name):
                self.wrong.append(f"{self.told['work']} {name}: {len(found)} other bytes")
            await asyncio.sleep(self.told["pause"])

    async def _trip(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        match self.told["work"]:
            case "socket":
                writer.write(frames.encode(frames.BINARY, body_of(name), mask=frames.MASK))
                return await _read_frame(reader)
            case "upload":
                origin = [("Origin", self.told["origin"])]
                writer.write(self._head("PUT", name, origin, body_of(name)))
            case _:
                writer.write(self._head("GET", name, []))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200 "):
            self.wrong.append(head[:40].decode("latin-1"))
        size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return await reader.readexactly(size)


if __name__ == "__main__":
    main()
