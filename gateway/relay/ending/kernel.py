"""What the kernel knows of a connection, and how it detects vanished peers.

Keep-alive probes an idle connection. It does not probe while bytes are unacknowledged: then
:mod:`.stalls` acts first, or the kernel's retransmissions end (tcp(7), ``tcp_retries2``).

``TCP_USER_TIMEOUT`` is set only for the rest of a connection that we have closed, which nothing
else watches. On an open connection it would end slow readers. Its clock restarts only when a window
has reopened far enough: a reader at 64 KiB/s with a buffer of 32 KiB was ended after exactly the
timeout. It would also delay the end of idle connections.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from collections.abc import Iterable, Iterator
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Final

from uvloop.loop import TCPTransport  # type: ignore[attr-defined]  # its stub is not complete

from gateway.relay.transports import set_options

_TCP_INFO: Final = getattr(socket, "TCP_INFO", -1)
_INT = struct.Struct("i")
_ZERO: Final = bytes(_INT.size)
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
    held = ioctl(descriptor, TIOCOUTQ, _ZERO)
    return 0 if held == _ZERO else int(_INT.unpack(held)[0])


def has_unsent(transport: asyncio.Transport) -> bool:
    """Return whether written bytes are unsent or unacknowledged."""
    return unacknowledged(transport) > 0 or transport.get_write_buffer_size() > 0


def progress(transport: asyncio.Transport) -> int:
    """Return a number that changes whenever the peer receives something; -1 if closed.

    On Linux it is the number of acknowledged bytes. The size of the write buffer would not do: a
    peer that reads steadily can receive a megabyte before it changes.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return -1
    if _TCP_INFO < 0:
        return unacknowledged(transport) + transport.get_write_buffer_size()
    info = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _BYTES_ACKED_AT + _BYTES_ACKED.size)
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
