"""Pongs, Closes and heads that the WebSocket library makes, written while their peer takes them."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from websockets.protocol import Protocol as SocketProtocol

_PONG: Final = 0x8A

# The library logs heads, which hold credentials, when its logger lets it.
quiet_logger = logging.getLogger("gateway.sockets")
quiet_logger.setLevel(logging.WARNING)


class SocketOutput:
    """Writes what the sans-I/O protocol *socket* has to send.

    A Pong is written for each Ping. While the peer takes nothing of what waits for it, only the
    last Pong is kept, and written afterwards (RFC 6455, section 5.5.3): a peer that pings and does
    not read costs no memory.

    Attributes:
        held: Whether the peer takes nothing at the moment.
    """

    __slots__ = ("_pong", "_socket", "held")

    def __init__(self, socket: SocketProtocol) -> None:
        self._socket = socket
        self._pong = b""
        self.held = False

    def flush(self, transport: asyncio.Transport | None) -> None:
        """Write what the protocol has made since."""
        for data in self._socket.data_to_send():
            # An empty piece asks to shut our side, which follows from the state.
            if not data or transport is None:
                continue
            if self.held and data[0] == _PONG:
                self._pong = data
            else:
                transport.write(data)

    def release(self, transport: asyncio.Transport | None) -> None:
        """Write on: the peer takes what waits for it."""
        self.held = False
        pong, self._pong = self._pong, b""
        if pong and transport is not None:
            transport.write(pong)
