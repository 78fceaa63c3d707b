"""Message bodies (RFC 9112, sections 6 and 7): where one ends, and its bytes reframed.

A body reader is fed received bytes and returns the bytes to forward. Bodies never pass through a
parser: lengths are counted, chunk headers are found and rewritten. Other bytes are forwarded as
received, without a copy if a read lies within one chunk. The result does not depend on how the
bytes are split into reads.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import Final

from gateway.core.http.fields import Fields
from gateway.core.http.names import TOKEN

MAX_SIZE_DIGITS: Final = 16
MAX_EXTENSION_BYTES: Final = 256
MAX_TRAILER_BYTES: Final = 8192

STEPS_AT_ONCE: Final = 384
"""The maximum number of steps in one call; they take 0.15 ms. A chunk takes three steps and can
have one byte, and one read must not take long."""

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[\t -~\x80-\xff]*)?")
_PADDED_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*+;[\t -~\x80-\xff]*|[ \t]*+)")
_TRAILER = re.compile(TOKEN + rb":[\t -~\x80-\xff]*")
_CR: Final = 0x0D
_LF: Final = 0x0A
_LONGEST_LINE: Final = MAX_SIZE_DIGITS + MAX_EXTENSION_BYTES


class FramingError(Exception):
    """The framing of a body is invalid."""


class Body:
    """Reads one body.

    ``done`` becomes true with its last byte; ``trailing_data`` then holds the bytes after it.
    ``has_more`` is true if a call stopped early because the rest would have taken too long. Feeding
    no bytes continues.
    """

    __slots__ = ("done", "has_more", "trailing_data")

    def __init__(self, *, done: bool = False) -> None:
        self.done = done
        self.has_more = False
        self.trailing_data = b""

    @abstractmethod
    def feed(self, data: bytes) -> bytes:
        """Return the bytes of *data* to forward, reframed.

        Raises:
            FramingError: The body cannot be completed; nothing of *data* may be forwarded.
        """


class NoBody(Body):
    """A message without a body."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(done=True)

    def feed(self, data: bytes) -> bytes:
        """Keep all of *data* as trailing data."""
        self.trailing_data += data
        return b""


class LengthBody(Body):
    """A body of known length, forwarded as received."""

    __slots__ = ("remaining",)

    def __init__(self, length: int) -> None:
        super().__init__(done=length == 0)
        self.remaining = length

    def advance(self, size: int) -> None:
        """Count *size* bytes, at most the remaining ones, that were forwarded without being fed."""
        self.remaining -= size
        self.done = not self.remaining

    def feed(self, data: bytes) -> bytes:
        """Return the bytes of *data* that belong to the body."""
        size = len(data)
        if size < self.remaining:
            self.remaining -= size
            return data
        if size > self.remaining:
            self.trailing_data += data[self.remaining :]
            data = data[: self.remaining]
        self.remaining = 0
        self.done = True
        return data


class CloseDelimitedBody(Body):
    """A body that ends when its connection closes."""

    __slots__ = ()

    def feed(self, data: bytes) -> bytes:
        """Return *data*."""
        return data


class ChunkedBody(Body):
    """A chunked body; chunks keep their sizes and lose their extensions; trailers are dropped.

    Args:
        framed: Whether the receiver gets chunks or, with HTTP/1.0, the bare bytes.
        padded: Whether white space may follow a chunk's size. Servers that reserve room for the
            size write it so, and nginx, Envoy and h11 accept that from apps.
    """

    __slots__ = (
        "_framed",
        "_left",
        "_pending",
        "_size_line",
        "_state",
        "_trailers",
        "has_started",
    )

    def __init__(self, *, framed: bool = True, padded: bool = False) -> None:
        super().__init__()
        self._framed = framed
        self._size_line = _PADDED_SIZE_LINE if padded else _SIZE_LINE
        self.has_started = False
        """Whether a byte of the body has arrived."""
        self._state = _SIZE
        self._left = 0
        self._pending = b""
        self._trailers = 0

    def feed(self, data: bytes) -> bytes:
        """Return the bytes of *data* to forward."""
        if self._state == _DATA and len(data) < self._left:
            self._left -= len(data)
            return data
        self.has_started = True
        if self._pending:
            data = self._pending + data
            self._pending = b""
        out: list[bytes] = []
        at, left = 0, STEPS_AT_ONCE
        while not self.done:
            step = self._STEPS[self._state](self, data, at, out) if left else -1
            if step < 0:
                self._pending = data[at:]
                break
            at = step
            left -= 1
        self.has_more = not left and not self.done
        if self.done:
            self.trailing_data += data[at:]
        return b"".join(out)

    # Each step processes data[at:] as far as it can. It returns where the next step starts, or -1
    # if more bytes are needed.

    def _size(self, data: bytes, at: int, out: list[bytes]) -> int:
        line, after = _line(data, at, _LONGEST_LINE)
        if after < 0:
            return -1
        match = self._size_line.fullmatch(line)
        if match is None or len(line) - len(match[1]) > MAX_EXTENSION_BYTES:
            raise FramingError("a chunk's size is malformed")
        self._left = int(match[1], 16)
        self._state = _DATA if self._left else _TRAILERS
        if self._framed and self._left:
            out.append(b"%x\r\n" % self._left)
        return after

    def _data(self, data: bytes, at: int, out: list[bytes]) -> int:
        piece = data[at : at + self._left]
        if not piece:
            return -1
        out.append(piece)
        self._left -= len(piece)
        if not self._left:
            self._state = _DATA_END
        return at + len(piece)

    def _data_end(self, data: bytes, at: int, out: list[bytes]) -> int:
        end = data[at : at + 2]
        if end != b"\r\n":
            if end in (b"", b"\r"):
                return -1
            raise FramingError("a chunk is longer than its size")
        if self._framed:
            out.append(end)
        self._state = _SIZE
        return at + 2

    def _trailer(self, data: bytes, at: int, out: list[bytes]) -> int:
        line, after = _line(data, at, MAX_TRAILER_BYTES - self._trailers)
        if after < 0:
            return -1
        self._trailers += after - at
        if line:
            if _TRAILER.fullmatch(line) is None:
                raise FramingError("a trailer is malformed")
        else:
            self.done = True
            if self._framed:
                out.append(b"0\r\n\r\n")
        return after

    _STEPS = (_size, _data, _data_end, _trailer)


_SIZE, _DATA, _DATA_END, _TRAILERS = range(4)


def request_body(fields: Fields) -> Body:
    """Return a reader for the body of a request; a length of 0 means no body."""
    if fields.chunked:
        return ChunkedBody()
    if fields.length > 0:
        return LengthBody(fields.length)
    return NoBody()


def _line(data: bytes, at: int, longest: int) -> tuple[bytes, int]:
    """Return the line at *at* and where the next line starts; -1 if the line is incomplete."""
    end = data.find(b"\r\n", at, at + longest + 2)
    line = data[at:] if end < 0 else data[at:end]
    if end < 0 and len(line) > longest + 1:
        raise FramingError("a line of the framing is too long")
    bare = line[:-1] if end < 0 and line.endswith(b"\r") else line
    if _CR in bare or _LF in bare:
        raise FramingError("a line of the framing does not end with CRLF")
    return line, (-1 if end < 0 else end + 2)
