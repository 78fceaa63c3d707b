"""Structural schemas of the built-in kinds, from the table in ``models.json``."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

Object = dict[str, Any]
PATH: Final = Path(__file__).with_name("models.json")
_PLAIN: Final = {"str": "string", "datetime": "string", "int": "integer", "bool": "boolean"}
_KINDS: Final = (
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "Lease",
    "Namespace",
    "NetworkPolicy",
    "Node",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PriorityClass",
    "ResourceQuota",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
    "StorageClass",
)
MODELS: Final = {"Event": "CoreV1Event", **{kind: f"V1{kind}" for kind in _KINDS}}
"""The model of each kind. Definitions and webhook configurations have none."""

# Quantities may be numbers, too.
_QUANTITIES: Final = frozenset(
    (
        "allocatable",
        "allocatedResources",
        "capacity",
        "hard",
        "limits",
        "overhead",
        "requests",
        "used",
    )
)
_QUANTITY: Final = frozenset(("divisor", "sizeLimit"))


def schema_of(kind: str) -> Object | None:
    """Return the schema of a built-in kind, or None for a kind whose fields are not checked."""
    return _schema(MODELS[kind]) if kind in MODELS else None


@cache
def _models() -> dict[str, Any]:
    models: dict[str, Any] = json.loads(PATH.read_text())
    return models


@cache
def _schema(name: str) -> Object:
    """Return the schema of a model; always the same object."""
    model = _models()[name]
    fields = {field: _field(field, type_name) for field, type_name in model["fields"].items()}
    return {"type": "object", "required": model["required"], "properties": fields}


def _field(field: str, type_name: str) -> Object:
    if field in _QUANTITIES or field in _QUANTITY:
        return {}
    return _type(type_name)


def _type(name: str) -> Object:
    if inner := re.fullmatch(r"list\[(.*)\]", name):
        return {"type": "array", "items": _type(inner[1])}
    if inner := re.fullmatch(r"dict\(str, (.*)\)", name):
        return {"type": "object", "additionalProperties": _type(inner[1])}
    if name in _PLAIN:
        return {"type": _PLAIN[name]}
    return _schema(name) if name in _models() else {}
