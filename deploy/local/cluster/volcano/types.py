"""How Go decodes a job, before any schema: the first value of a wrong type refuses the job."""

import re
from collections.abc import Iterator
from typing import Any, Final

from deploy.local.cluster.quantities import NOT_A_QUANTITY, quantity
from deploy.local.cluster.volcano.definitions import job_schema

Object = dict[str, Any]
_GO: Final = {"integer": "int32", "string": "string", "boolean": "bool"}
_JSON: Final = {bool: "bool", str: "string", int: "number", float: "number", list: "array"}
_DURATIONS: Final = ("timeout", "runningEstimate")
_DURATION: Final = re.compile(
    r"[+-]?(\d+(\.\d*)?|\.\d+)(ns|us|ms|s|m|h)((\d+\.?\d*)(ns|us|ms|s|m|h))*|0"
)


def unreadable(job: Object) -> str | None:
    """Return why Go could not decode *job*, in the words of its decoder, or None."""
    spec = job.get("spec") or {}
    schema = job_schema()["properties"]["spec"]
    return next(_problems(schema, spec, "JobSpec", "spec"), None) or _unreadable_amount(spec)


def _problems(schema: Object, value: Any, struct: str, path: str) -> Iterator[str]:
    """Yield the values that do not fit the fields of *struct*; a list has its items' name."""
    for name, inner in (schema.get("properties") or {}).items():
        found = value.get(name) if isinstance(value, dict) else None
        if found is None:
            continue
        if _fits(inner, found):
            yield from _inside(name, inner, found, f"{path}.{name}")
        else:
            yield _mismatch(found, f"{struct}.{path}.{name}", inner)


def _inside(name: str, schema: Object, value: Any, path: str) -> Iterator[str]:
    if name in _DURATIONS and not _DURATION.fullmatch(value):
        yield f'time: invalid duration "{value}"'
    elif schema.get("type") == "array":
        struct = {"tasks": "TaskSpec", "policies": "LifecyclePolicy", "volumes": "VolumeSpec"}
        for item in value:
            yield from _problems(schema["items"], item, struct.get(name, ""), path)
    elif isinstance(rest := schema.get("additionalProperties"), dict):
        for item in value.values():
            if not _fits(rest, item):
                yield _mismatch(item, f"JobSpec.{path}", rest)


def _mismatch(value: Any, field: str, schema: Object) -> str:
    got, wanted = _JSON.get(type(value), "object"), _go_type(schema)
    return f"json: cannot unmarshal {got} into Go struct field {field} of type {wanted}"


def _go_type(schema: Object) -> str:
    if schema.get("type") == "array":
        return f"[]{_go_type(schema.get('items') or {})}"
    return _GO.get(schema.get("type", ""), "struct")


def _fits(schema: Object, value: Any) -> bool:
    types = {"integer": int, "string": str, "array": list, "object": dict, "boolean": bool}
    wanted = types.get(schema.get("type", ""))
    if wanted is None:
        return True
    return isinstance(value, wanted) and isinstance(value, bool) == (wanted is bool)


def _unreadable_amount(spec: Object) -> str | None:
    """Return the decoder's words if a container's resources hold no valid quantity."""
    for task in spec.get("tasks") or []:
        pod = (task.get("template") or {}).get("spec") or {}
        containers = [*(pod.get("containers") or []), *(pod.get("initContainers") or [])]
        for container in containers:
            resources = container.get("resources") or {}
            for group in ("limits", "requests"):
                if not are_quantities(resources.get(group) or {}):
                    return NOT_A_QUANTITY
    return None


def are_quantities(amounts: Object) -> bool:
    """Whether all of *amounts* are quantities."""
    try:
        for amount in amounts.values():
            quantity(str(amount))
    except ValueError:
        return False
    return True
