"""Flow control and resets that tolerate a closing transport, and the descriptor limit."""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

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
