"""Lingering close: a connection whose last byte was written is read for a moment, then closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.relay.ending.closer import Closer
from gateway.relay.transports import reset, resume_reading, shutdown_write


class Lingering(asyncio.Protocol):
    """The last protocol of *transport*; it takes the transport over when it is created.

    Our side is shut down. Input is read and discarded: left unread, it would turn our close into a
    reset, and the peer might not receive the last bytes (RFC 9112, section 9.6). The connection
    closes when the peer closes it, or after *seconds*. A peer that still reads then has the stall
    deadline for each further byte.

    Args:
        transport: Nothing more may be written to it.
        seconds: How long the peer may take to close once it has everything.
        flush_seconds: When the kernel must have accepted all bytes, or the connection is reset:
            bytes written before a right ended must not arrive later. None for no limit.
        on_data: Called with the discarded input. With TLS our side cannot be shut down and the peer
            of a WebSocket waits for us to close: a caller that sees its Close closes the transport.
    """

    __slots__ = ("_closer", "_on_closed", "_on_data", "_seconds", "_timer", "_transport")

    def __init__(
        self,
        closer: Closer,
        transport: asyncio.Transport,
        *,
        seconds: float,
        on_closed: Callable[[], None],
        flush_seconds: float | None = None,
        on_data: Callable[[bytes], None] | None = None,
    ) -> None:
        self._closer = closer
        self._transport = transport
        self._seconds = seconds
        self._on_closed = on_closed
        self._on_data = on_data
        transport.set_protocol(self)
        resume_reading(transport)
        shutdown_write(transport)
        loop = closer.loop
        if flush_seconds is None:
            self._timer = loop.call_later(seconds, self._close)
        else:
            self._timer = loop.call_later(flush_seconds, self._check_written, flush_seconds)

    def data_received(self, data: bytes) -> None:
        """Discard it."""
        if self._on_data is not None:
            self._on_data(data)

    def eof_received(self) -> bool:
        """Let the transport close by itself: the peer has closed too."""
        self._closer.watch(self._transport)
        return False

    def pause_writing(self) -> None:
        """Do nothing: no more is written."""

    def resume_writing(self) -> None:
        """Do nothing: no more is written."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end, and release the transport.

        With TLS the transport refers to its last protocol: both would stay, with a buffer of 256
        KiB, until the garbage collector runs.
        """
        self._timer.cancel()
        self._closer.forget(self._transport)
        on_closed = self._on_closed
        del self._transport, self._on_closed, self._on_data
        on_closed()

    def _check_written(self, after: float) -> None:
        if self._transport.get_write_buffer_size():
            reset(self._transport)
        else:
            self._timer = self._closer.loop.call_later(self._seconds - after, self._close)

    def _close(self) -> None:
        if not self._transport.get_write_buffer_size():
            self._closer.close(self._transport)
            return
        # A slow peer still reads; if it stalls, it is reset.
        if not self._closer.stalls.watches(self._transport):
            self._closer.watch(self._transport)
        self._timer = self._closer.loop.call_later(self._seconds, self._close)
