"""TLS with a bounded number of records in one turn of the loop, and bounded buffers.

A record may hold one byte, or no data: OpenSSL takes about 19 µs for each KeyUpdate of 27 bytes
(RFC 8446, section 4.6.3) and reports none. The 256 KiB that a loop reads at once hold 9,700 of
them. Each read therefore passes through here before TLS. The length of a record can be read without
decrypting it (section 5.1). After :data:`RECORDS_AT_ONCE` the rest waits for the next turn, and the
socket is not read until then.

OpenSSL's memory buffers never shrink: a connection that has once passed on 256 KiB at once keeps
341 KiB in each direction until it closes. Therefore at most :data:`READ_BYTES` are read at once, no
more are read while as many wait for the reader, and :func:`.transports.write_large` passes longer
data to TLS in pieces.

Loops create TLS inside ``create_connection``, with no hook between TLS and its socket. This module
therefore uses the class that they use, which has the same interface in asyncio and uvloop.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import uvloop

from gateway.relay import transports

P = TypeVar("P", bound=asyncio.BaseProtocol)

RECORDS_AT_ONCE: Final = 64
"""The maximum number for one connection in a turn, up to 1 MiB of data: about a millisecond of
KeyUpdates."""
RECORDS_UNREAD: Final = 4096
"""The maximum number processed while the peer reads nothing: each may request one in return."""
READ_BYTES: Final = 1 << 15
"""The maximum read at once: two full records. A read of as much ends the connection's turn."""
_LOOKS_AFTER: Final = (0.02, 1.0)
"""Seconds, initially and at most, between checks whether TLS is being read: it reports nothing."""
_HEADER: Final = 5
_UVLOOP: Final[Any] = uvloop.loop
_ASYNCIO: Final[Any] = SSLProtocol


async def connect_tls(
    protocol: P,
    context: ssl.SSLContext,
    connect: Callable[[Callable[[], asyncio.BaseProtocol]], Awaitable[object]],
    **options: Any,
) -> tuple[asyncio.Transport, P]:
    """Return a connection of *protocol* over TLS, after the handshake.

    Args:
        protocol: The protocol above TLS.
        context: The TLS context.
        connect: Makes the connection below TLS, with a protocol from the given function.
        options: Further options of the loop's TLS: ``server_side``, ``server_hostname``,
            ``ssl_handshake_timeout`` and ``ssl_shutdown_timeout`` (seconds).

    Raises:
        OSError: If the connection fails; :exc:`ssl.SSLError` if the handshake fails.
    """
    loop = asyncio.get_running_loop()
    make = _UVLOOP.SSLProtocol if isinstance(loop, _UVLOOP.Loop) else _ASYNCIO
    done = loop.create_future()
    tls = make(loop, protocol, context, done, **options)
    transport: Any = tls._get_app_transport()
    transport.set_read_buffer_limits(high=READ_BYTES)
    try:
        await connect(lambda: TlsRecords(loop, tls))
        await done
    except BaseException:
        transport.abort()
        # The error refers to this frame: a cycle that would keep buffers of 256 KiB.
        del done
        raise
    return transport, protocol


