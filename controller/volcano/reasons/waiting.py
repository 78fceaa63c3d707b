"""Why a VolcanoJob waits, by the messages of the cluster. No I/O.

Volcano reports the reason in several places, none of which is the VolcanoJob:

- A pod that fits on no node has the condition ``PodScheduled``.
- Pods that the API server refuses (a quota, Pod Security) exist only as events ``FailedCreate`` of
  the VolcanoJob. A refused Service, claim or PodGroup has other events (``initiateJob`` in
  job_controller_actions.go).
- A PodGroup that is not admitted to its queue has no conditions, only events.

(Seen with Volcano 1.15.1.)

Pods that would not even fit on an empty node are reported, but not refused: a pool may grow, also
from zero nodes. Taints, affinities and running pods are left to the scheduler.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from controller.volcano.parsing import read_time
from controller.volcano.quantities import parse_quantity
from controller.volcano.reasons.causes import (
    cause_of_missing,
    cause_of_queue,
    cause_of_refusal,
    readable_quantities,
    scheduling_details,
)
from controller.volcano.reasons.denials import sentence_of
from shared.text import plain_text

_PODS_REFUSED: Final = ("FailedCreate",)
_REFUSED: Final = (*_PODS_REFUSED, "PluginError", "PVCError", "PodGroupError")
"""Events of a VolcanoJob whose pods, or the objects before them, cannot be created."""
_NO_PODS: Final = re.compile(r"\d+/0 tasks in gang unschedulable")
"""The scheduler's message about a group that was admitted, and has no pods yet: it has tried to
place none. Volcano's controller may be slow, or the API server refuses them."""
_COMMANDED: Final = "CommandIssued"
"""The event of a VolcanoJob for which a client has created a Command."""
UNSCHEDULABLE: Final = "Unschedulable"
LONGEST: Final = 1000

_OF_GO: Final = re.compile(r'\bMessage:"((?:[^"\\]|\\.)*)"?')
"""In an ``*errors.StatusError`` as ``%#v`` prints it; events are cut off at 1 KiB."""
_FAILED: Final = re.compile(r"failed to create pod \S+, err: (.+)", re.DOTALL)
_NOT_MADE: Final = re.compile(
    r"(?:Execute plugin when job add failed|Failed to create (?:PVC|PodGroup)), err ?: (.+)",
    re.DOTALL,
)
_COMBINED: Final = "(combined from similar events): "


_MOUNTS: Final = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_SANDBOXES: Final = (
    *("FailedCreatePodSandBox", "FailedPodSandBoxStatus", "NetworkNotReady"),
    *("FailedCreatePodContainer", "FailedToMakePodDataDirectories"),
)
_DEVICES: Final = ("FailedPrepareDynamicResources",)
_GOES_ON: Final = ("Pulling", "Pulled", "Created", "Started")
_CAUSES: Final = MappingProxyType(
    dict.fromkeys(_MOUNTS, "volume")
    | dict.fromkeys(_SANDBOXES, "sandbox")
    | dict.fromkeys(_DEVICES, "device")
)
_STEPS: Final = frozenset((*_CAUSES, *_GOES_ON))
"""Events of a kubelet about a pod that it prepares."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job waits, or has failed: a machine-readable reason, a message, and details.

    ``details`` have a ``cause``, which is finer than the reason, and the objects that it names.
    They are not
    compared: the same reason and message are not reported again.
    """

    reason: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)


QUEUED: Final = Explanation("queued", "waiting in the queue", {"cause": "queued"})
"""The explanation of a job without any other message."""


NOT_TAKEN_UP: Final = Explanation(
    "queued",
    "Volcano has not taken it up yet: its controllers may be away",
    {"cause": "not_taken_up"},
)
"""The explanation of a VolcanoJob without status and PodGroup that has existed for a while."""


def group_name(job: str, uid: str) -> str:
    """Return the name that Volcano gives the PodGroup of a VolcanoJob."""
    return f"{job}-{uid}"


def explain_refused(
    events: Iterable[Mapping[str, Any]], *, has_group: bool = False, since: float = 0.0
) -> Explanation | None:
    """Return why pods, or the objects before them, are not created, by the VolcanoJob's *events*.

    The PodGroup is the last object before the pods: once it exists, a later try created what was
    refused before. Objects that were refused before *since*, when the VolcanoJob entered its phase,
    were created, too: a restarted job has another reason. Events are kept for an hour.
    """
    # Times are whole seconds.
    current = (one for one in events if _time_of(one) > since - 1)
    message = _last_message(current, *(_PODS_REFUSED if has_group else _REFUSED))
    if not message:
        return None
    refusal = _refusal(message)
    # The prefix that sentence_of removes says that a webhook or a policy denied it.
    details = {"cause": cause_of_refusal(refusal)}
    return Explanation("forbidden", _text(sentence_of(refusal)), details)


