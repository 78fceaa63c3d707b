"""What a bridge is joined with: a plain connection, or a server that speaks WebSocket.

Flow control goes through here in both directions: who is slow on one side holds back the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, cast

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State as SocketState
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from gateway.core.frames import CLOSE_FAILED, CLOSE_NORMAL, NO_STATUS
from gateway.relay.bridge.contract import BridgeParts, UpgradeRequest, quiet_logger
from gateway.relay.dial import DialFailed
from gateway.relay.transports import pause_reading, resume_reading

if TYPE_CHECKING:
    from shared.routes import Target

LEAVE_SECONDS: Final = 2.0
"""For a server to take our Close, and TLS to end."""
MAX_UPSTREAM_BYTES: Final = 16 << 20
"""A desktop that speaks WebSocket may send a whole screen in one frame."""
OPEN_SECONDS: Final = 10.0
"""For a server's answer to an upgrade."""


class BridgeDownstream(Protocol):
    """What an upstream connection needs of its bridge."""

    parts: BridgeParts
    request: UpgradeRequest
    transport: asyncio.Transport | None

    def lost(self) -> None:
        """The upstream connection is gone without a word."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Send a Close and nothing after it."""
        ...


class BridgeUpstream(asyncio.Protocol):
    """The job's side of a bridge: its transport, and flow control toward the browser."""

    def __init__(self, bridge: BridgeDownstream) -> None:
        self.bridge = bridge
        self.transport: asyncio.Transport | None = None
        self.dropped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, unless nobody waits for it any more."""
        self.transport = cast(asyncio.Transport, transport)
        if self.dropped:
            self.transport.abort()
        self.transport.set_write_buffer_limits(high=self.bridge.parts.limits.write_high_bytes)

    def pause_writing(self) -> None:
        """Hold the browser back."""
        pause_reading(self.bridge.transport)

    def resume_writing(self) -> None:
        """Let the browser go on."""
        resume_reading(self.bridge.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the bridge, unless it was the bridge that ended it."""
        self.transport = None
        if not self.dropped:
            self.dropped = True
            self.gone()

    def gone(self) -> None:
        """The connection was lost."""
        self.bridge.lost()

    def send(self, data: bytes) -> None:
        """Send *data*."""
        raise NotImplementedError

    def ping(self) -> None:
        """Find out whether somebody is still there."""

    def drop(self) -> None:
        """End it; nothing passes any more."""
        self.dropped = True
        if self.transport is not None:
            self.transport.abort()


class TcpUpstream(BridgeUpstream):
    """A plain connection: bytes as they come."""

    def __init__(self, bridge: BridgeDownstream, received: Callable[[bytes], None]) -> None:
        super().__init__(bridge)
        self._received = received

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        if not self.dropped:
            self._received(data)

    def send(self, data: bytes) -> None:
        """Send *data*."""
        if self.transport is not None and data:
            self.transport.write(data)


class WebSocketUpstream(BridgeUpstream):
    """A connection to a server that speaks WebSocket.

    Args:
        bridge: Whose other side it is.
        target: Where to; its ``base_path`` is asked for, and nothing else.
        subprotocol: The only one that is offered, and that must be accepted.
        authorization: Sent as ``Authorization``, if there is one.
        received: Takes data frames.
        closed: Takes the code and reason of the server's Close.
    """

    def __init__(
        self,
        bridge: BridgeDownstream,
        *,
        target: Target,
        subprotocol: str,
        authorization: str | None,
        received: Callable[[Frame], None],
        closed: Callable[[int, str], None],
    ) -> None:
        super().__init__(bridge)
        self._subprotocol = subprotocol
        self._authorization = authorization
        self._received = received
        self._closed = closed
        self._socket = ClientProtocol(
            parse_uri(_url(target)),
            subprotocols=[Subprotocol(subprotocol)],
            max_size=MAX_UPSTREAM_BYTES,
            logger=quiet_logger,
        )
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the upgrade."""
        super().connection_made(transport)
        if self.dropped:
            return
        request = self._socket.connect()
        if self._authorization is not None:
            request.headers["Authorization"] = self._authorization
            self._authorization = None
        self._socket.send_request(request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Take what the server sent."""
        if self.dropped:
            return
        self._socket.receive_data(data)
        self._flush()
        for event in self._socket.events_received():
            if isinstance(event, Response):
                self._answer(event)
            elif not self.dropped:
                self._take(event)
        if self._socket.handshake_exc is not None:
            self._fail("app_bad_answer")
        if not self.dropped and self._socket.state is SocketState.CLOSING:
            self._end()

    def _answer(self, response: Response) -> None:
        if self._socket.handshake_exc is None and self._socket.subprotocol == self._subprotocol:
            if not self.answered.done():
                self.answered.set_result(None)
            return
        self._fail("target_changed" if response.status_code == 503 else "app_bad_answer")

    def _take(self, event: object) -> None:
        if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self._received(event)

    def _end(self) -> None:
        """Pass the server's Close on; where there was none, it broke the protocol."""
        close = self._socket.close_rcvd
        self.drop()
        if close is None:
            self.bridge.close(CLOSE_FAILED, "the job's side broke the protocol")
        else:
            self._closed(CLOSE_NORMAL if close.code == NO_STATUS else close.code, close.reason)

    def _fail(self, code: str) -> None:
        self.drop()
        if not self.answered.done():
            self.answered.set_exception(DialFailed(code))

    def gone(self) -> None:
        """The connection was lost, before the answer to the upgrade or after."""
        if self.answered.done():
            super().gone()
        else:
            self.answered.set_exception(DialFailed("app_unreachable"))

    def send(self, data: bytes) -> None:
        """Send *data* as a binary message."""
        self.send_frame(Frame(Opcode.BINARY, data))

    def send_frame(self, frame: Frame) -> None:
        """Send a data frame; in a server's direction it is masked."""
        if self.transport is not None and not self.dropped:
            self.transport.write(frame.serialize(mask=True))

    def ping(self) -> None:
        """Have the connection used, so that a dead one is noticed by the kernel."""
        if self._socket.state is SocketState.OPEN and not self.dropped:
            self._socket.send_ping(b"")
            self._flush()

    def drop(self) -> None:
        """End it; a server that can still hear it is told."""
        transport = self.transport
        if not self.dropped and transport is not None and self._socket.state is SocketState.OPEN:
            self._socket.send_close(CLOSE_NORMAL)
            self._flush()
            self.dropped = True
            # What waits to be sent must not wait for long.
            if transport.get_write_buffer_size():
                transport.abort()
            else:
                self.bridge.request.ends.close_within(transport, LEAVE_SECONDS)
        else:
            super().drop()

    def _flush(self) -> None:
        for data in self._socket.data_to_send():
            if data and self.transport is not None:
                self.transport.write(data)


def _url(target: Target) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"{target.scheme}://{host}:{target.port}{target.base_path}"


async def open_socket(bridge: BridgeDownstream, socket: WebSocketUpstream, target: Target) -> None:
    """Return once *socket* is connected to *target* and was accepted there.

    Raises:
        DialFailed: With the code of the answer that the browser gets.
    """
    await bridge.parts.dialler.dial(target, lambda: socket)
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            await socket.answered
    except TimeoutError as error:
        socket.drop()
        raise DialFailed("app_timeout") from error
