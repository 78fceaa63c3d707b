"""Tests the probe of an app: whatever the app sends, it ends in time and returns a result."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from controller.explain import probe as probing
from controller.explain.probe import Probed, probe


@pytest.mark.parametrize(
    ("says", "status"),
    [
        (b"HTTP/1.1 200 OK\r\n", 200),
        (b"HTTP/1.1 503\n", 503),
        (b"HTTP/2 200\r\n", None),
        (b"HTTP/1.1 \xb2\xb2\xb2\r\n", None),
        (b"RFB 003.008\n", None),
        (b"x" * 100_000, None),
        (b"HTTP/1.1 200", None),
        (b"", None),
    ],
)
@pytest.mark.parametrize("leaves", [True, False])
async def test_a_probe_has_a_result_for_any_response(
    says: bytes, status: int | None, *, leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "ANSWER_SECONDS", 0.3)

    ended: list[asyncio.Event] = []

    async def app(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(asyncio.Event())
        mine = ended[-1]
        with suppress(OSError):
            writer.write(says)
            if not leaves:
                await reader.read()
        writer.transport.abort() if not leaves else writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        mine.set()

    server = await asyncio.start_server(app, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await probe("127.0.0.1", port) == Probed("open")
        asked = await probe("127.0.0.1", port, path="/", name="app")
        async with asyncio.timeout(10):
            while len(ended) < 2:
                await asyncio.sleep(0.01)
            await asyncio.gather(*(one.wait() for one in ended))
    assert asked == Probed("open", sent=True, status=status)


async def test_a_probe_of_a_closed_port_is_refused() -> None:
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    assert await probe("127.0.0.1", port, path="/") == Probed("refused")
