"""The upstream connection of a bridge: plain TCP, or a WebSocket server.

Flow control passes through here in both directions: a slow side applies backpressure to the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidURI
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State as SocketState
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI, parse_uri

from gateway.core.fragments import Fragmenter
from gateway.core.frames import CLOSE_FAILED, CLOSE_NORMAL, NO_STATUS, FrameTracker
from gateway.relay.bridge.buffers import FRAMES_AT_ONCE, InputBuffer, SocketOutput, quiet_logger
from gateway.relay.context import Context
from gateway.relay.dial import DialFailed
from gateway.relay.transports import pause_reading, reset, resume_reading, waiting_bytes
from gateway.relay.turns import SMALL_READ
from shared.routes.route import Target

LEAVE_SECONDS: Final = 2.0
"""For a server to receive our Close, and for TLS to end."""
MAX_UPSTREAM_BYTES: Final = 16 << 20
"""A desktop that speaks WebSocket may send a whole screen in one frame."""
OPEN_SECONDS: Final = 10.0
"""For a server's response to an upgrade."""


class BridgeDownstream(Protocol):
    """What an upstream connection needs of its bridge."""

    context: Context
    writable: bool

    @property
    def upstream_has_pending(self) -> bool:
        """Whether bytes from the job's side are left for a later turn."""

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent to the browser."""

    def upstream_filled(self) -> None:
        """Note that the upstream write buffer is full."""

    def upstream_drained(self) -> None:
        """Note that the upstream connection accepts bytes again."""

    def upstream_lost(self) -> None:
        """Note that the upstream connection was lost without a Close."""

    def close(self, code: int, reason: str) -> None:
        """Send a Close and nothing after it."""


class BridgeUpstream(asyncio.Protocol):
    """The job's side of a bridge: its transport, and flow control towards the browser."""

    def __init__(self, bridge: BridgeDownstream, receive: Callable[[bytes], None]) -> None:
        self.bridge = bridge
        self.receive = receive
        self.closer = bridge.context.closer
        self.turns = bridge.context.turns
        self.timed_size = SMALL_READ
        """Reads of this size and more are timed: smaller ones take little time."""
        self.transport: asyncio.Transport | None = None
        self.detached = False
        self.writable = True
        self._yields_turn = False
        self._ended = False
        """Whether the connection is closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, or abort it if the bridge has ended."""
        self.transport = cast(asyncio.Transport, transport)
        if self.detached:
            self.transport.abort()
        self.transport.set_write_buffer_limits(high=self.bridge.context.limits.write_high_bytes)
        self.closer.enable_keepalive(self.transport)

    def buffered_bytes(self) -> int:
        """Return how many bytes wait for the job's side, or for the rest of a frame."""
        return waiting_bytes(self.transport)

    # Reading

    def must_pause(self) -> bool:
        """Return whether reading must be paused."""
        return self._yields_turn or not self.bridge.writable or self.bridge.upstream_has_pending

    @property
    def has_pending_input(self) -> bool:
        """Whether bytes from the job's side are left for a later turn."""
        return self.bridge.upstream_has_pending

    def sync_reading(self) -> None:
        """Read from the job's side unless something prevents it."""
        if self.detached:
            return
        if self._ended:
            self._end_once_consumed()
        elif self.must_pause():
            pause_reading(self.transport)
        else:
            resume_reading(self.transport)

    def data_received(self, data: bytes) -> None:
        """Process received bytes."""
        if self.detached:
            return
        turns = self.turns
        if turns.crowded:
            turns.count_read(self)
        if len(data) < self.timed_size:
            self.receive(data)
        else:
            turns.run(self, data)

    def yield_turn(self) -> None:
        """Stop reading from the job's side for a turn."""
        self._yields_turn = True
        self.sync_reading()

    def resume_turn(self) -> None:
        """Read from the job's side again."""
        self._yields_turn = False
        self.sync_reading()

    # Writing

    def pause_writing(self) -> None:
        """Stop reading from the browser; a job's side that reads nothing for long is given up."""
        self.writable = False
        self.closer.watch_writes(self.transport, self.stalled, app=True)
        if not self.detached:
            self.bridge.upstream_filled()

    def resume_writing(self) -> None:
        """Read from the browser again."""
        self.writable = True
        if not self.detached:
            self.bridge.upstream_drained()

    def check_stalls(self) -> None:
        """Watch the job's side if the kernel holds unacknowledged bytes for it."""
        self.closer.watch_if_unacknowledged(self.transport, self.stalled, app=True)

    def stalled(self) -> None:
        """Reset the connection: the job's side has read nothing until its deadline."""
        self.bridge.context.meters.upstream_failures["app_timeout"] += 1
        reset(self.transport)

    # End

    def eof_received(self) -> bool:
        """Abort the transport: the job's side has closed, and unsent bytes are of no use.

        Bytes received before may still be pending: TLS delivers both at once.
        """
        if self.transport is not None:
            self.transport.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the bridge, unless the bridge ended the connection."""
        self.closer.forget(self.transport)
        self.transport = None
        self._ended = True
        self._end_once_consumed()

    def _end_once_consumed(self) -> None:
        if not (self.detached or self.has_pending_input):
            self.detached = True
            self.upstream_closed()

    def upstream_closed(self) -> None:
        """Tell the bridge that the connection was lost."""
        self.bridge.upstream_lost()

    def send(self, data: bytes) -> None:
        """Send *data*."""
        raise NotImplementedError

    def ping(self) -> None:
        """Check that the peer is still there; plain TCP has no ping."""

    def close_gracefully(self) -> None:
        """Close after what was written, within two seconds; relay nothing more."""
        if not self.detached:
            self.detached = True
            if self.transport is not None:
                self.closer.close_within(self.transport, LEAVE_SECONDS)

    def abort(self) -> None:
        """Close at once; relay nothing more."""
        self.detached = True
        if self.transport is not None:
            self.transport.abort()


class TcpUpstream(BridgeUpstream):
    """A plain TCP connection: bytes without framing."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; reading starts when the browser's upgrade is accepted."""
        super().connection_made(transport)
        self.sync_reading()

    def must_pause(self) -> bool:
        """Return whether reading must be paused."""
        return super().must_pause() or not self.bridge.is_open

    def send(self, data: bytes) -> None:
        """Send *data*."""
        if self.transport is not None and data:
            self.transport.write(data)


