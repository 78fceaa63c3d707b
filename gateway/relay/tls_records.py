"""TLS of which a few records are taken in one turn of the loop, however many came.

A record may hold a byte, or nothing for us: OpenSSL takes some 19 µs for each KeyUpdate (RFC 8446,
section 4.6.3) of 27 bytes, tells nobody, and 256 KiB that a loop reads at once hold 9,700. So each
read goes through here on its way to TLS. Records say how long they are before anything of them
is understood (section 5.1): after :data:`RECORDS_AT_ONCE` the rest waits for the next turn, and
nothing more is read until then.

Loops make their TLS within ``create_connection`` and leave no place between it and its socket. So
the class with which they do, of the same form in asyncio and in uvloop, is used here.
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
"""The most of one connection in a turn, or 1 MiB of data: about a millisecond of KeyUpdates."""
RECORDS_UNREAD: Final = 4096
"""The most that are taken while the peer reads nothing: each may ask for one in return."""
_LOOKS_AFTER: Final = (0.02, 1.0)
"""Seconds, at first and at most, between looks at whether TLS is read from: it tells nobody."""
_HEADER: Final = 5
_UVLOOP: Final[Any] = uvloop.loop
_ASYNCIO: Final[Any] = SSLProtocol


async def secure(
    protocol: P,
    context: ssl.SSLContext,
    connect: Callable[[Callable[[], asyncio.BaseProtocol]], Awaitable[object]],
    **options: Any,
) -> tuple[asyncio.Transport, P]:
    """Return a connection of *protocol* over TLS, once the handshake is done.

    Args:
        protocol: Whose connection it will be.
        context: How it is secured.
        connect: Makes the connection below TLS, of a protocol that the given function returns.
        options: Further ones of the loop's TLS: ``server_side``, ``server_hostname``,
            ``ssl_handshake_timeout`` and ``ssl_shutdown_timeout`` (seconds).

    Raises:
        OSError: If there is no connection; :exc:`ssl.SSLError` if the handshake fails.
    """
    loop = asyncio.get_running_loop()
    make = _UVLOOP.SSLProtocol if isinstance(loop, _UVLOOP.Loop) else _ASYNCIO
    done = loop.create_future()
    tls = make(loop, protocol, context, done, **options)
    transport: asyncio.Transport = tls._get_app_transport()
    try:
        await connect(lambda: TlsRecords(loop, tls))
        await done
    except BaseException:
        transport.abort()
        # The error knows this frame: a cycle, in which buffers of 256 KiB would stay for long.
        del done
        raise
    return transport, protocol


class TlsRecords(asyncio.BufferedProtocol):
    """Stands between a socket and its TLS: the protocol of the one, the transport of the other.

    Args:
        tls: The loop's protocol that takes records, and makes them.
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
        """Records that were read and wait for their turn; nothing is read meanwhile."""
        self._due = False
        """Whether its turn is coming."""
        self._stopped = False
        """Whether TLS wants no more for now."""
        self._full = False
        """Whether the peer reads too little of what TLS makes."""
        self._unread = 0
        """Records that were taken since."""
        self._rest = 0
        """So many bytes of a record have not come yet."""
        self._header = b""
        """The beginning of a record of which not even the length has come."""

    # As a protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let TLS begin."""
        self._socket = transport
        self.get_extra_info = transport.get_extra_info
        self.abort = self._socket.abort
        self.write = self._socket.write
        self._tls.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell TLS; records that have not had their turn are lost, as in the kernel."""
        self._held = memoryview(b"")
        self._tls.connection_lost(exc)

    def eof_received(self) -> bool | None:
        """Tell TLS, which answers for both; not before it has given out all that it holds.

        uvloop's closes at once, and drops what nobody has read for want of room.
        """
        if self._tls._get_app_transport().is_reading():
            return self._finish()
        self._wait_for_reader(_LOOKS_AFTER[0])
        return True

    def _finish(self) -> bool | None:
        # Read from again since a moment ago, TLS may not have given out yet what it held.
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
        """Have TLS keep what it has made."""
        self._full, self._unread = True, 0
        self._tls.pause_writing()

    def resume_writing(self) -> None:
        """Have TLS go on."""
        self._full = False
        self._tls.resume_writing()
        self._resume()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer of TLS: what is no more than a few records is never copied."""
        if not self._buffer or sizehint > len(self._buffer):  # else it would be the same again
            self._buffer = self._tls.get_buffer(sizehint)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Give TLS the first few records of what was read."""
        data = self._buffer
        if (
            nbytes == _HEADER + (data[3] << 8) + data[4]
            and not self._rest
            and not self._header
            and not self._full
        ):
            self._take(nbytes)  # the usual one
            return
        end = self._end_of_few(data, nbytes)
        if end < nbytes:
            self._held = memoryview(bytes(data[end:nbytes]))
        self._take(end)
        if self._held or not self._may_read:
            transports.pause_reading(self._socket)
            self._resume()

    @property
    def _may_read(self) -> bool:
        return not (self._stopped or (self._full and self._unread >= RECORDS_UNREAD))

    def _resume(self) -> None:
        """Go on where nothing speaks against it, first with what was read already."""
        if not self._may_read:
            return
        if not self._held:
            transports.resume_reading(self._socket)
        elif not self._due:
            self._due = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._due = False
        held = self._held
        if not held or not self._may_read:
            return
        end = self._end_of_few(held, len(held))
        self._held = held[end:]
        self.get_buffer(end)[:end] = held[:end]
        self._take(end)
        self._resume()

    def _end_of_few(self, data: memoryview, size: int) -> int:
        """Return where the last of the few ends, *size* where there are no more than these."""
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
        """Say whether the socket is, or will be, closed."""
        return bool(self._socket.is_closing())

    def close(self) -> None:
        """Close the socket once what TLS has made is written."""
        self._socket.close()

    def _force_close(self, exc: Exception | None) -> None:
        self._socket._force_close(exc)

    def pause_reading(self) -> None:
        """Read no more until :meth:`resume_reading`: TLS has as much as it keeps."""
        self._stopped = True
        transports.pause_reading(self._socket)

    def resume_reading(self) -> None:
        """Go on, first with what was read already."""
        self._stopped = False
        self._resume()
