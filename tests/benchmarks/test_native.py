"""Tests load program and backend against each other: their counts, and the errors they find."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from benchmarks.native_programs import Backend, Result, build, measured, running_backend
from benchmarks.requests import Visitor, get_head, put_head, socket_head

pytestmark = pytest.mark.needs("cc")
ADA = Visitor("app.localhost", "session=x")


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(tmp_path_factory.mktemp("native"))


@pytest.fixture
async def backend(native: dict[str, Path]) -> AsyncIterator[Backend]:
    async with running_backend(native["backend"]) as backend:
        yield backend


async def loaded(
    native: dict[str, Path], folder: Path, work: str, port: int, head: bytes, size: int
) -> Result:
    path = folder / "heads"
    path.write_bytes(head)
    arguments = [work, str(port), "4", "0.05", "0.2", str(path), str(size)]
    result, _ = await measured(native["load"], arguments, lambda: 0.0)
    return result


@pytest.mark.parametrize(
    ("work", "head", "size"),
    [
        ("get", get_head(ADA, "/bytes/1024", varied=True), 1024),
        ("get", get_head(ADA, "/bytes/1000000"), 1_000_000),
        ("put", put_head(ADA, "/sink", 1_000_000), 1_000_000),
        ("echo", socket_head(ADA, "/echo"), 64),
        ("frames", socket_head(ADA, "/frames/65536"), 65536),
        ("handshake", socket_head(ADA, "/echo"), 0),
    ],
)
async def test_responses_are_received_and_counted(
    native: dict[str, Path], tmp_path: Path, backend: Backend, work: str, head: bytes, size: int
) -> None:
    result = await loaded(native, tmp_path, work, backend.port, head, size)
    assert (result.errors, result.first_error) == (0, "")
    assert result.units > 0
    assert 0 < result.p50 <= result.p99 <= result.p999


@contextlib.asynccontextmanager
async def websocket_to(port: int) -> AsyncIterator[int]:
    """Provide a port where a WebSocket leads to *port*: each frame's payload, and nothing else."""

    async def relay(socket: ServerConnection) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def down() -> None:
            with contextlib.suppress(OSError, ConnectionClosed):
                while data := await reader.read(65536):
                    await socket.send(data)

        sending = asyncio.create_task(down())
        with contextlib.suppress(ConnectionClosed):
            async for message in socket:
                assert isinstance(message, bytes)
                writer.write(message)
        writer.close()
        await sending

    binary = Subprotocol("binary")
    async with serve(relay, "127.0.0.1", 0, subprotocols=[binary]) as server:
        yield next(iter(server.sockets)).getsockname()[1]


@pytest.mark.parametrize("work", ["rfb", "pointer"])
async def test_the_pixels_of_a_desktop_are_received_and_counted(
    native: dict[str, Path], tmp_path: Path, backend: Backend, work: str
) -> None:
    async with websocket_to(backend.rfb_port) as port:
        head = socket_head(ADA, "/", "binary")
        result = await loaded(native, tmp_path, work, port, head, 0)
    assert (result.errors, result.first_error) == (0, "")
    assert result.units > 0
    assert 0 < result.p50 <= result.p99 <= result.p999


async def test_an_upload_that_differs_from_the_pattern_is_refused(backend: Backend) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", backend.port)
    writer.write(b"PUT /sink HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello")
    assert await reader.readline() == b"HTTP/1.1 400 Bad Request\r\n"
    writer.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n" + bytes(1024),
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
        b"",
    ],
    ids=["bytes", "length", "status", "end"],
)
async def test_a_wrong_response_is_an_error(
    native: dict[str, Path], tmp_path: Path, answer: bytes
) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(say, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    head = get_head(ADA, "/bytes/1024")
    result = await loaded(native, tmp_path, "get", port, head, 1024)
    server.close()
    assert result.units == 0
    assert result.errors >= 1
    assert result.first_error


@pytest.mark.parametrize("varied", [False, True])
def test_the_simulated_browser_sends_thirteen_fields(varied: bool) -> None:
    head = get_head(ADA, "/x", varied=varied)
    assert head.count(b"\r\n") - 2 == 13
    assert head.count(b"@@@@@@@@") == (3 if varied else 1)
