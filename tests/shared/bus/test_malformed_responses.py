"""Tests that malformed responses of a server in place of Redis become BusUnavailable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from shared.bus import BusReader, Keys, connect, parser
from shared.bus.parser import MOST_VALUE_BYTES
from shared.errors import BusUnavailable

_QUEUED = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n"
NONSENSE = {
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a number that is none": b":abc\r\n" * 9,
    "a length that is none": b"$abc\r\n" * 9,
    "a list that never ends": b"*1\r\n" * 5000,
    "a line that never ends": b"+" + b"x" * 200_000,
    "numbers": _QUEUED + b"*2\r\n:1\r\n:2\r\n",
    "a text for a list": _QUEUED + b"+OK\r\n",
    "a number for a list": _QUEUED + b":2\r\n",
    "nothing": _QUEUED + b"*2\r\n$-1\r\n$-1\r\n",
    "a number for what it is": _QUEUED + b"*2\r\n*0\r\n:5\r\n",
}


@asynccontextmanager
async def speaking(nonsense: bytes) -> AsyncIterator[BusReader]:
    """Provide a reader of a server that answers every command with *nonsense*."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while await reader.read(65536):
                writer.write(nonsense)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    redis = connect(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0")
    async with server:
        try:
            yield BusReader(redis, Keys("x"))
        finally:
            await redis.aclose()


async def _subscribed(reader: BusReader) -> None:
    async with reader.subscribe() as messages:
        await anext(messages)


CALLS: dict[str, Callable[[BusReader], Awaitable[object]]] = {
    "head": BusReader.head,
    "subscribe": _subscribed,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("what", NONSENSE)
async def test_a_response_of_the_wrong_type_makes_the_bus_unavailable(what: str, call: str) -> None:
    async with speaking(NONSENSE[what]) as reader:
        with pytest.raises(BusUnavailable):
            await asyncio.wait_for(CALLS[call](reader), 10.0)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("values", [[MOST_VALUE_BYTES + 1], [1000] * 4], ids=["value", "list"])
async def test_a_response_that_is_far_too_large_is_not_read(
    monkeypatch: pytest.MonkeyPatch, values: list[int], call: str
) -> None:
    monkeypatch.setattr(parser, "MOST_RESPONSE_BYTES", 3000)
    announced = [b"$%d\r\n" % size + bytes(min(size, 1000)) + b"\r\n" for size in values]
    async with speaking(b"*5\r\n" + b"".join(announced)) as reader:
        with pytest.raises(BusUnavailable, match="more than a route table can have"):
            await asyncio.wait_for(CALLS[call](reader), 10.0)
