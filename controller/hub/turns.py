"""An attached client's bytes, given to aiohttp a little at a time, so that the others get theirs.

aiohttp understands all frames of a read at once: 256 KB of the smallest ones take it seconds, in
which no other terminal shows or types anything.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final, Protocol

SLICE_BYTES: Final = 512
"""Some eighty of the smallest frames: about three milliseconds."""
WORK_SECONDS: Final = 0.001
"""After so long in one turn of the loop the others go first."""


class _Handler(Protocol):
    def data_received(self, data: bytes) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class InTurns(asyncio.Protocol):
    """Stands between a transport and its *handler*.

    While bytes wait here nothing more is read. The handler pauses and resumes for its own reasons
    as well: whoever reads first pauses again, so that each costs one read more at most.

    Args:
        handler: The transport's protocol so far.
        loop: The transport's.
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
        """Have *data* understood, after whatever waits."""
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
        """Pass it on."""
        return self._handler.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on; what waits is of no use any more."""
        self._lost = True
        self._handler.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._handler.resume_writing()
