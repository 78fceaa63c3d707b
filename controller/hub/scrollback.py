"""The output of a shell, as a ring that begins only where a terminal can begin to read.

After a cut at any byte, the rest could begin within a character or an escape sequence, and a
terminal would print its tail as text. So the ring is cut between tokens. The grammar is ECMA-48
with xterm's strings. A shell may write anything, so string tokens longer than 8 KiB are split.

The ring consists of segments. Each has a mark at which a terminal can begin, so that cutting the
ring and attaching a client need not scan it.

Each scrollback has a limit, and all scrollbacks of a hub have a common one. At the common limit,
scrollbacks without clients are cut first, those left longest ago before others; then the largest.
Each keeps at least a segment.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

LIMIT_BYTES: Final = 8 << 20
REPLAY_BYTES: Final = 256 * 1024
"""The output that is replayed for a client that sends no position."""
SEGMENT_BYTES: Final = 64 * 1024

_TOKENS: Final = rb"""
      \x1b\[ [\x30-\x3f]* [\x20-\x2f]* [\x40-\x7e]              # CSI
    | \x1b[\]PX^_] [^\x07\x1b]{0,8192}+ (?: \x07 | \x1b\\ | (?=\x1b) )  # OSC, DCS, SOS, PM, APC
    | \x1b (?![PX]) [\x20-\x2f]* [\x30-\x5a\x5c\x60-\x7e]       # two-character ones, no string's
    | \x1b (?: \[ [\x20-\x3f]* )? (?=\x1b)                      # broken off by the next one
    | [^\x1b]+                                                  # text
    """
_TOKEN = re.compile(_TOKENS, re.VERBOSE)
_RUN = re.compile(rb"(?:" + _TOKENS + rb")*+", re.VERBOSE)

# Requests that a terminal answers by itself: a replay must not cause the responses again.
_QUERIES = re.compile(
    rb"""
      \x1b\[ [>=?]? [0-9;]* c                  # DA: what are you
    | \x1b\[ \?? [56] n                        # DSR: how are you, where is the cursor
    | \x1b\[ > [0-9;]* q                       # XTVERSION
    | \x1b\[ \?? [0-9;]* \$ p                  # DECRQM: which modes
    | \x1b\[ \? u                              # the keyboard protocol in use
    | \x1b\[ 1 [1345689] (?:;[0-9]+)* t        # the window's size and place
    | \x1b\] [0-9;]* ;\? (?: \x07 | \x1b\\ )   # OSC: which colour
    | \x1bP [$+] q [^\x07\x1b]* \x1b\\         # DECRQSS, XTGETTCAP
    | \x05                                     # ENQ
    """,
    re.VERBOSE,
)


class Scrollback:
    """The last bytes of a stream, addressed by their position in the whole stream.

    Positions only grow. A terminal can begin to read at :attr:`start`; the next byte is written at
    :attr:`end`.
    """

    __slots__ = ("_base", "_limit", "_marks", "_segment", "_segments", "end")

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._segment = max(1, min(SEGMENT_BYTES, limit // 4))
        # All segments but the last are full. A mark is where a terminal can begin within its
        # segment, or right after it if one sequence fills the segment.
        self._segments: deque[bytearray] = deque([bytearray()])
        self._marks: deque[int] = deque([0])
        self._base = 0
        """The position of the first segment's first byte."""
        self.end = 0

    @property
    def start(self) -> int:
        """The position of the first kept byte."""
        return self._marks[0]

    @property
    def size(self) -> int:
        """The number of kept bytes."""
        return self.end - self.start

    def append(self, data: bytes) -> None:
        """Append *data*, and drop the first segments beyond the limit."""
        at = 0
        while at < len(data):
            if len(self._segments[-1]) == self._segment:
                self._begin_segment()
            piece = data[at : at + self._segment - len(self._segments[-1])]
            self._segments[-1] += piece
            at += len(piece)
            self.end += len(piece)
            while len(self._marks) > 1 and self.end - self._marks[1] >= self._limit:
                self.shrink()

    def _begin_segment(self) -> None:
        """Begin a segment, and set the mark of the last one, which is complete now."""
        if len(self._segments) > 1:
            begin = self._base + (len(self._segments) - 1) * self._segment
            mark = self._marks[-1]
            tail = self.read(mark, self.end - mark)
            self._marks.append(mark + safe_cut(tail, max(0, begin - mark)))
        self._segments.append(bytearray())

    def shrink(self) -> int:
        """Drop the first segment; return the number of dropped bytes, 0 if it is the only one."""
        if len(self._marks) < 2:
            return 0
        before = self._marks.popleft()
        self._segments.popleft()
        self._base += self._segment
        return self.start - before

    def read(self, position: int, most: int) -> bytes:
        """Return up to *most* bytes from *position*, which must not precede the start."""
        if not self.start <= position <= self.end:
            raise ValueError(f"{position} is not in {self.start}..{self.end}")
        pieces, offset, left = [], position - self._base, min(most, self.end - position)
        while left > 0:
            number, begin = divmod(offset, self._segment)
            pieces.append(self._segments[number][begin : begin + left])
            offset += len(pieces[-1])
            left -= len(pieces[-1])
        return b"".join(pieces)

    def tail(self, most: int) -> int:
        """Return where a terminal can begin to read the last *most* bytes, or a segment less."""
        return next((mark for mark in self._marks if self.end - mark <= most), self._marks[-1])

    def replay(self) -> bytes:
        """Return the last 256 KiB without requests that a terminal would answer."""
        return _QUERIES.sub(b"", self.read(self.tail(REPLAY_BYTES), REPLAY_BYTES))


def safe_cut(data: bytes | bytearray, least: int) -> int:
    """Return the first position at or after *least* at which *data* can be cut.

    *data* must begin at such a position. A token without an end, or of an unreasonable length, is
    cut through.
    """
    position = 0
    while position < least:
        if run := _RUN.match(data, position, least):
            position = run.end()
        if position < least:
            match = _TOKEN.match(data, position)
            position = match.end() if match is not None else position + 1
    return _character_at(data, position)


def _character_at(data: bytes | bytearray, position: int) -> int:
    """Return the first position from *position* on that does not continue a UTF-8 character."""
    for ahead in range(4):
        if position + ahead >= len(data) or data[position + ahead] & 0xC0 != 0x80:
            return position + ahead
    return position


TOTAL_BYTES: Final = 512 << 20


class Scrollbacks:
    """Creates scrollbacks, appends to them, and keeps their total size within *total_bytes*.

    Args:
        shell_bytes: The most bytes of one shell.
        total_bytes: The most bytes of all shells.
    """

    def __init__(self, shell_bytes: int = LIMIT_BYTES, total_bytes: int = TOTAL_BYTES) -> None:
        self._shell_bytes = shell_bytes
        self._total_bytes = total_bytes
        # In the order of detaching, which dicts keep.
        self._detached: dict[Scrollback, None] = {}
        self._attached: dict[Scrollback, None] = {}
        self.bytes = 0
        """The total size."""

    def make(self) -> Scrollback:
        """Return an empty scrollback without clients."""
        made = Scrollback(self._shell_bytes)
        self._detached[made] = None
        return made

    def attach(self, scrollback: Scrollback) -> None:
        """Note that a client reads *scrollback*."""
        if scrollback in self._detached:
            self._attached[scrollback] = self._detached.pop(scrollback)

    def detach(self, scrollback: Scrollback) -> None:
        """Note that no client reads *scrollback* any more."""
        if scrollback in self._attached:
            self._detached[scrollback] = self._attached.pop(scrollback)

    def forget(self, scrollback: Scrollback) -> None:
        """Stop counting *scrollback*: its shell has ended, and no client reads it."""
        for kept in (self._detached, self._attached):
            if scrollback in kept:
                del kept[scrollback]
                self.bytes -= scrollback.size

    def append(self, scrollback: Scrollback, data: bytes) -> None:
        """Append *data* to *scrollback*, and drop the excess somewhere."""
        before = scrollback.size
        scrollback.append(data)
        if scrollback in self._attached or scrollback in self._detached:
            self.bytes += scrollback.size - before
        while self.bytes > self._total_bytes:
            freed = self._shrink()
            if not freed:
                return
            self.bytes -= freed

    def _shrink(self) -> int:
        for scrollback in self._detached:
            if freed := scrollback.shrink():
                return freed
        if not self._attached:
            return 0
        return max(self._attached, key=lambda scrollback: scrollback.size).shrink()
