"""WebSocket frame boundaries (RFC 6455, section 5.2), found without changing the frames.

A tunnel relays bytes as they arrive. To insert a Close between two frames, the gateway must know
whether the last byte that it wrote ended a frame. It therefore skips from frame header to frame
header.
"""

from __future__ import annotations

from typing import Final

try:
    from websockets.speedups import apply_mask
except ImportError:  # no compiled wheel exists for this platform
    from websockets.utils import apply_mask

CLOSE_NORMAL: Final = 1000
CLOSE_UNSUPPORTED: Final = 1003
NO_STATUS: Final = 1005
CLOSE_NO_TEXT: Final = 1007
CLOSE_REFUSED: Final = 1008
CLOSE_FAILED: Final = 1011
"""Codes of RFC 6455, section 7.4.1. Our own are in :mod:`gateway.core.access.refusals`."""
CLOSE_OPCODE: Final = 0x88
BINARY_MESSAGE: Final = 0x82
"""The first byte of an unfragmented binary message."""
PING_FRAME: Final = b"\x89\x00"
"""An unmasked Ping without data, as a server sends it."""
MAX_REASON_BYTES: Final = 123
FRAMES_AT_ONCE: Final = 1024
"""The maximum number of frames followed in one call; they take 0.12 ms."""
MESSAGES_AT_ONCE: Final = 512
"""The maximum number of messages read in one call; they take 0.13 ms."""
_EXTENDED: Final = {126: 2, 127: 8}


class FrameTracker:
    """Follows the frame boundaries of a stream."""

    __slots__ = ("header", "remaining")

    def __init__(self) -> None:
        self.remaining = 0
        """Bytes of the current frame that have not arrived; 0 within a frame header."""
        self.header = b""
        """The bytes of an incomplete frame header."""

    @property
    def at_boundary(self) -> bool:
        """Whether the last byte fed ended a frame, or no byte was fed."""
        return not self.remaining and not self.header

    def feed(self, data: bytes, most: int = FRAMES_AT_ONCE) -> int:
        """Follow *data*; return how many of its bytes were followed and may be relayed.

        The result is less than the whole only when *data* holds more than *most* frames: a frame
        can have two bytes, and one read must not take long.
        """
        size = len(data)
        if size <= self.remaining:
            self.remaining -= size
            return size
        if not self.remaining and not self.header and 2 <= size == data[1] + 2 < 128:
            return size  # one small unmasked frame, the usual case from an app
        at, before = self.remaining, len(self.header)
        if before:
            data = self.header + data
        end, self.header, self.remaining = size + before, b"", 0
        left = most
        while at < end:
            frame = frame_size(data, at)
            if frame == 0:
                self.header = data[at:]
                return size
            at += frame
            left -= 1
            if not left and at < end:
                return at - before
        self.remaining = at - end
        return size

    def feed_to_boundary(self, data: bytes) -> int:
        """Return how many bytes of *data* end the current frame; all of them if they do not.

        Only these bytes are followed.
        """
        if self.at_boundary:
            return 0
        head = len(self.header)
        if head:
            frame = frame_size(self.header + data, 0)
            needed = frame - head if frame else len(data)
        else:
            needed = self.remaining
        taken = min(needed, len(data))
        return self.feed(data[:taken])


def frame_size(data: bytes, at: int) -> int:
    """Return the size, header included, of the frame at *at*; 0 while its header is incomplete.

    Masked and unmasked frames are both accepted: the gateway does not validate an app's frames.
    """
    if len(data) < at + 2:
        return 0
    second = data[at + 1]
    header = 6 if second & 0x80 else 2
    length = second & 0x7F
    if length >= 126:
        extended = _EXTENDED[length]
        if len(data) < at + 2 + extended:
            return 0
        length = int.from_bytes(data[at + 2 : at + 2 + extended], "big")
        header += extended
    return header + length


def take_messages(data: bytes) -> tuple[list[bytes], int]:
    """Return the binary messages at the start of *data*, unmasked, and where they end in it.

    At most :data:`MESSAGES_AT_ONCE` are returned, and only simple ones: unfragmented, complete,
    masked, shorter than 64 KiB, without extensions. Any other frame is left to a full parser.
    """
    messages: list[bytes] = []
    at, size = 0, len(data)
    while at + 6 <= size and data[at] == BINARY_MESSAGE and len(messages) < MESSAGES_AT_ONCE:
        length, start = data[at + 1] - 0x80, at + 6
        if length == 126:
            length, start = int.from_bytes(data[at + 2 : at + 4], "big"), at + 8
        elif not 0 <= length < 126:
            break
        end = start + length
        if end > size:
            break
        messages.append(apply_mask(data[start:end], data[start - 4 : start]))
        at = end
    return messages, at


def close_frame(code: int, reason: str) -> bytes:
    """Return an unmasked Close frame, as a server sends it."""
    text = reason.encode()[:MAX_REASON_BYTES]
    return bytes((CLOSE_OPCODE, len(text) + 2)) + code.to_bytes(2, "big") + text
