"""The free resources of nodes, and the placement of pods: the whole gang, or none of it. No I/O."""

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
    """The free resources of a node. Pods are counted as a resource, too."""

    name: str
    labels: dict[str, str]
    taints: list[Object]
    free: Amounts

    def obstacle(self, pod: Object, asked: Amounts) -> str:
        """Return why *pod* may not run here, in kube-scheduler's words; empty if it may."""
        spec = pod["spec"]
        if not (spec.get("nodeSelector") or {}).items() <= self.labels.items():
            return "node(s) didn't match Pod's node affinity/selector"
        for taint in self.taints:
            if not _tolerated(taint, spec.get("tolerations") or []):
                value = taint.get("value", "")
                return f"node(s) had untolerated taint {{{taint['key']}: {value}}}"
        short = [name for name, amount in asked.items() if self.free.get(name, 0.0) < amount]
        return f"Insufficient {short[0]}" if short else ""

    def take(self, asked: Amounts) -> None:
        """Count *asked* as used."""
        for name, amount in asked.items():
            self.free[name] = self.free.get(name, 0.0) - amount


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of pods, from names of pods to names of nodes; or why the group has to wait."""

    bindings: dict[tuple[str, str], str] = field(default_factory=dict)
    reason: str = ""
    obstacles: dict[tuple[str, str], str] = field(default_factory=dict)
    """Why each Pod that is not placed finds no node."""


def make_rooms(nodes: Iterable[Object], pods: Iterable[Object]) -> list[Room]:
    """Return the free resources of each node that takes pods."""
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
    """Return a placement of *pods*; placed pods are taken from *rooms*.

    If fewer pods than needed find a place, none is placed and *rooms* stay as they were.

    Args:
        pods: The waiting pods.
        rooms: The free resources of the nodes.
        needed: How many of the pods have to be placed.
        tasks: How many of each task.
        allowance: What their Queue may still use; changed as *rooms* are.
    """
    allowance = {} if allowance is None else allowance
    kept = dict(allowance)
    before = {room.name: dict(room.free) for room in rooms}
    bindings: dict[tuple[str, str], str] = {}
    obstacles: dict[tuple[str, str], str] = {}
    for pod in pods:
        asked = asked_by(pod)
        room, obstacle = _find(pod, asked, rooms, allowance)
        if room is None:
            obstacles[key_of(pod)] = obstacle
            continue
        room.take(asked)
        for name in allowance.keys() & asked.keys():
            allowance[name] -= asked[name]
        bindings[key_of(pod)] = room.name
    placed = Counter(task_of(pod) for pod in pods if key_of(pod) in bindings)
    if len(bindings) >= needed and all(placed[n] >= least for n, least in (tasks or {}).items()):
        return Placement(bindings, obstacles=obstacles)
    for room in rooms:
        room.free = before[room.name]
    allowance.update(kept)
    waiting = len(pods)
    reason = (
        f"{waiting}/{waiting} tasks in gang unschedulable: pod group is not ready, {waiting} "
        f"Pending, {needed} minAvailable; Pending: {waiting} Unschedulable"
    )
    for pod in pods:
        obstacles.setdefault(key_of(pod), f"pod group is not ready, {needed} minAvailable")
    return Placement(reason=reason, obstacles=obstacles)


def _find(
    pod: Object, asked: Amounts, rooms: Sequence[Room], allowance: Amounts
) -> tuple[Room | None, str]:
    """Return the node on which *pod* fits; else None, and why it fits nowhere."""
    short = [name for name, amount in asked.items() if amount > allowance.get(name, amount)]
    if short:
        return None, f"queue resource quota insufficient: insufficient {', '.join(short)}"
    found: Counter[str] = Counter()
    for room in rooms:
        obstacle = room.obstacle(pod, asked)
        if not obstacle:
            return room, ""
        found[obstacle] += 1
    why = ", ".join(f"{number} {obstacle}" for obstacle, number in sorted(found.items()))
    return None, f"0/{len(rooms)} nodes are unavailable: {why}."


def asked_by(pod: Object) -> Amounts:
    """Return the resources that *pod* takes of a node, including one pod."""
    return {**requests(pod["spec"]), "pods": 1.0}


def has_ended(pod: Object) -> bool:
    """Whether *pod* has ended."""
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
    """Return the key of *value*: namespace and name."""
    return value["metadata"].get("namespace", ""), value["metadata"]["name"]
