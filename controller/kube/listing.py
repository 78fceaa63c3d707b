"""A list as it comes: page by page, each object trimmed as it is decoded, never all in one turn.

What is in memory is one page and what is kept of its objects. A page is as many objects as make
some megabytes; where the server ignores ``limit`` and sends 50,000 pods at once, half a gigabyte,
the objects are cut off while it still sends.
(Kubernetes API concepts, "Retrieving large results sets in chunks".)
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

import aiohttp
import msgspec

from controller.kube.decoding import FieldTransform, Objects, decode_page
from controller.kube.errors import Unavailable
from controller.kube.loop_turn import LoopTurn

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


FIRST_LIMIT: Final = 100
"""Nobody knows how large the objects are: VolcanoJobs may have 100 KB each."""
MOST_LIMIT: Final = 500
LEAST_LIMIT: Final = 10
PAGE_BYTES: Final = 4 << 20
"""How long pages should be: to find the objects of one takes 3 ms."""
LONGEST_PAGE: Final = 8 << 20
"""A longer one is cut while it comes."""
SLICE_BYTES: Final = 32 << 10
AT_ONCE: Final = 50
"""Objects that are decoded without a look at the clock: a millisecond."""

OpenPage: TypeAlias = Callable[
    [Mapping[str, str]], AbstractAsyncContextManager[aiohttp.StreamReader]
]


class Part(NamedTuple):
    """Some objects of a list; the last part says at which version the list is the whole truth."""

    objects: Objects
    is_last: bool = False
    version: str = ""


class _Piece(NamedTuple):
    """Objects of a page, found and not decoded; the last piece says what the page does."""

    found: Sequence[msgspec.Raw | bytes]
    version: str = ""
    following: str = ""


async def read_list(
    open_page: OpenPage, query: Mapping[str, str], transform: FieldTransform, *, paged: bool = True
) -> AsyncGenerator[Part, None]:
    """Yield all objects that *query* asks for, in parts.

    Args:
        open_page: Asks the server.
        query: What for.
        transform: What is kept of each object.
        paged: Whether the server is asked for pages; otherwise it gives all of them at once.

    Raises:
        Expired: If the list became too old between two pages.
        KubeError: If it cannot be read.
    """
    version, turn = "", LoopTurn()
    asked = {**query, "limit": str(FIRST_LIMIT)} if paged else dict(query)
    held: Objects = []  # until it is known whether it is the last part
    while True:
        meter, following = _Meter(), ""
        async with open_page(asked) as content, aclosing(_read_page(content, meter)) as pieces:
            async for piece in pieces:
                await turn.rest()
                objects = iter(piece.found)
                while some := [transform.decode(one) for one in islice(objects, AT_ONCE)]:
                    if held:
                        yield Part(held)
                        await turn.rest()
                    held = some
                    meter.objects += len(some)
                # The first page's: nothing that happened since may be taken for seen.
                version = version or piece.version
                following = piece.following
        if not following:
            yield Part(held, is_last=True, version=version)
            return
        if following == asked.get("continue"):
            raise Unavailable("the API server goes on with the page that it has just sent")
        asked["continue"] = following
        if paged:
            asked["limit"] = str(meter.next_limit())


@dataclass(slots=True)
class _Meter:
    """How long a page was."""

    bytes: int = 0
    objects: int = 0

    def next_limit(self) -> int:
        """Return how many objects the next page should have."""
        each = max(1, self.bytes // max(1, self.objects))
        return max(LEAST_LIMIT, min(MOST_LIMIT, PAGE_BYTES // each))


async def _read_page(content: aiohttp.StreamReader, meter: _Meter) -> AsyncGenerator[_Piece, None]:
    pending = bytearray()
    async for data in content.iter_any():
        meter.bytes += len(data)
        pending += data
        if len(pending) > LONGEST_PAGE:
            break
    else:
        page = decode_page(bytes(pending))
        yield _Piece(page.objects, page.version, page.following)
        return
    splitter = ListSplitter()
    for piece in _split(splitter, bytes(pending)):
        yield piece
    pending.clear()
    async for data in content.iter_any():
        meter.bytes += len(data)
        for piece in _split(splitter, data):
            yield piece
    page = decode_page(splitter.end())
    yield _Piece(page.objects, page.version, page.following)


def _split(splitter: ListSplitter, data: bytes) -> Iterator[_Piece]:
    for start in range(0, len(data), SLICE_BYTES):
        yield _Piece(splitter.feed(data[start : start + SLICE_BYTES]))
