"""Where WebSocket frames begin and end (RFC 6455, section 5.2), without touching them.

A tunnel passes bytes on as they come. To put a Close of ours between two frames it must know
whether the last byte it wrote ended one; so it skips from frame header to frame header.
"""

from __future__ import annotations

from typing import Final

try:
    from websockets.speedups import apply_mask
except ImportError:  # where there is no wheel for the machine
    from websockets.utils import apply_mask

CLOSE_NORMAL: Final = 1000
CLOSE_UNSUPPORTED: Final = 1003
NO_STATUS: Final = 1005
CLOSE_NO_TEXT: Final = 1007
CLOSE_REFUSED: Final = 1008
CLOSE_FAILED: Final = 1011
"""Codes of RFC 6455, section 7.4.1; those of our own are in :mod:`gateway.core.access.refusals`."""
CLOSE_OPCODE: Final = 0x88
BINARY_MESSAGE: Final = 0x82
"""The first byte of a binary message that is one frame."""
PING_FRAME: Final = b"\x89\x00"
"""An unmasked Ping without data, as a server sends it."""
MAX_REASON_BYTES: Final = 123
FRAMES_AT_ONCE: Final = 1024
"""Frames followed in one call: 0.12 ms."""
MESSAGES_AT_ONCE: Final = 512
"""Messages read in one call: 0.13 ms."""
_EXTENDED: Final = {126: 2, 127: 8}


class FrameTracker:
    """Follows frame boundaries in a stream."""

    __slots__ = ("header", "left")

    def __init__(self) -> None:
        self.left = 0
        """How many bytes of the frame under way are still to come; 0 within a frame's header."""
        self.header = b""
        """What has come of a frame's header that is not complete."""

    @property
    def at_boundary(self) -> bool:
        """Whether the last byte fed ended a frame, or nothing was fed."""
        return not self.left and not self.header

    def feed(self, data: bytes, most: int = FRAMES_AT_ONCE) -> int:
        """Follow *data*; return how many bytes of it were followed, and may be passed on.

        That is all of it, unless it holds more than *most* frames: frames can be of two bytes, and
        one read must not take long.
        """
        size = len(data)
        if size <= self.left:
            self.left -= size
            return size
        if not self.left and not self.header and 2 <= size == data[1] + 2 < 128:
            return size  # one small frame without a mask, as most of an app's are
        at, before = self.left, len(self.header)
        if before:
            data = self.header + data
        end, self.header, self.left = size + before, b"", 0
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
        self.left = at - end
        return size

    def feed_to_boundary(self, data: bytes) -> int:
        """Return how many bytes of *data* end the frame that is under way; all if they do not.

        Only these are followed.
        """
        if self.at_boundary:
            return 0
        head = len(self.header)
        if head:
            frame = frame_size(self.header + data, 0)
            needed = frame - head if frame else len(data)
        else:
            needed = self.left
        taken = min(needed, len(data))
        return self.feed(data[:taken])


def frame_size(data: bytes, at: int) -> int:
    """Return the size, header included, of the frame that begins at *at*; 0 if that is not known.

    Masked and unmasked frames alike: what an app sends is not ours to judge.
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
    """Return the binary messages that *data* begins with, and where in it they end.

    No more than :data:`MESSAGES_AT_ONCE`, and only those that need no second look: in one frame,
    complete, masked, of less than 64 KiB and without extensions. Where the next frame is anything
    else, it is left to a full parser.
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
    """Return an unmasked Close, as a server sends it."""
    text = reason.encode()[:MAX_REASON_BYTES]
    return bytes((CLOSE_OPCODE, len(text) + 2)) + code.to_bytes(2, "big") + text
