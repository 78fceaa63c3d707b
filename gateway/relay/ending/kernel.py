"""What the kernel says of a connection, and what it is told to do about peers that vanish.

Keep-alive probes a connection that is idle. Where bytes wait to be acknowledged it does not: there
:mod:`.stalls` is first, or the kernel's own retransmissions end (tcp(7), ``tcp_retries2``).

``TCP_USER_TIMEOUT`` is set only for what is left of a connection that we have closed, which nobody
else watches any more. On an open one it would end readers that are merely slow: its clock starts
anew only when a window has reopened far enough (seen: 64 KiB/s into a buffer of 32 KiB, dead after
the time that was set), and it would delay the end of idle connections.
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
"""Where ``tcpi_bytes_acked`` stands in ``struct tcp_info`` (linux/tcp.h)."""


def descriptor_of(transport: asyncio.Transport) -> int:
    """Return the socket of *transport*; -1 when it is closed, or there is none."""
    sock = transport.get_extra_info("socket")
    return -1 if sock is None else int(sock.fileno())


def is_secured(transport: asyncio.Transport) -> bool:
    """Say whether *transport* speaks TLS: uvloop's own never do, and are not asked."""
    return (
        type(transport) is not TCPTransport and transport.get_extra_info("sslcontext") is not None
    )


def unacknowledged(transport: asyncio.Transport) -> int:
    """Return how many bytes the kernel holds until the peer has them; -1 when it is closed."""
    sock = transport.get_extra_info("socket")
    descriptor = -1 if sock is None else sock.fileno()
    if descriptor < 0:
        return -1
    held = ioctl(descriptor, TIOCOUTQ, _ZERO)
    return 0 if held == _ZERO else int(_INT.unpack(held)[0])


def waits(transport: asyncio.Transport) -> bool:
    """Say whether anything that was written has not been acknowledged."""
    return unacknowledged(transport) > 0 or transport.get_write_buffer_size() > 0


def progress(transport: asyncio.Transport) -> int:
    """Return a number that changes whenever the peer takes something; -1 when it is closed.

    On Linux that is what the peer has acknowledged. What waits in the transport would not do: a
    peer that reads steadily can take a megabyte before that changes.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return -1
    if _TCP_INFO < 0:
        return unacknowledged(transport) + transport.get_write_buffer_size()
    info = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _BYTES_ACKED_AT + _BYTES_ACKED.size)
    return int(_BYTES_ACKED.unpack_from(info, _BYTES_ACKED_AT)[0])


# Keep-alive, on both sides of the gateway

PROBED_AFTER_SECONDS: Final = range(45, 76)
"""Connections are given these in turns. Thousands that came together would be probed together, and
the kernel drops what does not fit into a queue of a thousand: the living were taken for dead."""
_PROBE_SECONDS: Final = 15
"""From one probe to the next."""
_PROBES: Final = 4
"""Unanswered ones that end a connection without a user timeout."""
_ORPHAN_FACTOR: Final = 5
"""Of the stall deadline, for bytes that the kernel still holds after a close: a slow reader may
well be taking them."""


def keep_accepted_alive(listening: Iterable[socket.socket], *, stall_seconds: float) -> None:
    """Have the kernel find vanished peers of the connections that these sockets will accept.

    Connections inherit the options of the socket that accepts them (Linux), and send at once.
    """
    for one in listening:
        for option in _options(60, stall_seconds):
            one.setsockopt(*option)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def keep_alive(transport: asyncio.Transport, *, stall_seconds: float) -> None:
    """Have the kernel find out when the peer of *transport* vanishes."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0 or sock.family == socket.AF_UNIX:
        return
    # Spread by the descriptor: consecutive connections are not probed together.
    after = PROBED_AFTER_SECONDS[sock.fileno() % len(PROBED_AFTER_SECONDS)]
    set_options(transport, _options(after, stall_seconds))


def probed_after(*, stall_seconds: float) -> Iterator[int]:
    """Return after how many idle seconds each of the connections is probed that are accepted."""
    most = max(1, int(stall_seconds))
    return itertools.cycle([min(seconds, most) for seconds in PROBED_AFTER_SECONDS])


def bound_orphan(transport: asyncio.Transport, *, stall_seconds: float) -> None:
    """Bound how long the kernel keeps what *transport* has written once it is closed."""
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
