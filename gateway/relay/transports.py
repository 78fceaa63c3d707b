"""Flow control that does not mind a transport that is closing already."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Iterable

_NO_LINGER = struct.pack("ii", 1, 0)
_ACCEPTED = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)

PROBED_AFTER_SECONDS = range(45, 76)
"""Connections are given these in turns. Thousands that came together would be probed together, and
the kernel drops what does not fit into a queue of a thousand: the living were taken for dead."""


def pause_reading(transport: asyncio.Transport | None) -> None:
    """Stop reading from *transport*, so that its peer is held back."""
    if transport is not None and not transport.is_closing():
        transport.pause_reading()


def resume_reading(transport: asyncio.Transport | None) -> None:
    """Read from *transport* again."""
    if transport is not None and not transport.is_closing():
        transport.resume_reading()


def shut(transport: asyncio.Transport) -> None:
    """Shut our side down after what was written, where the transport can.

    TLS cannot: there what was written says that it was the last, and who reads on waits for the
    other side to close.
    """
    if not transport.is_closing() and transport.can_write_eof():
        transport.write_eof()


def reset(transport: asyncio.Transport | None) -> None:
    """Close *transport* at once with a reset, also of what the kernel still holds.

    An aborted transport alone ends with a FIN when nothing is left unread, and a peer that reads
    until the end would take what was cut off for complete.
    """
    if transport is None:
        return
    sock = transport.get_extra_info("socket")
    descriptor = sock.fileno() if sock is not None else -1
    if descriptor >= 0:
        # A socket object of our own: the one that transports give away is for looking only.
        with socket.socket(fileno=os.dup(descriptor)) as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


def notice_dead_peers(listening: Iterable[socket.socket]) -> None:
    """Have the kernel probe the connections that these sockets will accept, and send at once.

    A browser whose network goes away says nothing; without this an idle tunnel would stay for
    good. Connections inherit the options of the socket that accepts them (Linux).
    """
    for one in listening:
        for option in _ACCEPTED:
            one.setsockopt(*option)


def probe_after(sock: socket.socket, seconds: int) -> None:
    """Have the kernel probe this connection once it has been idle for so long."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
