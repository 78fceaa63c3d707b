"""Judges an attempt that failed, was stopped, or completed: the job's end, or another attempt.

This module also times the policies that have a timeout (see ``history.policy_timers``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from controller.jobs.history.failures import NODE_REFUSED, explain_failure
from controller.jobs.history.job_record import JobEvent, Outcome, State, read_known
from controller.jobs.history.pod_records import was_taken, was_undone
from controller.jobs.history.policy_timers import wanted_timers
from controller.jobs.history.retries import (
    NO_POLICIES,
    Policies,
    Triggered,
    has_failed,
    last_of_replicas,
    policies_of,
    triggered,
    unknown_failure,
    used_retries,
)
from controller.jobs.reconcile.lifecycle.completion import have_succeeded
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import (
    SUCCEEDED,
    ConfirmGivenUp,
    ConfirmNotRefused,
    ConfirmPods,
    IssueCommand,
    SetOutcome,
    SetTimers,
    StartNextAttempt,
    Step,
    UpdateStatus,
    Wait,
)
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.progress import Timer
from controller.volcano.observed import ObservedJob
from controller.volcano.policies import RESTARTS
from controller.volcano.reasons.waiting import Explanation


def due_policies(seen: ObservedState, job: ObservedJob) -> Step | None:
    """Return the step that a timed policy demands now; None if none does."""
    policies = policies_of(seen.record)
    timers = wanted_timers_of(seen, job, policies)
    if timers != seen.timers:
        return SetTimers(tuple(timers.values()))
    first = min(timers.values(), key=lambda one: (one.due_at, one.trigger), default=None)
    if first is None or seen.now < first.due_at:
        return None
    return ConfirmPods(_step_of(seen, job, policies, first))


def _step_of(
    seen: ObservedState, job: ObservedJob, policies: Policies, timer: Timer
) -> StartNextAttempt | IssueCommand:
    if timer.action not in RESTARTS:
        return IssueCommand(timer.action, timer.why)
    used = used_retries(job.retries, seen.runs.values(), policies=policies)
    if seen.record.retries_used + used < policies.most:
        return StartNextAttempt(
            "retried", f"{timer.why}; started again by its policy {timer.action}"
        )
    return IssueCommand("TerminateJob", f"{timer.why}, and no retry is left")


def wanted_timers_of(seen: ObservedState, job: ObservedJob, policies: Policies) -> dict[str, Timer]:
    """Return the timers that the job's policies need now, by trigger."""
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
"""Attempts of a job whose pods are refused each time. Volcano gives up an attempt after three
minutes.
"""
_FINAL_REFUSALS: Final = frozenset(
    {"pod_security", "limit_range", "admission", "quota_unspecified", "pod_invalid"}
)
"""Causes for which the API server would refuse the same pods again."""
_UNEXPLAINED: Final = SetOutcome(State.FAILURE, "failed")
_STOPS: Final = MappingProxyType({"Aborted": "AbortJob", "Terminated": "TerminateJob"})


def completed(seen: ObservedState, job: ObservedJob) -> SetOutcome | ConfirmPods:
    """Return the step after the VolcanoJob was completed."""
    if seen.record.ordered == "CompleteJob":
        return outcome_of_command(seen.record)
    again = interrupted(seen, job)
    return SUCCEEDED if again is None else ConfirmPods(again)


def interrupted(seen: ObservedState, job: ObservedJob) -> SetOutcome | StartNextAttempt | None:
    """Return the step if the VolcanoJob was completed by pods that were interrupted; else None.

    A program that ends with exit code 0 because its node shuts down, or evicts it, has succeeded to
    its kubelet (since Kubernetes 1.27, issue 118310), and so to Volcano. Only the pod's condition
    says that it was interrupted.
    """
    runs = last_of_replicas(seen.runs.values())
    done = [run for run in runs if not was_taken(run)]
    # A pod that failed may have had a successor that nobody observed: Volcano counted that one.
    misled = any(run.phase == "Succeeded" and was_taken(run) for run in runs)
    if not misled or not _may_judge(seen) or have_succeeded(seen, done):
        return None
    followed = triggered(policies_of(seen.record), done)
    if followed is not None and followed.rule.action == "CompleteJob":
        return None
    return after_failure(seen, job, NO_POLICIES, None)  # to Volcano, no pod has failed


