"""What is left on the nodes, and where pods go: all that a gang needs, or none. No I/O."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deploy.local.cluster.quantities import quantity
from deploy.local.cluster.volcano.pods import requests
from deploy.local.cluster.volcano.states import task_of

Object = dict[str, Any]
Amounts = dict[str, float]


@dataclass(slots=True)
class Room:
    """What is left on a node. Pods are counted as a resource of their own."""

    name: str
    labels: dict[str, str]
    taints: list[Object]
    free: Amounts

    def fits(self, pod: Object, asked: Amounts) -> bool:
        """Whether *pod* may run here and what it asks for is there."""
        spec = pod["spec"]
        selected = (spec.get("nodeSelector") or {}).items() <= self.labels.items()
        return (
            selected
            and all(_tolerated(taint, spec.get("tolerations") or []) for taint in self.taints)
            and all(self.free.get(name, 0.0) >= amount for name, amount in asked.items())
        )

    def take(self, asked: Amounts) -> None:
        """Count *asked* as used."""
        for name, amount in asked.items():
            self.free[name] = self.free.get(name, 0.0) - amount


@dataclass(frozen=True, slots=True)
class Placement:
    """Where pods go: names of pods to names of nodes; or why the group has to wait."""

    bindings: dict[tuple[str, str], str] = field(default_factory=dict)
    reason: str = ""


def make_rooms(nodes: Iterable[Object], pods: Iterable[Object]) -> list[Room]:
    """Return what is left on each node that takes pods."""
    rooms = {}
    for node in nodes:
        name = node["metadata"]["name"]
        if node.get("spec", {}).get("unschedulable") or not _is_ready(node):
            continue
        status = node.get("status", {})
        amounts = status.get("allocatable") or status.get("capacity") or {}
        free = {key: quantity(str(amount)) for key, amount in amounts.items()}
        labels = node["metadata"].get("labels") or {}
        rooms[name] = Room(name, labels, node.get("spec", {}).get("taints") or [], free)
    for pod in pods:
        room = rooms.get(pod["spec"].get("nodeName", ""))
        if room is not None and not has_ended(pod):
            room.take(asked_by(pod))
    return list(rooms.values())


def place(
    pods: Sequence[Object],
    rooms: Sequence[Room],
    needed: int,
    tasks: Mapping[str, int] | None = None,
    allowance: Amounts | None = None,
) -> Placement:
    """Return where *pods* go; what is placed is taken from *rooms*.

    If fewer than needed find a place, none is placed and the rooms stay as they were.

    Args:
        pods: What waits.
        rooms: What is left on the nodes.
        needed: How many of them have to be placed.
        tasks: How many of each task.
        allowance: What their Queue may still use; changed as *rooms* are.
    """
    allowance = {} if allowance is None else allowance
    kept = dict(allowance)
    before = {room.name: dict(room.free) for room in rooms}
    bindings: dict[tuple[str, str], str] = {}
    for pod in pods:
        asked = asked_by(pod)
        allowed = all(amount <= allowance.get(name, amount) for name, amount in asked.items())
        room = next((room for room in rooms if allowed and room.fits(pod, asked)), None)
        if room is not None:
            room.take(asked)
            for name in allowance.keys() & asked.keys():
                allowance[name] -= asked[name]
            bindings[key_of(pod)] = room.name
    placed = Counter(task_of(pod) for pod in pods if key_of(pod) in bindings)
    if len(bindings) >= needed and all(placed[n] >= least for n, least in (tasks or {}).items()):
        return Placement(bindings)
    for room in rooms:
        room.free = before[room.name]
    allowance.update(kept)
    short = f"{needed} pods are needed, {len(bindings)} of {len(pods)} fit"
    return Placement(reason=f"{len(rooms)}/{len(rooms)} nodes are unavailable: {short}")


def asked_by(pod: Object) -> Amounts:
    """Return what *pod* takes of a node; it is counted itself, too."""
    return {**requests(pod["spec"]), "pods": 1.0}


def has_ended(pod: Object) -> bool:
    """Whether *pod* runs no more."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _tolerated(taint: Object, tolerations: list[Any]) -> bool:
    if taint.get("effect") == "PreferNoSchedule":
        return True
    return any(
        t.get("key") in (None, taint["key"])
        and (t.get("operator") == "Exists" or t.get("value", "") == taint.get("value", ""))
        and t.get("effect") in (None, "", taint.get("effect"))
        for t in tolerations
    )


def key_of(value: Object) -> tuple[str, str]:
    """Return where *value* is: namespace and name."""
    return value["metadata"].get("namespace", ""), value["metadata"]["name"]
