"""Structural schemas: the fields that they drop, fill in and refuse.

They use the part of OpenAPI v3 that CustomResourceDefinitions may use: types, properties,
additionalProperties, items, required, enum, pattern, bounds, defaults, nullable, and the
``x-kubernetes-`` extensions for unknown fields and for integers that may be strings.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from deploy.local.cluster.apiserver.errors import Problem
from deploy.local.cluster.apiserver.kinds import Object

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_MAP_KEYS: Final = "x-kubernetes-list-map-keys"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_OF_EVERY_OBJECT: Final = ("apiVersion", "kind", "metadata")


def unknown_fields(schema: Object, value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of every field of *value* that *schema* does not know."""
    if isinstance(value, list):
        for position, item in enumerate(value):
            yield from unknown_fields(schema.get("items", {}), item, f"{path}[{position}]")
    elif isinstance(value, dict) and "properties" in schema:
        for name, item in value.items():
            inner = f"{path}.{name}" if path else name
            if name in schema["properties"]:
                yield from unknown_fields(schema["properties"][name], item, inner)
            elif not (schema.get(_PRESERVE) or (not path and name in _OF_EVERY_OBJECT)):
                yield inner
    elif isinstance(value, dict) and isinstance(schema.get("additionalProperties"), dict):
        for name, item in value.items():
            yield from unknown_fields(schema["additionalProperties"], item, f"{path}.{name}")


def pruned(schema: Object, value: Any, *, root: bool = True) -> Any:
    """Return *value* without the fields that *schema* does not know."""
    if isinstance(value, list):
        return [pruned(schema.get("items", {}), item, root=False) for item in value]
    if not isinstance(value, dict):
        return value
    properties, rest = schema.get("properties"), schema.get("additionalProperties")
    if isinstance(rest, dict):
        return {name: pruned(rest, item, root=False) for name, item in value.items()}
    if properties is None:
        return value
    kept = {}
    for name, item in value.items():
        if root and name in _OF_EVERY_OBJECT:
            kept[name] = item
        elif name in properties:
            kept[name] = pruned(properties[name], item, root=False)
        elif schema.get(_PRESERVE):
            kept[name] = item
    return kept


def without_nulls(value: Any) -> Any:
    """Return *value* without null fields, which are absent to a built-in kind."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def fill_defaults(schema: Object, value: Any) -> None:
    """Set, in place, the defaults of *schema* that *value* leaves out."""
    if isinstance(value, list):
        for item in value:
            fill_defaults(schema.get("items", {}), item)
    if not isinstance(value, dict):
        return
    for name, inner in schema.get("properties", {}).items():
        if "default" in inner and (name not in value or _unwanted_null(inner, value[name])):
            value[name] = inner["default"]
        if name in value:
            fill_defaults(inner, value[name])
    if isinstance(schema.get("additionalProperties"), dict):
        for item in value.values():
            fill_defaults(schema["additionalProperties"], item)


def violations(schema: Object, value: Any, path: str = "") -> Iterator[Problem]:
    """Yield every violation of *schema* in *value*."""
    if value is None and schema.get("nullable"):
        return
    wrong = _wrong_type(schema, value, path)
    if wrong:
        yield wrong
        return
    yield from _wrong_value(schema, value, path)
    if isinstance(value, list):
        yield from _wrong_items(schema, value, path)
    elif isinstance(value, dict):
        yield from _wrong_fields(schema, value, path)


def _wrong_items(schema: Object, value: list[Any], path: str) -> Iterator[Problem]:
    keys, seen = schema.get(_MAP_KEYS), []
    for position, item in enumerate(value):
        place = f"{path}[{position}]"
        yield from violations(schema.get("items", {}), item, place)
        if keys and isinstance(item, dict):
            key = {name: item.get(name) for name in keys}
            if key in seen:
                yield Problem.duplicate(place, key)
            seen.append(key)


def _wrong_fields(schema: Object, value: Object, path: str) -> Iterator[Problem]:
    prefix = f"{path}." if path else ""
    for name in schema.get("required", ()):
        if name not in value:
            yield Problem.required(f"{prefix}{name}")
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
    for name, item in value.items():
        if name in properties:
            yield from violations(properties[name], item, f"{prefix}{name}")
        elif isinstance(rest, dict):
            yield from violations(rest, item, f"{prefix}{name}")


def _wrong_type(schema: Object, value: Any, path: str) -> Problem | None:
    if schema.get(_INT_OR_STRING):
        expected: tuple[type, ...] = (int, str)
        wanted = "integer or string"
    else:
        wanted = schema.get("type", "")
        expected = _TYPES.get(wanted, ())
    is_bool = isinstance(value, bool)
    if not expected or (isinstance(value, expected) and is_bool == (wanted == "boolean")):
        return None
    got = "null" if value is None else next(n for n, t in _JSON_TYPES if isinstance(value, t))
    return Problem(
        path,
        "FieldValueTypeInvalid",
        f'Invalid value: "{got}": {path} in body must be of type {wanted}: "{got}"',
    )


_JSON_TYPES: Final = (
    ("boolean", bool),
    ("string", str),
    ("integer", int),
    ("number", float),
    ("array", list),
    ("object", dict),
)


def _wrong_value(schema: Object, value: Any, path: str) -> Iterator[Problem]:
    if "enum" in schema and value not in schema["enum"]:
        yield Problem.unsupported(path, value, schema["enum"])
    if isinstance(value, str):
        yield from _wrong_text(schema, value, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            bound = f"should be greater than or equal to {schema['minimum']}"
            yield Problem.invalid(path, value, f"{path} in body {bound}")
        if value > schema.get("maximum", value):
            bound = f"should be less than or equal to {schema['maximum']}"
            yield Problem.invalid(path, value, f"{path} in body {bound}")
    elif isinstance(value, list) and len(value) < schema.get("minItems", 0):
        bound = f"should have at least {schema['minItems']} items"
        yield Problem.invalid(path, len(value), f"{path} in body {bound}")


def _wrong_text(schema: Object, value: str, path: str) -> Iterator[Problem]:
    if len(value) < schema.get("minLength", 0):
        bound = f"should be at least {schema['minLength']} chars long"
        yield Problem.invalid(path, value, f"{path} in body {bound}")
    if len(value) > schema.get("maxLength", len(value)):
        limit = schema["maxLength"]
        yield Problem(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield Problem.invalid(path, value, f"{path} in body should match '{schema['pattern']}'")


def _unwanted_null(schema: Object, value: Any) -> bool:
    return value is None and not schema.get("nullable")
