"""Tests followed logs: what the reader receives when reading the log fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from controller.api.resources.log_streams import LogCursor, LogStream, SelectedLog
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
