"""Chooses the action for an event: by the task's policies first, then by the job's. No I/O."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

Object = dict[str, Any]
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


@dataclass(frozen=True, slots=True)
class Happened:
    """Something that happened to a pod of a job."""

    event: str
    task: str = ""
    pod: str = ""
    pod_uid: str = ""
    partition: str = ""
    exit_code: int | None = None
    version: int = 0
    """The job's version that the pod was made for. Events of older pods trigger nothing."""


@dataclass(frozen=True, slots=True)
class Called:
    """An action, and the time to wait before it."""

    action: str
    delay_seconds: float = 0.0


def called_for(job: Object, happened: Happened) -> Called | None:
    """Return the action of the first policy that *happened* triggers, or None."""
    if happened.version < (job.get("status") or {}).get("version", 0):
        return None
    for policy in _policies(job, happened.task):
        if _meets(policy, happened):
            return Called(policy["action"], parse_duration(policy.get("timeout") or "0s"))
    return None


def _policies(job: Object, task_name: str) -> Iterator[Object]:
    for task in job["spec"]["tasks"]:
        if task["name"] == task_name:
            yield from task.get("policies") or []
    yield from job["spec"].get("policies") or []


def _meets(policy: Object, happened: Happened) -> bool:
    events = {*(policy.get("events") or []), policy.get("event")}
    if happened.event == "PodPending" and not policy.get("timeout"):
        return False  # every pod is pending once: only being pending for too long is an event
    if happened.event == "PodRunning":
        return False  # internal: it only cancels timeouts
    if happened.event in events or "*" in events:
        return True
    code = policy.get("exitCode")
    return code is not None and code == happened.exit_code and happened.event == "PodFailed"


def parse_duration(text: str) -> float:
    """Return a Go duration such as ``1m30s`` in seconds."""
    return sum(
        float(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9.]+)(ms|h|m|s)", text)
    )
