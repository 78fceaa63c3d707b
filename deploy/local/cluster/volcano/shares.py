"""Whose turn it is, and what a Queue may use. No I/O.

The Queue that uses the least for its weight goes first; within one, the oldest group does. A
group is let in when its Queue is open and what it needs at least is neither beyond the
Queue's capability nor more than the cluster has left, counting groups that were let in before
and whose pods are not there yet. What runs is never taken back.
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
    """What the Queues use in one round of scheduling; `let_in` adds to it."""

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
        """Yield all groups in the order in which they are to be served."""
        lines = {name: deque(sorted(own, key=_age)) for name, own in self._groups.items()}
        turns = [(self._share(name), name) for name in lines]
        heapq.heapify(turns)
        while turns:
            _, name = heapq.heappop(turns)
            yield lines[name].popleft()
            if lines[name]:
                heapq.heappush(turns, (self._share(name), name))

    def reason_to_wait(self, group: Object, rooms: Sequence[Room]) -> str:
        """Return why *group* is not let in; empty if it is."""
        name = queue_of(group)
        if state_of(self._queues.get(name)) != "Open":
            return f"queue {name} is not open"
        # A group that was made anew while some of its pods run needs only what they have not.
        own = self._own[key_of(group)]
        minimum = {k: max(amount - own[k], 0.0) for k, amount in _minimum(group).items()}
        free = _sum([room.free for room in rooms])
        # What no node has is no reason: such a group is let in, and its Pods find no node.
        known = {k: amount for k, amount in minimum.items() if self._total[k]}
        short = [k for k, amount in known.items() if amount > free[k] - self._reserved[k]]
        if short:
            return f"resource in cluster is overused: overused {', '.join(short)}"
        for key, limit in self._capability(name).items():
            if minimum.get(key, 0.0) and self._used[name][key] + minimum[key] > limit:
                return f"queue resource quota insufficient: insufficient {key}"
        return ""

    def let_in(self, group: Object) -> None:
        """Count what *group* needs as used."""
        for key, amount in _minimum(group).items():
            self._used[queue_of(group)][key] += amount
            self._reserved[key] += amount

    def allowance(self, group: Object) -> Amounts:
        """Return what pods of *group* may still take of what its Queue has a limit for."""
        name = queue_of(group)
        bound = self._bound[name]
        return {key: limit - bound[key] for key, limit in self._capability(name).items()}

    def statuses(self) -> Iterator[tuple[str, Object]]:
        """Yield, for each Queue, what its status is to say beside its state."""
        for name in self._queues:
            used = {"cpu": 0.0, "memory": 0.0, **self._bound[name]}
            pods = self._pods[name]
            amounts = {key: shown_amount(value) for key, value in used.items()}
            # How many groups are in each phase is told by Volcano's metrics alone since 1.10.
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
        """Return the largest part of anything that the Queue uses, for its weight."""
        weight = ((self._queues.get(name) or {}).get("spec") or {}).get("weight") or 1
        # Of what no node has, nobody uses a part: a group that asks for it waits in its Queue.
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
    # What is counted for quotas alone is nothing that a node has.
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
