"""What the API server's JSON says, in the one form that the rest of the controller reads.

Go has one zero value for a list or map that is empty and for one that is not there, and encodes it
as ``null`` where the field is not ``omitempty``: an empty PartialObjectMetadataList has ``"items":
null``. Kubernetes' own clients take null for absent (Kubernetes API conventions, "Optional vs.
Required"), and so does this border: no member of what it returns is None.

A pod is some 12 KB, of which the controller reads a tenth. A :class:`FieldTransform` decodes only
the fields that its shape declares: the others are skipped as they are parsed, and never exist.

A list is read page by page, and never decoded in one turn of the event loop. What is in memory is
one page and what is kept of its objects. A page is as many objects as make some megabytes; where
the server ignores ``limit`` and sends 50,000 pods at once, half a gigabyte, the objects are cut off
while it still sends (Kubernetes API concepts, "Retrieving large results sets in chunks").
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict

import aiohttp
import msgspec

from controller.kube.errors import Unavailable
from controller.kube.loop_turn import LoopTurn
from controller.volcano.fields import ONLY_METADATA, Shape

Object: TypeAlias = dict[str, Any]
Objects: TypeAlias = list[Object]

_NULL: Final = b"null"
# A byte of it is no UTF-8, or it is nested deeper than the parser goes.
_MALFORMED: Final = (msgspec.DecodeError, ValueError, RecursionError)


class FieldTransform:
    """Decodes objects, and of each of them what *shape* declares (client-go's ``TransformFunc``).

    Args:
        shape: The fields that are kept; without one everything is.
    """

    def __init__(self, shape: Shape | None = None) -> None:
        self._shape = shape
        self._decoder = msgspec.json.Decoder[Any](dict if shape is None else _type_of(shape))

    def decode(self, text: bytes | msgspec.Raw) -> Object:
        """Return the object that *text* is, without members that are null.

        Raises:
            Unavailable: If it is no object with metadata: whoever answered is no API server.
        """
        raw = bytes(text)
        found = decode_object(raw) if self._shape is None else self._trimmed(raw)
        if not isinstance(found.get("metadata"), dict):
            raise Unavailable("the API server sent an object without metadata")
        return found

    def _trimmed(self, text: bytes) -> Object:
        try:
            found: Object = self._decoder.decode(text)
            return _without_nulls(found) if _NULL in text else found
        except _MALFORMED as error:
            raise Unavailable("the API server sent an object that is malformed") from error


def _type_of(shape: Shape) -> Any:
    """Return the type by which msgspec keeps the fields of *shape*, and skips the others."""
    fields: dict[str, Any] = {}
    for name, within in shape.items():
        if within is None:
            fields[name] = Any
        elif isinstance(within, list):
            fields[name] = list[_type_of(within[0])] | None  # type: ignore[misc]  # made here
        else:
            fields[name] = _type_of(within) | None
    return TypedDict("Fields", fields, total=False)  # type: ignore[operator]


WHOLE: Final = FieldTransform()
METADATA: Final = FieldTransform(ONLY_METADATA)


class Page(NamedTuple):
    """A part of a list, the version of the whole, and the token of what follows, or empty."""

    objects: list[msgspec.Raw]
    version: str
    following: str


class _ListMeta(msgspec.Struct):
    version: Any = msgspec.field(name="resourceVersion", default=None)
    following: Any = msgspec.field(name="continue", default=None)


class _List(msgspec.Struct):
    metadata: _ListMeta | None = None
    items: list[msgspec.Raw] | None = None


class WatchLine(msgspec.Struct):
    """A line of a watch: what has happened, and to what."""

    type: Any = None
    object: msgspec.Raw = msgspec.Raw(b"{}")


_decode_list: Final = msgspec.json.Decoder(_List).decode
_decode_line: Final = msgspec.json.Decoder(WatchLine).decode


def decode_object(text: bytes) -> Object:
    """Return the object that *text* is, without members that are null.

    Raises:
        Unavailable: If it is no JSON object, or breaks off.
    """
    try:
        # The hook costs as much as the parser, and most of what is sent has no null.
        hook = _without_null_members if _NULL in text else None
        found = json.loads(text, object_hook=hook)
    except _MALFORMED as error:
        raise Unavailable("the API server sent what is no JSON") from error
    if not isinstance(found, dict):
        raise Unavailable("the API server sent JSON that is no object")
    return found


def decode_page(text: bytes) -> Page:
    """Return what *text* (a list, or a part of one) holds; a list without items is empty.

    The objects are found, and not decoded: of 6 MB that takes 4 ms.

    Raises:
        Unavailable: If it is no list.
    """
    try:
        found = _decode_list(text)
    except _MALFORMED as error:
        raise Unavailable("the API server sent what is no list") from error
    metadata = found.metadata or _ListMeta()
    return Page(found.items or [], _text(metadata.version), _text(metadata.following))


def decode_line(text: bytes) -> WatchLine:
    """Return what a line of a watch says; its object is found, and not decoded.

    Raises:
        Unavailable: If it is no event.
    """
    try:
        return _decode_line(text)
    except _MALFORMED as error:
        raise Unavailable("the watch sent what is no event") from error


def _text(given: object) -> str:
    return given if isinstance(given, str) else ""


def _without_null_members(found: Object) -> Object:
    if None in found.values():
        return {name: value for name, value in found.items() if value is not None}
    return found


def _without_nulls(found: Any) -> Any:
    """Do the same with everything that is in *found*, which is small."""
    if isinstance(found, dict):
        return {name: _without_nulls(one) for name, one in found.items() if one is not None}
    if isinstance(found, list):
        return [_without_nulls(one) for one in found]
    return found


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
    """Some objects of a list, and at which version the list is the whole truth.

    The last part says the version; those before it do where it is known by then.
    """

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
                        yield Part(held, version=version or piece.version)
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
