"""One end of the socket between supervisor and worker."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import msgspec

from gateway.workers import messages as m

M = TypeVar("M")

log = logging.getLogger(__name__)


class Channel(asyncio.Protocol, Generic[M]):
    """Sends messages, and hands on those that come.

    Args:
        decode: Reads a message.
        on_message: Called with each.
    """

    def __init__(self, decode: Callable[[bytes], M], on_message: Callable[[M], None]) -> None:
        self._decode = decode
        self._on_message = on_message
        self._frames = m.Frames()
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the other process has gone, or makes no sense."""

    async def open(self, sock: socket.socket) -> None:
        """Send and receive by *sock* from now on."""
        sock.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)

    def send(self, message: m.Down | m.Up) -> None:
        """Send *message*, unless the other process has gone."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(m.encode(message))

    def close(self) -> None:
        """Say and hear no more."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Hand on what came."""
        try:
            for body in self._frames.feed(data):
                self._on_message(self._decode(body))
        except (ValueError, msgspec.DecodeError):
            log.exception("a process of this gateway said what nobody understands")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Say that the other process has gone."""
        if not self.closed.done():
            self.closed.set_result(None)
