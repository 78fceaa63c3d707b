"""The minimal relay in Python: copies bytes from one transport to the other."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class Side(asyncio.Protocol):
    """One side of a connection; the upstream side is dialled when the browser connects."""

    def __init__(self, port: int | None, other: Side | None = None) -> None:
        self.port = port
        self.other = other
        self.transport: asyncio.Transport | None = None
        self.early: list[bytes] = []
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.port is not None:
            self.task = asyncio.get_running_loop().create_task(self.dial(self.port))

    async def dial(self, port: int) -> None:
        other = Side(None, self)
        await asyncio.get_running_loop().create_connection(lambda: other, "127.0.0.1", port)
        self.other = other
        for data in self.early:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self.early.append(data)
        elif self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


async def main(port: int, backend: int) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: Side(backend), "127.0.0.1", port, backlog=8192
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
