"""Decoding of the API server's JSON into the one form that the rest of the controller reads.

Go has one zero value for an empty and for an absent list or map, and encodes it as ``null`` if the
field is not ``omitempty``: an empty PartialObjectMetadataList has ``"items": null``. Kubernetes'
own clients treat null as absent (Kubernetes API conventions, "Optional vs. Required"). So does this
package: no member of what it returns is None.

A pod has some 12 KB, of which the controller reads a tenth. A :class:`FieldTransform` decodes only
the fields that its shape declares; the parser skips the others.

A list is read page by page, and its decoding yields to the event loop. Only one page and the
reduced objects are in memory. A page has as many objects as make a few megabytes. If the server
ignores ``limit`` and sends 50,000 pods at once (half a gigabyte), objects are split off while it
still sends (Kubernetes API concepts, "Retrieving large results sets in chunks").
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
from controller.loop_turn import LoopTurn
from controller.volcano.fields import ONLY_METADATA, Shape

Object: TypeAlias = dict[str, Any]
Objects: TypeAlias = list[Object]

_NULL: Final = b"null"
# Invalid UTF-8, or nested deeper than the parser supports.
_MALFORMED: Final = (msgspec.DecodeError, ValueError, RecursionError)


class FieldTransform:
    """Decodes objects reduced to the fields of *shape* (as client-go's ``TransformFunc`` does).

    Args:
        shape: The fields to keep; None keeps all.
    """

    def __init__(self, shape: Shape | None = None) -> None:
        self._shape = shape
        self._decoder = msgspec.json.Decoder[Any](dict if shape is None else _type_of(shape))

    def decode(self, text: bytes | msgspec.Raw) -> Object:
        """Return the object in *text*, without members that are null.

        Raises:
            Unavailable: If it is not an object with metadata: the sender is not an API server.
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
            raise Unavailable("the API server sent a malformed object") from error


def _type_of(shape: Shape) -> Any:
    """Return a type with which msgspec keeps the fields of *shape* and skips all others."""
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
    """A page of a list, the version of the list, and the continue token; empty on the last page."""

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
    """A line of a watch: the type of the event, and its object."""

    type: Any = None
    object: msgspec.Raw = msgspec.Raw(b"{}")


_decode_list: Final = msgspec.json.Decoder(_List).decode
_decode_line: Final = msgspec.json.Decoder(WatchLine).decode


def decode_object(text: bytes) -> Object:
    """Return the object in *text*, without members that are null.

    Raises:
        Unavailable: If it is not a JSON object, or incomplete.
    """
    try:
        # The hook costs as much as the parser, and most responses contain no null.
        hook = _without_null_members if _NULL in text else None
        found = json.loads(text, object_hook=hook)
    except _MALFORMED as error:
        raise Unavailable("the API server sent a body that is not JSON") from error
    if not isinstance(found, dict):
        raise Unavailable("the API server sent JSON that is not an object")
    return found


def decode_page(text: bytes) -> Page:
    """Return the page in *text* (a list or a part of one); a list without items is empty.

    The objects are located, but not decoded: that takes 4 ms for 6 MB.

    Raises:
        Unavailable: If it is not a list.
    """
    try:
        found = _decode_list(text)
    except _MALFORMED as error:
        raise Unavailable("the API server sent a body that is not a list") from error
    metadata = found.metadata or _ListMeta()
    return Page(found.items or [], _text(metadata.version), _text(metadata.following))


def decode_line(text: bytes) -> WatchLine:
    """Return the event in a line of a watch; its object is located, but not decoded.

    Raises:
        Unavailable: If it is not an event.
    """
    try:
        return _decode_line(text)
    except _MALFORMED as error:
        raise Unavailable("the watch sent a line that is not an event") from error


def _text(given: object) -> str:
    return given if isinstance(given, str) else ""


def _without_null_members(found: Object) -> Object:
    if None in found.values():
        return {name: value for name, value in found.items() if value is not None}
    return found


def _without_nulls(found: Any) -> Any:
    """Return *found*, which is small, without nulls at any depth."""
    if isinstance(found, dict):
        return {name: _without_nulls(one) for name, one in found.items() if one is not None}
    if isinstance(found, list):
        return [_without_nulls(one) for one in found]
    return found


LONGEST_OBJECT: Final = 16 << 20
"""etcd accepts objects of at most 1.5 MiB by default."""

# The text between two relevant brackets: strings, other text, and empty objects.
_BETWEEN: Final = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+"|\{\})*+', re.DOTALL)
_ITEMS: Final = re.compile(rb'[{,\s]"items"\s*:\s*\Z')
_SEPARATORS: Final = re.compile(rb"[,\s]*\Z")
_OPENING: Final = b"{["
_LIST: Final = ord("[")
_ITEMS_DEPTH: Final = 2


class ListSplitter:
    """Splits the bytes of a list into its objects as soon as each is complete.

    At the end of the data, :meth:`end` returns the list without its objects.
    """

    def __init__(self) -> None:
        self._envelope = b""
        self._buffer = bytearray()
        self._at = 0
        """The position up to which brackets were counted."""
        self._begin = 0
        """The position from which nothing was returned yet."""
        self._depth = 0
        self._in_items = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the objects that *data* completes.

        Raises:
            Unavailable: If this is not a list of objects.
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
            raise Unavailable("the API server sent an object that is too long")
        return found

    def end(self) -> bytes:
        """Return the list without its objects; it is invalid JSON if the list is incomplete."""
        return self._envelope + bytes(self._buffer)

    def _next_bracket(self) -> int | None:
        between = _BETWEEN.match(self._buffer, self._at)
        self._at = between.end() if between is not None else self._at
        if self._at == len(self._buffer) or self._buffer[self._at] == ord('"'):
            return None  # within a string that is not complete
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
            raise Unavailable("the API server sent a body that is not a list of objects")
        self._begin = before


FIRST_LIMIT: Final = 100
"""The size of the objects is not known yet: a VolcanoJob may have 100 KB."""
MOST_LIMIT: Final = 500
LEAST_LIMIT: Final = 10
PAGE_BYTES: Final = 4 << 20
"""The desired length of a page: locating its objects takes 3 ms."""
LONGEST_PAGE: Final = 8 << 20
"""A longer page is split while it arrives."""
SLICE_BYTES: Final = 32 << 10
AT_ONCE: Final = 50
"""Objects that are decoded between two looks at the clock: about a millisecond."""

OpenPage: TypeAlias = Callable[
    [Mapping[str, str]], AbstractAsyncContextManager[aiohttp.StreamReader]
]


class Part(NamedTuple):
    """Some objects of a list, and the resourceVersion at which the list was complete.

    The last part has the version; earlier parts have it if it is known by then.
    """

    objects: Objects
    is_last: bool = False
    version: str = ""


class _Piece(NamedTuple):
    """Located objects of a page; the page's last piece has the version and the continue token."""

    found: Sequence[msgspec.Raw | bytes]
    version: str = ""
    following: str = ""


async def read_list(
    open_page: OpenPage, query: Mapping[str, str], transform: FieldTransform, *, paged: bool = True
) -> AsyncGenerator[Part, None]:
    """Yield all objects of the list *query* in parts.

    Args:
        open_page: Sends a request.
        query: The query parameters.
        transform: Reduces each object.
        paged: Whether to request pages; otherwise the server returns all objects at once.

    Raises:
        Expired: If the list expired between two pages.
        KubeError: If it cannot be read.
    """
    version, turn = "", LoopTurn()
    parameters = {**query, "limit": str(FIRST_LIMIT)} if paged else dict(query)
    held: Objects = []  # until it is known whether it is the last part
    while True:
        meter, following = _Meter(), ""
        async with open_page(parameters) as content, aclosing(_read_page(content, meter)) as pieces:
            async for piece in pieces:
                await turn.rest()
                objects = iter(piece.found)
                while some := [transform.decode(one) for one in islice(objects, AT_ONCE)]:
                    if held:
                        yield Part(held, version=version or piece.version)
                        await turn.rest()
                    held = some
                    meter.objects += len(some)
                # The first page's version: later changes must come from the watch.
                version = version or piece.version
                following = piece.following
        if not following:
            yield Part(held, is_last=True, version=version)
            return
        if following == parameters.get("continue"):
            raise Unavailable("the API server repeats the page that it has just sent")
        parameters["continue"] = following
        if paged:
            parameters["limit"] = str(meter.next_limit())


@dataclass(slots=True)
class _Meter:
    """Measures a page."""

    bytes: int = 0
    objects: int = 0

    def next_limit(self) -> int:
        """Return how many objects to request for the next page."""
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
