"""What a bridge is joined with: a plain connection, or a server that speaks WebSocket.

Flow control goes through here in both directions: who is slow on one side holds back the other.
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

from gateway.core.frames import CLOSE_FAILED, CLOSE_NORMAL, NO_STATUS, FrameTracker
from gateway.relay.bridge.intake import FRAMES_AT_ONCE, Intake
from gateway.relay.bridge.socket_output import SocketOutput, quiet_logger
from gateway.relay.context import Context
from gateway.relay.dial import DialFailed
from gateway.relay.transports import pause_reading, reset, resume_reading
from gateway.relay.turns import SMALL_READ
from shared.routes.route import Target

LEAVE_SECONDS: Final = 2.0
"""For a server to take our Close, and TLS to end."""
MAX_UPSTREAM_BYTES: Final = 16 << 20
"""A desktop that speaks WebSocket may send a whole screen in one frame."""
OPEN_SECONDS: Final = 10.0
"""For a server's answer to an upgrade."""


class BridgeDownstream(Protocol):
    """What an upstream connection needs of its bridge."""

    context: Context
    writable: bool

    @property
    def upstream_waits(self) -> bool:
        """Whether what the job's side sent is left for a later turn."""

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent to the browser."""

    def upstream_filled(self) -> None:
        """More waits for the upstream connection than may."""

    def upstream_drained(self) -> None:
        """The upstream connection takes bytes again."""

    def lost(self) -> None:
        """The upstream connection is gone without a word."""

    def close(self, code: int, reason: str) -> None:
        """Send a Close and nothing after it."""


class BridgeUpstream(asyncio.Protocol):
    """The job's side of a bridge: its transport, and flow control toward the browser."""

    def __init__(self, bridge: BridgeDownstream, receive: Callable[[bytes], None]) -> None:
        self.bridge = bridge
        self.receive = receive
        self.ends = bridge.context.ends
        self.turns = bridge.context.turns
        self.timed_from = SMALL_READ
        """Reads of this size and more are timed: smaller ones cannot take long."""
        self.transport: asyncio.Transport | None = None
        self.dropped = False
        self.writable = True
        self._yields = False
        self._ended = False
        """Whether the connection is gone."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, unless nobody waits for it any more."""
        self.transport = cast(asyncio.Transport, transport)
        if self.dropped:
            self.transport.abort()
        self.transport.set_write_buffer_limits(
            high=self.bridge.context.parts.limits.write_high_bytes
        )
        self.ends.keep_app_alive(self.transport)

    # When it is read

    def is_held(self) -> bool:
        """Say whether nothing may be read at the moment."""
        return self._yields or not self.bridge.writable or self.bridge.upstream_waits

    @property
    def is_unread(self) -> bool:
        """Whether something that the job's side sent is left for a later turn."""
        return self.bridge.upstream_waits

    def sync_reading(self) -> None:
        """Read from the job's side unless something speaks against it."""
        if self.dropped:
            return
        if self._ended:
            self._end_once_read()
        elif self.is_held():
            pause_reading(self.transport)
        else:
            resume_reading(self.transport)

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        if self.dropped:
            return
        turns = self.turns
        if turns.crowded:
            turns.count_read(self)
        if len(data) < self.timed_from:
            self.receive(data)
        else:
            turns.take(self, data)

    def pause_for_others(self) -> None:
        """Stop reading from the job's side for a turn."""
        self._yields = True
        self.sync_reading()

    def resume_after_others(self) -> None:
        """Read from the job's side again."""
        self._yields = False
        self.sync_reading()

    # When it takes nothing

    def pause_writing(self) -> None:
        """Stop reading from the browser; a job's side that takes nothing for long is left."""
        self.writable = False
        self.ends.writes_wait(self.transport, self.stalled, app=True)
        if not self.dropped:
            self.bridge.upstream_filled()

    def resume_writing(self) -> None:
        """Read from the browser again."""
        self.writable = True
        if not self.dropped:
            self.bridge.upstream_drained()

    def look_for_stalls(self) -> None:
        """Be watched where the kernel holds something for the job's side."""
        self.ends.look_at(self.transport, self.stalled, app=True)

    def stalled(self) -> None:
        """The job's side has taken nothing for as long as it may."""
        self.bridge.context.parts.meters.upstream_failures["app_timeout"] += 1
        reset(self.transport)

    # Its end

    def eof_received(self) -> bool:
        """The job's side has ended; what still waits for it is of no use to anybody.

        What it said before may not be understood yet: TLS gives both out at once.
        """
        if self.transport is not None:
            self.transport.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the bridge, unless it was the bridge that ended it."""
        self.ends.forget(self.transport)
        self.transport = None
        self._ended = True
        self._end_once_read()

    def _end_once_read(self) -> None:
        if not (self.dropped or self.is_unread):
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

    def leave(self) -> None:
        """End it; what was written has two seconds to go out, and nothing else passes any more."""
        if not self.dropped:
            self.dropped = True
            if self.transport is not None:
                self.ends.close_within(self.transport, LEAVE_SECONDS)

    def abort(self) -> None:
        """End it at once; nothing passes any more."""
        self.dropped = True
        if self.transport is not None:
            self.transport.abort()


class TcpUpstream(BridgeUpstream):
    """A plain connection: bytes as they come."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; nothing is read before the browser's upgrade was answered."""
        super().connection_made(transport)
        self.sync_reading()

    def is_held(self) -> bool:
        """Say whether nothing may be read at the moment."""
        return super().is_held() or not self.bridge.is_open

    def send(self, data: bytes) -> None:
        """Send *data*."""
        if self.transport is not None and data:
            self.transport.write(data)


