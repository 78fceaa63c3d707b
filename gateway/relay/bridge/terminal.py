"""Terminals: the browser's WebSocket joined to the hub's, which holds the shell.

Binary messages are the terminal's bytes, text messages are JSON. Both are forwarded unchanged,
except for those that a viewer may not send. The hub enforces that too. The bytes are a stream: a
large binary message is forwarded in parts, as it arrives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import ClassVar, Final

from websockets.frames import Frame, Opcode

from gateway.core.frames import CLOSE_NO_TEXT, CLOSE_REFUSED
from gateway.relay.bridge.upstream_connections import WebSocketUpstream, open_socket
from gateway.relay.bridge.websocket_bridge import WebSocketBridge, query_parts
from gateway.relay.context import UpgradeRequest
from gateway.relay.dial import DialFailed
from shared.link import AttachGrant, AttachTokens

MAX_TEXT_BYTES: Final = 65536
"""A fragmented text message is reassembled, so that it can be checked."""


_WANTED: Final = re.compile(rb"(after)=(-?[0-9]{1,15})|(shell|stream|client)=([0-9a-z]{1,32})")


class TerminalBridge(WebSocketBridge):
    """One browser on one terminal.

    Args:
        nonce: Returns a fresh, unguessable text.
    """

    subprotocol: ClassVar[str] = "fumarole.terminal.v1"
    upstream: WebSocketUpstream | None
    """The hub."""

    def __init__(
        self,
        request: UpgradeRequest,
        *,
        tokens: AttachTokens,
        wall: Callable[[], float],
        nonce: Callable[[], str],
    ) -> None:
        super().__init__(request)
        self._tokens = tokens
        self._wall = wall
        self._nonce = nonce
        self._text: bytearray | None = None
        self._unsent: list[Frame] = []

    @property
    def _views(self) -> bool:
        grant = self.access_right.grant
        return grant is None or grant.mode != "control"

    async def connect(self) -> None:
        """Attach at the hub.

        Raises:
            DialFailed: If it cannot be reached or refuses.
        """
        grant, target = self.access_right.grant, self.access_right.route.target
        if grant is None or target is None:
            raise DialFailed("session_starting")
        token = self._tokens.make(
            sid=grant.sid,
            sub=grant.sub,
            mode=grant.mode,
            jti=self._nonce(),
            now=self._wall(),
            # The hub must know whose typing a revocation concerns.
            grant=AttachGrant(jti=grant.jti, kid=grant.kid, issued_at=grant.issued_at),
        )
        hub = WebSocketUpstream(
            self,
            target=target,
            subprotocol=self.subprotocol,
            authorization=f"Bearer {token}",
            received=self._from_hub,
            closed=self.close,
            query=hub_query(self.request.head),
        )
        self.upstream = hub
        await open_socket(self, hub, target)

    def on_open(self) -> None:
        """Send the frames that the hub has sent already."""
        unsent, self._unsent = self._unsent, []
        for frame in unsent:
            self._from_hub(frame)

    def _from_hub(self, frame: Frame) -> None:
        if self.is_open:
            self.send_frame(frame)
        else:
            self._unsent.append(frame)

    def buffered_bytes(self) -> int:
        """Return how many bytes wait for either side, or for the rest of a message."""
        text = 0 if self._text is None else len(self._text)
        return super().buffered_bytes() + text + sum(len(frame.data) for frame in self._unsent)

    def received_bytes(self, data: bytes) -> None:
        """Forward what the user types."""
        if not self._views and self.upstream is not None:
            self.note_input()
            self.upstream.send(data)

    def received_text(self, frame: Frame) -> None:
        """Forward a message to the hub, reassembled so that it can be checked."""
        text = self._text = bytearray() if self._text is None else self._text
        text += frame.data
        if len(text) > MAX_TEXT_BYTES:
            self.close(CLOSE_REFUSED, "the message is too long")
            return
        if not frame.fin:
            return
        self._text = None
        if not _is_utf8(text):
            self.close(CLOSE_NO_TEXT, "the text is not UTF-8")
        elif self.upstream is not None and not (self._views and _is_input(bytes(text))):
            self.upstream.send_frame(Frame(Opcode.TEXT, bytes(text)))


def hub_query(head: bytes) -> str:
    """Return the part of the query of an upgrade's *head* that the hub gets.

    It selects one of the session's shells and where in its output to start. Each parameter is
    well-formed and occurs once; any other is dropped. Without parameters the hub assumes an older
    page.
    """
    parts = query_parts(head)
    wanted = {found[1] or found[3]: part for part in parts if (found := _WANTED.fullmatch(part))}
    return b"&".join(wanted.values()).decode("ascii")


def _is_utf8(text: bytearray) -> bool:
    """Return whether a message is valid UTF-8 (RFC 6455, section 8.1)."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_input(text: bytes) -> bool:
    """Return whether a message changes the terminal, which a viewer may not.

    Every message counts that is not clearly of another type.
    """
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return True
    return not isinstance(message, dict) or message.get("type") in ("resize", "renew")
