"""Flow control that does not mind a transport that is closing already."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from contextlib import suppress

_NO_LINGER = struct.pack("ii", 1, 0)


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
    if sock is not None:
        descriptor = sock.fileno()
        if descriptor < 0:
            return  # closed already
        # A socket object of our own: the one that transports give away is for looking only.
        with socket.socket(fileno=os.dup(descriptor)) as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()
