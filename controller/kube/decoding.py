"""What the API server's JSON says, in the one form that the rest of the controller reads.

Go has one zero value for a list or map that is empty and for one that is not there, and encodes it
as ``null`` where the field is not ``omitempty``: an empty PartialObjectMetadataList has ``"items":
null``. Kubernetes' own clients take null for absent (Kubernetes API conventions, "Optional vs.
Required"), and so does this border: no member of what it returns is None.

A pod is some 12 KB, of which the controller reads a tenth. A :class:`FieldTransform` decodes only
the fields that its shape declares: the others are skipped as they are parsed, and never exist.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from controller.kube.errors import Unavailable
from controller.volcano.fields import OnlyMetadata

Object: TypeAlias = dict[str, Any]
Objects: TypeAlias = list[Object]

_NULL: Final = b"null"
# A byte of it is no UTF-8, or it is nested deeper than the parser goes.
_MALFORMED: Final = (msgspec.DecodeError, ValueError, RecursionError)


class FieldTransform:
    """Decodes objects, and of each of them what *shape* declares (client-go's ``TransformFunc``).

    Args:
        shape: A TypedDict of optional fields, those within others declared in the same way; a
            field of type Any is kept whole. Without one everything is kept.
    """

    def __init__(self, shape: type[Any] | None = None) -> None:
        self._shape = shape
        self._decoder = msgspec.json.Decoder[Any](shape or dict)

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


WHOLE: Final = FieldTransform()
METADATA: Final = FieldTransform(OnlyMetadata)


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
