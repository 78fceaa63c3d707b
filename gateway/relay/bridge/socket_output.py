"""Pongs, Closes and heads of the WebSocket library, written while the peer reads."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from websockets.protocol import Protocol as SocketProtocol

_PONG: Final = 0x8A

# The library logs heads, which contain credentials, if its logger is enabled.
quiet_logger = logging.getLogger("gateway.sockets")
quiet_logger.setLevel(logging.WARNING)


class SocketOutput:
    """Writes what the sans-I/O protocol *socket* has to send.

    Each Ping is answered with a Pong. While the write buffer is full, only the last Pong is kept
    and written afterwards (RFC 6455, section 5.5.3): a peer that pings without reading costs no
    memory.

    Attributes:
        held: Whether the write buffer is full.
    """

    __slots__ = ("_pong", "_socket", "held")

    def __init__(self, socket: SocketProtocol) -> None:
        self._socket = socket
        self._pong = b""
        self.held = False

    def flush(self, transport: asyncio.Transport | None) -> None:
        """Write what the protocol has produced since the last call."""
        for data in self._socket.data_to_send():
            # An empty piece requests a shutdown of our side, which follows from the state.
            if not data or transport is None:
                continue
            if self.held and data[0] == _PONG:
                self._pong = data
            else:
                transport.write(data)

    def release(self, transport: asyncio.Transport | None) -> None:
        """Write again: the peer reads."""
        self.held = False
        pong, self._pong = self._pong, b""
        if pong and transport is not None:
            transport.write(pong)
