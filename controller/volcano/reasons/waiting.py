"""Why a VolcanoJob waits, from what the cluster says of it. No I/O.

Volcano tells it in several places, none of which is the VolcanoJob: pods that no node takes have a
condition ``PodScheduled``; pods that the API server refuses (a quota, Pod Security) exist only as
the VolcanoJob's events ``FailedCreate``, and a Service, claim or PodGroup that it refuses as other
events (``initiateJob`` in job_controller_actions.go); a PodGroup that is not let into the queue
has no conditions, only events. (Seen with Volcano 1.15.1.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from controller.plain import plain_text
from controller.volcano.observed import read_time
from controller.volcano.reasons.causes import (
    cause_of_missing,
    cause_of_queue,
    cause_of_refusal,
    scheduling_details,
)
from controller.volcano.reasons.denials import sentence_of

_PODS_REFUSED: Final = ("FailedCreate",)
_REFUSED: Final = (*_PODS_REFUSED, "PluginError", "PVCError", "PodGroupError")
"""Events of a VolcanoJob whose pods, or what Volcano makes before them, cannot be made."""
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
_SANDBOXES: Final = ("FailedCreatePodSandBox", "FailedPodSandBoxStatus", "NetworkNotReady")
_GOES_ON: Final = ("Pulling", "Pulled", "Created", "Started")
_STEPS: Final = frozenset((*_MOUNTS, *_SANDBOXES, *_GOES_ON))
"""Events of a kubelet about a pod that it prepares."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job waits, or has failed: a word for programs, a text for people, and what is known.

    ``details`` say more to programs: a ``cause`` that is finer than the reason, and what it is of.
    They take no part in comparisons: a reason and a text that are told already are not told again.
    """

    reason: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)


QUEUED: Final = Explanation("queued", "waiting in the queue", {"cause": "queued"})
"""Of a job on which nothing else is known."""


def group_name(job: str, uid: str) -> str:
    """Return the name that Volcano gives the PodGroup of a VolcanoJob."""
    return f"{job}-{uid}"


def explain_refused(
    events: Iterable[Mapping[str, Any]], *, has_group: bool = False
) -> Explanation | None:
    """Return why pods, or what comes before them, are not made, from the VolcanoJob's *events*.

    The PodGroup comes last before the pods: where it is there, what was refused before it was made
    by a later try.
    """
    message = _last_message(events, *(_PODS_REFUSED if has_group else _REFUSED))
    if not message:
        return None
    said = _refusal(message)
    return Explanation("forbidden", said, {"cause": cause_of_refusal(said)})


def explain_preparing(events: Iterable[Mapping[str, Any]]) -> Explanation | None:
    """Return what keeps a kubelet from preparing a pod, from the pod's *events*."""
    steps = [one for one in events if one.get("reason") in _STEPS]
    # Times are whole seconds: of two events of one second, what went on tells more.
    last = max(steps, key=lambda one: (_time_of(one), one["reason"] in _GOES_ON), default=None)
    if last is None or last["reason"] in _GOES_ON or not (message := _text(last.get("message"))):
        return None
    cause = "volume" if last["reason"] in _MOUNTS else "sandbox"
    details = {"cause": cause_of_missing(message, cause)}
    return Explanation("preparing", f"preparing the container: {message}", details)


def explain_group(
    group: Mapping[str, Any], events: Iterable[Mapping[str, Any]]
) -> Explanation | None:
    """Return why the PodGroup is not placed, from its conditions, else from its *events*."""
    status = group.get("status") or {}
    for condition in reversed(status.get("conditions") or ()):
        if condition.get("type") == UNSCHEDULABLE and condition.get("status") == "True":
            if message := _text(condition.get("message") or condition.get("reason")):
                return Explanation("unschedulable", message, scheduling_details(message))
            break
    if not (message := _last_message(events, UNSCHEDULABLE)):
        return None
    if status.get("phase") in (None, "", "Pending"):
        details = scheduling_details(message) | {"cause": cause_of_queue(message)}
        return Explanation("queued", f"waiting in the queue: {message}", details)
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
    message = message.removeprefix(_COMBINED)
    if match := _OF_GO.search(message):
        return _text(sentence_of(_unquoted(match[1])))
    if match := _FAILED.search(message):
        return _text(sentence_of(match[1].rstrip("]")))
    if match := _NOT_MADE.search(message):
        return _text(sentence_of(match[1]))
    return message


def _unquoted(text: str) -> str:
    try:
        found: str = json.loads(f'"{text}"')
    except ValueError:  # Go's escapes are not all of JSON's, and it may be cut off
        return text.replace('\\"', '"')
    return found


def _text(said: object) -> str:
    return plain_text(said, LONGEST)
