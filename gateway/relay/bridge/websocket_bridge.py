"""The browser's side of desktops and terminals: a WebSocket whose frames are ours.

The sans-I/O protocol of ``websockets`` parses and makes frames; what is here moves their bytes.
The job's side stands in :mod:`gateway.relay.bridge.upstream_connections`.

States of a bridge::

    DIALLING ──opened──▶ OPEN ──end, close, lost──▶ CLOSING ──▶ gone
        └──refused, end: an HTTP answer──────────────▶┘
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State as SocketState
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from gateway.core.answers import CLOSE_TRY_AGAIN, REFUSALS, write_answer
from gateway.core.frames import FrameTracker, take_messages
from gateway.relay.bridge.close_handshake import CloseHandshake
from gateway.relay.bridge.contract import Bridge, BridgeParts, UpgradeRequest, quiet_logger
from gateway.relay.dial import DialFailed
from gateway.relay.transports import pause_reading, reset, resume_reading

if TYPE_CHECKING:
    from gateway.core.passage import Ending
    from gateway.relay.bridge.upstream_connections import BridgeUpstream

MAX_MESSAGE_BYTES: Final = 1 << 20
"""What a browser may send in one message: terminals' protocol says so, desktops need less."""
PING_SECONDS: Final = 20.0
"""Shorter than the idle timeouts of what may stand between (60 s is usual). Who has not sent
anything from one ping until the one after the next is gone."""


class BridgeState(Enum):
    """Where a bridge stands."""

    DIALLING = "dialling"
    OPEN = "open"
    CLOSING = "closing"


