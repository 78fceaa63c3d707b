"""Desktops: a browser's WebSocket (``binary``) joined to RFB over TCP or over WebSocket."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar, Final

from websockets.frames import Frame, Opcode

from gateway.core.frames import CLOSE_FAILED, CLOSE_REFUSED, CLOSE_UNSUPPORTED
from gateway.core.rfb.browser_filter import BrowserFilter, has_human_input
from gateway.core.rfb.desktop_filter import DesktopFilter
from gateway.core.rfb.filter import RfbError
from gateway.core.rfb.handshake import Handshake, Side
from gateway.relay.bridge.buffers import InputBuffer
from gateway.relay.bridge.upstream_connections import (
    BridgeUpstream,
    TcpUpstream,
    WebSocketUpstream,
    open_socket,
)
from gateway.relay.bridge.websocket_bridge import WebSocketBridge
from gateway.relay.context import UpgradeRequest
from gateway.relay.dial import DialFailed
from gateway.relay.turns import FULL_READ
from shared.errors import SealRefused
from shared.link import Seal
from shared.routes.route import Clipboard, Route

PASSWORD_KEY: Final = "vnc_password"  # noqa: S105  # the name of the field, not what is in it


class VncBridge(WebSocketBridge):
    """One browser on one desktop.

    Args:
        seal: Opens the sealed values of a route, which only gateways can read.
    """

    subprotocol: ClassVar[str] = "binary"

    def __init__(self, request: UpgradeRequest, seal: Seal) -> None:
        super().__init__(request)
        self._seal = seal
        self._may_control = False
        self._stream: TcpUpstream | None = None
        """The upstream connection if it is RFB over TCP."""
        self._handshake: Handshake | None = None
        self._filter: BrowserFilter | None = None
        self._desktop_input: InputBuffer | None = None
        # Bytes that the desktop sends before the browser's upgrade is accepted.
        self._unsent: list[bytes] = []

    async def connect(self) -> None:
        """Dial the desktop.

        Raises:
            DialFailed: If it cannot be reached, or its password cannot be read.
        """
        route = self.access_right.route
        if route.target is None:
            raise DialFailed("session_starting")
        grant = self.access_right.grant
        views = grant is None or grant.mode != "control"
        self._may_control = not views
        password = self._password(route)
        if views or password is not None or route.clipboard != "both":
            self._handshake = Handshake(password=password, shared=views)
        self._restrict(route.clipboard, views=views)
        if route.target.scheme == "tcp":
            stream = TcpUpstream(self, self._from_desktop)
            if self._desktop_input is None:
                stream.timed_size = FULL_READ  # after the handshake it is not parsed
            self.upstream = self._stream = stream
            await self.context.dialler.dial(route.target, lambda: stream)
            return
        socket = WebSocketUpstream(
            self,
            target=route.target,
            subprotocol=self.subprotocol,
            authorization=None,
            received=self._desktop_frame,
            closed=self.close,
        )
        self.upstream = socket
        await open_socket(self, socket, route.target)

    def _restrict(self, clipboard: Clipboard, *, views: bool) -> None:
        """Set up the filters for each side that may not send everything."""
        reaches_browser = clipboard in ("both", "out")
        may_paste = not views and clipboard in ("both", "in")
        desktop = None if reaches_browser else DesktopFilter(may_request=may_paste)
        if desktop is not None:
            reader = _DesktopReader(self, desktop)
            self._desktop_input = InputBuffer(reader, self.context.turns)
        if views or clipboard != "both":
            self._filter = BrowserFilter(
                may_control=not views,
                may_paste=may_paste,
                may_copy=not views and reaches_browser,
                use_format=None if desktop is None else desktop.use_format,
            )

    @property
    def upstream_has_pending(self) -> bool:
        """Whether bytes from the desktop are left for a later turn."""
        return self._desktop_input is not None and self._desktop_input.has_pending

    def buffered_bytes(self) -> int:
        """Return how many bytes wait for either side, or for the rest of a message."""
        desktop = self._desktop_input
        waiting = sum(map(len, self._unsent))
        return (
            super().buffered_bytes() + waiting + (0 if desktop is None else desktop.pending_bytes)
        )

    def _password(self, route: Route) -> str | None:
        if route.sealed is None:
            return None
        try:
            return self._seal.open(route.sealed, sid=route.sid, rev=route.rev).get(PASSWORD_KEY)
        except SealRefused as error:
            raise DialFailed("session_unreadable") from error

    def on_open(self) -> None:
        """Send the bytes that the desktop has sent already."""
        unsent, self._unsent = self._unsent, []
        for data in unsent:
            self._from_desktop(data)
        self._bypass_filters()
        self._await_handshake()

    def _await_handshake(self) -> None:
        """Start the deadline for the desktop's next part of the handshake, if that is awaited.

        The browser's part has none: a user may take longer to type a password.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        handshake = self._handshake
        if handshake is not None and handshake.awaits is Side.DESKTOP and self.is_open:
            loop, seconds = asyncio.get_running_loop(), self.context.limits.app_head_seconds
            self._timer = loop.call_later(seconds, self._handshake_timed_out)

    def _handshake_timed_out(self) -> None:
        self.context.meters.upstream_failures["app_timeout"] += 1
        self.close(CLOSE_FAILED, "the desktop does not respond")

    def received_text(self, frame: Frame) -> None:
        """Close: RFB is binary."""
        self.close(CLOSE_UNSUPPORTED, "RFB is binary")

    def _desktop_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.TEXT:
            self.close(CLOSE_FAILED, "RFB is binary")
        else:
            self._from_desktop(bytes(frame.data))

    def _from_desktop(self, data: bytes) -> None:
        if not self.is_open:
            self._unsent.append(data)
            if self.upstream is not None:
                self.upstream.sync_reading()  # a loop may read once more after a pause
        elif self._handshake is not None:
            self._feed_handshake(self._handshake, Side.DESKTOP, data)
        elif self._desktop_input is not None:
            self._desktop_input.feed(data)
        else:
            self.send(data)

    def _bypass_filters(self) -> None:
        """Send the desktop's bytes without parsing from now on, if no filter needs them."""
        if self._handshake is None and self._desktop_input is None and self._stream is not None:
            self._stream.receive = self.send

    def received_bytes(self, data: bytes) -> None:
        """Process bytes from the browser; message boundaries have no meaning."""
        upstream = self.upstream
        if upstream is None:
            return
        if self._may_control and has_human_input(data):
            self.note_input()
        if self._handshake is not None:
            self._feed_handshake(self._handshake, Side.BROWSER, data)
        elif self._filter is None:
            upstream.send(data)
        else:
            self._send_filtered(self._filter, upstream, data)

    def _send_filtered(self, views: BrowserFilter, upstream: BridgeUpstream, data: bytes) -> None:
        try:
            passed = views.feed(data)
        except RfbError as error:
            self.close(CLOSE_REFUSED, str(error))
            return
        self.has_more = views.has_more
        if passed:
            upstream.send(passed)

    def _feed_handshake(self, handshake: Handshake, side: Side, data: bytes) -> None:
        problem, awaited = None, handshake.awaits
        try:
            handshake.feed(side, data)
        except RfbError as error:
            problem = str(error)
        self._send_both(handshake)
        if problem is not None:
            self.close(CLOSE_FAILED, problem)
        elif handshake.done:
            self._handshake = None
            self._await_handshake()
            self._bypass_filters()
            for beyond, take in (
                (handshake.rest(Side.DESKTOP), self._from_desktop),
                (handshake.rest(Side.BROWSER), self.received_bytes),
            ):
                if beyond:
                    take(beyond)
        elif handshake.awaits is not awaited:
            self._await_handshake()

    def _send_both(self, handshake: Handshake) -> None:
        if handshake.to_desktop and self.upstream is not None:
            self.upstream.send(bytes(handshake.to_desktop))
            handshake.to_desktop.clear()
        if handshake.to_browser:
            self.send(bytes(handshake.to_browser))
            handshake.to_browser.clear()


@dataclass(frozen=True, slots=True, eq=False)
class _DesktopReader:
    """Forwards a desktop's messages without its clipboard; see :class:`.buffers.Consumer`."""

    bridge: VncBridge
    messages: DesktopFilter

    @property
    def has_more(self) -> bool:
        return self.bridge.is_open and self.messages.has_more

    def step(self, data: bytes) -> int:
        bridge = self.bridge
        try:
            passed = self.messages.feed(data)
        except RfbError as error:
            if bridge.is_open:
                bridge.close(CLOSE_FAILED, str(error))
            return len(data)
        if passed and bridge.is_open:
            bridge.send(passed)
        return len(data)

    def sync_reading(self) -> None:
        if self.bridge.upstream is not None:
            self.bridge.upstream.sync_reading()
