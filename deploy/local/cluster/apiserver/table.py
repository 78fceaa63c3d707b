"""Objects as the rows of a table, which `kubectl get` requests, or reduced to metadata."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from deploy.local.cluster.apiserver.kinds import Kind, Object
from deploy.local.cluster.apiserver.selectors import value_at


def make_table(kind: Kind, objects: Sequence[Object], revision: str, *, whole: str) -> Object:
    """Return a Table of *objects*; *whole* is Object, Metadata or None, as in includeObject."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": revision},
        "columnDefinitions": [
            {
                "name": title,
                "type": "string",
                "format": "name" if title == "Name" else "",
                "description": "",
                "priority": priority,
            }
            for priority, columns in enumerate((kind.columns, kind.wide))
            for title, _ in columns
        ],
        "rows": [_row(kind, value, whole) for value in objects],
    }


def make_metadata_list(objects: Sequence[Object], metadata: Object) -> Object:
    """Return a list of the metadata of *objects*, without their content."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        # An empty slice of Go is null if the field is not omitempty.
        "items": [_cut(value) for value in objects] or None,
    }


def _cut(value: Object) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": value["metadata"],
    }


def age(since: str, now: datetime) -> str:
    """Return the age of *since* in kubectl's format."""
    seconds = int((now - datetime.fromisoformat(since)).total_seconds())
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    if seconds < 7200:
        return f"{seconds // 60}m"
    return f"{seconds // 3600}h" if seconds < 172_800 else f"{seconds // 86_400}d"


def _row(kind: Kind, value: Object, whole: str) -> Object:
    row: Object = {"cells": [_cell(value, source) for _, source in (*kind.columns, *kind.wide)]}
    if whole == "Object":
        row["object"] = value
    elif whole != "None":
        row["object"] = _cut(value)
    return row


def _cell(value: Object, source: str) -> str:
    if source.startswith("="):
        return _COMPUTED[source[1:]](value)
    found = value_at(value, source)
    if found is None:
        return "<none>" if source.startswith("spec") else ""
    if source.endswith("Timestamp"):
        return age(str(found), datetime.now(UTC))
    return str(found)


def _statuses(pod: Object) -> list[Any]:
    return list(pod.get("status", {}).get("containerStatuses") or [])


def _pod_ready(pod: Object) -> str:
    ready = sum(bool(status.get("ready")) for status in _statuses(pod))
    return f"{ready}/{len(pod['spec'].get('containers', []))}"


def _pod_status(pod: Object) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for status in _statuses(pod):
        for state in ("waiting", "terminated"):
            reason = (status.get("state", {}).get(state) or {}).get("reason")
            if reason:
                return str(reason)
    return str(pod.get("status", {}).get("phase", "Unknown"))


def _pod_restarts(pod: Object) -> str:
    return str(sum(status.get("restartCount", 0) for status in _statuses(pod)))


def _node_status(node: Object) -> str:
    conditions = node.get("status", {}).get("conditions") or []
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    held = ",SchedulingDisabled" if node.get("spec", {}).get("unschedulable") else ""
    return ("Ready" if ready else "NotReady") + held


def _service_ports(service: Object) -> str:
    ports = service["spec"].get("ports") or []
    return ",".join(f"{p['port']}/{p.get('protocol', 'TCP')}" for p in ports) or "<none>"


def _data_count(value: Object) -> str:
    return str(len(value.get("data") or {}) + len(value.get("binaryData") or {}))


def _event_object(event: Object) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


_COMPUTED: Final[dict[str, Callable[[Object], str]]] = {
    "pod_ready": _pod_ready,
    "pod_status": _pod_status,
    "pod_restarts": _pod_restarts,
    "node_status": _node_status,
    "service_ports": _service_ports,
    "data_count": _data_count,
    "event_object": _event_object,
}
