"""The messages of a desktop whose clipboard must not reach the browser (RFC 6143, section 7.6).

To drop one message, the end of every other one must be known. This holds for the encodings in
:data:`MEASURED`, so a browser with a restricted clipboard may not announce others. Only lengths are
read, never pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final

from gateway.core.rfb.filter import CutTextPolicy, MessageFilter, RfbError


class Encoding(IntEnum):
    """Encodings and pseudo-encodings whose rectangles can be measured."""

    RAW = 0
    COPY_RECT = 1
    ZLIB = 6
    TIGHT = 7
    ZRLE = 16
    LED_STATE = -261
    DESKTOP_SIZE = -223
    LAST_RECT = -224
    CURSOR = -239
    QEMU_KEYS = -258
    DESKTOP_NAME = -307
    EXTENDED_DESKTOP_SIZE = -308
    FENCE = -312
    CONTINUOUS_UPDATES = -313


MEASURED: Final = (
    frozenset(map(int, Encoding)) | frozenset(range(-32, -22)) | frozenset(range(-256, -246))
)
"""The encodings that a browser may announce: the above, and levels of JPEG quality and
compression.
"""


class ServerMessage(IntEnum):
    """The messages of a desktop, by their first byte."""

    UPDATE = 0
    COLOUR_MAP = 1
    BELL = 2
    CUT_TEXT = 3
    END_OF_CONTINUOUS_UPDATES = 150
    FENCE = 248


class DesktopFilter(MessageFilter):
    """Forwards a desktop's messages except for its clipboard.

    Start with the first byte after the handshake (ServerInit). Call :meth:`use_format` for each
    SetPixelFormat that is forwarded to the desktop, before the desktop can respond to it. A format
    that a browser sends before it has received ServerInit counts too: the desktop reads it after
    that.

    Args:
        may_request: Whether the desktop may request the text on the browser's clipboard.
    """

    def __init__(self, *, may_request: bool = False) -> None:
        super().__init__(CutTextPolicy(may_request=may_request))
        self._next: Callable[[], int] = self._server_init
        self._rects = 0
        self._endless = False
        self._has_format = False
        self._pixel_bytes = 4
        self._tight_pixel_bytes = 4

    def use_format(self, pixel_format: bytes) -> None:
        """Use the 16 bytes of a PIXEL_FORMAT (section 7.4) for all pixels from now on.

        Raises:
            RfbError: If a pixel has no whole number of bytes.
        """
        self._has_format = True
        bits, depth, _, true_colour = pixel_format[:4]
        if bits not in (8, 16, 32):
            raise RfbError("the desktop's pixels have a size that there is not")
        self._pixel_bytes = bits // 8
        maxima = (pixel_format[4:6], pixel_format[6:8], pixel_format[8:10])
        packed = bits == 32 and depth == 24 and true_colour and set(maxima) == {b"\x00\xff"}
        self._tight_pixel_bytes = 3 if packed else self._pixel_bytes

    def _judge(self, passed: bytearray) -> bool:
        if self._unread[0] == ServerMessage.CUT_TEXT and self._next == self._message:
            return self._judge_cut_text(passed)
        self._forward = self._next()
        return self._forward != 0

    def _number(self, at: int, width: int) -> int:
        return int.from_bytes(self._unread[at : at + width], "big")

    # Each returns how many bytes to forward, or 0 if more are needed.

    def _server_init(self) -> int:
        if len(self._unread) < 24:
            return 0
        if not self._has_format:
            self.use_format(bytes(self._unread[4:20]))
        self._next = self._message
        return 24 + self._number(20, 4)

    def _message(self) -> int:
        match self._unread[0]:
            case ServerMessage.UPDATE:
                return self._update()
            case ServerMessage.COLOUR_MAP:
                return 6 + 6 * self._number(4, 2) if len(self._unread) >= 6 else 0
            case ServerMessage.BELL | ServerMessage.END_OF_CONTINUOUS_UPDATES:
                return 1
            case ServerMessage.FENCE:
                return self._fence("desktop")
            case _:
                raise RfbError("the desktop sent a message that is not known")

    def _update(self) -> int:
        if len(self._unread) < 4:
            return 0
        self._rects = self._number(2, 2)
        # The number is unknown: the rectangles end with LastRect.
        self._endless = self._rects == 0xFFFF
        if self._rects:
            self._next = self._rectangle
        return 4

    # Rectangles

    def _rectangle(self) -> int:
        if len(self._unread) < 12:
            return 0
        width, height = self._number(4, 2), self._number(6, 2)
        encoding = int.from_bytes(self._unread[8:12], "big", signed=True)
        measure = _MEASURES.get(encoding)
        if measure is None:
            raise RfbError("the desktop sent an encoding that was not announced")
        size = measure(self, width, height)
        if not size:
            return 0
        self._end_rectangle(encoding)
        return size

    def _end_rectangle(self, encoding: int) -> None:
        if not self._endless:
            self._rects -= 1
        ended = encoding == Encoding.LAST_RECT or not self._rects
        self._next = self._message if ended else self._rectangle

    def _raw(self, width: int, height: int) -> int:
        return 12 + width * height * self._pixel_bytes

    def _cursor(self, width: int, height: int) -> int:
        return self._raw(width, height) + (width + 7) // 8 * height

    def _with_length(self, _width: int, _height: int) -> int:
        return 16 + self._number(12, 4) if len(self._unread) >= 16 else 0

    def _screens(self, _width: int, _height: int) -> int:
        return 16 + 16 * self._unread[12] if len(self._unread) >= 13 else 0

    def _tight(self, width: int, height: int) -> int:
        """Measure a rectangle of the Tight encoding (rfbproto, "Tight Encoding")."""
        unread = self._unread
        if len(unread) < 13:
            return 0
        control = unread[12] >> 4
        if control == 8:
            return 13 + self._tight_pixel_bytes
        if control in (9, 10):  # JPEG, and PNG where a desktop sends it
            return self._compact(13)
        if control > 10:
            raise RfbError("the desktop sent a compression that there is not")
        return self._tight_basic(width, height, filtered=bool(control & 4))

    def _tight_basic(self, width: int, height: int, *, filtered: bool) -> int:
        unread, at = self._unread, 13
        row_bytes = width * self._tight_pixel_bytes
        if filtered:
            if len(unread) < 15:
                return 0
            kind, at = unread[13], 14
            if kind == 1:
                colours = unread[14] + 1
                at = 15 + colours * self._tight_pixel_bytes
                row_bytes = (width + 7) // 8 if colours <= 2 else width
            elif kind not in (0, 2):
                raise RfbError("the desktop sent a filter that there is not")
        size = row_bytes * height
        # Shorter data is uncompressed, without a length before it.
        return at + size if size < 12 else self._compact(at)

    def _compact(self, at: int) -> int:
        """Return the end of the data after the compact length at *at*; 0 while unknown."""
        length = 0
        for index in range(3):
            if len(self._unread) <= at + index:
                return 0
            byte = self._unread[at + index]
            length |= (byte & (0x7F if index < 2 else 0xFF)) << 7 * index
            if index == 2 or not byte & 0x80:
                return at + index + 1 + length
        return 0


def _nothing(_filter: DesktopFilter, _width: int, _height: int) -> int:
    return 12


def _fixed(size: int) -> Callable[[DesktopFilter, int, int], int]:
    return lambda _filter, _width, _height: 12 + size


_MEASURES: Final[Mapping[int, Callable[[DesktopFilter, int, int], int]]] = {
    Encoding.RAW: DesktopFilter._raw,
    Encoding.COPY_RECT: _fixed(4),
    Encoding.ZLIB: DesktopFilter._with_length,
    Encoding.TIGHT: DesktopFilter._tight,
    Encoding.ZRLE: DesktopFilter._with_length,
    Encoding.LED_STATE: _fixed(1),
    Encoding.DESKTOP_SIZE: _nothing,
    Encoding.LAST_RECT: _nothing,
    Encoding.CURSOR: DesktopFilter._cursor,
    Encoding.QEMU_KEYS: _nothing,
    Encoding.DESKTOP_NAME: DesktopFilter._with_length,
    Encoding.EXTENDED_DESKTOP_SIZE: DesktopFilter._screens,
}