def failed(seen: ObservedState, job: ObservedJob) -> Step:
    """Return the step after a failure of the VolcanoJob.

    If Volcano did not carry out a policy of the job, this controller does.
    """
    policies = policies_of(seen.record)
    if policies and seen.pods_stale:
        return Wait()
    followed = triggered(policies, seen.runs.values())
    if followed is None and _had_succeeded(seen):
        return ConfirmPods(SUCCEEDED)
    if (
        followed is not None
        and policies.is_ours(followed.rule)
        and not _ended_by_command(seen.record)
    ):
        # The timeout of the policy may not have passed.
        timers = wanted_timers_of(seen, job, policies)
        if timers != seen.timers:
            return SetTimers(tuple(timers.values()))
        timer = timers.get(followed.trigger)
        if timer is not None and seen.now < timer.due_at:
            text = (
                f"{followed.why}; {followed.rule.action} follows after a while, as its policy says"
            )
            update = seen.update_if_new(UpdateStatus(JobEvent.WAITS, "restarting", text))
            return Wait(timer.due_at) if isinstance(update, Wait) else update
    if (until := news_of_pods_until(seen, policies)) is not None:
        return Wait(until)
    step = after_failure(seen, job, policies, followed)
    # A pod that is not recorded yet may have the reason.
    return ConfirmPods(step) if policies or _is_unexplained(step) else step


NEWS_SECONDS: Final = 30.0
"""How long outstanding watch events of pods are awaited after the end of a VolcanoJob."""


def news_of_pods_until(seen: ObservedState, policies: Policies) -> float | None:
    """Return the end of the wait for watch events of the failed pods; None: no wait.

    Pods and VolcanoJobs have separate watches. A pod whose events are all outstanding is in no
    cache, and after its deletion no list shows it either.
    """
    # Not the time in the status, which is by the clock of Volcano's controller.
    until = seen.phase_seen_at + NEWS_SECONDS if seen.phase_seen_at else 0.0
    matters = policies.restarts and not _ended_by_command(seen.record)
    return until if matters and seen.now < until and not _knows_failure(seen) else None


def _had_succeeded(seen: ObservedState) -> bool:
    """Return whether the job failed to Volcano only by pods that had succeeded before.

    A kubelet that starts again may refuse such pods.
    """
    failed = [pod for pod in (*seen.pods, *seen.departed) if pod.phase == "Failed"]
    if not any(was_undone(pod, seen.runs.get(pod.uid)) for pod in failed) or not _may_judge(seen):
        return False
    return have_succeeded(seen, last_of_replicas(seen.runs.values()))


def _may_judge(seen: ObservedState) -> bool:
    """Return whether this version knows the job, and no command of it ended the VolcanoJob."""
    return seen.parked is None and not _ended_by_command(seen.record)


def _is_unexplained(step: Step) -> bool:
    """Return whether no pod explains the failure; Volcano's own message explains little."""
    if not isinstance(step, SetOutcome) or step.reason != _UNEXPLAINED.reason:
        return False
    return (step.details or {}).get("cause") in (None, "volcano")


