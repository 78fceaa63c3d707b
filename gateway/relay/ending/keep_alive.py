"""Peers that vanish without a word: the kernel finds them, on both sides of the gateway.

Two options are needed. Keep-alive probes a connection that is idle, but never one on which data
waits to be acknowledged. ``TCP_USER_TIMEOUT`` bounds how long that data may wait (RFC 5482). It
would also end a living peer that reads nothing, so it is no shorter than the deadline for those
(:mod:`.stalls`), which tells the two apart and is there first. The kernel alone watches what is
left of a connection once its descriptor is closed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Final

PROBED_AFTER_SECONDS: Final = range(45, 76)
"""Connections are given these in turns. Thousands that came together would be probed together, and
the kernel drops what does not fit into a queue of a thousand: the living were taken for dead."""
_PROBE_SECONDS: Final = 15
"""From one probe to the next."""
_PROBES: Final = 4
"""Unanswered ones that end a connection without a user timeout."""
_GRACE: Final = 1.25
"""Of the stall deadline: so that the kernel does not end what is watched here."""


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
    for option in _options(after, stall_seconds):
        sock.setsockopt(*option)


def probe_after(sock: socket.socket, seconds: int, *, stall_seconds: float) -> None:
    """Have the kernel probe this connection once it has been idle for so long."""
    seconds = max(1, min(seconds, int(stall_seconds)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)


def _options(after: int, stall_seconds: float) -> tuple[tuple[int, int, int], ...]:
    most = max(1, int(stall_seconds))
    return (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, min(after, most)),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, min(_PROBE_SECONDS, most)),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(stall_seconds * _GRACE * 1000)),
    )
