"""Decides the order of the groups, and the share of each Queue. No I/O.

The Queue with the least use for its weight goes first; within a Queue, the oldest group. A group is
admitted if its Queue is open, and if its minimal resources are neither beyond the Queue's
capability nor more than the cluster has left. Groups that were admitted before, and whose pods do
not exist yet, are counted. Running pods are never taken back.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from deploy.local.cluster.quantities import quantity, shown_amount
from deploy.local.cluster.volcano.pods import requests
from deploy.local.cluster.volcano.queues import state_of
from deploy.local.cluster.volcano.rooms import Amounts, Room, has_ended, key_of

Object = dict[str, Any]
Members = Mapping[tuple[str, str], Sequence[Object]]


class Shares:
    """The use of the Queues in one round of scheduling; `let_in` adds to it."""

    def __init__(
        self,
        queues: Iterable[Object],
        groups: Sequence[Object],
        members: Members,
        rooms: Sequence[Room],
    ) -> None:
        self._queues = {queue["metadata"]["name"]: queue for queue in queues}
        self._groups: dict[str, list[Object]] = defaultdict(list)
        self._bound: dict[str, Amounts] = defaultdict(lambda: defaultdict(float))
        self._used: dict[str, Amounts] = defaultdict(lambda: defaultdict(float))
        self._own: dict[tuple[str, str], Amounts] = defaultdict(lambda: defaultdict(float))
        self._reserved: Amounts = defaultdict(float)
        self._pods: dict[str, int] = defaultdict(int)
        for group in groups:
            self._groups[queue_of(group)].append(group)
            self._count(group, members.get(key_of(group), ()))
        self._total = _sum([room.free for room in rooms] + list(self._bound.values()))

    def in_turn(self) -> Iterator[Object]:
        """Yield all groups in the order of their turns."""
        lines = {name: deque(sorted(own, key=_age)) for name, own in self._groups.items()}
        turns = [(self._share(name), name) for name in lines]
        heapq.heapify(turns)
        while turns:
            _, name = heapq.heappop(turns)
            yield lines[name].popleft()
            if lines[name]:
                heapq.heappush(turns, (self._share(name), name))

    def reason_to_wait(self, group: Object, rooms: Sequence[Room]) -> str:
        """Return why *group* is not admitted; empty if it is."""
        name = queue_of(group)
        if state_of(self._queues.get(name)) != "Open":
            return f"queue {name} is not open"
        # A group that was made anew while some of its pods run needs room only for the others.
        own = self._own[key_of(group)]
        minimum = {k: max(amount - own[k], 0.0) for k, amount in _minimum(group).items()}
        free = _sum([room.free for room in rooms])
        # A resource that no node has is no reason to refuse: the group is admitted, and its Pods
        # find no node.
        known = {k: amount for k, amount in minimum.items() if self._total[k]}
        short = [k for k, amount in known.items() if amount > free[k] - self._reserved[k]]
        if short:
            return f"resource in cluster is overused: overused {', '.join(short)}"
        for key, limit in self._capability(name).items():
            if minimum.get(key, 0.0) and self._used[name][key] + minimum[key] > limit:
                return f"queue resource quota insufficient: insufficient {key}"
        return ""

    def let_in(self, group: Object) -> None:
        """Count the needs of *group* as used."""
        for key, amount in _minimum(group).items():
            self._used[queue_of(group)][key] += amount
            self._reserved[key] += amount

    def allowance(self, group: Object) -> Amounts:
        """Return what pods of *group* may still use of the resources that its Queue limits."""
        name = queue_of(group)
        bound = self._bound[name]
        return {key: limit - bound[key] for key, limit in self._capability(name).items()}

    def statuses(self) -> Iterator[tuple[str, Object]]:
        """Yield, for each Queue, the content of its status beside its state."""
        for name in self._queues:
            used = {"cpu": 0.0, "memory": 0.0, **self._bound[name]}
            pods = self._pods[name]
            amounts = {key: shown_amount(value) for key, value in used.items()}
            # Since 1.10 only Volcano's metrics have the number of groups in each phase.
            allocated = amounts | ({"pods": str(pods)} if pods else {})
            yield name, {"allocated": allocated, "reservation": {}}

    def _count(self, group: Object, pods: Sequence[Object]) -> None:
        name = queue_of(group)
        phase = (group.get("status") or {}).get("phase") or "Pending"
        there = self._own[key_of(group)]
        for pod in pods:
            if not has_ended(pod):
                bound = bool(pod["spec"].get("nodeName"))
                self._pods[name] += bound
                for key, amount in requests(pod["spec"]).items():
                    self._bound[name][key] += amount if bound else 0.0
                    there[key] += amount if bound else 0.0
        minimum = _minimum(group) if phase == "Inqueue" else {}
        for key in {*there, *minimum}:
            self._used[name][key] += max(there[key], minimum.get(key, 0.0))
            self._reserved[key] += max(minimum.get(key, 0.0) - there[key], 0.0)

    def _share(self, name: str) -> float:
        """Return the largest share of any resource that the Queue uses, for its weight."""
        weight = ((self._queues.get(name) or {}).get("spec") or {}).get("weight") or 1
        # A resource that no node has gives no share: a group that asks for it waits in its Queue.
        used = self._used[name].items()
        parts = [amount / self._total[key] for key, amount in used if self._total[key]]
        return max(parts, default=0.0) / float(weight)

    def _capability(self, name: str) -> Amounts:
        spec = (self._queues.get(name) or {}).get("spec") or {}
        return {key: quantity(str(v)) for key, v in (spec.get("capability") or {}).items()}


def queue_of(group: Object) -> str:
    """Return the name of the Queue that *group* is in."""
    return str(group["spec"].get("queue") or "default")


def _minimum(group: Object) -> Amounts:
    asked = group["spec"].get("minResources") or {}
    # Resources that only quotas count are not resources of a node.
    amounts = {key: value for key, value in asked.items() if not key.startswith("count/")}
    return {key: quantity(str(amount)) for key, amount in amounts.items()}


def _sum(amounts: Iterable[Amounts]) -> Amounts:
    total: Amounts = defaultdict(float)
    for each in amounts:
        for key, amount in each.items():
            total[key] += amount
    return total


def _age(value: Object) -> tuple[str, str]:
    return value["metadata"].get("creationTimestamp", ""), value["metadata"]["name"]
