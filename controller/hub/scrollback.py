"""What a shell has written, as a ring that begins only where a terminal may begin to read.

Cut at any byte, the rest could begin within a character or an escape sequence, and a terminal
would print its tail as text. So the ring is cut between tokens. The grammar is that of ECMA-48
with xterm's strings; a shell may write anything, and no string token is longer than 8 KiB.
"""

from __future__ import annotations

import re
from typing import Final

LIMIT_BYTES: Final = 256 * 1024
# Cutting costs a look at what is cut, so it is done in strides.
_STRIDE: Final = 64 * 1024

_TOKEN = re.compile(
    rb"""
      \x1b\[ [\x30-\x3f]* [\x20-\x2f]* [\x40-\x7e]              # CSI
    | \x1b[\]PX^_] [^\x07\x1b]{0,8192}+ (?: \x07 | \x1b\\ | (?=\x1b) )  # OSC, DCS, SOS, PM, APC
    | \x1b [\x20-\x2f]* [\x30-\x5a\x5c\x60-\x7e]                # the two-character ones
    | [^\x1b]+                                                  # text
    """,
    re.VERBOSE,
)

# What a terminal answers by itself: a replay must not make it type the answers a second time.
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

    Positions only grow. :attr:`start` is where a terminal may begin to read, :attr:`end` is where
    the next byte will be.
    """

    __slots__ = ("_data", "_limit", "start")

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._data = bytearray()
        self._limit = limit
        self.start = 0

    @property
    def end(self) -> int:
        """The position after the last byte."""
        return self.start + len(self._data)

    def append(self, data: bytes) -> None:
        """Add *data*; what is then beyond the limit and a stride is cut off at the front."""
        self._data += data
        if len(self._data) > self._limit + min(_STRIDE, self._limit):
            cut = safe_cut(self._data, len(self._data) - self._limit)
            del self._data[:cut]
            self.start += cut

    def read(self, position: int, most: int) -> bytes:
        """Return up to *most* bytes from *position*, which must not be before the start."""
        if not self.start <= position <= self.end:
            raise ValueError(f"{position} is not in {self.start}..{self.end}")
        offset = position - self.start
        return bytes(self._data[offset : offset + most])

    def replay(self) -> bytes:
        """Return everything that is kept, without what a terminal would answer."""
        return _QUERIES.sub(b"", bytes(self._data))


def safe_cut(data: bytes | bytearray, least: int) -> int:
    """Return the first place at or after *least* at which *data* may be cut.

    *data* must begin at such a place itself. A token that does not end is cut through, as is one
    that is longer than any that makes sense.
    """
    position = 0
    while position < least:
        match = _TOKEN.match(data, position)
        if match is None:
            position += 1
        elif data[position] != 0x1B and match.end() > least:
            return _character_at(data, least)
        else:
            position = match.end()
    return position


def _character_at(data: bytes | bytearray, position: int) -> int:
    """Return the first place from *position* on that does not continue a UTF-8 character."""
    for ahead in range(4):
        if position + ahead >= len(data) or data[position + ahead] & 0xC0 != 0x80:
            return position + ahead
    return position
