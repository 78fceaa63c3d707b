"""Closing a connection: its peer gets what was written, and a silent one is not waited for.

Under TLS both sides say that they have ended; who said so first need not wait for the other
(RFC 8446, section 6.1). Loops do wait, and whoever is still reading when their time is over loses
the rest. Here their time is long, and looks at the kernel say which of the two it is.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from typing import Final

from gateway.relay.transports import reset

SHUTDOWN_SECONDS: Final = 120.0
"""What a loop is told: for those that are not closed from here, and for readers that take this
long for what a transport holds."""
_LOOK_SECONDS: Final = 0.25
_STALLED_SECONDS: Final = 30.0
"""After which a reader that has taken nothing is given up."""
_LITTLE_BYTES: Final = 1024
"""No socket's buffer is full with this, so that its transport holds nothing: it is at most our
last word, whose way is the kernel's concern."""


def close(transport: asyncio.Transport) -> None:
    """Close *transport* after what was written; closing it twice changes nothing."""
    if transport.is_closing():
        return
    secured = transport.get_extra_info("sslcontext") is not None
    transport.close()
    if secured:
        _Parting(transport).look_later()


class _Parting:
    """Looks after a TLS connection that is being closed, until it is."""

    __slots__ = ("_left", "_loop", "_moved_at", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._moved_at = self._loop.time()
        self._left = -1

    def look_later(self) -> None:
        """Look after a moment: most peers have closed by then."""
        self._loop.call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        left = _unacknowledged(self._transport)
        if left < 0:
            return
        before, self._left = self._left, left
        little = 0 <= before <= _LITTLE_BYTES and left <= _LITTLE_BYTES
        if little and not self._transport.get_write_buffer_size():
            # Twice, since a transport may have been about to write.
            self._transport.abort()
            return
        if left != before:
            self._moved_at = self._loop.time()
        elif self._loop.time() - self._moved_at >= _STALLED_SECONDS:
            reset(self._transport)
            return
        self.look_later()


def _unacknowledged(transport: asyncio.Transport) -> int:
    """Return how many bytes the kernel holds until the peer has them; -1 when it is closed."""
    sock = transport.get_extra_info("socket")
    descriptor = sock.fileno() if sock is not None else -1
    if descriptor < 0:
        return -1
    (size,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, b"\0" * 4))
    return int(size)
