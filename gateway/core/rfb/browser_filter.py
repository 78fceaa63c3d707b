"""The messages of a browser (RFC 6143, section 7.5): which may pass, and which are user input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final

from gateway.core.rfb.desktop_filter import MEASURED
from gateway.core.rfb.filter import (
    EXTENDED_CLIPBOARD,
    CutTextPolicy,
    MessageFilter,
    RfbError,
    announces_text,
)


class ClientMessage(IntEnum):
    """The messages of a client, by their first byte."""

    SET_PIXEL_FORMAT = 0
    SET_ENCODINGS = 2
    UPDATE_REQUEST = 3
    KEY = 4
    POINTER = 5
    CUT_TEXT = 6
    CONTINUOUS_UPDATES = 150
    FENCE = 248
    XVP = 250
    SET_DESKTOP_SIZE = 251
    QEMU = 255


INPUT_ENCODINGS: Final = frozenset(
    {
        -316,  # extended mouse buttons: makes pointer messages longer
        -309,  # xvp: shut the machine down
        -308,  # extended desktop size: resize it
        -305,  # general input interface
        -259,  # QEMU audio
        -258,  # QEMU extended keys
        -257,  # QEMU relative pointer
        EXTENDED_CLIPBOARD,
    }
)
"""Pseudo-encodings by which a client announces other or longer input messages. Without them a
desktop parses messages exactly as this module does."""

_FIXED: Final[Mapping[int, tuple[int, bool]]] = {
    ClientMessage.SET_PIXEL_FORMAT: (20, True),
    ClientMessage.UPDATE_REQUEST: (10, True),
    ClientMessage.CONTINUOUS_UPDATES: (10, True),
    ClientMessage.KEY: (8, False),
    ClientMessage.POINTER: (6, False),
    ClientMessage.XVP: (4, False),
}
"""The size of a message, and whether a viewer may send it."""
_MEASURED_INPUT: Final = frozenset({-308, -258})
"""Of those, the ones that a controlling client may announce: this module parses their messages."""
MAX_ENCODINGS: Final = 1024
"""In one message: browsers announce about twenty, and each is examined."""

_HUMAN: Final = frozenset(map(int, (ClientMessage.KEY, ClientMessage.POINTER, ClientMessage.QEMU)))
_BY_ITSELF: Final = {int(kind): size for kind, (size, passes) in _FIXED.items() if passes}
"""The sizes of messages that browsers send without user input: formats and update requests."""
_LOOKED_AT: Final = 16
# Plain integers: each lookup of an enumeration member takes time.
_SET_ENCODINGS, _CUT_TEXT, _FENCE = map(
    int, (ClientMessage.SET_ENCODINGS, ClientMessage.CUT_TEXT, ClientMessage.FENCE)
)


class BrowserFilter(MessageFilter):
    """Forwards what a client must send to view, and of other input what it is allowed to send.

    Args:
        may_control: Whether it may type and point.
        may_paste: Whether it may put text on the desktop's clipboard.
        may_copy: Whether it may request the text on the desktop's clipboard.
        use_format: Called with the pixel format that the client sets, if the desktop's messages are
            measured (:mod:`.desktop_filter`). The client may then announce only measurable
            encodings, and change the format only before it requests pixels.
    """

    def __init__(
        self,
        *,
        may_control: bool = False,
        may_paste: bool = False,
        may_copy: bool = False,
        use_format: Callable[[bytes], None] | None = None,
    ) -> None:
        super().__init__(CutTextPolicy(may_send=may_paste, may_request=may_copy))
        self._may_control = may_control
        self._use_format = use_format
        self._has_asked = False

    def _judge(self, passed: bytearray) -> bool:
        if self._unread[0] == ClientMessage.CUT_TEXT:
            return self._judge_cut_text(passed)
        size, passes = self._measure()
        if size == 0:
            return False
        if not (passes or self._may_control):
            self._drop = size
        elif len(self._unread) < size:
            return False
        else:
            passed += self._cleaned(self._take(size))
        return True

    def _measure(self) -> tuple[int, bool]:
        """Return the next message's size, 0 while unknown, and whether a viewer may send it."""
        kind = self._unread[0]
        if kind in _FIXED:
            return _FIXED[kind]
        match kind:
            case ClientMessage.SET_ENCODINGS:
                size = self._counted(at=2, width=2, header=4, unit=4)
                if size > 4 + 4 * MAX_ENCODINGS:
                    raise RfbError("the browser announced too many encodings")
                return size, True
            case ClientMessage.FENCE:
                return self._fence("browser"), True
            case ClientMessage.SET_DESKTOP_SIZE:
                return self._counted(at=6, width=1, header=8, unit=16), False
            case ClientMessage.QEMU:
                return self._qemu(), False
            case _:
                raise RfbError("the browser sent a message that is not known")

    def _counted(self, *, at: int, width: int, header: int, unit: int) -> int:
        if len(self._unread) < header:
            return 0
        return header + unit * int.from_bytes(self._unread[at : at + width], "big")

    def _qemu(self) -> int:
        if len(self._unread) < 4:
            return 0
        kind, operation = self._unread[1], int.from_bytes(self._unread[2:4], "big")
        if kind == 0:
            return 12
        if kind == 1 and operation in (0, 1):
            return 4
        if kind == 1 and operation == 2:
            return 10
        raise RfbError("the browser sent a message that is not known")

    def _cleaned(self, message: bytes) -> bytes:
        match message[0]:
            case ClientMessage.SET_ENCODINGS:
                return self._announced(message)
            case ClientMessage.SET_PIXEL_FORMAT if self._use_format is not None:
                if self._has_asked:
                    return b""  # pixels in the old format may be in transit
                self._use_format(message[4:20])
            case ClientMessage.UPDATE_REQUEST | ClientMessage.CONTINUOUS_UPDATES:
                self._has_asked = True
        return message

    def _announced(self, message: bytes) -> bytes:
        kept = [
            message[at : at + 4]
            for at in range(4, len(message), 4)
            if self._may_announce(int.from_bytes(message[at : at + 4], "big", signed=True))
        ]
        return message[:2] + len(kept).to_bytes(2, "big") + b"".join(kept)

    def _may_announce(self, encoding: int) -> bool:
        if encoding == EXTENDED_CLIPBOARD:
            return self._clipboard.may_send or self._clipboard.may_request
        if encoding in INPUT_ENCODINGS:
            return self._may_control and encoding in _MEASURED_INPUT
        return self._use_format is None or encoding in MEASURED


def has_human_input(data: bytes) -> bool:
    """Return whether a key, pointer or clipboard event is among the first messages of *data*.

    The result is for display only, so the check is cheap and may err. It assumes that *data* starts
    with a message, as every WebSocket message of known clients does. Of the clipboard messages only
    a text or its announcement counts: a browser sends the others by itself.
    """
    at, size, left = 0, len(data), _LOOKED_AT
    while at < size and left:
        left -= 1
        kind = data[at]
        if kind in _HUMAN:
            return True
        if kind == _SET_ENCODINGS:
            at += 4 + 4 * int.from_bytes(data[at + 2 : at + 4], "big")
        elif kind == _FENCE and size > at + 8:
            at += 9 + data[at + 8]
        elif kind == _CUT_TEXT:
            length = int.from_bytes(data[at + 4 : at + 8], "big", signed=True)
            if announces_text(data[at : at + 12]):
                return True
            at += 8 - length
        elif kind in _BY_ITSELF:
            at += _BY_ITSELF[kind]
        else:
            return False
    return False
