"""Strategic merge patch of built-in kinds: lists with named items are merged by the names."""

from collections.abc import Mapping
from typing import Any, Final

from deploy.local.cluster.apiserver.errors import bad_request

STRATEGIC: Final = "application/strategic-merge-patch+json"
_KEYS: Final[Mapping[str, str]] = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "schedulingGates": "name",
    "secrets": "name",
    "taints": "key",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""The lists whose items are identified by a field. Other lists are replaced."""

_SETS: Final = ("finalizers",)
_ORDER, _DELETED = "$setElementOrder/", "$deleteFromPrimitiveList/"


def merged_strategically(value: Any, patch: Any) -> Any:
    """Return *value* as changed by *patch*; *value* itself is not changed.

    Raises:
        ApiError: 400 for an item of a named list without its name.
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    if patch.get("$patch") == "replace":
        return {name: change for name, change in patch.items() if name != "$patch"}
    for name, change in patch.items():
        if name.startswith(_DELETED):
            field = name.removeprefix(_DELETED)
            merged[field] = [item for item in merged.get(field) or [] if item not in change]
        elif not name.startswith("$"):
            _set(merged, name, change, patch.get(_ORDER + name))
    if (kept := patch.get("$retainKeys")) is not None:
        merged = {name: merged[name] for name in merged if name in kept}
    return merged


def _set(merged: dict[str, Any], name: str, change: Any, order: list[Any] | None) -> None:
    if change is None or (isinstance(change, dict) and change.get("$patch") == "delete"):
        merged.pop(name, None)
    elif name in _SETS and isinstance(change, list):
        before = merged.get(name) or []
        merged[name] = [*before, *(item for item in change if item not in before)]
    elif isinstance(change, list) and (key := _key_of(name, change)):
        merged[name] = _merged_list(merged.get(name) or [], change, key, order or [])
    else:
        merged[name] = merged_strategically(merged.get(name), change)


def _key_of(name: str, items: list[Any]) -> str | None:
    if name == "ports":  # of a container, or of a Service
        return "containerPort" if any("containerPort" in item for item in items) else "port"
    return _KEYS.get(name)


def _merged_list(before: list[Any], changes: list[Any], key: str, order: list[Any]) -> list[Any]:
    if any(change.get("$patch") == "replace" for change in changes):
        return [change for change in changes if "$patch" not in change]
    items = {item.get(key): item for item in before}
    for change in changes:
        if key not in change:
            raise bad_request(f"map: does not contain declared merge key: {key}")
        if change.get("$patch") == "delete":
            items.pop(change[key], None)
        else:
            items[change[key]] = merged_strategically(items.get(change[key]), change)
    places = {entry.get(key): place for place, entry in enumerate(order)}
    # Items that the patch does not place stay beside their neighbours: the sort is stable.
    return sorted(items.values(), key=lambda item: places.get(item.get(key), len(places)))
