"""Patches of decoded JSON: merge patch (RFC 7386), JSON patch (RFC 6902), and `strategic`."""

import copy
from typing import Any, Final

from deploy.local.cluster.apiserver.errors import ApiError, bad_request
from deploy.local.cluster.apiserver.strategic import STRATEGIC, merged_strategically

MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json-patch+json"
APPLY: Final = "application/apply-patch+yaml"


class _Missing(LookupError):
    """A path of a JSON patch does not exist."""


def patched(content_type: str, value: Any, patch: Any, *, named_lists: bool = False) -> Any:
    """Return *value* as changed by *patch*; *value* itself is not changed.

    Args:
        content_type: The kind of patch.
        value: The object.
        patch: The decoded patch.
        named_lists: Whether the kind's lists are known, so that a strategic patch is accepted.

    Raises:
        ApiError: 415 for another content type, 400 for an invalid patch, 422 for a JSON patch that
            does not apply.
    """
    if content_type == MERGE:
        if not isinstance(patch, dict):
            raise bad_request("a merge patch must be an object")
        return _merged(value, patch)
    if content_type == JSON:
        if not isinstance(patch, list):
            raise bad_request(
                "error decoding patch: json: cannot unmarshal object into Go value of type "
                "[]handlers.jsonPatchOp"
            )
        return _applied(copy.deepcopy(value), patch)
    if content_type == STRATEGIC and named_lists:
        return merged_strategically(value, patch)
    if content_type not in (STRATEGIC, APPLY):
        raise ApiError(415, "415: Unsupported Media Type", details={})
    accepted = ", ".join((JSON, MERGE, *((STRATEGIC,) if named_lists else ())))
    raise ApiError(
        415,
        f"the body of the request was in an unknown format - accepted media types include: "
        f"{accepted}",
    )


def _merged(value: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for name, change in patch.items():
        if change is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), change)
    return merged


def _applied(value: Any, patch: list[Any]) -> Any:
    for operation in patch:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise bad_request("an operation of a JSON patch needs op and path")
        try:
            value = _step(value, operation)
        except _Missing as error:
            raise ApiError(
                422,
                "the server rejected our request due to an error in our request",
                details={},
            ) from error
    return value


def _step(value: Any, operation: dict[str, Any]) -> Any:
    path = _parts(operation["path"])
    match operation.get("op"):
        case "add":
            return _set(value, path, operation.get("value"), insert=True)
        case "replace":
            # A missing field is set. The library of real servers does so, unlike the RFC.
            _at(value, path[:-1])
            return _set(value, path, operation.get("value"), insert=False)
        case "remove":
            return _without(value, path)
        case "move":
            source = _parts(str(operation.get("from")))
            moved = _at(value, source)
            return _set(_without(value, source), path, moved, insert=True)
        case "copy":
            source = _parts(str(operation.get("from")))
            return _set(value, path, copy.deepcopy(_at(value, source)), insert=True)
        case "test":
            if _at(value, path) != operation.get("value"):
                raise _Missing(f"testing value {operation['path']} failed")
            return value
        case other:
            raise _Missing(f"unexpected kind of operation: {other}")


def _parts(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise bad_request(f"a path of a JSON patch begins with a slash: {path}")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _at(value: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list):
            value = value[_index(part, len(value) - 1)]
        else:
            raise _Missing(f"/{'/'.join(path)} does not exist")
    return value


def _index(part: str, last: int) -> int:
    if not (part.isascii() and part.isdigit()) or int(part) > last:
        raise _Missing(f"index {part} out of bounds")
    return int(part)


def _set(value: Any, path: list[str], new: Any, *, insert: bool) -> Any:
    if not path:
        return new
    parent, last = _at(value, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = new
    elif isinstance(parent, list):
        position = len(parent) if last == "-" else _index(last, len(parent))
        parent[position : position + (0 if insert else 1)] = [new]
    else:
        raise _Missing(f"/{'/'.join(path)} does not exist")
    return value


def _without(value: Any, path: list[str]) -> Any:
    _at(value, path)
    if not path:
        return None
    parent, last = _at(value, path[:-1]), path[-1]
    del parent[last if isinstance(parent, dict) else int(last)]
    return value
