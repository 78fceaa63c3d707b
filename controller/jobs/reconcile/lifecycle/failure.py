"""How a failure is judged: an end or another attempt. Policies with a timeout, timed by us.

A job whose programs have ended while other containers keep its pods running is judged here, too. A
mesh or a vault puts containers into pods. One that is an init container with ``restartPolicy:
Always`` is ended by its kubelet once the pod's program has (Kubernetes, "Sidecar Containers"). One
that is an ordinary container is ended by nobody: the pod runs on, and Volcano takes its program for
one that runs. Argo Workflows ends such containers; so do we, with the VolcanoJob.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from controller.jobs.history.failures import NODE_REFUSED, explain_failure
from controller.jobs.history.job_record import Happening, Outcome, State, read_known
from controller.jobs.history.policy_timers import wanted_timers
from controller.jobs.history.retries import (
    Policies,
    Triggered,
    has_failed,
    policies_of,
    triggered,
    used_retries,
)
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import (
    Conclude,
    ConfirmPods,
    Note,
    Order,
    Rest,
    SetTimers,
    StartNextAttempt,
    Step,
)
from controller.jobs.spec.model import Job
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.progress import PodRecord, Timer
from controller.volcano.observed import ObservedJob, ObservedPod
from controller.volcano.policies import RESTARTS


def due_policies(seen: ObservedState, job: ObservedJob) -> Step | None:
    """Return what is to be done about policies that we time; None if nothing is now."""
    policies = policies_of(seen.record)
    timers = wanted_timers_of(seen, job, policies)
    if timers != seen.timers:
        return SetTimers(tuple(timers.values()))
    first = min(timers.values(), key=lambda one: (one.due_at, one.trigger), default=None)
    if first is None or seen.now < first.due_at:
        return None
    return ConfirmPods(_due(seen, job, policies, first))


def _due(
    seen: ObservedState, job: ObservedJob, policies: Policies, timer: Timer
) -> StartNextAttempt | Order:
    if timer.action not in RESTARTS:
        return Order(timer.action, timer.why)
    used = seen.record.retries_used + used_retries(job.retries, seen.runs.values())
    if used < policies.most:
        return StartNextAttempt(
            "retried", f"{timer.why}; started again by its policy {timer.action}"
        )
    return Order("TerminateJob", f"{timer.why}, and no retry is left")


def wanted_timers_of(seen: ObservedState, job: ObservedJob, policies: Policies) -> dict[str, Timer]:
    """Return the timers that the job's policies want now, by their triggers."""
    return wanted_timers(
        seen.record,
        job,
        seen.own(seen.pods),
        runs=seen.runs,
        policies=policies,
        stored=seen.timers,
        now=seen.now,
    )


MOST_ATTEMPTS: Final = 500
"""Of a job whose pods are refused again and again: Volcano gives each up after three minutes."""
_FINAL_REFUSALS: Final = frozenset({"pod_security", "limit_range", "admission"})
"""Causes for which the same pods are refused the next time, too."""
_UNEXPLAINED: Final = Conclude(State.FAILURE, "failed")
_STOPS: Final = MappingProxyType({"Aborted": "AbortJob", "Terminated": "TerminateJob"})


def failed(seen: ObservedState, job: ObservedJob) -> Step:
    """Return what follows from it that the VolcanoJob has failed.

    What its policies say is carried out by us where Volcano did not come to ask them.
    """
    policies = policies_of(seen.record)
    if policies and seen.blind:
        return Rest()
    followed = triggered(policies, seen.runs.values())
    if followed is not None and policies.is_ours(followed.rule) and not _is_ordered(seen.record):
        # Its time may not have come.
        timers = wanted_timers_of(seen, job, policies)
        if timers != seen.timers:
            return SetTimers(tuple(timers.values()))
        timer = timers.get(followed.trigger)
        if timer is not None and seen.now < timer.due_at:
            text = (
                f"{followed.why}; {followed.rule.action} follows after a while, as its policy says"
            )
            told = seen.note_if_new(Note(Happening.WAITS, "restarting", text))
            return Rest(timer.due_at) if isinstance(told, Rest) else told
    step = after_failure(seen, job, policies, followed)
    # A pod of which nothing is known yet may say why.
    return ConfirmPods(step) if policies or _is_unexplained(step) else step


def _is_unexplained(step: Step) -> bool:
    """Say whether no pod says why it failed; Volcano's own words say little."""
    if not isinstance(step, Conclude) or step.reason != _UNEXPLAINED.reason:
        return False
    return (step.details or {}).get("cause") in (None, "volcano")


def after_failure(
    seen: ObservedState, job: ObservedJob, policies: Policies, followed: Triggered | None
) -> Conclude | StartNextAttempt:
    """Return what follows from a failure: what its policies say, another attempt, or the end."""
    record = seen.record
    found = explain_failure(job, (*seen.pods, *seen.departed), seen.runs.values())
    failure = _UNEXPLAINED
    if found is not None:
        failure = Conclude(State.FAILURE, found.reason, found.message, found.details)
    message, details = failure.message or "it failed", failure.details
    if _is_ordered(record):
        return as_ordered(record) if record.ordered else failure
    if followed is not None and followed.rule.action not in RESTARTS:
        return replace(_carried_out(followed), details=details)
    if record.evictions < seen.evictions_allowed:
        if failure.reason == "evicted" or (details or {}).get("cause") == NODE_REFUSED:
            return StartNextAttempt("evicted", f"{message}; submitted again", details)
        if _has_paid_for_evictions(seen, job):
            why = "retries that went to evictions are given back"
            return StartNextAttempt("evicted", f"{message}; submitted again: {why}", details)
    if record.retries_used + used_retries(job.retries, seen.runs.values()) >= policies.most:
        return failure
    if followed is not None:
        return StartNextAttempt("retried", _retold(followed, policies), details)
    if policies.restarts and not any(has_failed(run) for run in seen.runs.values()):
        text = "no record says which of its policies applied, so nothing is started again"
        return replace(failure, message=f"{message}; {text}")
    return failure


