"""What the API server's JSON says, in the one form that the rest of the controller reads.

Go has one zero value for a list or map that is empty and for one that is not there, and encodes it
as ``null`` where the field is not ``omitempty``: an empty PartialObjectMetadataList has ``"items":
null``. Kubernetes' own clients take null for absent (Kubernetes API conventions, "Optional vs.
Required"), and so does this border: no member of what it returns is None.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple, TypeAlias

from controller.kube.errors import Unavailable

Object: TypeAlias = dict[str, Any]
Objects: TypeAlias = list[Object]

_NULL: Final = b"null"


class Page(NamedTuple):
    """A part of a list, the version of the whole, and the token of what follows, or empty."""

    objects: Objects
    version: str
    following: str


def decode_object(text: bytes) -> Object:
    """Return the object that *text* is, without members that are null.

    Raises:
        Unavailable: If it is no JSON object, or breaks off.
    """
    try:
        # The hook costs as much as the parser, and most of what is sent has no null.
        found = json.loads(text, object_hook=_without_nulls if _NULL in text else None)
    except (ValueError, RecursionError) as error:
        raise Unavailable("the API server sent what is no JSON") from error
    if not isinstance(found, dict):
        raise Unavailable("the API server sent JSON that is no object")
    return found


def decode_page(answer: Object) -> Page:
    """Return what *answer* (a list, or a part of one) holds; a list without items is empty.

    Raises:
        Unavailable: If it is no list of objects.
    """
    objects, metadata = answer.get("items", []), answer.get("metadata", {})
    if not isinstance(objects, list) or not isinstance(metadata, dict):
        raise Unavailable("the API server sent what is no list")
    for one in objects:
        check_object(one)
    return Page(objects, _text(metadata, "resourceVersion"), _text(metadata, "continue"))


def check_object(given: object) -> None:
    """Do nothing if *given* is an object with metadata.

    Raises:
        Unavailable: If it is not: whoever answered is no API server.
    """
    if not isinstance(given, dict) or not isinstance(given.get("metadata"), dict):
        raise Unavailable("the API server sent an object without metadata")


def _text(metadata: Object, name: str) -> str:
    found = metadata.get(name, "")
    return found if isinstance(found, str) else ""


def _without_nulls(found: Object) -> Object:
    if None in found.values():
        return {name: value for name, value in found.items() if value is not None}
    return found