def has_command(events: Iterable[Mapping[str, Any]], action: str) -> bool:
    """Return whether the VolcanoJob's *events* say that Volcano has executed a command.

    ``processNextCommand`` in job_controller_handler.go writes such an event.
    """
    start = f"Start to execute command {action},"
    texts = (_text(one.get("message")) for one in events if one.get("reason") == _COMMANDED)
    return any(text.removeprefix(_COMBINED).startswith(start) for text in texts)


def explain_preparing(events: Iterable[Mapping[str, Any]]) -> Explanation | None:
    """Return why a kubelet cannot prepare a pod, by the pod's *events*."""
    steps = [one for one in events if one.get("reason") in _STEPS]
    # Times are whole seconds: of two events of one second, the progress is more significant.
    last = max(steps, key=lambda one: (_time_of(one), one["reason"] in _GOES_ON), default=None)
    if last is None or last["reason"] in _GOES_ON or not (message := _text(last.get("message"))):
        return None
    details = {"cause": cause_of_missing(message, _CAUSES[last["reason"]])}
    return Explanation("preparing", f"preparing the container: {message}", details)


def explain_group(
    group: Mapping[str, Any], events: Iterable[Mapping[str, Any]]
) -> Explanation | None:
    """Return why the PodGroup is not placed, by its conditions, else by its *events*."""
    status = group.get("status") or {}
    for condition in reversed(status.get("conditions") or ()):
        if condition.get("type") == UNSCHEDULABLE and condition.get("status") == "True":
            message = _text(condition.get("message") or condition.get("reason"))
            if message and not _NO_PODS.match(message):
                return Explanation("unschedulable", message, scheduling_details(message))
            break
    message = _last_message(events, UNSCHEDULABLE)
    if not message or _NO_PODS.match(message):
        return None
    if status.get("phase") in (None, "", "Pending"):
        details = scheduling_details(message) | {"cause": cause_of_queue(message)}
        text = f"waiting in the queue: {readable_quantities(message)}"
        return Explanation("queued", text, details)
    return Explanation("unschedulable", message, scheduling_details(message))


def _last_message(events: Iterable[Mapping[str, Any]], *reasons: str) -> str:
    found = [one for one in events if one.get("reason") in reasons and one.get("message")]
    return _text(max(found, key=_time_of)["message"]) if found else ""


def _time_of(event: Mapping[str, Any]) -> float:
    times = (
        event.get("lastTimestamp"),
        event.get("eventTime"),
        (event.get("series") or {}).get("lastObservedTime"),
        (event.get("metadata") or {}).get("creationTimestamp"),
    )
    return max((at for one in times if (at := read_time(one)) is not None), default=0.0)


def _refusal(message: str) -> str:
    """Return the API server's response to Volcano, from the *message* of an event."""
    message = message.removeprefix(_COMBINED)
    if match := _OF_GO.search(message):
        return _unquoted(match[1])
    if match := _FAILED.search(message):
        return match[1].rstrip("]")
    if match := _NOT_MADE.search(message):
        return match[1]
    return message


def _unquoted(text: str) -> str:
    try:
        found: str = json.loads(f'"{text}"')
    except ValueError:  # the escapes of Go are not all JSON, and the text may be cut off
        return text.replace('\\"', '"')
    return found


def _text(said: object) -> str:
    return plain_text(said, LONGEST)


NO_NODE_FITS: Final = "no_node_fits"
"""The cause of a request that no node could meet now."""

_MOST_RESOURCES: Final = 8
_BYTES: Final = ("memory", "ephemeral-storage")
_LATER: Final = "nodes may be added"


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """The resources of an empty node for pods, in thousandths, by resource."""

    labels: Mapping[str, str]
    given: Mapping[str, int]


def read_node(node: Mapping[str, Any]) -> NodeRoom | None:
    """Return the room of *node* (JSON); None if it accepts no pods now."""
    if not takes_pods(node):
        return None
    given = (node.get("status") or {}).get("allocatable") or {}
    labels = (node.get("metadata") or {}).get("labels") or {}
    return NodeRoom(labels, {name: _milli(amount) for name, amount in given.items()})


def takes_pods(node: Mapping[str, Any]) -> bool:
    """Return whether *node* is ready and not cordoned."""
    if (node.get("spec") or {}).get("unschedulable"):
        return False
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = [one.get("status") for one in conditions if one.get("type") == "Ready"]
    return ready in ([], ["True"])


def why_no_node(volcano_job: Mapping[str, Any], nodes: Sequence[NodeRoom]) -> Explanation | None:
    """Return why no node could fit a pod of *volcano_job* (JSON); None if each fits."""
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
    """Return the requests of a pod: of all containers together, or of the largest init container.

    Sidecars go on beside the containers, and beside init containers after them (Kubernetes,
    "Sidecar Containers", "Resource sharing within containers").
    """
    sidecars, largest = Counter[str](), Counter[str]()
    for one in spec.get("initContainers") or ():
        if one.get("restartPolicy") == "Always":
            sidecars.update(_requested(one))
        else:
            largest |= sidecars + Counter(_requested(one))
    together = sidecars.copy()
    for one in spec.get("containers") or ():
        together.update(_requested(one))
    return dict(+(together | largest))


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
