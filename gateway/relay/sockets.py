"""WebSockets whose frames are ours, on both sides of a bridge.

:class:`SocketBridge` faces the browser, :class:`UpstreamSocket` a server that speaks WebSocket;
:class:`UpstreamStream` is a plain connection. The sans-I/O protocols of ``websockets`` parse and
make frames; what is here moves their bytes, with flow control in both directions.

States of a bridge::

    DIALLING ──opened──▶ OPEN ──end, close, lost──▶ CLOSING ──▶ gone
        └──refused, end: an HTTP answer──────────────▶┘
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final, cast

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import Protocol
from websockets.protocol import State as SocketState
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from gateway.core.answers import CLOSE_TRY_AGAIN, REFUSALS, write_answer
from gateway.relay.bridge import Bridge, UpgradeRequest
from gateway.relay.dial import DialFailed
from gateway.relay.flow import hold, release, reset, shut
from gateway.relay.limits import Limits

if TYPE_CHECKING:
    from gateway.core.answers import Errors
    from gateway.core.passage import Ending
    from gateway.relay.dial import Dialler
    from gateway.relay.world import World
    from shared.routes import Target

MAX_MESSAGE_BYTES: Final = 1 << 20
"""What a browser may send in one message: terminals' protocol says so, desktops need less."""
MAX_UPSTREAM_BYTES: Final = 16 << 20
"""A desktop that speaks WebSocket may send a whole screen in one frame."""
PING_SECONDS: Final = 20.0
"""Shorter than the idle timeouts of what may stand between (60 s is usual). Who has not sent
anything from one ping until the one after the next is gone."""
OPEN_SECONDS: Final = 10.0
"""For a server's answer to an upgrade."""
NO_STATUS: Final = 1005
CLOSE_NORMAL: Final = 1000
CLOSE_UNSUPPORTED: Final = 1003
CLOSE_REFUSED: Final = 1008
CLOSE_FAILED: Final = 1011

# The library logs heads, which hold credentials, when its logger lets it.
_quiet = logging.getLogger("gateway.sockets")
_quiet.setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeParts:
    """What bridges are given beside their request."""

    dialler: Dialler
    world: World
    errors: Errors
    limits: Limits = field(default_factory=Limits)


class State(Enum):
    """Where a bridge stands."""

    DIALLING = "dialling"
    OPEN = "open"
    CLOSING = "closing"


