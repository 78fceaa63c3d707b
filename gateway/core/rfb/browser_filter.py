"""The messages of a client: of one that may not do everything, and what people do by them.

RFC 6143, section 7.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final

from gateway.core.rfb.cut_text import EXTENDED_CLIPBOARD, CutTextPolicy, announces_text
from gateway.core.rfb.desktop_filter import MEASURED
from gateway.core.rfb.filter import MessageFilter, RfbError


class ClientMessage(IntEnum):
    """What a client may send, by its first byte."""

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
"""Pseudo-encodings by which a client announces that it will send other input messages, or longer
ones. Without them a desktop reads messages exactly as they are read here."""

_FIXED: Final[Mapping[int, tuple[int, bool]]] = {
    ClientMessage.SET_PIXEL_FORMAT: (20, True),
    ClientMessage.UPDATE_REQUEST: (10, True),
    ClientMessage.CONTINUOUS_UPDATES: (10, True),
    ClientMessage.KEY: (8, False),
    ClientMessage.POINTER: (6, False),
    ClientMessage.XVP: (4, False),
}
"""Size of a message, and whether one who looks on may send it."""
_MEASURED_INPUT: Final = frozenset({-308, -258})
"""Of those, what one who controls may announce: such messages are read here."""
MAX_ENCODINGS: Final = 1024
"""In one message: browsers announce some twenty, and each is looked at."""

_HUMAN: Final = frozenset(map(int, (ClientMessage.KEY, ClientMessage.POINTER, ClientMessage.QEMU)))
_BY_ITSELF: Final = {int(kind): size for kind, (size, passes) in _FIXED.items() if passes}
"""Sizes of what browsers send by themselves: formats, and requests for updates."""
_LOOKED_AT: Final = 16
# Not members of the enumeration, which are looked up in its class each time.
_SET_ENCODINGS, _CUT_TEXT, _FENCE = map(
    int, (ClientMessage.SET_ENCODINGS, ClientMessage.CUT_TEXT, ClientMessage.FENCE)
)


class BrowserFilter(MessageFilter):
    """Lets pass what a client must send to look on, and of all other input what it may send.

    Args:
        controls: Whether it may type and point.
        pastes: Whether it may put text on the desktop's clipboard.
        copies: Whether it may ask for the text on the desktop's clipboard.
        use_format: Is told the pixel format that the client asks for, where the desktop's messages
            are measured (:mod:`.desktop_filter`). Then the client may announce only encodings that
            can be, and ask for another format only before it asks for pixels.
    """

    def __init__(
        self,
        *,
        controls: bool = False,
        pastes: bool = False,
        copies: bool = False,
        use_format: Callable[[bytes], None] | None = None,
    ) -> None:
        super().__init__(CutTextPolicy(gives=pastes, takes=copies))
        self._controls = controls
        self._use_format = use_format
        self._has_asked = False

    def _judge(self, passed: bytearray) -> bool:
        if self._unread[0] == ClientMessage.CUT_TEXT:
            return self._judge_cut_text(passed)
        size, passes = self._measure()
        if size == 0:
            return False
        if not (passes or self._controls):
            self._drop = size
        elif len(self._unread) < size:
            return False
        else:
            passed += self._cleaned(self._take(size))
        return True

    def _measure(self) -> tuple[int, bool]:
        """Return the size of the next message, 0 while it is not known, and whether it passes."""
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
                return self._fence(), True
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

    def _fence(self) -> int:
        if len(self._unread) < 9:
            return 0
        length = self._unread[8]
        if length > 64:
            raise RfbError("the browser sent a fence that is too long")
        return 9 + length

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
                    return b""  # pixels of the old format may be on their way
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
            return self._clipboard.gives or self._clipboard.takes
        if encoding in INPUT_ENCODINGS:
            return self._controls and encoding in _MEASURED_INPUT
        return self._use_format is None or encoding in MEASURED


def has_human_input(data: bytes) -> bool:
    """Say whether a key, pointer or clipboard event is among the first messages of *data*.

    For display only, so it is cheap and may err: *data* is taken to begin with a message, as
    every WebSocket message of the known clients does. Of the clipboard's messages only a text, or
    the news of one, is a person's: a browser answers the others by itself.
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
