"""Carries out policies that Volcano has missed, while other pods of the job go on.

Volcano applies a policy when its controller sees a pod fail, or the last pod of a task succeed. A
controller that starts later, after a failover or an upgrade, finds such a pod in its first list and
applies no policy (``addPod`` in job_controller_handler.go). It also takes the exit code of the
first container by name, which may be an injected sidecar's, and of two pods that fail at once it
may restart only the first one's task (``applyPolicies`` compares versions).

Then the job goes on without an end: ranks wait for the failed one, and workers of MPI, which do not
end by themselves, run on after their master.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controller.jobs.history.retries import Triggered, policies_of, triggered
from controller.jobs.reconcile.lifecycle.failure import after_failure
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import (
    ConfirmPods,
    IssueCommand,
    StartNextAttempt,
    Step,
    Wait,
)
from controller.volcano.observed import ObservedJob, ObservedPod
from controller.volcano.policies import RESTARTS

MISSED_SECONDS: Final = 300.0
"""How long Volcano may take. With hundreds of jobs at once, it sees a pod's end a minute late."""

_PHASES: Final = ("Pending", "Running")
_OVER: Final = ("Succeeded", "Failed")


def missed_first(seen: ObservedState, job: ObservedJob, step: Step) -> Step:
    """Return the step for a policy that Volcano has missed; if it is not due yet, *step*."""
    found = _missed_policy(seen, job)
    if not isinstance(found, Wait):
        return found or step
    if not isinstance(step, Wait) or found.until is None:
        return step
    return found if step.until is None else Wait(min(found.until, step.until))


def _missed_policy(seen: ObservedState, job: ObservedJob) -> ConfirmPods | Wait | None:
    """Return the step that carries out a missed policy, Wait until it is due, or None.

    A pod that triggered a policy which Volcano carries out is deleted, or the VolcanoJob leaves its
    phase. So a pod that stays shows that Volcano has missed the policy.
    """
    if job.phase not in _PHASES:
        return None
    over = [pod for pod in seen.staying() if pod.phase in _OVER]
    if not over:
        return None
    policies = policies_of(seen.record)
    followed = triggered(policies, [seen.runs[pod.uid] for pod in over])
    if followed is None or policies.is_ours(followed.rule):
        return None
    # Not the time of the end: a node that was cut off reports an end late, and clocks differ.
    due_at = seen.ended_since_of(_causes(followed, over)) + MISSED_SECONDS
    if seen.now < due_at:
        return Wait(due_at)
    step = after_failure(seen, job, policies, followed)
    if isinstance(step, StartNextAttempt):
        return ConfirmPods(step)
    if followed.rule.action in RESTARTS:
        text = f"{followed.why}, and no retry is left"
        return ConfirmPods(IssueCommand("TerminateJob", text))
    return ConfirmPods(IssueCommand(followed.rule.action, followed.why))


def _causes(followed: Triggered, over: Sequence[ObservedPod]) -> list[ObservedPod]:
    """Return the pods whose ends triggered the policy: one that failed, or all of a task."""
    if followed.pod_uid:
        return [pod for pod in over if pod.uid == followed.pod_uid]
    return [pod for pod in over if pod.task == followed.task]
