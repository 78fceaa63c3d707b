"""Does what Volcano leaves undone while other pods of a job go on: missed policies, lost pods.

Volcano applies a policy when its controller sees a pod fail, or the last pod of a task succeed. A
controller that starts later, after a failover or an upgrade, finds such a pod in its first list and
applies no policy (``addPod`` in job_controller_handler.go). It also takes the exit code of the
first container by name, which may be an injected sidecar's, and of two pods that fail at once it
may restart only the first one's task (``applyPolicies`` compares versions).

Then the job goes on without an end: ranks wait for the failed one, and workers of MPI, which do not
end by themselves, run on after their master.

A pod that is deleted while no controller of Volcano runs, as in a drain during an upgrade, is only
created again. The other ranks then go on beside a rank that has begun anew.

A pod that a kubelet has evicted, ended with its node or not accepted stays as failed. Without a
policy for failures Volcano does nothing, and the other ranks may wait for it for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from controller.jobs.history.failures import explain_run
from controller.jobs.history.job_record import read_known
from controller.jobs.history.pod_records import OVER, was_taken
from controller.jobs.history.retries import (
    NO_POLICIES,
    Policies,
    Triggered,
    by_replica,
    policies_of,
    triggered,
    used_retries,
)
from controller.jobs.reconcile.lifecycle.completion import is_enough
from controller.jobs.reconcile.lifecycle.failure import after_failure
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import (
    ConfirmPods,
    IssueCommand,
    StartNextAttempt,
    Step,
    Wait,
)
from controller.jobs.spec.accepted import has_policies
from controller.store.jobs.progress import PodRecord
from controller.volcano.observed import ObservedJob, ObservedPod
from controller.volcano.policies import RESTARTS, Rule

MISSED_SECONDS: Final = 300.0
"""How long Volcano may take. With hundreds of jobs at once, it sees a pod's end a minute late."""
LOST_SECONDS: Final = 60.0
"""How long a pod that the cluster has ended may stay. Some are deleted, and made again by Volcano:
those of a node that is removed after its shutdown, for example."""

_PHASES: Final = ("Pending", "Running")


def missed_first(seen: ObservedState, job: ObservedJob, step: Step) -> Step:
    """Return the step for what Volcano leaves undone; if it is not due yet, *step*."""
    if job.phase not in _PHASES:
        return step
    found = [_lost_pods(seen, job)]
    if has_policies(seen.record.spec):
        found += [_missed_policy(seen, job), _missed_eviction(seen, job)]
    due = next((one for one in found if isinstance(one, ConfirmPods)), None)
    if due is not None:
        return due
    if not isinstance(step, Wait):
        return step
    times = [one.until for one in (*found, step) if isinstance(one, Wait) and one.until is not None]
    return Wait(min(times)) if times else step


def _missed_policy(seen: ObservedState, job: ObservedJob) -> ConfirmPods | Wait | None:
    """Return the step that carries out a missed policy, Wait until it is due, or None.

    A pod that triggered a policy which Volcano carries out is deleted, or the VolcanoJob leaves its
    phase. So a pod that stays shows that Volcano has missed the policy.
    """
    over = [pod for pod in seen.staying() if pod.phase in OVER]
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


def _lost_pods(seen: ObservedState, job: ObservedJob) -> ConfirmPods | Wait | None:
    """Return the step if the job cannot succeed without pods that the cluster has ended, or None.

    Volcano would call the job failed once the other pods have ended, and it would be submitted
    again. A job with endpoints goes on: its users may still work in the other pods.
    """
    runs = {pod.uid: seen.runs[pod.uid] for pod in seen.staying() if pod.phase in OVER}
    lost = [pod for pod in seen.staying() if pod.uid in runs and was_taken(runs[pod.uid])]
    if not lost or not seen.still_runs() or seen.parked is not None:
        return None
    spec = read_known(seen.record)
    possible = Counter({task.name: task.replicas for task in spec.effective_tasks})
    possible.subtract(run.task for run in runs.values() if run.phase == "Failed" or was_taken(run))
    if spec.interactive or is_enough(spec, possible):
        return None
    if triggered(policies_of(seen.record), runs.values()) is not None:
        return None
    due_at = seen.ended_since_of(lost) + LOST_SECONDS
    if seen.now < due_at:
        return Wait(due_at)
    step = after_failure(seen, job, NO_POLICIES, None)
    return ConfirmPods(step) if isinstance(step, StartNextAttempt) else None