class WebSocketUpstream(BridgeUpstream):
    """A connection to a WebSocket server.

    Args:
        target: The server; the request path is its ``base_path``.
        query: The query, made by the gateway; "" for none.
        subprotocol: The only one offered, and the one that must be accepted.
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
        query: str = "",
    ) -> None:
        self._input = InputBuffer(self, bridge.context.turns)
        super().__init__(bridge, self._input.feed)
        self._subprotocol = subprotocol
        self._authorization = authorization
        self._received = received
        self._closed = closed
        self._socket = ClientProtocol(
            _uri(target, query),
            subprotocols=[Subprotocol(subprotocol)],
            max_size=MAX_UPSTREAM_BYTES,
            logger=quiet_logger,
        )
        self._output = SocketOutput(self._socket)
        self._tracker = FrameTracker()
        self._fragmenter = Fragmenter(MAX_UPSTREAM_BYTES)
        self._head_tail: bytes | None = b""
        """The last bytes of the response head; None once it has ended."""
        self.handshake_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Request the upgrade."""
        super().connection_made(transport)
        if self.detached:
            return
        request = self._socket.connect()
        if self._authorization is not None:
            request.headers["Authorization"] = self._authorization
            self._authorization = None
        self._socket.send_request(request)
        self._output.flush(self.transport)

    def must_pause(self) -> bool:
        """Return whether reading must be paused."""
        return super().must_pause() or self._input.has_pending

    @property
    def has_pending_input(self) -> bool:
        """Whether bytes from the server are left for a later turn."""
        return self._input.has_pending or super().has_pending_input

    @property
    def has_more(self) -> bool:
        """False: a step consumes all frames that it has parsed."""
        return False

    def step(self, data: bytes) -> int:
        """Process as many frames as one step allows; see :class:`InputBuffer`."""
        if self.detached:
            return len(data)
        if self._head_tail is None:
            taken = self._tracker.feed(data, FRAMES_AT_ONCE)
        else:
            taken = self._take_head(data, self._head_tail)
        if taken < len(data):
            data = data[:taken]
        if not (self._tracker.at_boundary and self._fragmenter.at_boundary):
            data = self._fragmenter.feed(data)
        self._socket.receive_data(data)
        self._output.flush(self.transport)
        for event in self._socket.events_received():
            if isinstance(event, Response):
                self._answer(event)
            elif not self.detached:
                self._take(event)
        if self._socket.handshake_exc is not None:
            self._fail("app_bad_answer")
        if not self.detached and self._socket.state is SocketState.CLOSING:
            self._end()
        return taken

    def _take_head(self, data: bytes, tail: bytes) -> int:
        """Return how many bytes of *data* belong to the response head."""
        seen = tail + data
        end = seen.find(b"\r\n\r\n")
        self._head_tail = seen[-3:] if end < 0 else None
        return len(data) if end < 0 else end + 4 - len(tail)

    def _answer(self, response: Response) -> None:
        if self._socket.handshake_exc is None and self._socket.subprotocol == self._subprotocol:
            if not self.handshake_done.done():
                self.handshake_done.set_result(None)
            return
        self._fail("target_changed" if response.status_code == 503 else "app_bad_answer")

    def _take(self, event: object) -> None:
        if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self._received(event)

    def _end(self) -> None:
        """Forward the server's Close; without one it has violated the protocol."""
        close = self._socket.close_rcvd
        self.close_gracefully()
        if close is None:
            self.bridge.close(CLOSE_FAILED, "the job's side broke the protocol")
        else:
            self._closed(CLOSE_NORMAL if close.code == NO_STATUS else close.code, close.reason)

    def _fail(self, code: str) -> None:
        self.abort()
        if not self.handshake_done.done():
            self.handshake_done.set_exception(DialFailed(code))

    def upstream_closed(self) -> None:
        """Note that the connection was lost, before or after the response to the upgrade."""
        if self.handshake_done.done():
            super().upstream_closed()
        else:
            self.handshake_done.set_exception(DialFailed("app_unreachable"))

    def buffered_bytes(self) -> int:
        """Return how many bytes wait for the server, or for the rest of a frame."""
        return super().buffered_bytes() + len(self._socket.reader.buffer)

    def send(self, data: bytes) -> None:
        """Send *data* as a binary message."""
        self.send_frame(Frame(Opcode.BINARY, data))

    def send_frame(self, frame: Frame) -> None:
        """Send a data frame, masked as a client's."""
        if self.transport is not None and not self.detached:
            self.transport.write(frame.serialize(mask=True))

    def ping(self) -> None:
        """Send a Ping, so that the kernel detects a dead connection."""
        if self._socket.state is SocketState.OPEN and self.writable and not self.detached:
            self._socket.send_ping(b"")
            self._output.flush(self.transport)

    def pause_writing(self) -> None:
        """Stop reading from the browser; a server that reads nothing for long is given up."""
        self._output.held = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """Read from the browser again."""
        if self.detached:
            self._output.held = False
        else:
            self._output.release(self.transport)
        super().resume_writing()

    def close_gracefully(self) -> None:
        """Close after what was written; send a Close if the server can still receive it."""
        if not self.detached:
            self._send_close()
        super().close_gracefully()

    def abort(self) -> None:
        """Close at once; send a Close if the write buffer is empty."""
        transport = self.transport
        if not self.detached and transport is not None and not transport.get_write_buffer_size():
            self.close_gracefully()
        else:
            super().abort()

    def _send_close(self) -> None:
        if self.transport is not None and self._socket.state is SocketState.OPEN:
            self._socket.send_close(CLOSE_NORMAL)
            self._output.flush(self.transport)


def _uri(target: Target, query: str) -> WebSocketURI:
    host = f"[{target.host}]" if ":" in target.host else target.host
    url = f"{target.scheme}://{host}:{target.port}{target.base_path}"
    try:
        return parse_uri(f"{url}?{query}" if query else url)
    except (InvalidURI, ValueError) as error:  # an invalid target must end the wait
        raise DialFailed("app_unreachable") from error


async def open_socket(bridge: BridgeDownstream, socket: WebSocketUpstream, target: Target) -> None:
    """Return once *socket* is connected to *target* and its upgrade is accepted.

    Raises:
        DialFailed: With the code of the refusal for the browser.
    """
    await bridge.context.dialler.dial(target, lambda: socket)
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            await socket.handshake_done
    except TimeoutError as error:
        socket.abort()
        raise DialFailed("app_timeout") from error