class TlsRecords(asyncio.BufferedProtocol):
    """Stands between a socket and its TLS: the protocol of the one, the transport of the other.

    Args:
        tls: The loop's TLS protocol, which consumes and produces records.
    """

    __slots__ = (
        "_buffer",
        "_due",
        "_full",
        "_header",
        "_held",
        "_loop",
        "_rest",
        "_socket",
        "_stopped",
        "_take",
        "_tls",
        "_unread",
        "abort",
        "get_extra_info",
        "write",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, tls: Any) -> None:
        self._loop = loop
        self._tls = tls
        self._take = tls.buffer_updated
        self._socket: Any = None
        self._buffer = memoryview(b"")
        self._held = memoryview(b"")
        """Records that were read and wait for the next turn; the socket is not read meanwhile."""
        self._due = False
        """Whether the next turn is scheduled."""
        self._stopped = False
        """Whether TLS has paused reading."""
        self._full = False
        """Whether the peer does not read what TLS has written."""
        self._unread = 0
        """Records processed since then."""
        self._rest = 0
        """Bytes of the current record that have not arrived."""
        self._header = b""
        """An incomplete record header."""

    # As a protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start TLS."""
        self._socket = transport
        self.get_extra_info = transport.get_extra_info
        self.abort = self._socket.abort
        self.write = self._socket.write
        self._tls.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell TLS; waiting records are lost, as unread bytes in the kernel are."""
        self._held = memoryview(b"")
        self._tls.connection_lost(exc)

    def eof_received(self) -> bool | None:
        """Tell TLS, which ends both directions, once it has delivered all its data.

        uvloop's TLS closes at once and drops data that was not read for lack of room.
        """
        if self._tls._get_app_transport().is_reading():
            return self._finish()
        self._wait_for_reader(_LOOKS_AFTER[0])
        return True

    def _finish(self) -> bool | None:
        # Reading resumed a moment ago; TLS may not have delivered its data yet.
        self._take(0)
        return self._tls.eof_received()  # type: ignore[no-any-return]

    def _wait_for_reader(self, seconds: float) -> None:
        self._loop.call_later(seconds, self._look_for_reader, seconds)

    def _look_for_reader(self, seconds: float) -> None:
        if self._socket.is_closing():
            return
        if self._tls._get_app_transport().is_reading():
            self._finish()
        else:
            self._wait_for_reader(min(2 * seconds, _LOOKS_AFTER[1]))

    def pause_writing(self) -> None:
        """Let TLS keep what it has produced."""
        self._full, self._unread = True, 0
        self._tls.pause_writing()

    def resume_writing(self) -> None:
        """Let TLS continue."""
        self._full = False
        self._tls.resume_writing()
        self._resume()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the start of TLS's own buffer: a read of a few records is never copied."""
        if not self._buffer:
            self._buffer = self._tls.get_buffer(READ_BYTES)[:READ_BYTES]
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Give TLS the first few records of the read."""
        data = self._buffer
        if (
            nbytes == _HEADER + (data[3] << 8) + data[4]
            and not self._rest
            and not self._header
            and not self._full
        ):
            self._take(nbytes)  # the usual case: one record
            return
        end = self._end_of_few(data, nbytes)
        if end < nbytes:
            self._held = memoryview(bytes(data[end:nbytes]))
        self._take(end)
        if self._held or nbytes == READ_BYTES or not self._may_read:
            transports.pause_reading(self._socket)
            self._resume_later()

    @property
    def _may_read(self) -> bool:
        return not (self._stopped or (self._full and self._unread >= RECORDS_UNREAD))

    def _resume(self) -> None:
        """Continue unless something prevents it, first with records already read."""
        if not self._may_read:
            return
        if self._held:
            self._resume_later()
        elif not self._due:
            transports.resume_reading(self._socket)

    def _resume_later(self) -> None:
        """Continue in the next turn, unless something prevents it."""
        if self._may_read and not self._due:
            self._due = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._due = False
        held = self._held
        if not held or not self._may_read:
            self._resume()
            return
        end = self._end_of_few(held, len(held))
        self._held = held[end:]
        self.get_buffer(end)[:end] = held[:end]
        self._take(end)
        self._resume()

    def _end_of_few(self, data: memoryview, size: int) -> int:
        """Return where the last of the few records ends; *size* if there are no more."""
        few, at = RECORDS_AT_ONCE, self._rest
        if self._header:
            missing = _HEADER - len(self._header)
            self._header += data[: min(missing, size)]
            if size < missing:
                return size
            at = missing + int.from_bytes(self._header[3:])
            few -= 1
        while few and at + _HEADER <= size:
            few -= 1
            at += _HEADER + (data[at + 3] << 8) + data[at + 4]
        self._unread += RECORDS_AT_ONCE - few
        end = at if at + _HEADER <= size else size
        self._rest = max(0, at - end)
        self._header = bytes(data[at:end])
        return end

    # As a transport

    def is_closing(self) -> bool:
        """Return whether the socket is closed or will be."""
        return bool(self._socket.is_closing())

    def close(self) -> None:
        """Close the socket once what TLS has produced is written."""
        self._socket.close()

    def _force_close(self, exc: Exception | None) -> None:
        self._socket._force_close(exc)

    def pause_reading(self) -> None:
        """Stop reading until :meth:`resume_reading`: the buffer of TLS is full."""
        self._stopped = True
        transports.pause_reading(self._socket)

    def resume_reading(self) -> None:
        """Read again, first from records already read."""
        self._stopped = False
        self._resume()
