"""Why a VolcanoJob waits, from what the cluster says of it. No I/O.

Volcano tells it in several places, none of which is the VolcanoJob: pods that no node takes have a
condition ``PodScheduled``; pods that the API server refuses (a quota, Pod Security) exist only as
the VolcanoJob's events ``FailedCreate``; a PodGroup that is not let into the queue has no
conditions, only events. (Seen with Volcano 1.15.1.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from controller.volcano.denials import sentence_of
from controller.volcano.observed import read_time

FAILED_CREATE: Final = "FailedCreate"
UNSCHEDULABLE: Final = "Unschedulable"
LONGEST: Final = 1000

_OF_GO: Final = re.compile(r'\bMessage:"((?:[^"\\]|\\.)*)"?')
"""In an ``*errors.StatusError`` as ``%#v`` prints it; events are cut off at 1 KiB."""
_FAILED: Final = re.compile(r"failed to create pod \S+, err: (.+)", re.DOTALL)
_COMBINED: Final = "(combined from similar events): "


class Explanation(NamedTuple):
    """Why a job waits: a word for programs, and a text for people."""

    reason: str
    message: str


def group_name(job: str, uid: str) -> str:
    """Return the name that Volcano gives the PodGroup of a VolcanoJob."""
    return f"{job}-{uid}"


def explain_refused(events: Iterable[Mapping[str, Any]]) -> Explanation | None:
    """Return why pods cannot be made, from the VolcanoJob's *events*."""
    message = _last_message(events, FAILED_CREATE)
    return Explanation("forbidden", _refusal(message)) if message else None


def explain_group(
    group: Mapping[str, Any], events: Iterable[Mapping[str, Any]]
) -> Explanation | None:
    """Return why the PodGroup is not placed, from its conditions, else from its *events*."""
    status = group.get("status") or {}
    for condition in reversed(status.get("conditions") or ()):
        if condition.get("type") == UNSCHEDULABLE and condition.get("status") == "True":
            if message := _text(condition.get("message") or condition.get("reason")):
                return Explanation("unschedulable", message)
            break
    if not (message := _last_message(events, UNSCHEDULABLE)):
        return None
    if status.get("phase") in (None, "", "Pending"):
        return Explanation("queued", f"waiting in the queue: {message}")
    return Explanation("unschedulable", message)


def _last_message(events: Iterable[Mapping[str, Any]], reason: str) -> str:
    found = [one for one in events if one.get("reason") == reason and one.get("message")]
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
    return message


def _unquoted(text: str) -> str:
    try:
        found: str = json.loads(f'"{text}"')
    except ValueError:  # Go's escapes are not all of JSON's, and it may be cut off
        return text.replace('\\"', '"')
    return found


def _text(said: object) -> str:
    return str(said or "").strip()[:LONGEST]