class SocketBridge(Bridge):
    """The browser's side; a subclass connects it with something.

    It implements :meth:`connect`, :meth:`received` and :attr:`upstream`, and calls :meth:`send`,
    :meth:`close` and :meth:`lost`.
    """

    subprotocol: ClassVar[str]

    def __init__(self, request: UpgradeRequest, parts: BridgeParts) -> None:
        super().__init__(request)
        self.parts = parts
        self.state = State.DIALLING
        self.writable = True
        self._socket = ServerProtocol(
            subprotocols=[Subprotocol(self.subprotocol)],
            max_size=MAX_MESSAGE_BYTES,
            logger=_quiet,
        )
        self._early = b""
        self._farewell: tuple[int, str] | None = None
        self._errand: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard = True

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return self.state is State.OPEN

    # What a subclass provides

    @abstractmethod
    async def connect(self) -> None:
        """Return once what is behind is there, so that the upgrade may be answered.

        Raises:
            DialFailed: If it cannot be.
        """

    @abstractmethod
    def received(self, frame: Frame) -> None:
        """Take a data frame from the browser."""

    @property
    @abstractmethod
    def upstream(self) -> Upstream | None:
        """What is behind; None before there is something."""

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Dial, unless it is clear that nothing can come of it."""
        super().connection_made(transport)
        if self.transport is None:
            return
        self.transport.set_write_buffer_limits(high=self.parts.limits.write_high_bytes)
        if self.subprotocol not in self.request.protocols:
            self.refuse("bad_upgrade")
        elif not self.parts.world.dialling:
            self.refuse("controller_silent")
        else:
            self._errand = self.request.errands.run(self._dial())

    def data_received(self, data: bytes) -> None:
        """Take what the browser sent."""
        self._heard = True
        if self.state is State.CLOSING:
            return
        if self.state is State.DIALLING:
            self._keep(data)
            return
        self._socket.receive_data(data)
        self._flush()
        for event in self._socket.events_received():
            if self.state is State.OPEN and isinstance(event, Frame):
                self._take(event)
        if self._socket.state is not SocketState.OPEN:
            self._closed_by_browser()

    def pause_writing(self) -> None:
        """Hold back what is behind."""
        self.writable = False
        if self.upstream is not None:
            hold(self.upstream.transport)

    def resume_writing(self) -> None:
        """Let it go on."""
        self.writable = True
        if self.upstream is not None:
            release(self.upstream.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        super().connection_lost(exc)
        self._leave()

    def _keep(self, data: bytes) -> None:
        self._early += data
        if len(self._early) > self.parts.limits.early_bytes and self.transport is not None:
            # Nobody may send before the upgrade was answered.
            self.transport.abort()

    def _take(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self.received(frame)

    # Opening

    async def _dial(self) -> None:
        try:
            await self.connect()
        except DialFailed as failed:
            self._errand = None
            self.refuse(failed.code)
            return
        self._errand = None
        if self.state is State.DIALLING:
            self._open()

    def _open(self) -> None:
        self._socket.receive_data(self.request.head)
        request = next(iter(self._socket.events_received()), None)
        if not isinstance(request, Request):
            # The front has checked the head; if we disagree, nobody gets in.
            self.refuse("bad_upgrade")
            return
        self._socket.send_response(self._socket.accept(request))
        self.state = State.OPEN
        self._flush()
        self._timer = asyncio.get_running_loop().call_later(PING_SECONDS, self._ping)
        early, self._early = self._early, b""
        self.opened()
        if self._farewell is not None:
            self.close(*self._farewell)
        if early:
            self.data_received(early)

    def opened(self) -> None:
        """Do what is to be done first; for subclasses."""

    def refuse(self, code: str) -> None:
        """Answer the upgrade with a refusal; the connection is closed then."""
        if self.state is not State.DIALLING or self.transport is None:
            return
        refusal = REFUSALS[code]
        page = self.parts.errors.render(refusal, b"")
        self.transport.write(write_answer(refusal, page, close=True))
        self._linger()

    # Sending

    def send(self, data: bytes) -> None:
        """Send *data* as a binary message; nothing, once the end has begun."""
        if self.state is State.OPEN and self.transport is not None:
            # Not through the library: it would copy the data twice.
            self.transport.writelines((_binary_header(len(data)), data))

    def send_frame(self, frame: Frame) -> None:
        """Pass a data frame of any kind on."""
        if self.state is State.OPEN and self.transport is not None:
            self.transport.write(frame.serialize(mask=False))

    def _flush(self) -> None:
        transport = self.transport
        for data in self._socket.data_to_send():
            # An empty piece asks to shut our side, which follows from the state.
            if data and transport is not None:
                transport.write(data)

    # Ending

    def end(self, ending: Ending) -> None:
        """End it; see :meth:`gateway.relay.bridge.Bridge.end`."""
        if self.state is State.DIALLING:
            self.refuse(ending.refusal)
        else:
            self.close(ending.close_code, ending.close_reason)

    def close(self, code: int, reason: str) -> None:
        """Send a Close and nothing after it; calling this twice changes nothing.

        What is behind may accept and close at once, before the browser's upgrade was answered.
        """
        if self.state is State.DIALLING:
            self._farewell = (code, reason)
        if self.state is not State.OPEN:
            return
        if self._socket.state is SocketState.OPEN:
            self._socket.send_close(code, reason)
        self._flush()
        self._linger()

    def lost(self) -> None:
        """What is behind is gone without a word; coming back may help."""
        if self.state is State.DIALLING:
            self.refuse("app_unreachable")
        else:
            self.close(CLOSE_TRY_AGAIN, "connection to the job lost")

    def _closed_by_browser(self) -> None:
        if self.state is State.OPEN:
            self._linger()

    def _linger(self) -> None:
        """Pass nothing on any more; close when the browser does, or in two seconds at the latest.

        What the browser still sends is read and thrown away: left unread, it would turn our close
        into a reset, and the Close would be lost.
        """
        self.state = State.CLOSING
        self._drop_upstream()
        transport = self.transport
        if transport is None:
            return
        release(transport)
        shut(transport)
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(self.parts.limits.end_seconds, self._check_written)

    def _check_written(self) -> None:
        transport = self.transport
        if transport is None:
            return
        if transport.get_write_buffer_size():
            reset(transport)
            return
        left = self.parts.limits.linger_seconds - self.parts.limits.end_seconds
        self._timer = asyncio.get_running_loop().call_later(left, transport.abort)

    def _drop_upstream(self) -> None:
        errand, self._errand = self._errand, None
        if errand is not None:
            errand.cancel()
        if self.upstream is not None:
            self.upstream.drop()

    def _leave(self) -> None:
        self.state = State.CLOSING
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._drop_upstream()

    # Keeping alive

    def _ping(self) -> None:
        if self.state is not State.OPEN or self.transport is None:
            return
        if not self._heard:
            self.transport.abort()
            return
        self._heard = False
        self._socket.send_ping(b"")
        self._flush()
        if self.upstream is not None:
            self.upstream.ping()
        self._timer = asyncio.get_running_loop().call_later(PING_SECONDS, self._ping)


def _binary_header(length: int) -> bytes:
    if length < 126:
        return bytes((0x82, length))
    if length < 65536:
        return b"\x82\x7e" + length.to_bytes(2, "big")
    return b"\x82\x7f" + length.to_bytes(8, "big")


class Upstream(asyncio.Protocol):
    """The job's side of a bridge: its transport, and flow control toward the browser."""

    def __init__(self, bridge: SocketBridge) -> None:
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
        hold(self.bridge.transport)

    def resume_writing(self) -> None:
        """Let the browser go on."""
        release(self.bridge.transport)

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


class UpstreamStream(Upstream):
    """A plain connection: bytes as they come."""

    def __init__(self, bridge: SocketBridge, received: Callable[[bytes], None]) -> None:
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


class UpstreamSocket(Upstream):
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
        bridge: SocketBridge,
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
            logger=_quiet,
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
            transport.close() if not transport.get_write_buffer_size() else transport.abort()
        else:
            super().drop()

    def _flush(self) -> None:
        _write_all(self._socket, self.transport)


def _write_all(socket: Protocol, transport: asyncio.Transport | None) -> None:
    for data in socket.data_to_send():
        if data and transport is not None:
            transport.write(data)


def _url(target: Target) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"{target.scheme}://{host}:{target.port}{target.base_path}"


async def open_socket(bridge: SocketBridge, socket: UpstreamSocket, target: Target) -> None:
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