def after_failure(
    seen: ObservedState, job: ObservedJob, policies: Policies, followed: Triggered | None
) -> SetOutcome | StartNextAttempt:
    """Return the step after a failure: a policy's action, another attempt, or the end."""
    record = seen.record
    found = explain_failure(job, (*seen.pods, *seen.departed), seen.runs.values())
    failure = _UNEXPLAINED
    if found is not None:
        failure = SetOutcome(State.FAILURE, found.reason, found.message, found.details)
    message, details = failure.message or "it failed", failure.details
    if _ended_by_command(record):
        return outcome_of_command(record) if record.ordered else failure
    if followed is not None and followed.rule.action not in RESTARTS:
        return replace(_outcome_of_policy(followed), details=details)
    if record.evictions < seen.evictions_allowed and (why := _why_again(seen, job, failure)):
        return StartNextAttempt("evicted", f"{message}; {why}", details)
    used = used_retries(job.retries, seen.runs.values(), policies=policies)
    if record.retries_used + used >= policies.most:
        return failure
    unknown = policies.restarts and not _knows_failure(seen)
    if unknown and followed is None:
        followed = unknown_failure(policies, seen.runs.values())
    if followed is not None:
        return StartNextAttempt("retried", _retry_message(followed, policies), details)
    if unknown:
        text = "no record says which of its policies applied, so nothing is started again"
        return replace(failure, message=f"{message}; {text}")
    return failure


def _why_again(seen: ObservedState, job: ObservedJob, failure: SetOutcome) -> str | None:
    """Return why the attempt does not count, if its pods were taken away; else None."""
    if failure.reason == "evicted" or (failure.details or {}).get("cause") == NODE_REFUSED:
        return "submitted again"
    if _evictions_counted_as_retries(seen, job):
        return "submitted again: retries that went to evictions are given back"
    return None


REFUSED_SECONDS: Final = 10.0
LONGEST_REFUSED_SECONDS: Final = 60.0
"""How long the attempts after a kubelet's refusal wait: the first, and at most. The same as for the
pods of Kubernetes' own Jobs (``batch/v1``)."""


def refused_until(record: JobRecord, now: float) -> float | None:
    """Return until when the next attempt waits because a kubelet refused a pod; None if not.

    The scheduler may choose the same node again. The cause often passes within a minute: a device
    plugin starts again, or the scheduler learns what the node really has.
    """
    details = record.details or {}
    at = details.get("at")
    refused = record.reason == "evicted" and details.get("cause") == NODE_REFUSED
    if not refused or not isinstance(at, int | float):
        return None
    doubled = min(max(record.evictions, 1) - 1, 16)
    until = at + min(REFUSED_SECONDS * 2.0**doubled, LONGEST_REFUSED_SECONDS)
    return until if at <= now < until else None  # a clock that went back delays nothing


def _knows_failure(seen: ObservedState) -> bool:
    """Return whether a replica's last pod is known to have failed."""
    return any(has_failed(run) for run in last_of_replicas(seen.runs.values()))


def _evictions_counted_as_retries(seen: ObservedState, job: ObservedJob) -> bool:
    """Return whether Volcano gave up because it counted evictions as retries."""
    used = used_retries(job.retries, seen.runs.values(), policies=policies_of(seen.record))
    return used < job.max_retry <= job.retries


def _ended_by_command(record: JobRecord) -> bool:
    """Return whether this controller ended the VolcanoJob by a command: then no policy applies."""
    return record.stopping or record.ordered is not None


def outcome_of_command(record: JobRecord) -> SetOutcome:
    """Return the outcome of a job that this controller ended by a command, for its policy."""
    outcome: Outcome = State.SUCCESS if record.ordered == "CompleteJob" else State.FAILURE
    reason = "completed" if outcome is State.SUCCESS else "stopped"
    return SetOutcome(
        outcome, reason, f"{record.ordered_why}: {record.ordered}, as its policy says"
    )