class WebSocketBridge(Bridge):
    """The browser's side; a subclass connects it with something.

    It implements :meth:`connect`, :meth:`received` and :attr:`upstream`, and calls :meth:`send`,
    :meth:`close` and :meth:`lost`.
    """

    subprotocol: ClassVar[str]

    def __init__(self, request: UpgradeRequest, parts: BridgeParts) -> None:
        super().__init__(request)
        self.parts = parts
        self.traffic = parts.meters.traffic_of(self.kind)
        self.state = BridgeState.DIALLING
        self.writable = True
        self._socket = ServerProtocol(
            subprotocols=[Subprotocol(self.subprotocol)],
            max_size=MAX_MESSAGE_BYTES,
            logger=quiet_logger,
        )
        self._tracker = FrameTracker()
        self._fragmented = False
        self._whole = True
        """Whether the library has seen nothing of the next message yet."""
        self._early = b""
        self._closed_early: tuple[int, str] | None = None
        self._close_handshake: CloseHandshake | None = None
        self._errand: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard = True

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return self.state is BridgeState.OPEN

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

    @abstractmethod
    def received_bytes(self, data: bytes) -> None:
        """Take the bytes of binary messages from the browser, several put together."""

    @property
    @abstractmethod
    def upstream(self) -> BridgeUpstream | None:
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
            self._errand = self.request.errands.run(
                self._dial(), failed=lambda: reset(self.transport)
            )

    def data_received(self, data: bytes) -> None:
        """Take what the browser sent."""
        self.traffic.up += len(data)
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        self._heard = True
        if self.state is BridgeState.CLOSING:
            if self._close_handshake is not None:
                self._close_handshake.take(data)
            return
        if self.state is BridgeState.DIALLING:
            self._keep(data)
            return
        if self._whole:
            # What people do (keys, pointers, requests for updates) comes as small messages, many
            # at once: one call and one write for all of them.
            messages, end = take_messages(data)
            if messages:
                self.received_bytes(messages[0] if len(messages) == 1 else b"".join(messages))
                data = data[end:]
        if not data:
            return
        if self.is_open:
            self._parse(data)
        elif self._close_handshake is not None:
            self._close_handshake.take(data)

    def _parse(self, data: bytes) -> None:
        self._tracker.feed(data)
        self._socket.receive_data(data)
        self._flush()
        for event in self._socket.events_received():
            if self.state is BridgeState.OPEN and isinstance(event, Frame):
                self._take(event)
        self._whole = self._tracker.at_boundary and not self._fragmented
        if self._socket.state is not SocketState.OPEN:
            self._closed_by_browser()

    def pause_writing(self) -> None:
        """Hold back what is behind."""
        self.writable = False
        if self.upstream is not None:
            pause_reading(self.upstream.transport)

    def resume_writing(self) -> None:
        """Let it go on."""
        self.writable = True
        if self.upstream is not None:
            resume_reading(self.upstream.transport)

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
            self._fragmented = not frame.fin
            self.received(frame)

    # Opening

    async def _dial(self) -> None:
        try:
            await self.connect()
        except DialFailed as failed:
            self.parts.meters.upstream_failures[failed.code] += 1
            self._errand = None
            self.refuse(failed.code)
            return
        self._errand = None
        if self.state is BridgeState.DIALLING:
            self._open()

    def _open(self) -> None:
        self._socket.receive_data(self.request.head)
        request = next(iter(self._socket.events_received()), None)
        if not isinstance(request, Request):
            # The front has checked the head; if we disagree, nobody gets in.
            self.refuse("bad_upgrade")
            return
        self._socket.send_response(self._socket.accept(request))
        self.state = BridgeState.OPEN
        self._flush()
        self._timer = asyncio.get_running_loop().call_later(PING_SECONDS, self._ping)
        early, self._early = self._early, b""
        self.opened()
        if self._closed_early is not None:
            self.close(*self._closed_early)
        if early:
            self._receive(early)

    def opened(self) -> None:
        """Do what is to be done first; for subclasses."""

    def refuse(self, code: str) -> None:
        """Answer the upgrade with a refusal; the connection is closed then."""
        if self.state is not BridgeState.DIALLING or self.transport is None:
            return
        refusal = REFUSALS[code]
        self.parts.meters.refusals[refusal.code] += 1
        self.parts.meters.own_answers[refusal.status // 100] += 1
        page = self.parts.errors.render(refusal, b"")
        self.transport.write(write_answer(refusal, page, close=True))
        self._linger()

    # Sending

    def send(self, data: bytes) -> None:
        """Send *data* as a binary message; nothing, once the end has begun."""
        if self.state is BridgeState.OPEN and self.transport is not None:
            # Not through the library: it would copy the data twice.
            self.traffic.down += len(data)
            self.transport.writelines((_binary_header(len(data)), data))

    def send_frame(self, frame: Frame) -> None:
        """Pass a data frame of any kind on."""
        if self.state is BridgeState.OPEN and self.transport is not None:
            self.traffic.down += len(frame.data)
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
        if self.state is BridgeState.DIALLING:
            self.refuse(ending.refusal)
        else:
            self.parts.meters.ends[ending.close_code] += 1
            self.close(ending.close_code, ending.close_reason)

    def close(self, code: int, reason: str) -> None:
        """Send a Close and nothing after it; calling this twice changes nothing.

        What is behind may accept and close at once, before the browser's upgrade was answered.
        """
        if self.state is BridgeState.DIALLING:
            self._closed_early = (code, reason)
        if self.state is not BridgeState.OPEN:
            return
        if self._socket.state is SocketState.OPEN:
            self._socket.send_close(code, reason)
        self._flush()
        self._linger()

    def lost(self) -> None:
        """What is behind is gone without a word; coming back may help."""
        if self.state is BridgeState.DIALLING:
            self.refuse("app_unreachable")
        else:
            self.close(CLOSE_TRY_AGAIN, "connection to the job lost")

    def _closed_by_browser(self) -> None:
        if self.state is BridgeState.OPEN:
            self._linger()

    def _linger(self) -> None:
        """Pass nothing on any more; see :class:`CloseHandshake`."""
        self.state = BridgeState.CLOSING
        self._drop_upstream()
        self._stop_pinging()
        if self.transport is not None:
            self._close_handshake = CloseHandshake(self.transport, self._socket, self.request.ends)

    def _drop_upstream(self) -> None:
        errand, self._errand = self._errand, None
        if errand is not None:
            errand.cancel()
        if self.upstream is not None:
            self.upstream.drop()

    def _leave(self) -> None:
        self.state = BridgeState.CLOSING
        if self._close_handshake is not None:
            self._close_handshake.over()
        self._stop_pinging()
        self._drop_upstream()

    # Keeping alive

    def _stop_pinging(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ping(self) -> None:
        if self.state is not BridgeState.OPEN or self.transport is None:
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
