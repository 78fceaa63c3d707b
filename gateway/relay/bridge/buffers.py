"""What waits on one side of a bridge: received bytes to be parsed, and Pongs to be written.

A read of 256 KB may hold 40,000 frames, and a frame may hold a hundred thousand RFB messages. Both
are parsed a bounded number at a time, for :data:`WORK_SECONDS` in a turn of the loop. A step gets
at most :data:`PORTION_BYTES`, so that it neither copies nor writes much. The rest is buffered here,
and the peer is not read meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Final, Protocol

from websockets.protocol import Protocol as SocketProtocol

from gateway.relay.transports import LARGE_BYTES, write_large
from gateway.relay.turns import PORTION_BYTES, Turns

WORK_SECONDS: Final = 0.0002
"""In one turn, plus the time of one step. Another connection waits for it once for a request and
once for its response, and needs twice as long itself."""
FRAMES_AT_ONCE: Final = 32
"""Frames that the library parses in one step: a tenth of a millisecond."""
_SMALL_BYTES: Final = 512
"""So few bytes take at most a step or two: the clock is not read."""


class Consumer(Protocol):
    """Parses received bytes."""

    @property
    def has_more(self) -> bool:
        """Whether a step without new bytes continues."""

    def step(self, data: bytes) -> int:
        """Parse some of *data*, for a tenth of a millisecond or two; return how many bytes."""

    def sync_reading(self) -> None:
        """Read from the peer or pause, as :attr:`InputBuffer.has_pending` requires."""


@dataclass(slots=True, eq=False, repr=False)
class InputBuffer:
    """Passes received bytes to *consumer*, and yields to other connections if that takes long."""

    consumer: Consumer
    turns: Turns
    clock: Callable[[], float] = perf_counter
    has_pending: bool = False
    """Whether bytes are left for a later turn, so that the peer must not be read."""
    _pending: bytes = b""

    @property
    def pending_bytes(self) -> int:
        """The number of bytes that are left for a later turn."""
        return len(self._pending)

    def feed(self, data: bytes) -> None:
        """Have *data* parsed, after pending bytes."""
        if self.has_pending:
            self._pending += data
            return
        consumer, at, size = self.consumer, 0, len(data)
        if size <= _SMALL_BYTES and not consumer.has_more:
            at = consumer.step(data)
            while at < size and not consumer.has_more:
                at += consumer.step(data[at:])
            if at >= size and not consumer.has_more:
                return
        self._go_through(data[at:] if at else data)

    def _go_through(self, data: bytes) -> None:
        consumer, until, at = self.consumer, self.clock() + WORK_SECONDS, 0
        while at < len(data) or consumer.has_more:
            at += consumer.step(data[at : at + PORTION_BYTES])
            if self.clock() >= until:
                break
        self._pending = data[at:]
        self.has_pending = bool(self._pending) or consumer.has_more
        if self.has_pending:
            consumer.sync_reading()
            self.turns.defer(self._go_on)

    def _go_on(self) -> None:
        data, self._pending = self._pending, b""
        self._go_through(data)
        if not self.has_pending:
            self.consumer.sync_reading()


_PONG: Final = 0x8A

# The library logs heads, which contain credentials, if its logger is enabled.
quiet_logger = logging.getLogger("gateway.sockets")
quiet_logger.setLevel(logging.WARNING)


class SocketOutput:
    """Writes what the sans-I/O protocol *socket* has to send.

    Each Ping is answered with a Pong. While the write buffer is full, only the last Pong is kept
    and written afterwards (RFC 6455, section 5.5.3): a peer that pings without reading costs no
    memory.

    Attributes:
        held: Whether the write buffer is full.
    """

    __slots__ = ("_pong", "_socket", "held")

    def __init__(self, socket: SocketProtocol) -> None:
        self._socket = socket
        self._pong = b""
        self.held = False

    def flush(self, transport: asyncio.Transport | None) -> None:
        """Write what the protocol has produced since the last call."""
        for data in self._socket.data_to_send():
            # An empty piece requests a shutdown of our side, which follows from the state.
            if not data or transport is None:
                continue
            if self.held and data[0] == _PONG:
                self._pong = data
            elif len(data) > LARGE_BYTES:
                write_large(transport, data)
            else:
                transport.write(data)

    def release(self, transport: asyncio.Transport | None) -> None:
        """Write again: the peer reads."""
        self.held = False
        pong, self._pong = self._pong, b""
        if pong and transport is not None:
            transport.write(pong)
