"""The allocatable resources of the cluster's nodes, cached briefly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, TypeAlias

from controller.kube.client import Kube
from controller.kube.decoding import FieldTransform
from controller.kube.errors import KubeError
from controller.kube.kinds import NODES
from controller.volcano.fields import NODE
from controller.volcano.quantities import parse_quantity
from controller.volcano.reasons.waiting import takes_pods

Counts: TypeAlias = Callable[[Mapping[str, str]], bool]

GOOD_FOR_SECONDS: Final = 10.0


NODES_READ: Final = FieldTransform(NODE)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """CPU cores, bytes of memory and GPUs that nodes can give to pods."""

    cpu: float
    memory: float
    gpu: float


@dataclass(frozen=True, slots=True)
class _Node:
    labels: Mapping[str, str]
    given: NodeCapacity


@dataclass(slots=True, eq=False, repr=False)
class Capacity:
    """Sums the allocatable resources of schedulable nodes."""

    kube: Kube
    _: KW_ONLY
    gpu_resources: frozenset[str]
    """The resource names that count as GPUs."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    _known: list[_Node] | None = field(default=None, init=False)
    _good_until: float = field(default=0.0, init=False)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def __call__(self, counts: Counts = lambda _labels: True) -> NodeCapacity | None:
        """Return the capacity, at most ten seconds old; None while the cluster is unavailable.

        Args:
            counts: Decides by a node's labels whether the node counts.
        """
        # Concurrent callers wait for the same response.
        async with self._looking:
            if self.clock() >= self._good_until:
                await self._look()
        if self._known is None:
            return None
        given = [node.given for node in self._known if counts(node.labels)]
        return NodeCapacity(
            cpu=sum(one.cpu for one in given),
            memory=sum(one.memory for one in given),
            gpu=sum(one.gpu for one in given),
        )

    async def _look(self) -> None:
        try:
            nodes = await self.kube.list(NODES, transform=NODES_READ)
        except KubeError as error:
            log.warning("cannot list nodes", extra={"why": str(error)})
            self._known = None
        else:
            self._known = [self._read(node) for node in nodes if takes_pods(node)]
        self._good_until = self.clock() + GOOD_FOR_SECONDS

    def _read(self, node: Mapping[str, Any]) -> _Node:
        given = (node.get("status") or {}).get("allocatable") or {}
        amounts = NodeCapacity(
            cpu=_amount(given, "cpu"),
            memory=_amount(given, "memory"),
            gpu=sum(_amount(given, name) for name in self.gpu_resources),
        )
        return _Node((node.get("metadata") or {}).get("labels") or {}, amounts)


def _amount(given: Mapping[str, Any], name: str) -> float:
    try:
        return parse_quantity(str(given.get(name, "0"))).milli / 1000
    except ValueError:
        return 0.0
