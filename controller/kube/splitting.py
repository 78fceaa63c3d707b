"""Cuts a list into its objects while it is still being received. No I/O.

A server may ignore ``limit`` and send 50,000 pods at once: half a gigabyte, of which only what has
not been cut off yet is in memory.
"""

from __future__ import annotations

import re
from typing import Final

from controller.kube.errors import Unavailable

LONGEST_OBJECT: Final = 16 << 20
"""etcd takes 1.5 MiB of one by default."""

# What is between two brackets that count: strings, what is in no string, and empty objects.
_BETWEEN: Final = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+"|\{\})*+', re.DOTALL)
_ITEMS: Final = re.compile(rb'[{,\s]"items"\s*:\s*\Z')
_SEPARATORS: Final = re.compile(rb"[,\s]*\Z")
_OPENING: Final = b"{["
_LIST: Final = ord("[")
_ITEMS_DEPTH: Final = 2


class ListSplitter:
    """Takes the bytes of a list as they come, and gives its objects as soon as they are whole.

    Once everything was fed, :meth:`end` returns the list without its objects.
    """

    def __init__(self) -> None:
        self._envelope = b""
        self._buffer = bytearray()
        self._at = 0
        """Up to where brackets were counted."""
        self._begin = 0
        """From where on nothing was given away yet."""
        self._depth = 0
        self._in_items = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the objects that *data* completes.

        Raises:
            Unavailable: If this is no list of objects.
        """
        self._buffer += data
        found: list[bytes] = []
        while (bracket := self._next_bracket()) is not None:
            self._at += 1
            if bracket in _OPENING:
                self._open(bracket)
            elif (one := self._close()) is not None:
                found.append(one)
        del self._buffer[: self._begin]
        self._at, self._begin = self._at - self._begin, 0
        if len(self._buffer) > LONGEST_OBJECT:
            raise Unavailable("the API server sent an object without end")
        return found

    def end(self) -> bytes:
        """Return the list without its objects; one that breaks off is no JSON."""
        return self._envelope + bytes(self._buffer)

    def _next_bracket(self) -> int | None:
        between = _BETWEEN.match(self._buffer, self._at)
        self._at = between.end() if between is not None else self._at
        if self._at == len(self._buffer) or self._buffer[self._at] == ord('"'):
            return None  # a string that has not come to its end
        return self._buffer[self._at]

    def _open(self, bracket: int) -> None:
        self._depth += 1
        if self._in_items:
            if self._depth == _ITEMS_DEPTH + 1:
                self._pass_separators()
        elif (self._depth, bracket) == (_ITEMS_DEPTH, _LIST) and self._is_after_items():
            self._in_items = True
            self._envelope += bytes(self._buffer[: self._at])
            self._begin = self._at

    def _close(self) -> bytes | None:
        self._depth -= 1
        if not self._in_items or self._depth > _ITEMS_DEPTH:
            return None
        if self._depth == _ITEMS_DEPTH:
            one = bytes(self._buffer[self._begin : self._at])
            self._begin = self._at
            return one
        self._pass_separators()
        self._in_items = False
        return None

    def _is_after_items(self) -> bool:
        return _ITEMS.search(self._buffer, 0, self._at - 1) is not None

    def _pass_separators(self) -> None:
        before = self._at - 1
        if not _SEPARATORS.match(self._buffer, self._begin, before):
            raise Unavailable("the API server sent what is no list of objects")
        self._begin = before
