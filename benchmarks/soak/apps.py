"""The apps behind the gateway: ``python -m benchmarks.soak.apps COUNT``; ends with its input.

Each listens at a port of its own, which is printed. Every response, and every WebSocket message,
names the app and the host of the request. So the load notices a response of another app or for
another session.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import sys
from functools import partial
from typing import Final, cast

import uvloop

from benchmarks.soak.frames import BINARY, CLOSE, PING, PONG, server_frame, take_frames
from benchmarks.soak.plan import Plan, raise_descriptors

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class App(asyncio.Protocol):
    """One connection to the app called *name*."""

    def __init__(self, name: str) -> None:
        self._name = name.encode()
        self._buffer = bytearray()
        self._answer = b""
        self._is_socket = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Respond to the complete requests and frames that have arrived."""
        self._buffer += data
        while not self._is_socket and (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._buffer[:end])
            del self._buffer[: end + 4]
            self._respond(head)
        if self._is_socket:
            self._read_frames()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _respond(self, head: bytes) -> None:
        lines = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
        fields = {name.strip().lower(): value.strip() for name, _, value in lines}
        self._answer = self._name + b" " + fields.get(b"host", b"").partition(b".")[0]
        key = fields.get(b"sec-websocket-key")
        if key is None:
            size = str(len(self._answer)).encode()
            self._write(b"HTTP/1.1 200 OK\r\nContent-Length: " + size + b"\r\n\r\n" + self._answer)
            return
        accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
        self._is_socket = True
        self._write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )

    def _read_frames(self) -> None:
        for frame in take_frames(self._buffer):
            if frame.opcode == BINARY:
                self._write(server_frame(BINARY, self._answer + b" " + frame.payload))
            elif frame.opcode == PING:
                self._write(server_frame(PONG, frame.payload))
            elif frame.opcode == CLOSE and self._transport is not None:
                self._write(server_frame(CLOSE, frame.payload))
                self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the transport."""
        self._transport = None


def app_name(number: int) -> str:
    """Return the name of app *number*."""
    return f"app-{number}"


async def serve(count: int) -> None:
    """Serve *count* apps until the standard input ends."""
    loop = asyncio.get_running_loop()
    ports = []
    for number in range(count):
        server = await loop.create_server(
            partial(App, app_name(number)),
            "127.0.0.1",
            0,
            backlog=8192,
        )
        ports.append(str(server.sockets[0].getsockname()[1]))
    print(" ".join(ports), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    raise_descriptors(Plan(seconds=0, sockets=0))
    uvloop.run(serve(int(sys.argv[1])))