def _has_paid_for_evictions(seen: ObservedState, job: ObservedJob) -> bool:
    """Say whether Volcano gave it up for a count of retries in which evictions are."""
    return used_retries(job.retries, seen.runs.values()) < job.max_retry <= job.retries


def _is_ordered(record: JobRecord) -> bool:
    """Say whether we had it aborted, terminated or completed: then no policy follows."""
    return record.stopping or record.ordered is not None


def as_ordered(record: JobRecord) -> Conclude:
    """Return the end of a job that we had completed, aborted or terminated for its policy."""
    outcome: Outcome = State.SUCCESS if record.ordered == "CompleteJob" else State.FAILURE
    reason = "completed" if outcome is State.SUCCESS else "stopped"
    return Conclude(outcome, reason, f"{record.ordered_why}: {record.ordered}, as its policy says")


def stopped_by_others(seen: ObservedState, job: ObservedJob) -> Conclude | StartNextAttempt:
    """Return what follows where Volcano stopped a VolcanoJob: by a policy, or for a command."""
    policies = policies_of(seen.record)
    found = explain_failure(job, (*seen.pods, *seen.departed), seen.runs.values())
    details = found.details if found is not None else None
    followed = triggered(policies, seen.runs.values())
    if followed is not None and followed.rule.action == _STOPS.get(job.phase):
        return replace(_carried_out(followed), details=details)
    if (refused := _refused_pods(seen.record, job)) is not None:
        return refused
    text = f"its VolcanoJob is {job.phase}"
    if found is not None and found.message:
        text = f"{text}: {found.message}"
    return Conclude(State.FAILURE, "stopped", text, details)


def _carried_out(followed: Triggered) -> Conclude:
    """Return the end that a policy wants which does not start anything again."""
    action = followed.rule.action
    text = f"{followed.why}: {action}, as its policy says"
    if action == "CompleteJob":
        return Conclude(State.SUCCESS, "completed", text)
    return Conclude(State.FAILURE, "stopped", text)


def _retold(followed: Triggered, policies: Policies) -> str:
    action = followed.rule.action
    if policies.is_ours(followed.rule):
        return f"{followed.why}; started again by its policy {action}"
    text = f"{followed.why}; Volcano has not carried out its policy {action}"
    return f"{text}: the whole job is started again, as another attempt"


def _refused_pods(record: JobRecord, job: ObservedJob) -> Conclude | StartNextAttempt | None:
    """Return what follows where Volcano has given up making the pods; None where it has not.

    It terminates a VolcanoJob after fifteen tries (``--max-requeue-num``). A quota that others use
    up is no fault of the job's: it waits for room by another attempt.
    """
    kept = record.explained or {}
    is_why = kept.get("uid") == job.uid and kept.get("reason") == "forbidden"
    if not is_why or job.ran or job.phase != "Terminated":
        return None
    details = kept.get("details") or {}
    if details.get("cause") in _FINAL_REFUSALS or record.attempt >= MOST_ATTEMPTS:
        return Conclude(State.FAILURE, "refused", kept["message"], details)
    return StartNextAttempt("forbidden", kept["message"], details)


def after_the_programs(
    seen: ObservedState, job: ObservedJob, left: Sequence[ObservedPod]
) -> ConfirmPods | Rest | None:
    """Return what follows from programs that have ended, where their pods are *left* running.

    None where nothing does.
    """
    # They may have to pass on what the program wrote last.
    due = {pod.uid: seen.runs[pod.uid].seen_at + seen.sidecar_seconds for pod in left}
    later = [at for at in due.values() if at > seen.now]
    if len(later) == len(due):
        return Rest(min(later))
    counted = {uid: _as_of_its_program(seen.runs[uid]) for uid, at in due.items() if at <= seen.now}
    found = _judged(seen, job, {**seen.runs, **counted}, _names(left), all_told=not later)
    return found or (Rest(min(later)) if later else None)


def _judged(
    seen: ObservedState,
    job: ObservedJob,
    runs: Mapping[str, PodRecord],
    names: str,
    *,
    all_told: bool,
) -> ConfirmPods | None:
    own, spec = seen.staying(), read_known(seen.record)
    is_over = all_told and len(own) >= spec.ranks and all(pod.is_over for pod in own)
    said = f"its containers {names} went on after its program, and were ended"
    if is_over and _succeeded(spec, [runs[pod.uid] for pod in own]):
        return ConfirmPods(Conclude(State.SUCCESS, "completed", said))
    policies = policies_of(seen.record)
    followed = triggered(policies, runs.values())
    # Volcano would do it, if it knew; what is due later waits for the end of all programs.
    if not is_over and (followed is None or policies.is_ours(followed.rule)):
        return None
    step = after_failure(seen, job, policies, followed)
    return ConfirmPods(replace(step, message=f"{step.message}; {said}"))


def _names(pods: Sequence[ObservedPod]) -> str:
    return ", ".join(sorted({name for pod in pods for name in pod.others_running}))


def _as_of_its_program(run: PodRecord) -> PodRecord:
    return replace(run, phase="Failed" if run.exit_code else "Succeeded")


def _succeeded(job: Job, runs: Sequence[PodRecord]) -> bool:
    """Say whether the job has done what it had to, as Volcano counts pods that have ended."""
    well = Counter(run.task for run in runs if run.phase == "Succeeded")
    if job.min_success is not None and well.total() >= job.min_success:
        return True
    return all(well[task.name] >= task.min_available for task in job.effective_tasks)
