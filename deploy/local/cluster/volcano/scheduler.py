"""The gang scheduler: all pods that a group needs find a node, or none is bound.

`shares` decides which group is next and what a Queue may still use, `rooms` which node is free.
Pods without a group are placed one by one, as the default scheduler does.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from deploy.local.cluster.client import NODES, PODS, Cache, Client, Object, Refused
from deploy.local.cluster.events import EventRecorder
from deploy.local.cluster.volcano.definitions import POD_GROUPS, QUEUES
from deploy.local.cluster.volcano.pods import GROUP_ANNOTATION
from deploy.local.cluster.volcano.queues import state_of
from deploy.local.cluster.volcano.rooms import (
    Placement,
    Room,
    has_ended,
    key_of,
    make_rooms,
    place,
)
from deploy.local.cluster.volcano.shares import Shares
from deploy.local.cluster.volcano.states import task_of

_LOG: Final = logging.getLogger(__name__)
_SETTLE_SECONDS: Final = 0.02
_AGAIN_SECONDS: Final = 1.0


class Scheduler:
    """Admits groups and binds pods. `run` starts it and returns only when it is cancelled."""

    def __init__(self, client: Client, queues: Cache) -> None:
        self._client = client
        self._queues = queues
        self._enqueue = asyncio.Event()
        self._nodes = Cache(client, NODES, changed=self._changed)
        self._pods = Cache(client, PODS, changed=self._pod_changed)
        self._groups = Cache(client, POD_GROUPS, changed=self._changed)
        self._active: dict[tuple[str, str], Object] = {}
        self._told_at = 0.0
        self._recorder = EventRecorder(client, "volcano")
        self._reasons: dict[tuple[str, str], str] = {}

    async def run(self) -> None:
        """Follow the objects and schedule until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._recorder.run())
            for cache in (self._nodes, self._pods, self._groups):
                tasks.create_task(cache.follow())
            for cache in (self._nodes, self._pods, self._groups):
                await cache.synced.wait()
            while True:
                try:
                    await self._schedule_all()
                except (Refused, OSError, TimeoutError) as error:
                    _LOG.info("scheduling: %s", error)
                except Exception:  # noqa: BLE001 - the reconcile loop: one object must not end it
                    _LOG.exception("scheduling")
                    await asyncio.sleep(_AGAIN_SECONDS)
                await self._wait()

    def _changed(self, change: str, value: Object) -> None:
        self._enqueue.set()

    def _pod_changed(self, change: str, pod: Object) -> None:
        # Pods that have ended matter only for the count of their gang, as long as the gang lasts.
        if change == "DELETED":
            self._active.pop(key_of(pod), None)
        elif not has_ended(pod) or key_of(pod) in self._active:
            self._active[key_of(pod)] = pod
        self._enqueue.set()

    async def _wait(self) -> None:
        """Return soon after a change, or after a second: a Queue may have opened."""
        try:
            async with asyncio.timeout(_AGAIN_SECONDS):
                await self._enqueue.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_SETTLE_SECONDS)
        self._enqueue.clear()

    async def _schedule_all(self) -> None:
        rooms = make_rooms(self._nodes.objects.values(), self._active.values())
        members: dict[tuple[str, str], list[Object]] = defaultdict(list)
        for pod in list(self._active.values()):
            group = (pod["metadata"].get("annotations") or {}).get(GROUP_ANNOTATION)
            if group:
                members[pod["metadata"]["namespace"], group].append(pod)
            elif has_ended(pod):
                del self._active[key_of(pod)]
            elif _waits(pod):
                placement = place([pod], rooms, 1)
                await self._bind(placement, [pod])
                await self._record_unscheduled(placement, [pod])
        groups = list(self._groups.objects.values())
        self._forgethas_ended(members, groups)
        shares = Shares(self._queues.objects.values(), groups, members, rooms)
        for group in shares.in_turn():
            try:
                await self._schedule(group, members[key_of(group)], rooms, shares)
            except (Refused, ValueError) as error:  # ValueError: an invalid quantity
                _LOG.info("%s: %s", group["metadata"]["name"], error)
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= _AGAIN_SECONDS:
            self._told_at = now
            await self._write_queues(shares)

    def _forgethas_ended(
        self, members: Mapping[tuple[str, str], list[Object]], groups: list[Object]
    ) -> None:
        there = {key_of(group) for group in groups}
        self._reasons = {key: why for key, why in self._reasons.items() if key in there}
        for key, pods in members.items():
            for pod in pods:
                if key not in there and has_ended(pod):
                    self._active.pop(key_of(pod), None)

    async def _schedule(
        self, group: Object, pods: list[Object], rooms: list[Room], shares: Shares
    ) -> None:
        phase = (group.get("status") or {}).get("phase") or "Pending"
        if phase == "Pending":
            reason = shares.reason_to_wait(group, rooms)
            if reason:
                # Only an Event says this: the group stays as it is, without conditions.
                self._record(group, "Normal", reason)
                await self._write_status(group, "Pending", pods)
                return
            await self._write_status(group, "Inqueue", pods)
            shares.let_in(group)
            return
        bound = [pod for pod in pods if pod["spec"].get("nodeName") and not _failed(pod)]
        waiting = sorted((pod for pod in pods if _waits(pod)), key=_priority, reverse=True)
        needed, reason = group["spec"].get("minMember", 1), ""
        if waiting and len(bound) + len(waiting) >= needed:
            missing = max(needed - len(bound), 0)
            allowance = shares.allowance(group)
            tasks = _missing_of_tasks(group, bound)
            placement = place(waiting, rooms, missing, tasks, allowance)
            await self._bind(placement, waiting)
            bound += [pod for pod in waiting if key_of(pod) in placement.bindings]
            reason = placement.reason
            await self._record_unscheduled(placement, waiting)
        if reason:
            self._record(group, "Warning", reason)
        await self._write_status(group, _phase_by_pods(phase, needed, bound, reason), pods, reason)

    async def _write_queues(self, shares: Shares) -> None:
        """Write the use of each Queue into its status, if it has changed."""
        for name, status in shares.statuses():
            queue = self._queues.get("", name)
            if queue is None or not state_of(queue):
                continue
            told = queue["status"]
            keys = {*status, *told} - {"state"}
            change = {k: status.get(k) for k in keys if status.get(k) != told.get(k)}
            if change:
                try:
                    written = await self._client.patch(
                        QUEUES, "", name, {"status": change}, "status"
                    )
                except Refused as error:
                    _LOG.info("queue %s: %s", name, error)
                else:
                    await self._queues.remember(written)

    def _record(self, group: Object, kind: str, reason: str) -> None:
        """Write an Event that says why *group* waits, once for each reason."""
        if self._reasons.get(key_of(group)) != reason:
            self._reasons[key_of(group)] = reason
            self._recorder.record_event(group, kind, "Unschedulable", reason)

    async def _record_unscheduled(self, placement: Placement, pods: Sequence[Object]) -> None:
        """Write to each Pod without a node why it has none, and an Event, if that has changed."""
        for pod in pods:
            why, metadata = placement.obstacles.get(key_of(pod)), pod["metadata"]
            conditions = (pod.get("status") or {}).get("conditions") or []
            said: Object = next((c for c in conditions if c["type"] == "PodScheduled"), {})
            if why is None or said.get("message") == why:
                continue
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": why,
                "lastTransitionTime": said.get("lastTransitionTime") or _now(),
            }
            others = [c for c in conditions if c["type"] != "PodScheduled"]
            change = {"status": {"conditions": [*others, condition]}}
            namespace, name = key_of(pod)
            try:
                written = await self._client.patch(PODS, namespace, name, change, "status")
            except Refused as error:
                _LOG.info("pod %s: %s", metadata["name"], error)  # usually it is gone
                continue
            self._recorder.record_event(pod, "Warning", "FailedScheduling", why)
            await self._pods.remember(written)

    async def _write_status(
        self, group: Object, phase: str, pods: Sequence[Object], reason: str = ""
    ) -> None:
        """Write phase, counts and conditions to the group, if they have changed."""
        status = group.get("status") or {}
        states = Counter((pod.get("status") or {}).get("phase", "").lower() for pod in pods)
        wanted: Object = {"phase": phase, "conditions": _conditions(phase, reason, status)}
        wanted |= {name: states[name] or None for name in ("running", "succeeded", "failed")}
        told = {name: status.get(name) for name in wanted} | {
            "conditions": status.get("conditions") or []
        }
        if told == wanted:
            return
        metadata = group["metadata"]
        change = {"status": wanted}
        written = await self._client.patch(
            POD_GROUPS, metadata["namespace"], metadata["name"], change
        )
        await self._groups.remember(written)

    async def _bind(self, placement: Placement, pods: Sequence[Object]) -> None:
        for pod in pods:
            node = placement.bindings.get(key_of(pod))
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
                if error.code not in (404, 409):  # 404: deleted; 409: bound before
                    raise
            # Until the watch shows it: a second look must not bind the pod again.
            bound = {**pod, "spec": {**pod["spec"], "nodeName": node}}
            self._pods.objects[key_of(pod)] = self._active[key_of(pod)] = bound


