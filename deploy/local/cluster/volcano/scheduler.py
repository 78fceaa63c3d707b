"""The gang scheduler: all pods that a group needs find a node, or none is bound.

Pods of no group are placed one by one, as the default scheduler would.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from deploy.local.cluster.client import NODES, PODS, Cache, Client, Object, Refused
from deploy.local.cluster.quantities import quantity
from deploy.local.cluster.volcano.definitions import POD_GROUPS
from deploy.local.cluster.volcano.pods import GROUP_ANNOTATION, requests

_LOG: Final = logging.getLogger(__name__)
_SETTLE_SECONDS: Final = 0.02
_AGAIN_SECONDS: Final = 1.0
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
        if room is not None and not _ended(pod):
            room.take(_asked(pod))
    return list(rooms.values())


def place(pods: Sequence[Object], rooms: Sequence[Room], needed: int) -> Placement:
    """Return where *pods* go, at least *needed* of them; what is placed is taken from *rooms*.

    If fewer find a place, none is placed and the rooms stay as they were.
    """
    before = {room.name: dict(room.free) for room in rooms}
    bindings: dict[tuple[str, str], str] = {}
    for pod in pods:
        asked = _asked(pod)
        room = next((room for room in rooms if room.fits(pod, asked)), None)
        if room is not None:
            room.take(asked)
            bindings[_key(pod)] = room.name
    if len(bindings) >= needed:
        return Placement(bindings)
    for room in rooms:
        room.free = before[room.name]
    short = f"{needed} pods are needed, {len(bindings)} of {len(pods)} fit"
    return Placement(reason=f"{len(rooms)}/{len(rooms)} nodes are unavailable: {short}")


class Scheduler:
    """Lets groups in and binds pods; `run` starts it and returns only by cancellation."""

    def __init__(self, client: Client, queues: Cache) -> None:
        self._client = client
        self._queues = queues
        self._wake = asyncio.Event()
        self._nodes = Cache(client, NODES, changed=self._changed)
        self._pods = Cache(client, PODS, changed=self._changed)
        self._groups = Cache(client, POD_GROUPS, changed=self._changed)

    async def run(self) -> None:
        """Follow and schedule until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for cache in (self._nodes, self._pods, self._groups):
                tasks.create_task(cache.follow())
            for cache in (self._nodes, self._pods, self._groups):
                await cache.synced.wait()
            while True:
                try:
                    await self._schedule_all()
                except (Refused, OSError, TimeoutError) as error:
                    _LOG.info("scheduling: %s", error)
                await self._wait()

    def _changed(self, change: str, value: Object) -> None:
        self._wake.set()

    async def _wait(self) -> None:
        """Return soon after a change, or after a second: a Queue may have opened."""
        try:
            async with asyncio.timeout(_AGAIN_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_SETTLE_SECONDS)
        self._wake.clear()

    async def _schedule_all(self) -> None:
        rooms = make_rooms(self._nodes.objects.values(), self._pods.objects.values())
        members: dict[tuple[str, str], list[Object]] = defaultdict(list)
        for pod in list(self._pods.objects.values()):
            group = (pod["metadata"].get("annotations") or {}).get(GROUP_ANNOTATION)
            if group:
                members[pod["metadata"]["namespace"], group].append(pod)
            elif _waits(pod):
                await self._bind(place([pod], rooms, 1), [pod])
        for group in sorted(self._groups.objects.values(), key=_age):
            try:
                await self._schedule(group, members[_key(group)], rooms)
            except Refused as error:
                _LOG.info("%s: %s", group["metadata"]["name"], error)

    async def _schedule(self, group: Object, pods: list[Object], rooms: list[Room]) -> None:
        phase = (group.get("status") or {}).get("phase") or "Pending"
        needed = group["spec"].get("minMember", 1)
        if phase == "Pending":
            reason = self._reason_to_wait(group, rooms)
            await self._tell(group, "Pending" if reason else "Inqueue", reason)
            return
        bound = [pod for pod in pods if pod["spec"].get("nodeName") and not _failed(pod)]
        waiting = sorted((pod for pod in pods if _waits(pod)), key=_priority, reverse=True)
        if waiting and len(bound) + len(waiting) >= needed:
            placement = place(waiting, rooms, max(needed - len(bound), 0))
            await self._bind(placement, waiting)
            bound += [pod for pod in waiting if _key(pod) in placement.bindings]
            if placement.reason:
                await self._tell(group, phase, placement.reason)
                return
        if len(bound) >= needed:
            await self._tell(group, "Running", "")

    def _reason_to_wait(self, group: Object, rooms: list[Room]) -> str:
        """Return why the group is not let in: its Queue, or what it needs at least."""
        name = group["spec"].get("queue", "default")
        queue = self._queues.get("", name)
        if queue is None or (queue.get("status") or {}).get("state") != "Open":
            return f"queue {name} is not open"
        minimum = {
            k: quantity(str(v)) for k, v in (group["spec"].get("minResources") or {}).items()
        }
        total: Amounts = defaultdict(float)
        for room in rooms:
            for key, amount in room.free.items():
                total[key] += amount
        short = [key for key, amount in minimum.items() if amount > total[key]]
        if short:
            return f"resource in cluster is overused: insufficient {', '.join(short)}"
        return self._over_capability(name, queue, minimum)

    def _over_capability(self, name: str, queue: Object, minimum: Amounts) -> str:
        used: Amounts = defaultdict(float)
        for pod in self._pods.objects.values():
            annotations = pod["metadata"].get("annotations") or {}
            if annotations.get("volcano.sh/queue-name") == name and not _ended(pod):
                for key, amount in requests(pod["spec"]).items():
                    used[key] += amount
        for key, limit in ((queue.get("spec") or {}).get("capability") or {}).items():
            if used[key] + minimum.get(key, 0.0) > quantity(str(limit)):
                return f"queue {name} has not enough {key} left"
        return ""

    async def _tell(self, group: Object, phase: str, reason: str) -> None:
        """Write phase and reason to the group, if they are new."""
        status = group.get("status") or {}
        conditions = status.get("conditions") or []
        said = conditions[0]["message"] if conditions else ""
        if (status.get("phase"), said) == (phase, reason):
            return
        condition = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources"}
        shown = [{**condition, "message": reason}] if reason else []
        metadata = group["metadata"]
        change = {"status": {"phase": phase, "conditions": shown}}
        written = await self._client.patch(
            POD_GROUPS, metadata["namespace"], metadata["name"], change
        )
        await self._groups.remember(written)

    async def _bind(self, placement: Placement, pods: Sequence[Object]) -> None:
        for pod in pods:
            node = placement.bindings.get(_key(pod))
            if node is None:
                continue
            metadata = pod["metadata"]
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }
            path = PODS.path(metadata["namespace"], metadata["name"], "binding")
            try:
                await self._client.post(path, binding)
            except Refused as error:
                if error.code not in (404, 409):  # deleted, or bound before
                    raise
            # Until the watch says so: a second look must not bind it again.
            bound = {**pod, "spec": {**pod["spec"], "nodeName": node}}
            self._pods.objects[_key(pod)] = bound


def _asked(pod: Object) -> Amounts:
    return {**requests(pod["spec"]), "pods": 1.0}


def _waits(pod: Object) -> bool:
    return not (
        pod["spec"].get("nodeName")
        or pod["metadata"].get("deletionTimestamp")
        or pod["spec"].get("schedulingGates")
        or _ended(pod)
    )


def _ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _failed(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") == "Failed"


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


def _priority(pod: Object) -> int:
    return int(pod["spec"].get("priority") or 0)


def _age(value: Object) -> tuple[str, str]:
    return value["metadata"].get("creationTimestamp", ""), value["metadata"]["name"]


def _key(value: Object) -> tuple[str, str]:
    return value["metadata"].get("namespace", ""), value["metadata"]["name"]
