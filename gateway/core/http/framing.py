"""Message bodies (RFC 9112, sections 6 and 7): where one ends, and its bytes framed anew.

A reader is fed what arrives and returns what goes on. Bodies never pass through a parser: lengths
are counted, chunk headers are looked for and written again, and the rest is handed on as it came,
without a copy where a read lies within one chunk. Any split of the same bytes gives the same
result.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from gateway.core.http.names import TOKEN

if TYPE_CHECKING:
    from gateway.core.http.fields import Fields

MAX_SIZE_DIGITS: Final = 16
MAX_EXTENSION_BYTES: Final = 256
MAX_TRAILER_BYTES: Final = 8192

STEPS_AT_ONCE: Final = 384
"""Steps of a chunked body in one call: a chunk takes three, and this many 0.15 ms. Chunks can be of
one byte, and one read must not take long."""

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[\t -~\x80-\xff]*)?")
_TRAILER = re.compile(TOKEN + rb":[\t -~\x80-\xff]*")
_CR: Final = 0x0D
_LF: Final = 0x0A
_LONGEST_LINE: Final = MAX_SIZE_DIGITS + MAX_EXTENSION_BYTES


class FramingError(Exception):
    """A body that is not framed as it must be."""


class Body(Protocol):
    """Reads one body.

    ``done`` turns true with its last byte; ``rest`` then holds what came beyond it. ``stopped`` is
    true when there was more to do than one call should; feeding nothing goes on with it.
    """

    done: bool
    rest: bytes

    @property
    def stopped(self) -> bool:
        """Whether some of what was fed has not been looked at."""

    def feed(self, data: bytes) -> bytes:
        """Return what of *data* goes on, framed for the other side.

        Raises:
            FramingError: The message cannot be completed; nothing of *data* goes on.
        """


class NoBody:
    """A message without a body."""

    __slots__ = ("done", "rest")

    stopped: Final = False

    def __init__(self) -> None:
        self.done = True
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Keep all of *data* as rest."""
        self.rest += data
        return b""


class LengthBody:
    """A body of a known length, as it came."""

    __slots__ = ("done", "left", "rest")

    stopped: Final = False

    def __init__(self, length: int) -> None:
        self.left = length
        self.done = length == 0
        self.rest = b""

    def moved(self, size: int) -> None:
        """Count *size* bytes, at most what is left, that went on without having been fed."""
        self.left -= size
        self.done = not self.left

    def feed(self, data: bytes) -> bytes:
        """Return what of *data* belongs to the body."""
        size = len(data)
        if size < self.left:
            self.left -= size
            return data
        if size > self.left:
            self.rest += data[self.left :]
            data = data[: self.left]
        self.left = 0
        self.done = True
        return data


class OpenBody:
    """A body that ends with its connection."""

    __slots__ = ("done", "rest")

    stopped: Final = False

    def __init__(self) -> None:
        self.done = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return *data*."""
        return data


class ChunkedBody:
    """A chunked body; chunks keep their sizes, and lose their extensions and the trailers.

    Args:
        framed: Whether the other side gets chunks too, or the bare bytes (HTTP/1.0).
    """

    __slots__ = (
        "_framed",
        "_left",
        "_pending",
        "_state",
        "_trailers",
        "begun",
        "done",
        "rest",
        "stopped",
    )

    def __init__(self, *, framed: bool = True) -> None:
        self._framed = framed
        self.begun = False
        """Whether any of it has come."""
        self._state = _SIZE
        self._left = 0
        self._pending = b""
        self._trailers = 0
        self.done = False
        self.rest = b""
        self.stopped = False

    def feed(self, data: bytes) -> bytes:
        """Return what of *data* goes on."""
        if self._state == _DATA and len(data) < self._left:
            self._left -= len(data)
            return data
        self.begun = True
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
        self.stopped = not left and not self.done
        if self.done:
            self.rest += data[at:]
        return b"".join(out)

    # Each step takes what it can from data[at:] and returns where the next one goes on, or -1
    # when it needs more.

    def _size(self, data: bytes, at: int, out: list[bytes]) -> int:
        line, after = _line(data, at, _LONGEST_LINE)
        if after < 0:
            return -1
        match = _SIZE_LINE.fullmatch(line)
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
    """Return how the body of a request is read; one of length 0 is none."""
    if fields.chunked:
        return ChunkedBody()
    if fields.length > 0:
        return LengthBody(fields.length)
    return NoBody()


def _line(data: bytes, at: int, longest: int) -> tuple[bytes, int]:
    """Return the line at *at* and where the next begins, -1 while it is incomplete."""
    end = data.find(b"\r\n", at, at + longest + 2)
    line = data[at:] if end < 0 else data[at:end]
    if end < 0 and len(line) > longest + 1:
        raise FramingError("a line of the framing is too long")
    bare = line[:-1] if end < 0 and line.endswith(b"\r") else line
    if _CR in bare or _LF in bare:
        raise FramingError("a line of the framing does not end with CRLF")
    return line, (-1 if end < 0 else end + 2)
