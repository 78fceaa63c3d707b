"""What the cluster's Volcano takes, as its OpenAPI document says. No I/O.

An API server drops fields that a CustomResourceDefinition does not have, and says nothing: a job
would run without the topology that it asked for. So what is not there is refused instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

Json = Mapping[str, Any]
Finding = tuple[str, str]

PATH: Final = "apis/batch.volcano.sh/v1alpha1"
"""Where, below ``/openapi/v3``, the document is."""

_READ: Final = frozenset(
    {"enum", "maxLength", "pattern", "minimum", "maximum", "x-kubernetes-preserve-unknown-fields"}
)
_KIND: Final = {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The schema of a VolcanoJob; with none, nothing is known and nothing is refused.

    ``digest`` is the same for the same schema, whoever read it.
    """

    schema: Json | None = None
    digest: str = ""

    def lacks(self, manifest: Json) -> list[Finding]:
        """Return what of *manifest* this Volcano does not take, each with its path."""
        if self.schema is None:
            return []
        return list(_of_value(_part(self.schema, "spec"), manifest.get("spec"), "spec"))


def read_openapi(document: Json) -> Capabilities:
    """Return what an OpenAPI 3 document of Volcano's group says.

    Raises:
        ValueError: If a VolcanoJob is not in it.
    """
    schemas = (document.get("components") or {}).get("schemas") or {}
    for schema in schemas.values():
        kinds = schema.get("x-kubernetes-group-version-kind") or ()
        if any(_KIND.items() <= kind.items() for kind in kinds):
            return _with_digest({"properties": {"spec": _read_of(_part(schema, "spec"))}})
    raise ValueError("the cluster's OpenAPI document has no VolcanoJob")


def _with_digest(schema: Json) -> Capabilities:
    text = json.dumps(schema, sort_keys=True)
    return Capabilities(schema, sha256(text.encode()).hexdigest())


def _part(schema: Json, name: str) -> Json:
    found: Json = (schema.get("properties") or {}).get(name) or {}
    return found


def _read_of(schema: Json) -> Json:
    """Return what is read of *schema* here: it is kept, and most of it are descriptions."""
    kept = {name: value for name, value in schema.items() if name in _READ}
    if (fields := schema.get("properties")) is not None:
        kept["properties"] = {name: _read_of(one) for name, one in fields.items()}
    for name in ("items", "additionalProperties"):
        if name in schema:
            one = schema[name]
            kept[name] = _read_of(one) if isinstance(one, Mapping) else one
    return kept


def _of_value(schema: Json, value: Any, path: str) -> Iterator[Finding]:
    if isinstance(value, Mapping):
        yield from _of_fields(schema, value, path)
    elif isinstance(value, list):
        items = schema.get("items")
        for index, one in enumerate(value if items else ()):
            yield from _of_value(items or {}, one, f"{path}[{index}]")
    else:
        yield from _of_scalar(schema, value, path)


def _of_fields(schema: Json, value: Json, path: str) -> Iterator[Finding]:
    known = schema.get("properties")
    others = schema.get("additionalProperties")
    keeps = schema.get("x-kubernetes-preserve-unknown-fields")
    for name, one in value.items():
        if known is not None and name in known:
            yield from _of_value(known[name], one, f"{path}.{name}")
        elif isinstance(others, Mapping):
            yield from _of_value(others, one, f"{path}.{name}")
        elif known is not None and not keeps and not others:
            yield f"{path}.{name}", "the cluster's Volcano does not know this"


def _of_scalar(schema: Json, value: Any, path: str) -> Iterator[Finding]:
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        yield path, f"the cluster's Volcano does not know {value}"
    if isinstance(value, str):
        if len(value) > schema.get("maxLength", len(value)):
            yield path, "is longer than the cluster's Volcano takes"
        pattern = schema.get("pattern")
        if pattern is not None and not _matches(pattern, value):
            yield path, "is not what the cluster's Volcano takes"
    elif isinstance(value, int) and not _is_in_range(schema, value):
        yield path, "is out of the range that the cluster's Volcano takes"


def _is_in_range(schema: Json, value: int) -> bool:
    return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return True  # of another dialect: the server will say
