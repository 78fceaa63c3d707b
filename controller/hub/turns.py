"""Feeds an attached client's bytes to aiohttp in slices, so that other clients are served too.

aiohttp parses all frames of a read at once. 256 KB of the smallest frames take it seconds, during
which no other terminal would be served.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final, Protocol

SLICE_BYTES: Final = 512
"""Some eighty of the smallest frames, which take about three milliseconds."""
WORK_SECONDS: Final = 0.001
"""After this time in one turn of the loop, other clients are served first."""


class Turn:
    """The time that one client may use the loop before others are served."""

    def __init__(self) -> None:
        self._until = perf_counter() + WORK_SECONDS

    async def pause(self) -> None:
        """Let others run if the turn is over."""
        if perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = perf_counter() + WORK_SECONDS


class _Handler(Protocol):
    def data_received(self, data: bytes) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class SlicingProtocol(asyncio.Protocol):
    """Stands between a transport and its *handler*.

    While bytes wait here, the transport is paused. The handler also pauses and resumes it for its
    own reasons. Whichever receives data while it should be paused pauses again, at the cost of at
    most one more read.

    Args:
        handler: The transport's previous protocol.
        loop: The transport's event loop.
    """

    def __init__(
        self,
        handler: _Handler,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._handler = handler
        self._loop = loop
        self._waiting = b""
        self._paused = False
        self._lost = False

    def data_received(self, data: bytes) -> None:
        """Feed *data* to the handler, after the bytes that wait."""
        if self._waiting:
            self._waiting += data
            self._handler.pause_reading()
        elif len(data) <= SLICE_BYTES:
            self._handler.data_received(data)
        else:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        until, at = perf_counter() + WORK_SECONDS, 0
        while at < len(data) and not self._lost:
            self._handler.data_received(data[at : at + SLICE_BYTES])
            at += SLICE_BYTES
            if perf_counter() >= until:
                break
        self._waiting = data[at:]
        if self._lost:
            return
        if self._waiting:
            self._paused = True
            self._handler.pause_reading()
            self._loop.call_soon(self._go_on)
        elif self._paused:
            self._paused = False
            self._handler.resume_reading()

    def _go_on(self) -> None:
        data, self._waiting = self._waiting, b""
        self._feed(data)

    def eof_received(self) -> bool | None:
        """Forward to the handler."""
        return self._handler.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward to the handler; waiting bytes are dropped."""
        self._lost = True
        self._handler.connection_lost(exc)

    def pause_writing(self) -> None:
        """Forward to the handler."""
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        """Forward to the handler."""
        self._handler.resume_writing()
