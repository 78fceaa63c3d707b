"""A log's lines with their timestamps: split, counted, located. No I/O.

A record is a line as kubelets send it with ``timestamps=true``: the time (RFC 3339), a space, the
text, a line break. A line that is too long, or has no end, is split into pieces. A piece has a tab
instead of the space, and the line break after it is not part of the log.
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
"""The longest piece of a longer line."""

LEAST_PIECE: Final = MOST_PIECE - 3
"""A shorter piece is the end of a log whose last line has no line break."""

_CONTINUATION: Final = range(0x80, 0xC0)
_STAMP: Final = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)"
_AT: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)[ \t]")
_PREFIX: Final = re.compile(rb"^%b(?: |\t([^\n]*)\n)" % _STAMP, re.MULTILINE)
_NO_STAMP: Final = b"1970-01-01T00:00:00Z"
"""The time of a piece whose line has none."""
_WORDS: Final = re.compile(
    rb"unable to retrieve container logs for"
    rb"|container \S+ in pod \S+ is terminated"
    rb"|failed to (?:try resolving symlinks"
    rb"|open log file|tail \d+ lines of log file|seek \S+ in log file|read log file"
    rb"|(create fsnotify watcher|watch (?:file|directory)))"
)


@dataclass(frozen=True, slots=True)
class LogMark:
    """A position in a log: after the ``count``-th record with the time ``at``.

    ``at`` is in nanoseconds since 1970. Many lines may have the same time.
    """

    at: int
    count: int

    def text(self) -> str:
        """Return the position as part of an event's id."""
        return f"{self.at:x}.{self.count:x}"


def read_mark(text: str) -> LogMark:
    """Return the position in *text*.

    Raises:
        ValueError: If it is malformed.
    """
    found = re.fullmatch(r"([0-9a-f]{1,16})\.([0-9a-f]{1,8})", text)
    if found is None:
        raise ValueError("not a position in a log")
    return LogMark(int(found[1], 16), int(found[2], 16))


@dataclass(frozen=True, slots=True)
class Record:
    """A line, or a piece of a line."""

    at: int | None
    text: bytes
    ends: bool
    """Whether a line break follows."""


def time_of(record: bytes) -> int | None:
    """Return the time of a record, if it has one."""
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
    """Return the log's text in the records of *block*."""
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
    """A kubelet has written, instead of a log or its rest, that it cannot read it."""


def without_kubelets_words(rest: bytes) -> bytes:
    """Return the *rest* of a log, as :meth:`Cutter.finish` returns it, if a program wrote it.

    A kubelet that fails after it has responded with 200 writes its error after the log: without a
    time, which every line of a program has, and without a line break. If it only cannot follow the
    log (no inotify instance is left), nothing that was written is lost.

    Raises:
        LogUnreadable: If the log or its rest cannot be read.
    """
    head = _NO_STAMP + b"\t"
    words = rest.removeprefix(head).removesuffix(b"\n")
    unreadable = says_unreadable(words) if rest.startswith(head) else None
    if unreadable:
        raise LogUnreadable(words.decode(errors="replace"))
    return rest if unreadable is None else b""


def says_unreadable(words: bytes) -> bool | None:
    """Return whether a kubelet says that it cannot read a log (True), or not follow it (False).

    None if *words* say anything else.
    """
    found = _WORDS.match(words)
    return None if found is None else found[1] is None


class Cutter:
    """Splits a stream into records. The result does not depend on how the stream is received."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> bytes:
        """Return the complete records; the rest is kept for the next call."""
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
        """Return the rest: a line without an end."""
        rest, self._rest = self._rest, b""
        head, text = _divided(rest)
        return b"%b\t%b\n" % (head or _NO_STAMP, text) if text else b""


def _cut(line: bytes) -> tuple[bytes, bytes]:
    """Return the pieces of a line that is too long, and its rest."""
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
    """Tracks the position after all records that it has seen."""

    def __init__(self, mark: LogMark | None = None) -> None:
        self.mark = mark

    def see(self, block: bytes) -> None:
        """Count the records of *block*."""
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
    """Drops the records of a log up to a position."""

    def __init__(self, mark: LogMark | None) -> None:
        self._mark = mark
        self._seen = 0

    def pass_on(self, block: bytes) -> bytes:
        """Return the records of *block* after the position.

        The position is found by its time rather than by later times: a node's clock may be set
        back.
        """
        mark, begin = self._mark, 0
        while mark is not None and begin < len(block):
            end = block.find(b"\n", begin) + 1 or len(block)
            at = time_of(block[begin:end])
            if at is not None and at > mark.at:
                self._mark = None  # the record at the position does not exist any more
                break
            self._seen += at == mark.at
            begin = end
            if self._seen == mark.count:
                self._mark = mark = None
        return block[begin:]
