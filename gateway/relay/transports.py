"""Flow control that does not mind a transport that is closing, and how many there may be."""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

RESERVED: Final = 256
"""Descriptors kept for what is open already: to dial apps with, to ask Redis."""


def ceiling(most: int | None = None) -> int:
    """Return the descriptor from which on nothing new is begun; the kernel gives the lowest free.

    Args:
        most: How many there may be; None for what the process may have.
    """
    most = most or resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most - min(RESERVED, most // 4)


_RESETS: Final = ((socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)),)


def pause_reading(transport: asyncio.Transport | None) -> None:
    """Stop reading from *transport*, so that its peer is held back."""
    if transport is not None and not transport.is_closing():
        transport.pause_reading()


def resume_reading(transport: asyncio.Transport | None) -> None:
    """Read from *transport* again."""
    if transport is not None and not transport.is_closing():
        transport.resume_reading()


def is_protocol_of(protocol: asyncio.BaseProtocol, transport: asyncio.Transport | None) -> bool:
    """Whether *transport* is there, and has not been handed over to another protocol."""
    return transport is not None and transport.get_protocol() is protocol


def shut(transport: asyncio.Transport) -> None:
    """Shut our side down after what was written, where the transport can.

    TLS cannot: there what was written says that it was the last, and who reads on waits for the
    other side to close.
    """
    if not transport.is_closing() and transport.can_write_eof():
        with suppress(OSError):  # the peer has reset the connection, which is told soon
            transport.write_eof()


def reset(transport: asyncio.Transport | None) -> None:
    """Close *transport* at once with a reset, also of what the kernel still holds.

    An aborted transport alone ends with a FIN when nothing is left unread, and a peer that reads
    until the end would take what was cut off for complete.
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
    """Set socket *options* of *transport*; nothing where it is closed, or has no socket."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return
    # A socket object of our own: the one that transports give away makes one for each call.
    own = socket.socket(sock.family, sock.type, sock.proto, fileno=sock.fileno())
    try:
        for option in options:
            own.setsockopt(*option)
    finally:
        own.detach()
