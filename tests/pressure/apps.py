"""Apps by behaviour: silent, deaf, or sending without end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

from tests.contract import frames
from tests.contract.messages import response
from tests.contract.streams import Stream
from tests.contract.test_vnc import SERVER_INIT
from tests.contract.upstream import App, Script, upgrade_response

Mode = Literal["silent", "talks", "deaf"]
After = Callable[[Stream], Awaitable[None]]
PATIENCE_SECONDS = 100.0
PIECE = bytes(range(256)) * 256
GIB = 1 << 30
EVENT = b"data: hello\n\n"


async def be_silent(stream: Stream) -> None:
    """Read all bytes, and send nothing."""
    await stream.until_ended(PATIENCE_SECONDS)


async def be_deaf(stream: Stream) -> None:
    """Stop reading."""
    stream.transport.pause_reading()
    await asyncio.sleep(PATIENCE_SECONDS)


def talk(piece: bytes) -> After:
    """Return a function that sends *piece* again and again, as fast as the gateway reads."""

    async def go_on(stream: Stream) -> None:
        while not stream.ended:
            stream.send(piece)
            await stream.drain(PATIENCE_SECONDS)
            await asyncio.sleep(0)

    return go_on


def after(mode: Mode, piece: bytes) -> After:
    """Return what an app of *mode* does with a connection; a talking app sends *piece*."""
    return {"silent": be_silent, "deaf": be_deaf, "talks": talk(piece)}[mode]


def web(mode: Mode, first: bytes = b"", piece: bytes = PIECE) -> Script:
    """Return a script that reads a request's head, sends *first*, and goes on by *mode*.

    A deaf app does not even read the head.
    """

    async def script(app: App, stream: Stream) -> None:
        if mode != "deaf":
            await app.head(stream)
        stream.send(first)
        await after(mode, piece)(stream)

    return script


async def pipelined(app: App, stream: Stream) -> None:
    """Answer each request with 64 KiB and end the connection, so that none is pooled."""
    await app.request(stream)
    stream.send(response("200 OK", "Connection: close", body=PIECE))
    await stream.drain(PATIENCE_SECONDS)


def switching(mode: Mode, first: bytes, piece: bytes, *fields: str) -> Script:
    """Return a script that accepts an upgrade, sends *first*, and goes on by *mode*."""

    async def script(app: App, stream: Stream) -> None:
        request = await app.head(stream)
        key = request.get("Sec-WebSocket-Key")
        assert key is not None
        stream.send(upgrade_response(key, *fields) + first)
        await after(mode, piece)(stream)

    return script


def desktop(mode: Mode, piece: bytes = PIECE) -> Script:
    """Return a script of an RFB server without a password that goes on by *mode*."""

    async def script(app: App, stream: Stream) -> None:
        for said, size in ((b"RFB 003.008\n", 12), (b"\x01\x01", 1), (bytes(4), 1)):
            stream.send(said)
            await stream.read_exactly(size, PATIENCE_SECONDS)
        stream.send(SERVER_INIT)
        await after(mode, piece)(stream)

    return script


FRAME = frames.encode(frames.BINARY, PIECE)
CHUNK = b"%x\r\n%s\r\n" % (len(PIECE), PIECE)
LARGE_HEAD = response("200 OK", f"Content-Length: {GIB}")
STREAM_HEAD = response("200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked")
FIRST_EVENT = STREAM_HEAD + b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
