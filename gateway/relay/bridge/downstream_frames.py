"""The frames of a browser's WebSocket, by the sans-I/O protocol of ``websockets``, and pings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, Protocol

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State as SocketState
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from gateway.core.fragments import Fragmenter
from gateway.core.frames import FrameTracker
from gateway.relay.bridge.buffers import FRAMES_AT_ONCE, SocketOutput, quiet_logger
from gateway.relay.transports import progress, reset, unacknowledged

MAX_MESSAGE_BYTES: Final = 1 << 20
"""The limit of one message of a browser: the terminals' protocol sets it, desktops need less."""

_DATA: Final = frozenset({Opcode.TEXT, Opcode.BINARY, Opcode.CONT})
_SHORT_HEADER: Final = Struct("!BBH").pack
_LONG_HEADER: Final = Struct("!BBQ").pack


class MessageReceiver(Protocol):
    """The bridge: :class:`gateway.relay.bridge.websocket_bridge.WebSocketBridge`."""

    transport: asyncio.Transport | None

    @property
    def is_open(self) -> bool:
        """Whether messages are still accepted."""

    def received_text(self, frame: Frame) -> None:
        """Process a frame of a text message."""

    def received_bytes(self, data: bytes) -> None:
        """Process the bytes of binary messages, several of them joined."""


class DownstreamFrames:
    """Parses a browser's frames, passes its messages to *receiver*, and makes control frames.

    Binary messages are parts of a stream of bytes: a large one is passed on as it arrives.

    Args:
        receiver: Gets the messages.
        subprotocol: The one that is accepted.

    Attributes:
        between_messages: Whether the library has received no part of the next message.
        output: Writes what the library has to send.
    """

    __slots__ = (
        "_fragmented",
        "_fragmenter",
        "_is_text",
        "_receiver",
        "_socket",
        "_tracker",
        "between_messages",
        "output",
    )

    def __init__(self, receiver: MessageReceiver, *, subprotocol: str) -> None:
        self._receiver = receiver
        self._socket = ServerProtocol(
            subprotocols=[Subprotocol(subprotocol)],
            max_size=MAX_MESSAGE_BYTES,
            logger=quiet_logger,
        )
        self._tracker = FrameTracker()
        self._fragmenter = Fragmenter(MAX_MESSAGE_BYTES)
        self._fragmented = False
        self._is_text = False
        """Whether the current or last message is text."""
        self.between_messages = True
        self.output = SocketOutput(self._socket)

    @property
    def is_open(self) -> bool:
        """Whether no Close was sent or received, and the browser has kept the protocol."""
        return self._socket.state is SocketState.OPEN

    @property
    def close_has_come(self) -> bool:
        """Whether the browser has sent a Close."""
        return self._socket.close_rcvd is not None

    @property
    def incomplete_bytes(self) -> int:
        """The number of bytes that the library keeps of an incomplete frame."""
        return len(self._socket.reader.buffer)

    def accept(self, head: bytes) -> bool:
        """Accept the upgrade with this *head*; return False if the library cannot parse it."""
        self._socket.receive_data(head)
        request = next(iter(self._socket.events_received()), None)
        if not isinstance(request, Request):
            return False
        self._socket.send_response(self._socket.accept(request))
        self._flush()
        return True

    def parse(self, data: bytes) -> int:
        """Pass on the messages in some of *data*; return how many bytes were parsed."""
        taken = self._tracker.feed(data, FRAMES_AT_ONCE)
        self._receive(data if taken == len(data) else data[:taken])
        self._flush()
        frames = [event for event in self._socket.events_received() if isinstance(event, Frame)]
        self._take_all(frame for frame in frames if frame.opcode in _DATA)
        self.between_messages = self._tracker.at_boundary and not self._fragmented
        return taken

    def discard(self, data: bytes) -> int:
        """Search some of *data* for a Close only; return how many bytes were parsed."""
        taken = self._tracker.feed(data, FRAMES_AT_ONCE)
        if self._socket.close_sent is not None and not self.close_has_come:
            self._receive(data[:taken])
            self._socket.events_received()
            # Discards Pongs, which are not sent any more.
            self._socket.data_to_send()
        return taken

    def _receive(self, data: bytes) -> None:
        """Give the library *data*, which the tracker has followed."""
        fragmenter = self._fragmenter
        if not (self._tracker.at_boundary and fragmenter.at_boundary):
            data = fragmenter.feed(data)
        self._socket.receive_data(data)

    def send_close(self, code: int, reason: str) -> None:
        """Send a Close, unless one was sent."""
        if self.is_open:
            self._socket.send_close(code, reason)
        self._flush()

    def send_ping(self) -> None:
        """Send a Ping without data."""
        self._socket.send_ping(b"")
        self._flush()

    def _flush(self) -> None:
        self.output.flush(self._receiver.transport)

    def _take_all(self, frames: Iterable[Frame]) -> None:
        """Pass on the contents of data *frames*, successive ones joined."""
        pieces: list[bytes] = []
        for frame in frames:
            if frame.opcode is not Opcode.CONT:
                self._is_text = frame.opcode is Opcode.TEXT
            self._fragmented = not frame.fin
            if not self._is_text:
                pieces.append(bytes(frame.data))
                continue
            self._pass_bytes(pieces)
            pieces = []
            if self._receiver.is_open:
                self._receiver.received_text(frame)
        self._pass_bytes(pieces)

    def _pass_bytes(self, pieces: list[bytes]) -> None:
        data = b"".join(pieces)
        if data and self._receiver.is_open:
            self._receiver.received_bytes(data)


def binary_header(length: int) -> bytes:
    """Return the header of an unmasked, unfragmented binary message of *length* bytes."""
    if length < 126:
        return bytes((0x82, length))
    if length < 65536:
        return _SHORT_HEADER(0x82, 126, length)
    return _LONG_HEADER(0x82, 127, length)


PING_SECONDS: Final = 20.0
"""Shorter than the idle timeouts of proxies in between (60 s is usual)."""


class Keepalive:
    """Calls *ping* every :data:`PING_SECONDS`, and resets a vanished browser.

    That is one that has sent nothing from one ping to the next, unless it is still receiving bytes
    that were sent before.

    Attributes:
        has_heard: Set by the owner whenever the browser sends anything.
    """

    __slots__ = ("_ping", "_taken", "_timer", "has_heard")

    def __init__(self, ping: Callable[[], None]) -> None:
        self._ping = ping
        self._taken = 0
        """What the browser had acknowledged at the last ping."""
        self._timer: asyncio.TimerHandle | None = None
        self.has_heard = True

    def begin(self, transport: asyncio.Transport) -> None:
        """Ping over *transport* from now on, until :meth:`stop`."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(PING_SECONDS, self._due, transport)

    def stop(self) -> None:
        """Stop pinging."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self, transport: asyncio.Transport) -> None:
        if not self.has_heard and not self._takes(transport):
            reset(transport)
            return
        self.has_heard = False
        self._taken = progress(transport)
        self._ping()
        self.begin(transport)

    def _takes(self, transport: asyncio.Transport) -> bool:
        """Return whether the browser is still receiving bytes sent before the unanswered ping."""
        waits = transport.get_write_buffer_size() or unacknowledged(transport) > 0
        return bool(waits) and progress(transport) != self._taken
