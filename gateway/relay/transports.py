"""What transports lack: flow control and resets while they close, keep-alive, the kernel's view.

Keep-alive probes an idle connection. It does not probe while bytes are unacknowledged: then
:mod:`.ending.stalls` acts first, or the kernel's retransmissions end (tcp(7), ``tcp_retries2``).

``TCP_USER_TIMEOUT`` is set only for the rest of a connection that we have closed, which nothing
else watches. On an open connection it would end slow readers. Its clock restarts only when a window
has reopened far enough: a reader at 64 KiB/s with a buffer of 32 KiB was ended after exactly the
timeout. It would also delay the end of idle connections.
"""

from __future__ import annotations

import asyncio
import itertools
import resource
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Final

from uvloop.loop import TCPTransport  # type: ignore[attr-defined]  # its stub is not complete

RESERVED: Final = 256
"""Descriptors reserved for open connections: to dial apps, to reach Redis."""


def descriptor_ceiling(most: int | None = None) -> int:
    """Return the descriptor from which on nothing new starts; the kernel assigns the lowest.

    Args:
        most: How many there may be; None for the limit of the process.
    """
    most = most or resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most - min(RESERVED, most // 4)


_RESETS: Final = ((socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)),)


def pause_reading(transport: asyncio.Transport | None) -> None:
    """Stop reading from *transport*, which applies backpressure to its peer."""
    if transport is not None and not transport.is_closing():
        transport.pause_reading()


def resume_reading(transport: asyncio.Transport | None) -> None:
    """Read from *transport* again."""
    if transport is not None and not transport.is_closing():
        transport.resume_reading()


def owns_transport(protocol: asyncio.BaseProtocol, transport: asyncio.Transport | None) -> bool:
    """Return whether *transport* exists and *protocol* is still its protocol."""
    return transport is not None and transport.get_protocol() is protocol


LARGE_BYTES: Final = 1 << 15
"""Longer data is written by :func:`write_large`. Two full records of TLS."""


def write_large(transport: asyncio.Transport, data: bytes) -> None:
    """Write *data*, longer than :data:`LARGE_BYTES`; to TLS in pieces of that size.

    TLS keeps a buffer as large as its largest write until the connection closes.
    """
    if not is_tls(transport):
        transport.write(data)
        return
    view = memoryview(data)
    for at in range(0, len(view), LARGE_BYTES):
        transport.write(view[at : at + LARGE_BYTES])


def shutdown_write(transport: asyncio.Transport) -> None:
    """Shut down our side after what was written, if the transport can.

    TLS cannot: there close_notify says that no more data follows, and a peer that keeps reading
    waits for the other side to close.
    """
    if not transport.is_closing() and transport.can_write_eof():
        with suppress(OSError):  # the peer has reset the connection; connection_lost follows
            transport.write_eof()


def reset(transport: asyncio.Transport | None) -> None:
    """Reset *transport* at once, dropping what the kernel still holds.

    An aborted transport sends a FIN if no bytes are unread. A peer that reads until the end would
    then take a truncated response for a complete one.
    """
    if transport is None:
        return
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.fileno() < 0:
        return  # closed already
    set_options(transport, _RESETS)
    transport.abort()


def set_options(
    transport: asyncio.Transport, options: Iterable[tuple[int, int, int | bytes]]
) -> None:
    """Set socket *options* of *transport*; no effect if it is closed or has no socket."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return
    # A socket object of our own: that of a transport makes a new one for each call.
    own = socket.socket(sock.family, sock.type, sock.proto, fileno=sock.fileno())
    try:
        for option in options:
            own.setsockopt(*option)
    finally:
        own.detach()


# What the kernel knows of a connection

_INT = struct.Struct("i")
_BYTES_ACKED = struct.Struct("=Q")
_BYTES_ACKED_AT: Final = 120
"""The offset of ``tcpi_bytes_acked`` in ``struct tcp_info`` (linux/tcp.h)."""


def descriptor_of(transport: asyncio.Transport) -> int:
    """Return the descriptor of *transport*; -1 if it is closed or has none."""
    sock = transport.get_extra_info("socket")
    return -1 if sock is None else int(sock.fileno())


def is_tls(transport: asyncio.Transport) -> bool:
    """Return whether *transport* is TLS; uvloop's own transports never are, and are not asked."""
    return (
        type(transport) is not TCPTransport and transport.get_extra_info("sslcontext") is not None
    )


