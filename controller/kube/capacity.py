"""What the cluster's nodes have for jobs, asked for now and then."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from controller.kube.client import Kube
from controller.kube.errors import KubeError
from controller.kube.kinds import NODES
from controller.volcano.quantity import parse_quantity

GOOD_FOR_SECONDS: Final = 10.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """Processors, bytes and devices that nodes can give to pods."""

    cpu: float
    memory: float
    gpu: float


class Capacity:
    """Sums up what can be given by nodes that take pods.

    Args:
        kube: The cluster.
        gpu_resources: The names of devices that count.
        clock: Monotonic seconds.
    """

    def __init__(
        self, kube: Kube, *, gpu_resources: frozenset[str], clock: Callable[[], float]
    ) -> None:
        self._kube = kube
        self._gpu_resources = gpu_resources
        self._clock = clock
        self._known: NodeCapacity | None = None
        self._good_until = 0.0

    async def __call__(self) -> NodeCapacity | None:
        """Return it, at most ten seconds old; None while the cluster does not answer."""
        if self._clock() >= self._good_until:
            try:
                nodes = await self._kube.list(NODES)
            except KubeError as error:
                log.warning("nodes cannot be listed", extra={"why": str(error)})
                self._known = None
            else:
                self._known = capacity_of(nodes, self._gpu_resources)
            self._good_until = self._clock() + GOOD_FOR_SECONDS
        return self._known


def capacity_of(nodes: list[dict[str, Any]], gpu_resources: frozenset[str]) -> NodeCapacity:
    """Return what those of *nodes* can give that are ready and take pods."""
    cpu = memory = gpu = 0.0
    for node in nodes:
        if not _takes_pods(node):
            continue
        given = (node.get("status") or {}).get("allocatable") or {}
        cpu += _amount(given, "cpu")
        memory += _amount(given, "memory")
        gpu += sum(_amount(given, name) for name in gpu_resources)
    return NodeCapacity(cpu, memory, gpu)


def _takes_pods(node: Mapping[str, Any]) -> bool:
    if (node.get("spec") or {}).get("unschedulable"):
        return False
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = [one.get("status") for one in conditions if one.get("type") == "Ready"]
    return ready in ([], ["True"])


def _amount(given: Mapping[str, Any], name: str) -> float:
    try:
        return parse_quantity(str(given.get(name, "0"))).milli / 1000
    except ValueError:
        return 0.0
