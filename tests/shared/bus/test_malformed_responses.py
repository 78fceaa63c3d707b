"""Tests that malformed responses of a server in place of Redis become BusUnavailable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from redis.asyncio import Redis

from shared.bus import (
    BusInspector,
    BusReader,
    Keys,
    Publisher,
    ReportReader,
    SignOutReader,
    connect,
    parser,
)
from shared.bus.parser import MOST_VALUE_BYTES
from shared.errors import BusUnavailable, SnapshotRefused

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
    async with answering([nonsense]) as redis:
        yield BusReader(redis, Keys("x"))


@asynccontextmanager
async def answering(answers: list[bytes], *, then_close: bool = False) -> AsyncIterator[Redis]:
    """Provide a client of a server that answers with the last of *answers*, which may change."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while await reader.read(65536):
                writer.write(answers[-1])
                await writer.drain()
                if then_close:
                    break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    redis = connect(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0")
    async with server:
        try:
            yield redis
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


_KEYS = Keys("x")
ALL: dict[str, Callable[[Redis], Awaitable[object]]] = {
    "head": lambda redis: BusReader(redis, _KEYS).head(),
    "log": lambda redis: BusReader(redis, _KEYS).log_after(1),
    "snapshot": lambda redis: BusReader(redis, _KEYS).snapshot(),
    "routes": lambda redis: BusReader(redis, _KEYS).routes_of(["a", "b"]),
    "subscribe": lambda redis: _subscribed(BusReader(redis, _KEYS)),
    "mark": lambda redis: BusReader(redis, _KEYS).mark_used("a", "open", kept_until=9.0, now=1.0),
    "activities": lambda redis: ReportReader(redis, _KEYS).activities_of(["a", "b"], now=1.0),
    "standing": lambda redis: BusInspector(redis, _KEYS).standing("a", jti="b"),
    "reports": lambda redis: BusInspector(redis, _KEYS).gateways(),
    "sign-outs": lambda redis: SignOutReader(redis, _KEYS).after("0", limit=9),
    "recall": lambda redis: Publisher(redis, _KEYS, term=1).recall(),
    "routed": lambda redis: Publisher(redis, _KEYS, term=1).routed(["a", "b"]),
}
_VALUES = (
    b":1\r\n", b"$1\r\na\r\n", b"$-1\r\n", b"*0\r\n", b"*2\r\n:1\r\n:2\r\n",
    b"*2\r\n$1\r\na\r\n:1\r\n", b"*2\r\n$1\r\na\r\n*2\r\n$5\r\nevent\r\n:1\r\n",
)  # fmt: skip


@pytest.mark.parametrize("call", ALL)
async def test_responses_of_any_types_raise_nothing_else(call: str) -> None:
    """Another exception would end the process."""
    lists = [b"*%d\r\n" % count + value * count for value in _VALUES for count in range(1, 6)]
    answers = [b""]
    async with answering(answers, then_close=True) as redis:
        for queued in range(6):
            for content in (*_VALUES, *lists):
                answers[-1] = b"+OK\r\n" * (queued > 0) + b"+QUEUED\r\n" * queued + content
                with suppress(BusUnavailable, SnapshotRefused):
                    await asyncio.wait_for(ALL[call](redis), 10.0)


@pytest.mark.parametrize("content", [b":7\r\n", b"*0\r\n", b"$-1\r\n"])
async def test_a_message_that_is_no_text_breaks_the_subscription(content: bytes) -> None:
    confirmed = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n"
    message = b"*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n" + content
    async with speaking(confirmed + message) as reader:
        with pytest.raises(BusUnavailable):
            await asyncio.wait_for(_subscribed(reader), 10.0)


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
