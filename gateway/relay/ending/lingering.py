"""A connection whose last byte has been written: read on for a moment, then closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.relay.ending.ends import Ends
from gateway.relay.transports import reset, resume_reading, shut


class Lingering(asyncio.Protocol):
    """The last protocol of *transport*; it takes the transport over when it is made.

    Our side is shut. What the peer still sends is read and thrown away: left unread, it would turn
    our close into a reset, and the peer might never see what was written last (RFC 9112, section
    9.6). The connection is closed when the peer closes it, or after *seconds*. A peer that is still
    reading by then has the stall deadline from one byte to the next.

    Args:
        transport: Nothing is written to it any more.
        seconds: How long the peer may take to close, once it has everything.
        written_seconds: When all must have been taken by the kernel, or the connection is reset:
            what was written before a right ended must not arrive after it. None for no limit.
        discard: Given what the peer sends. Where our side cannot be shut (TLS), the peer of a
            WebSocket waits for us to close: who looks for its Close closes the transport.
    """

    __slots__ = ("_discard", "_ends", "_gone", "_seconds", "_timer", "_transport")

    def __init__(
        self,
        ends: Ends,
        transport: asyncio.Transport,
        *,
        seconds: float,
        gone: Callable[[], None],
        written_seconds: float | None = None,
        discard: Callable[[bytes], None] | None = None,
    ) -> None:
        self._ends = ends
        self._transport = transport
        self._seconds = seconds
        self._gone = gone
        self._discard = discard
        transport.set_protocol(self)
        resume_reading(transport)
        shut(transport)
        loop = ends.loop
        if written_seconds is None:
            self._timer = loop.call_later(seconds, self._close)
        else:
            self._timer = loop.call_later(written_seconds, self._check_written, written_seconds)

    def data_received(self, data: bytes) -> None:
        """Throw it away."""
        if self._discard is not None:
            self._discard(data)

    def eof_received(self) -> bool:
        """The peer has ended as well: the transport closes by itself."""
        self._ends.watch(self._transport)
        return False

    def pause_writing(self) -> None:
        """Nothing more is written."""

    def resume_writing(self) -> None:
        """Nothing more is written."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that it is over, and let go of the transport.

        Under TLS it knows its last protocol: both would stay, with a buffer of 256 KiB, until the
        collector of cycles comes by.
        """
        self._timer.cancel()
        self._ends.forget(self._transport)
        gone = self._gone
        del self._transport, self._gone, self._discard
        gone()

    def _check_written(self, after: float) -> None:
        if self._transport.get_write_buffer_size():
            reset(self._transport)
        else:
            self._timer = self._ends.loop.call_later(self._seconds - after, self._close)

    def _close(self) -> None:
        if not self._transport.get_write_buffer_size():
            self._ends.close(self._transport)
            return
        # A slow reader is still at it; if it stalls, it is reset.
        if not self._ends.watches(self._transport):
            self._ends.watch(self._transport)
        self._timer = self._ends.loop.call_later(self._seconds, self._close)