def unacknowledged(transport: asyncio.Transport) -> int:
    """Return how many bytes the kernel holds until the peer acknowledges them; -1 if closed."""
    sock = transport.get_extra_info("socket")
    descriptor = -1 if sock is None else sock.fileno()
    if descriptor < 0:
        return -1
    held = bytearray(_INT.size)  # with bytes, ioctl makes and drops an exception first
    ioctl(descriptor, TIOCOUTQ, held)
    return int(_INT.unpack(held)[0])


def waiting_bytes(transport: asyncio.Transport | None) -> int:
    """Return how many bytes wait in the write buffer of *transport*."""
    return 0 if transport is None else transport.get_write_buffer_size()


def has_unsent(transport: asyncio.Transport) -> bool:
    """Return whether written bytes are unsent or unacknowledged."""
    return unacknowledged(transport) > 0 or transport.get_write_buffer_size() > 0


def progress(transport: asyncio.Transport) -> int:
    """Return a number that changes whenever the peer receives something; -1 if closed.

    It is the number of acknowledged bytes. The size of the write buffer would not do: a peer that
    reads steadily can receive a megabyte before it changes.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return -1
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED_AT + _BYTES_ACKED.size)
    return int(_BYTES_ACKED.unpack_from(info, _BYTES_ACKED_AT)[0])


# Keep-alive, on both sides of the gateway

KEEPALIVE_SECONDS: Final = range(45, 76)
"""Connections get these in turns. If thousands of connections were probed together, the kernel
would drop what exceeds a queue of a thousand, and live peers would count as vanished."""
_PROBE_SECONDS: Final = 15
"""From one probe to the next."""
_PROBES: Final = 4
"""Unanswered probes that end a connection without a user timeout."""
_ORPHAN_FACTOR: Final = 5
"""The multiple of the stall deadline for bytes that the kernel holds after a close: a slow reader
may still be reading them."""


def keep_accepted_alive(listening: Iterable[socket.socket], *, stall_seconds: float) -> None:
    """Enable keep-alive for the connections that these sockets will accept.

    Accepted connections inherit the options of the listening socket (Linux), including TCP_NODELAY.
    """
    for one in listening:
        for option in _options(60, stall_seconds):
            one.setsockopt(*option)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def keep_alive(transport: asyncio.Transport, *, stall_seconds: float) -> None:
    """Have the kernel detect that the peer of *transport* has vanished."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0 or sock.family == socket.AF_UNIX:
        return
    # Spread by descriptor, so that consecutive connections are not probed together.
    after = KEEPALIVE_SECONDS[sock.fileno() % len(KEEPALIVE_SECONDS)]
    set_options(transport, _options(after, stall_seconds))


def keepalive_delays(*, stall_seconds: float) -> Iterator[int]:
    """Yield the idle seconds after which each accepted connection is probed."""
    most = max(1, int(stall_seconds))
    return itertools.cycle([min(seconds, most) for seconds in KEEPALIVE_SECONDS])


def limit_orphan(transport: asyncio.Transport, *, stall_seconds: float) -> None:
    """Limit how long the kernel keeps unsent bytes of *transport* once it is closed."""
    if unacknowledged(transport) > 0:
        milliseconds = int(stall_seconds * _ORPHAN_FACTOR * 1000)
        set_options(transport, [(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)])


def _options(after: int, stall_seconds: float) -> tuple[tuple[int, int, int], ...]:
    most = max(1, int(stall_seconds))
    return (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, min(after, most)),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, min(_PROBE_SECONDS, most)),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES),
    )