def _conditions(phase: str, reason: str, status: Object) -> list[Object]:
    """Return the group's conditions. A time stays as long as its condition does not change."""
    if reason:
        said = ("Unschedulable", "NotEnoughResources", reason)
    elif phase == "Running":
        said = ("Scheduled", "tasks in gang are ready to be scheduled", "")
    else:
        return []
    condition: Object = {"type": said[0], "status": "True", "reason": said[1]}
    condition |= {"message": said[2]} if said[2] else {}
    old = {c["type"]: c for c in status.get("conditions") or []}.get(said[0], {})
    same = condition.items() <= old.items()
    since = old.get("lastTransitionTime") if same else None
    return [{**condition, "lastTransitionTime": since or _now()}]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _missing_of_tasks(group: Object, bound: Sequence[Object]) -> dict[str, int]:
    """Return how many pods of each task are still needed. The group's own number may be smaller."""
    least: dict[str, int] = group["spec"].get("minTaskMember") or {}
    if sum(least.values()) > group["spec"].get("minMember", 1):
        return {}
    there = Counter(task_of(pod) for pod in bound)
    return {name: number - there[name] for name, number in least.items() if number > there[name]}


def _phase_by_pods(phase: str, needed: int, bound: Sequence[Object], reason: str) -> str:
    states = [(pod.get("status") or {}).get("phase") for pod in bound]
    if len(bound) < needed:
        # Some pods run and the others find no place: the gang is broken.
        return "Unknown" if reason and "Running" in states else phase
    return "Completed" if states and all(state == "Succeeded" for state in states) else "Running"


def _waits(pod: Object) -> bool:
    return not (
        pod["spec"].get("nodeName")
        or pod["metadata"].get("deletionTimestamp")
        or pod["spec"].get("schedulingGates")
        or has_ended(pod)
    )


def _failed(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") == "Failed"


def _priority(pod: Object) -> int:
    return int(pod["spec"].get("priority") or 0)
