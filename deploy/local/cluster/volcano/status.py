"""Makes a job's status. No I/O."""

from collections import defaultdict
from datetime import datetime
from typing import Any

from deploy.local.cluster.volcano.plugins import companion_names
from deploy.local.cluster.volcano.states import (
    FINISHED,
    Decision,
    count,
    phase_of,
    task_of,
)

Object = dict[str, Any]


def make_status(
    job: Object, pods: list[Object], decision: Decision, *, with_counts: bool, now: str
) -> Object:
    """Return the status for *decision*."""
    old = job.get("status") or {}
    phase = decision.phase
    changed = phase != phase_of(job)
    # The kill that ends a job raises its version once more, when its counts vanish.
    raised = decision.full or (not with_counts and "taskStatusCount" in old)
    status: Object = {
        "state": {"phase": phase, "lastTransitionTime": now} if changed else old["state"],
        "minAvailable": job["spec"]["minAvailable"],
        "version": old.get("version", 0) + raised,
        "retryCount": old.get("retryCount", 0) + decision.retry,
        "controlledResources": companion_names(job) if _provided(job, decision) else {},
        "conditions": list(old.get("conditions") or []),
    }
    if with_counts:
        status |= {name: number for name, number in count(pods).items() if number}
        status["taskStatusCount"] = _task_counts(job, pods)
    if changed:
        kept = [c for c in status["conditions"] if c["status"] != phase]
        status["conditions"] = [*kept, {"status": phase, "lastTransitionTime": now}]
    if phase in FINISHED or phase == "Aborted":
        since = datetime.fromisoformat(job["metadata"]["creationTimestamp"])
        passed = (datetime.fromisoformat(now) - since).total_seconds()
        status["runningDuration"] = old.get("runningDuration") or f"{passed:.0f}s"
    return {name: value for name, value in status.items() if value not in ({}, [], 0)}


def _provided(job: Object, decision: Decision) -> bool:
    """Whether companions exist: not at first, and a kill removes them."""
    return bool(phase_of(job)) and not decision.kill and decision.phase in ("Pending", "Running")


def _task_counts(job: Object, pods: list[Object]) -> Object:
    counts: Object = {}
    for task in job["spec"]["tasks"]:
        phases: dict[str, int] = defaultdict(int)
        for pod in pods:
            if task_of(pod) == task["name"]:
                phases[(pod.get("status") or {}).get("phase", "Pending")] += 1
        if phases:
            counts[task["name"]] = {"phase": dict(phases)}
    return counts


def is_told(job: Object, decision: Decision) -> bool:
    """Whether this end was written before: then the counts are left out."""
    ended = decision.phase in FINISHED or decision.phase == "Aborted"
    return ended and phase_of(job) == decision.phase
