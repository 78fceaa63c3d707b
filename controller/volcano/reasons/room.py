"""Whether any node could take a job's pods if it were empty. No I/O.

That none could is said, and refuses nothing: a pool may grow, also from no node at all. What only a
scheduler knows (taints, affinities, what runs already) is left to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controller.plain import plain_text
from controller.volcano.quantity import parse_quantity
from controller.volcano.reasons.waiting import Explanation

NO_NODE_FITS: Final = "no_node_fits"
"""The cause of a request that no node could meet now."""

_MOST_RESOURCES: Final = 8
_BYTES: Final = ("memory", "ephemeral-storage")
_LATER: Final = "nodes may be added"


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What an empty node could give to pods, in thousandths, by resource."""

    labels: Mapping[str, str]
    given: Mapping[str, int]


def read_node(node: Mapping[str, Any]) -> NodeRoom | None:
    """Return the room of *node* (JSON); None where it takes no pods now."""
    if not takes_pods(node):
        return None
    given = (node.get("status") or {}).get("allocatable") or {}
    labels = (node.get("metadata") or {}).get("labels") or {}
    return NodeRoom(labels, {name: _milli(amount) for name, amount in given.items()})


def takes_pods(node: Mapping[str, Any]) -> bool:
    """Say whether *node* is ready, and not cordoned."""
    if (node.get("spec") or {}).get("unschedulable"):
        return False
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = [one.get("status") for one in conditions if one.get("type") == "Ready"]
    return ready in ([], ["True"])


def why_no_node(volcano_job: Mapping[str, Any], nodes: Sequence[NodeRoom]) -> Explanation | None:
    """Return why no node could take a pod of *volcano_job* (JSON); None where each finds one."""
    for task in (volcano_job.get("spec") or {}).get("tasks") or ():
        spec = (task.get("template") or {}).get("spec") or {}
        selector = spec.get("nodeSelector") or {}
        chosen = [one for one in nodes if selector.items() <= one.labels.items()]
        wanted = _requests(spec)
        if not any(_fits(wanted, one) for one in chosen):
            return _explained(str(task.get("name") or ""), wanted, selector, chosen)
    return None


def _explained(
    task: str, wanted: Mapping[str, int], selector: Mapping[str, str], nodes: Sequence[NodeRoom]
) -> Explanation:
    lacking = [
        name
        for name in sorted(wanted)
        if wanted[name] > max((one.given.get(name, 0) for one in nodes), default=0)
    ][:_MOST_RESOURCES]
    details: dict[str, Any] = {"cause": NO_NODE_FITS, "task": task}
    if not nodes:
        which = " with the labels " + _pairs(selector) if selector else ""
        text = f"there is no node{which} that takes pods now; {_LATER}"
    elif lacking:
        name = lacking[0]
        largest = max(one.given.get(name, 0) for one in nodes)
        text = (
            f"no node could take it now: each pod of {task} asks for {_shown(name, wanted[name])}"
            f" {name}, and the largest node has {_shown(name, largest)}; {_LATER}"
        )
        details["resources"] = lacking
    else:
        text = f"no node has all that a pod of {task} asks for: {_amounts(wanted)}; {_LATER}"
    return Explanation("unschedulable", plain_text(text, 1000), details)


def _fits(wanted: Mapping[str, int], node: NodeRoom) -> bool:
    return all(node.given.get(name, 0) >= amount for name, amount in wanted.items())


def _requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return what a pod asks for: its containers together, or one that comes before them."""
    together = Counter[str]()
    for one in spec.get("containers") or ():
        together.update(_requested(one))
    for one in spec.get("initContainers") or ():
        for name, amount in _requested(one).items():
            together[name] = max(together[name], amount)
    return {name: amount for name, amount in together.items() if amount > 0}


def _requested(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: _milli(amount) for name, amount in amounts.items()}


def _milli(amount: object) -> int:
    try:
        return parse_quantity(str(amount)).milli
    except ValueError:
        return 0


def _shown(resource: str, milli: int) -> str:
    if resource in _BYTES:
        return f"{milli / 1000 / 2**30:.4g}Gi"
    return f"{milli / 1000:g}"


def _amounts(wanted: Mapping[str, int]) -> str:
    return ", ".join(f"{_shown(name, wanted[name])} {name}" for name in sorted(wanted))


def _pairs(selector: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(selector.items()))
