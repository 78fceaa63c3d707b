"""The framings of payload on the wire: none, chunks, WebSocket frames."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from websockets.speedups import apply_mask

Wrap = Callable[[bytes], bytes]


class Unwrap(Protocol):
    """Returns the payload of the received bytes; a framing error fails the test.

    ``ended`` says that no byte of the framing is missing after the payload.
    """

    ended: bool

    def feed(self, data: bytes) -> bytes: ...


def plain(data: bytes) -> bytes:
    """No framing."""
    return data


class Plain:
    ended = True

    def feed(self, data: bytes) -> bytes:
        return data


def chunk(data: bytes) -> bytes:
    """One chunk, its size in either case."""
    size = b"%x" if len(data) % 2 else b"%X"
    return size % len(data) + b"\r\n" + data + b"\r\n"


class Chunks:
    """Reads chunks strictly (RFC 9112, section 7.1)."""

    def __init__(self) -> None:
        self.ended = False
        self._buffer = b""
        self._left = 0

    def feed(self, data: bytes) -> bytes:
        """Return the payload that *data* completes or continues."""
        self._buffer += data
        out = []
        while self._buffer and not self.ended:
            if self._left > 2:
                piece = self._buffer[: self._left - 2]
                out.append(piece)
                self._left -= len(piece)
                self._buffer = self._buffer[len(piece) :]
            elif not self._next():
                break
        return b"".join(out)

    def _next(self) -> bool:
        if self._left:
            if len(self._buffer) < 2:
                return False
            assert self._buffer[:2] == b"\r\n", self._buffer[:20]
            self._left, self._buffer = 0, self._buffer[2:]
            return True
        line, end, rest = self._buffer.partition(b"\r\n")
        if not end:
            return False
        size = int(line, 16)
        if size:
            self._left, self._buffer = size + 2, rest
            return True
        if len(rest) < 2:
            return False
        assert rest == b"\r\n", rest[:20]
        self.ended = True
        return True


def frame(data: bytes, *, mask: bytes | None = None) -> bytes:
    """A whole binary frame (RFC 6455, section 5.2)."""
    bit = 0x80 if mask is not None else 0
    size = len(data)
    if size < 126:
        head = bytes((0x82, size | bit))
    elif size < 65536:
        head = bytes((0x82, 126 | bit)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x82, 127 | bit)) + size.to_bytes(8, "big")
    return head + (mask + apply_mask(data, mask) if mask is not None else data)


def masking(dice: random.Random) -> Wrap:
    """Encodes frames as browsers do, each with a mask of its own."""
    return lambda data: frame(data, mask=dice.randbytes(4))


class Frames:
    """Reads data frames; pings are skipped, a Close is a failure."""

    ended = True

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> bytes:
        """Return the payload of the complete frames."""
        self._buffer += data
        out = []
        at = 0
        while (found := self._frame(at)) is not None:
            at, opcode, payload = found
            assert opcode in (0, 2, 9, 10), f"opcode {opcode}: {payload[:100]!r}"
            if opcode < 8:
                out.append(payload)
        self._buffer = self._buffer[at:]
        return b"".join(out)

    def _frame(self, at: int) -> tuple[int, int, bytes] | None:
        data = self._buffer
        if len(data) < at + 2:
            return None
        size, masked, start = data[at + 1] & 0x7F, data[at + 1] & 0x80, at + 2
        if size >= 126:
            start += 2 if size == 126 else 8
            size = int.from_bytes(data[at + 2 : start], "big")
        end = start + (4 if masked else 0) + size
        if len(data) < end or len(data) < start:
            return None
        payload = data[end - size : end]
        if masked:
            payload = apply_mask(payload, data[start : start + 4])
        return end, data[at] & 0x0F, payload
