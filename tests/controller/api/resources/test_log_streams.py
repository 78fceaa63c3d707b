"""Tests followed logs: what the reader receives when reading the log fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from aiohttp import web

from controller.api.resources.log_streams import WRITE, LogCursor, LogStream, SelectedLog
from controller.api.server_sent_events import EventStream
from controller.logs.live import PodName
from controller.logs.reading import LogReader
from controller.logs.records import LogMark


class Broken:
    """A log reader that raises an error which no error border translates."""

    async def records(
        self, _pod: PodName, _mark: LogMark | None, *, tail: int | None = None
    ) -> AsyncGenerator[bytes | frozenset[str], None]:
        yield b"2026-01-01T00:00:00Z one\n"
        raise TypeError("a segment of a newer version")


class Sent:
    """Collects the bytes written to the log's reader."""

    def __init__(self) -> None:
        self.text = b""

    async def write(self, content: bytes) -> None:
        self.text += content

    async def event(self, name: str, data: Any) -> None:
        self.text += name.encode()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        yield

    async def keep_alive(self) -> None:
        self.text += b":"


@pytest.mark.parametrize("ranks", [1, 2])
async def test_an_unexpected_error_ends_the_stream_and_is_logged(
    ranks: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    chosen = [
        SelectedLog(PodName("jobs", f"p{rank}", f"u{rank}", "j1"), LogCursor(rank, 0, None))
        for rank in range(ranks)
    ]
    stream = LogStream(cast(LogReader, Broken()), chosen, tail=None, named=True)
    sent = Sent()
    async with asyncio.timeout(5), stream.opened():
        await stream.send(cast(EventStream, sent))
    assert sent.text.count(b"broken") == ranks
    assert b"end" not in sent.text.partition(b"broken")[2]
    assert caplog.text.count("TypeError: a segment of a newer version") == ranks


class Loud:
    """A log reader whose program writes faster than it is read."""

    async def records(
        self, _pod: PodName, _mark: LogMark | None, *, tail: int | None = None
    ) -> AsyncGenerator[bytes | frozenset[str], None]:
        for _ in range(2):
            yield b"2026-01-01T00:00:00Z one line of many\n" * 1000


class Reader:
    """A reader that accepts everything at once, and notes the loop's turn of each write."""

    def __init__(self, writes: list[tuple[int, int]], turns: list[int]) -> None:
        self._writes, self._turns = writes, turns

    async def write(self, content: bytes) -> None:
        self._writes.append((len(self._turns), len(content)))


async def test_one_stream_encodes_a_few_lines_in_each_turn_of_the_loop() -> None:
    writes, turns, encoding = list[tuple[int, int]](), list[int](), asyncio.Lock()

    async def count() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    async def follow() -> None:
        chosen = [SelectedLog(PodName("jobs", "p0", "u0", "j1"), LogCursor(0, 0, None))]
        stream = LogStream(cast(LogReader, Loud()), chosen, tail=None, named=True)
        response = cast(web.StreamResponse, Reader(writes, turns))
        async with stream.opened():
            await stream.send(EventStream(response, encoding))

    async with asyncio.timeout(20):
        counting = asyncio.create_task(count())
        await asyncio.gather(*(follow() for _ in range(8)))
        counting.cancel()
    encoded = [(turn, size) for turn, size in writes if size > 100]  # not the event "end"
    assert len(encoded) == len({turn for turn, _ in encoded})
    assert max(size for _, size in encoded) < WRITE + 1000