def _missed_eviction(seen: ObservedState, job: ObservedJob) -> ConfirmPods | Wait | None:
    """Return the step that carries out a missed policy for evicted pods, Wait, or None.

    Volcano counts a restart before it creates the pods again. So a pod with the same count as the
    one before it shows that no policy was carried out in between.
    """
    if len(seen.runs) <= len(seen.own(seen.pods)):
        return None
    policies, due_at = policies_of(seen.record), list[float]()
    replicas = by_replica(seen.runs.values())
    replaced = list(_replaced(replicas, job))
    for before, last in replaced:
        rule = policies.deciding("PodEvicted", None, last.task)
        if rule is None or policies.is_ours(rule):
            continue
        # Pods of one node are evicted together, and all of them begin anew.
        anew = {one.pod_uid for _, one in replaced if _is_near(one.seen_at, last.seen_at)}
        there = [runs[-1] for runs in replicas.values()]
        # The time of the deletion is that of the node's clock, in whole seconds.
        others = [run for run in there if run.pod_uid not in anew and run.seen_at < last.seen_at]
        if not _matters(rule, last.task, others):
            continue
        if seen.now >= last.seen_at + MISSED_SECONDS:
            return ConfirmPods(_after_eviction(seen, job, policies, rule, before))
        due_at.append(last.seen_at + MISSED_SECONDS)
    return Wait(min(due_at)) if due_at else None


def _replaced(
    replicas: Mapping[tuple[str, int], Sequence[PodRecord]], job: ObservedJob
) -> Iterator[tuple[PodRecord, PodRecord]]:
    """Yield the deleted and the present pod of each replica whose pod was only created again."""
    for runs in replicas.values():
        if len(runs) < 2:
            continue
        before, last = runs[-2:]
        if before.retry == last.retry == job.retries and last.ended_at is None:
            yield before, last


def _is_near(at: float, other: float) -> bool:
    return abs(at - other) < MISSED_SECONDS


def _matters(rule: Rule, task: str, others: Sequence[PodRecord]) -> bool:
    """Return whether *rule* demands more than the pods that were created again.

    Args:
        rule: The policy for the deleted pod.
        task: The task of that pod.
        others: The pods that go on beside its successor.
    """
    match rule.action:
        case "RestartPod":
            return False
        case "RestartTask":
            return any(one.task == task for one in others)
        case "RestartJob":
            return bool(others)
        case _:
            return True


def _after_eviction(
    seen: ObservedState, job: ObservedJob, policies: Policies, rule: Rule, before: PodRecord
) -> StartNextAttempt | IssueCommand:
    record, evicted = seen.record, was_taken(before)
    why = f"the pod of {before.task} {before.index} was deleted"
    why = explain_run(before).message if evicted else why
    if rule.action not in RESTARTS:
        return IssueCommand(rule.action, why)
    text = f"{why}; Volcano has not carried out its policy {rule.action}"
    text = f"{text}: the whole job is started again, as another attempt"
    if evicted and record.evictions < seen.evictions_allowed:
        return StartNextAttempt("evicted", text)
    used = used_retries(job.retries, seen.runs.values(), policies=policies)
    if record.retries_used + used < policies.most:
        return StartNextAttempt("retried", text)
    return IssueCommand("TerminateJob", f"{why}, and no retry is left")
