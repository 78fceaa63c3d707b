"""What the kernel says of a connection: what it holds, and what the peer has acknowledged."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
from typing import Final

_TCP_INFO: Final = getattr(socket, "TCP_INFO", -1)
_BYTES_ACKED = struct.Struct("=Q")
_BYTES_ACKED_AT: Final = 120
"""Where ``tcpi_bytes_acked`` stands in ``struct tcp_info`` (linux/tcp.h)."""


def descriptor_of(transport: asyncio.Transport) -> int:
    """Return the socket of *transport*; -1 when it is closed, or there is none."""
    sock = transport.get_extra_info("socket")
    return -1 if sock is None else int(sock.fileno())


def is_secured(transport: asyncio.Transport) -> bool:
    """Say whether *transport* speaks TLS."""
    return transport.get_extra_info("sslcontext") is not None


def unacknowledged(transport: asyncio.Transport) -> int:
    """Return how many bytes the kernel holds until the peer has them; -1 when it is closed."""
    descriptor = descriptor_of(transport)
    if descriptor < 0:
        return -1
    (size,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, b"\0" * 4))
    return int(size)


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