def aborted_or_terminated(
    seen: ObservedState, job: ObservedJob
) -> SetOutcome | ConfirmGivenUp | ConfirmNotRefused:
    """Return the step after Volcano aborted or terminated a VolcanoJob.

    Volcano does so by a policy, or by a command of another client.
    """
    policies = policies_of(seen.record)
    found = explain_failure(job, (*seen.pods, *seen.departed), seen.runs.values())
    details = found.details if found is not None else None
    followed = triggered(policies, seen.runs.values())
    if followed is not None and followed.rule.action == _STOPS.get(job.phase):
        return replace(_outcome_of_policy(followed), details=details)
    text = f"its VolcanoJob is {job.phase}"
    if found is not None and found.message:
        text = f"{text}: {found.message}"
    stopped = SetOutcome(State.FAILURE, "stopped", text, details)
    if (refused := _refused_pods(seen, job, found)) is not None:
        # Another client may have terminated it meanwhile.
        return refused if isinstance(refused, SetOutcome) else ConfirmGivenUp(refused, stopped)
    since = _refused_since(seen, job, found)
    return stopped if since is None else ConfirmNotRefused(stopped, since)


def _outcome_of_policy(followed: Triggered) -> SetOutcome:
    """Return the outcome that a policy demands which restarts nothing."""
    action = followed.rule.action
    text = f"{followed.why}: {action}, as its policy says"
    if action == "CompleteJob":
        return SetOutcome(State.SUCCESS, "completed", text)
    return SetOutcome(State.FAILURE, "stopped", text)


def _retry_message(followed: Triggered, policies: Policies) -> str:
    action = followed.rule.action
    if policies.is_ours(followed.rule):
        return f"{followed.why}; started again by its policy {action}"
    text = f"{followed.why}; Volcano has not carried out its policy {action}"
    return f"{text}: the whole job is started again, as another attempt"


GIVING_UP_SECONDS: Final = 600.0
"""How old the last event of a refusal may be when Volcano gives up.

Volcano tries for about three minutes, and client-go sends only one event in five minutes about a
VolcanoJob that has had many (``EventSourceObjectSpamFilter``).
"""


def _refused_pods(
    seen: ObservedState, job: ObservedJob, found: Explanation | None
) -> SetOutcome | StartNextAttempt | None:
    """Return the step after Volcano has given up creating the pods; None if it has not.

    Volcano terminates a VolcanoJob after 15 tries (``--max-requeue-num``). If the quota is used up
    by other jobs, that is not the job's fault: another attempt waits for room. Neither is an
    eviction, after which an admission webhook is unavailable for some minutes.
    """
    record, kept = seen.record, seen.record.explained or {}
    is_why = kept.get("uid") == job.uid and kept.get("reason") == "forbidden"
    if not is_why or job.phase != "Terminated":
        return None
    details = kept.get("details") or {}
    if job.ran:
        if not (_is_current(kept, job) and _was_evicted(found)):
            return None
        if found is None or record.evictions >= seen.evictions_allowed:
            return None
        text = f"{found.message}; its next pod was refused ({kept['message']}); submitted again"
        return StartNextAttempt("evicted", text, found.details)
    if details.get("cause") in _FINAL_REFUSALS or record.attempt >= MOST_ATTEMPTS:
        return SetOutcome(State.FAILURE, "refused", kept["message"], details)
    return StartNextAttempt("forbidden", kept["message"], details)


def _refused_since(
    seen: ObservedState, job: ObservedJob, found: Explanation | None
) -> float | None:
    """Return since when events may say that the pods were refused; None: no event matters."""
    if job.phase != "Terminated" or _is_current(seen.record.explained or {}, job):
        return None
    last = last_of_replicas(seen.runs.values())
    if not job.ran:
        # Once all pods were created, only another client terminates it.
        is_complete = len(last) >= read_known(seen.record).ranks
        return None if is_complete else max(0.0, job.phase_since - GIVING_UP_SECONDS)
    ends = [run.ended_at for run in last if was_taken(run)]
    known = [at for at in ends if at is not None]
    return min(known) if known and _was_evicted(found) else None


def _was_evicted(found: Explanation | None) -> bool:
    return found is not None and found.reason == "evicted"


def _is_current(kept: Mapping[str, Any], job: ObservedJob) -> bool:
    """Return whether the recorded refusal was read after Volcano had ended the VolcanoJob."""
    return (kept.get("uid"), kept.get("since")) == (job.uid, job.phase_since)
