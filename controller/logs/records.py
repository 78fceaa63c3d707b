"""A log's lines with their timestamps: cut, counted, found again. No I/O.

A record is a line as kubelets send it with ``timestamps=true``: the time (RFC 3339), a space, the
text, a line break. Of a line that is too long, or has no end, the record is a piece: a tab is in
place of the space, and the line break that ends the record is none of the log.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final

MOST_PIECE: Final = 64 << 10
"""Of a line that is longer comes a piece at a time."""

LEAST_PIECE: Final = MOST_PIECE - 3
"""A piece that is shorter is the end of a log whose last line has none."""

_CONTINUATION: Final = range(0x80, 0xC0)
_STAMP: Final = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)"
_AT: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)[ \t]")
_PREFIX: Final = re.compile(rb"^%b(?: |\t([^\n]*)\n)" % _STAMP, re.MULTILINE)
_NO_STAMP: Final = b"1970-01-01T00:00:00Z"
"""Of a piece of a line that has no time."""
_WORDS: Final = re.compile(
    _NO_STAMP + rb"\t((?:unable to retrieve container logs for|failed to (?:try resolving symlinks"
    rb"|open log file|tail \d+ lines of log file|seek \S+ in log file|read log file"
    rb"|(create fsnotify watcher|watch (?:file|directory)))).*)\n",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class LogMark:
    """A place in a log: behind the record number ``count`` of those with the time ``at``.

    ``at`` counts nanoseconds since 1970. Many lines may have the same time.
    """

    at: int
    count: int

    def text(self) -> str:
        """Return it as part of an event's id."""
        return f"{self.at:x}.{self.count:x}"


def read_mark(text: str) -> LogMark:
    """Return the mark that *text* is.

    Raises:
        ValueError: If it is none.
    """
    found = re.fullmatch(r"([0-9a-f]{1,16})\.([0-9a-f]{1,8})", text)
    if found is None:
        raise ValueError("not a place in a log")
    return LogMark(int(found[1], 16), int(found[2], 16))


@dataclass(frozen=True, slots=True)
class Record:
    """A line, or a piece of one."""

    at: int | None
    text: bytes
    ends: bool
    """Whether a line break follows."""


def time_of(record: bytes) -> int | None:
    """Return the time of a record; None where it has none."""
    found = _AT.match(record)
    if found is None:
        return None
    fraction = (found[2] or b"0").ljust(9, b"0")
    second = _second(found[1] + found[3])
    return None if second is None else second * 10**9 + int(fraction)


@lru_cache(maxsize=64)
def _second(text: bytes) -> int | None:
    try:
        moment = datetime.fromisoformat(text.decode())
    except ValueError:
        return None
    return timegm(moment.utctimetuple())


def text_of(block: bytes) -> bytes:
    """Return the log that the records of *block* are."""
    return _PREFIX.sub(rb"\1", block)


def records_of(block: bytes) -> Iterator[Record]:
    """Yield the records of *block*."""
    for line in block.split(b"\n")[:-1]:
        head = _AT.match(line)
        at = time_of(line) if head is not None else None
        if head is None or at is None:
            yield Record(None, line, ends=True)
        else:
            yield Record(at or None, line[head.end() :], ends=line[head.end() - 1] == 0x20)


class LogUnreadable(ValueError):
    """A kubelet has said, in place of a log or of its rest, that it cannot read it."""


def without_kubelets_words(rest: bytes) -> bytes:
    """Return the *rest* of a log, as :meth:`Cutter.finish` gives it, if a program wrote it.

    A kubelet that fails once it has answered 200 writes why behind the log: without a time, which
    every line of a program has, and without a line break. That it cannot follow a log (no inotify
    instance is left) takes nothing of what was written.

    Raises:
        LogUnreadable: If the log, or what would follow, cannot be read.
    """
    found = _WORDS.fullmatch(rest)
    if found is None:
        return rest
    if found[2] is None:
        raise LogUnreadable(found[1].decode(errors="replace"))
    return b""


class Cutter:
    """Cuts what comes into whole records: however it comes, they are the same."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> bytes:
        """Return the records that are whole by now; what is left waits for more."""
        whole, found, self._rest = (self._rest + piece).rpartition(b"\n")
        lines = whole.split(b"\n") if found else []
        if max(map(len, lines), default=0) <= MOST_PIECE:
            block = whole + found
        else:
            block = b"".join(b"%b%b\n" % _cut(line) for line in lines)
        if len(self._rest) > MOST_PIECE:
            pieces, self._rest = _cut(self._rest)
            block += pieces
        return block

    def finish(self) -> bytes:
        """Return what is left: a line without an end."""
        rest, self._rest = self._rest, b""
        head, text = _divided(rest)
        return b"%b\t%b\n" % (head or _NO_STAMP, text) if text else b""


def _cut(line: bytes) -> tuple[bytes, bytes]:
    """Return the pieces of a line that is longer than one, and the rest of it."""
    head, text = _divided(line)
    pieces = b""
    while len(text) > MOST_PIECE:
        end = MOST_PIECE
        while end > LEAST_PIECE and text[end] in _CONTINUATION:
            end -= 1  # not within a character (RFC 3629, section 3)
        pieces += b"%b\t%b\n" % (head or _NO_STAMP, text[:end])
        text = text[end:]
    return pieces, b"%b %b" % (head, text) if head else text


def _divided(line: bytes) -> tuple[bytes, bytes]:
    found = _AT.match(line)
    return (line[: found.end() - 1], line[found.end() :]) if found else (b"", line)


class Counter:
    """Knows the mark behind everything that it was shown."""

    def __init__(self, mark: LogMark | None = None) -> None:
        self.mark = mark

    def see(self, block: bytes) -> None:
        """Take note of the records of *block*."""
        end = len(block)
        while end > 0:
            begin = block.rfind(b"\n", 0, end - 1) + 1
            at = time_of(block[begin:end])
            if at:
                self._count(at, block, block[begin:end])
                return
            end = begin

    def _count(self, at: int, block: bytes, last: bytes) -> None:
        head, _ = _divided(last)
        count = sum(block.count(b"\n%b%b" % (head, mark)) for mark in (b" ", b"\t"))
        count += block.startswith((head + b" ", head + b"\t"))
        before = self.mark.count if self.mark is not None and self.mark.at == at else 0
        self.mark = LogMark(at, before + count)


class Resumer:
    """Leaves out of a log what comes before a mark."""

    def __init__(self, mark: LogMark | None) -> None:
        self._mark = mark
        self._seen = 0

    def pass_on(self, block: bytes) -> bytes:
        """Return what of *block* comes behind the mark.

        It is found by its time, and not by later ones: a node's clock may be set back.
        """
        mark, begin = self._mark, 0
        while mark is not None and begin < len(block):
            end = block.find(b"\n", begin) + 1 or len(block)
            at = time_of(block[begin:end])
            if at is not None and at > mark.at:
                self._mark = None  # what it was behind is not there any more
                break
            self._seen += at == mark.at
            begin = end
            if self._seen == mark.count:
                self._mark = mark = None
        return block[begin:]