class WebSocketUpstream(BridgeUpstream):
    """A connection to a server that speaks WebSocket.

    Args:
        target: Where to; its ``base_path`` is asked for.
        query: What follows it, of our own making; "" for nothing.
        subprotocol: The only one that is offered, and that must be accepted.
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
        self._intake = Intake(self, bridge.context.turns)
        super().__init__(bridge, self._intake.take)
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
        self._head_tail: bytes | None = b""
        """The last bytes of the head of the answer; None once it has ended."""
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
        self._output.flush(self.transport)

    def is_held(self) -> bool:
        """Say whether nothing may be read at the moment."""
        return super().is_held() or self._intake.waits

    @property
    def is_unread(self) -> bool:
        """Whether something that the server sent is left for a later turn."""
        return self._intake.waits or super().is_unread

    @property
    def has_more(self) -> bool:
        """Nothing is left of what was taken."""
        return False

    def step(self, data: bytes) -> int:
        """Take as many frames as one step allows; see :class:`Intake`."""
        if self.dropped:
            return len(data)
        if self._head_tail is None:
            taken = self._tracker.feed(data, FRAMES_AT_ONCE)
        else:
            taken = self._take_head(data, self._head_tail)
        self._socket.receive_data(data if taken == len(data) else data[:taken])
        self._output.flush(self.transport)
        for event in self._socket.events_received():
            if isinstance(event, Response):
                self._answer(event)
            elif not self.dropped:
                self._take(event)
        if self._socket.handshake_exc is not None:
            self._fail("app_bad_answer")
        if not self.dropped and self._socket.state is SocketState.CLOSING:
            self._end()
        return taken

    def _take_head(self, data: bytes, tail: bytes) -> int:
        """Return how many bytes of *data* belong to the head of the answer."""
        seen = tail + data
        end = seen.find(b"\r\n\r\n")
        self._head_tail = seen[-3:] if end < 0 else None
        return len(data) if end < 0 else end + 4 - len(tail)

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
        self.leave()
        if close is None:
            self.bridge.close(CLOSE_FAILED, "the job's side broke the protocol")
        else:
            self._closed(CLOSE_NORMAL if close.code == NO_STATUS else close.code, close.reason)

    def _fail(self, code: str) -> None:
        self.abort()
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
        if self._socket.state is SocketState.OPEN and self.writable and not self.dropped:
            self._socket.send_ping(b"")
            self._output.flush(self.transport)

    def pause_writing(self) -> None:
        """Stop reading from the browser; a server that takes nothing for long is left."""
        self._output.held = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """Read from the browser again."""
        if self.dropped:
            self._output.held = False
        else:
            self._output.release(self.transport)
        super().resume_writing()

    def leave(self) -> None:
        """End it after what was written; a server that can still hear it is told."""
        if not self.dropped:
            self._say_close()
        super().leave()

    def abort(self) -> None:
        """End it at once; a server that takes what is written is told."""
        transport = self.transport
        if not self.dropped and transport is not None and not transport.get_write_buffer_size():
            self.leave()
        else:
            super().abort()

    def _say_close(self) -> None:
        if self.transport is not None and self._socket.state is SocketState.OPEN:
            self._socket.send_close(CLOSE_NORMAL)
            self._output.flush(self.transport)


def _uri(target: Target, query: str) -> WebSocketURI:
    host = f"[{target.host}]" if ":" in target.host else target.host
    url = f"{target.scheme}://{host}:{target.port}{target.base_path}"
    try:
        return parse_uri(f"{url}?{query}" if query else url)
    except (InvalidURI, ValueError) as error:  # whatever the route says, somebody waits
        raise DialFailed("app_unreachable") from error


async def open_socket(bridge: BridgeDownstream, socket: WebSocketUpstream, target: Target) -> None:
    """Return once *socket* is connected to *target* and was accepted there.

    Raises:
        DialFailed: With the code of the answer that the browser gets.
    """
    await bridge.context.parts.dialler.dial(target, lambda: socket)
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            await socket.answered
    except TimeoutError as error:
        socket.abort()
        raise DialFailed("app_timeout") from error
