"""Decides the next step for a job, as a pure function of its observed state.

``decide`` names one step. The reconciler does it and calls ``decide`` again. Nothing here acts or
keeps state: the same observed state gives the same step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, assert_never

from controller.jobs.history.explanations import (
    NOT_NOTED,
    explain_absent,
    explain_held,
    explain_running,
    explain_waiting,
    same_but_for_numbers,
)
from controller.jobs.history.job_record import (
    EVENT_OF_OUTCOME,
    JobEvent,
    Outcome,
    State,
    next_state,
    to_keep,
)
from controller.jobs.history.pod_records import own_are_recorded, was_taken
from controller.jobs.reconcile.lifecycle.failure import (
    aborted_or_terminated,
    completed,
    due_policies,
    failed,
    outcome_of_command,
    refused_until,
)
from controller.jobs.reconcile.lifecycle.gone import gone
from controller.jobs.reconcile.lifecycle.missed_policies import MISSED_SECONDS, missed_first
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState, must_be_removed
from controller.jobs.reconcile.lifecycle.removal import kept_by_finalizers, removal, revived_at
from controller.jobs.reconcile.lifecycle.sidecars import only_sidecars_run
from controller.jobs.reconcile.lifecycle.steps import (
    SUCCEEDED,
    SUSPENDED,
    AbortVolcanoJob,
    AdoptNewerAttempt,
    ApplyCompanions,
    ConfirmGivenUp,
    ConfirmGone,
    ConfirmNotRefused,
    ConfirmPods,
    DeletePods,
    DeleteRevivedJob,
    DeleteVolcanoJob,
    EndTool,
    ExpireJob,
    Finish,
    IssueCommand,
    Park,
    RecordPods,
    ResetForNextAttempt,
    RestoreCompanions,
    RunHooks,
    SaveRecoveryData,
    SetOutcome,
    StartNextAttempt,
    StartTool,
    Step,
    Submit,
    UpdateStatus,
    Wait,
)
from controller.jobs.spec.accepted import has_delayed, has_policies
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.relations import Predecessor
from controller.volcano.names import CREATED_ANNOTATION
from controller.volcano.observed import ObservedJob, Progress, progress_of
from controller.volcano.reasons.waiting import Explanation


def with_outcome(seen: ObservedState) -> Step:
    """Return the next step for a job whose outcome is decided."""
    # Hooks begin before the removal, but the removal waits neither for slow nor for failing hooks.
    if not seen.completed and "complete" not in seen.paused_hooks:
        return RunHooks("complete")
    if (must_be_removed(seen.record) or seen.only_sidecars_ran()) and (step := removal(seen)):
        return (kept_by_finalizers(seen) or step) if step == Wait() else step
    if not seen.completed or seen.still_runs():
        return Wait()  # usage counts until the last pod has ended
    if seen.record.outcome not in EVENT_OF_OUTCOME:
        return Wait()  # a newer version decided this outcome, and has to report it
    return Finish() if seen.cleaned else seen.run_hook("cleanup")


def in_final_state(seen: ObservedState) -> Step:
    """Return the next step for a job in a final state."""
    job, record = seen.job, seen.record
    if (at := revived_at(seen)) is not None:
        return Wait(at)
    if job is None or job.deleting or job.uid == record.removed_uid:
        return Wait()
    # A second VolcanoJob of the job: the response to its creation was lost, and the VolcanoJob
    # appeared after the end of the job.
    late = job.uid != record.uid and _was_made_for(job, record)
    its_own = job.uid == record.uid and must_be_removed(record)
    return DeleteVolcanoJob(job.uid) if late or its_own else Wait()


def _was_made_for(job: ObservedJob, record: JobRecord) -> bool:
    return job.annotations.get(CREATED_ANNOTATION) == repr(record.created_at)


def _submit_made(record: JobRecord, job: ObservedJob) -> Submit:
    is_its_own = job.attempt == record.attempt and _was_made_for(job, record)
    return Submit(job if is_its_own and not job.deleting else None)


def _of_earlier_attempt(record: JobRecord, job: ObservedJob) -> DeleteVolcanoJob | Wait | None:
    """Return the step for *job* if it belongs to an earlier attempt, which is over; else None.

    A former leader can be suspended in the middle of a create request. The VolcanoJob is then
    created when that process continues, even if another process leads by then.
    """
    if job.attempt >= record.attempt or not _was_made_for(job, record):
        return None
    return Wait() if job.deleting or job.uid == record.removed_uid else DeleteVolcanoJob(job.uid)


def decide(seen: ObservedState) -> Step:
    """Return the next step for a job."""
    record = seen.record
    if not own_are_recorded(seen.runs, seen.pods, seen.departed, record.uid):
        return RecordPods()
    if seen.job is not None:
        # First: Volcano would create deleted pods again.
        at = revived_at(seen)
        if at is not None and seen.now >= at:
            return DeleteRevivedJob(seen.job.uid)
    if late := seen.late_pods():
        return DeletePods(late)
    if record.is_final:
        return in_final_state(seen)
    if seen.parked != record.parked:
        return Park(seen.parked)
    step = _without_outcome(seen) if record.outcome is None else with_outcome(seen)
    # Tools come last: they never delay the job.
    return StartTool(seen.due_tools[0]) if seen.due_tools and isinstance(step, Wait) else step


def _without_outcome(seen: ObservedState) -> Step:
    """Return the next step for a job whose outcome is not decided."""
    record = seen.record
    if seen.job is not None and _is_newer(seen.job, record):
        return AdoptNewerAttempt()
    if record.desired == "ended":
        return _ended_on_purpose(record)
    if seen.unwanted is not None:
        return EndTool(seen.unwanted)
    if seen.parked is not None and seen.overdue:
        return ExpireJob()  # its plugins may never have run for it
    if record.renewal is not None:
        return _renewing(seen)
    if record.uid is None:
        return _not_submitted(seen)
    return after_submission(seen)


def _renewing(seen: ObservedState) -> Step:
    """Return the step for an attempt that another one follows."""
    step = removal(seen) or ResetForNextAttempt()
    held = seen.job if seen.job is not None and seen.job.uid == seen.record.uid else None
    found = explain_held(seen.own(seen.pods), held) if isinstance(step, Wait) else None
    if found is None:
        return step
    return seen.update_if_new(
        UpdateStatus(JobEvent.WAITS, found.reason, found.message, found.details)
    )


def _is_newer(job: ObservedJob, record: JobRecord) -> bool:
    # An edited annotation does not make a known VolcanoJob another attempt.
    return job.uid != record.uid and job.attempt > record.attempt


_ON_PURPOSE: Final[Mapping[str | None, Outcome]] = MappingProxyType(
    {"FAILURE": State.FAILURE, "EXPIRED": State.EXPIRED}
)
"""Any other requested end is a success."""


def _ended_on_purpose(record: JobRecord) -> SetOutcome:
    outcome = _ON_PURPOSE.get(record.end_state, State.SUCCESS)
    reason, message = record.end_reason or "asked", record.end_message or "ended as asked"
    return SetOutcome(outcome, reason, message, record.end_details)


def _not_submitted(seen: ObservedState) -> Step:
    if seen.parked is not None:
        return seen.update_if_new(UpdateStatus(JobEvent.WAITS, "parked", seen.parked))
    if seen.job is not None:
        # The response to its creation was lost. The VolcanoJob is found, even if a suspension of
        # the job was requested by now.
        return _of_earlier_attempt(seen.record, seen.job) or _submit_made(seen.record, seen.job)
    if bad := [one for one in seen.predecessors if not (one.goes_on or one.ended_well)]:
        return _predecessor_failed(bad[0])
    if seen.record.desired == "suspended":
        return seen.update_if_new(SUSPENDED)
    if ahead := [one.job_id for one in seen.predecessors if one.goes_on]:
        return seen.update_if_new(UpdateStatus(JobEvent.WAITS, "predecessor", _waits_for(ahead)))
    if seen.submission_hold is not None:
        return seen.update_if_new(UpdateStatus(JobEvent.WAITS, "paused", seen.submission_hold))
    record = seen.record
    until = refused_until(record, seen.now) if record.evictions else None
    return Submit() if until is None else Wait(until)


def _predecessor_failed(one: Predecessor) -> SetOutcome:
    how = f"ended as {one.state} ({one.reason})" if one.state else "is not known any more"
    return SetOutcome(
        State.FAILURE, "predecessor", f"the job {one.job_id}, which it follows, {how}"
    )


def _waits_for(job_ids: Sequence[str]) -> str:
    others = len(job_ids) - 1
    more = f" and {others} more" if others else ""
    return f"waits for the end of {job_ids[0]}{more}"


QUIET_SECONDS: Final = 300.0
"""For this time, a message that differs from the last one only in numbers is not sent again."""
_OVER: Final = (Progress.SUCCEEDED, Progress.FAILED)
"""In these phases Volcano itself deletes the VolcanoJob, perhaps before its end was observed."""


def after_submission(seen: ObservedState) -> Step:
    """Return the next step for a job with a VolcanoJob whose outcome is not decided."""
    step = _by_volcano_job(seen)
    follows = isinstance(
        step, SetOutcome | ConfirmGone | ConfirmNotRefused | ConfirmGivenUp | StartNextAttempt
    )
    # While a timer of a policy runs, the orchestrator has been sent that the job waits.
    if follows or (isinstance(step, ConfirmPods) and not seen.timers):
        return _missed_start(seen) or step
    return step


def _by_volcano_job(seen: ObservedState) -> Step:
    record = seen.record
    if seen.job is None or seen.job.uid != record.uid:
        return gone(seen)
    if seen.job.deleting and progress_of(seen.job.phase) not in _OVER:
        return SetOutcome(State.FAILURE, "deleted", "its VolcanoJob was deleted by somebody else")
    step = _by_phase(seen, seen.job)
    return _save_recovery_data(seen, seen.job, step) if isinstance(step, Wait) else step


def _missed_start(seen: ObservedState) -> UpdateStatus | None:
    """Return the status update that the job ran, if the job ended before it was observed running.

    When hundreds of jobs start at once, a short one can end before a worker reconciles it.
    """
    job = seen.job if seen.job is not None else seen.last
    waits = seen.record.state == State.IN_QUEUE
    if not waits or job is None or job.uid != seen.record.uid or not job.ran:
        return None
    return UpdateStatus(JobEvent.STARTED, None, None)


def _by_phase(seen: ObservedState, job: ObservedJob) -> Step:
    progress = progress_of(job.phase)
    match progress:
        # This holds even if the job was resumed meanwhile: the abort command may be under way, or
        # lost.
        case Progress.WAITING | Progress.RUNNING if (
            seen.record.desired == "suspended" or seen.record.stopping
        ):
            return AbortVolcanoJob(job.uid)
        case Progress.WAITING:
            step = _companions_first(seen, _waiting(seen, job))
            return _timed_policies(seen, job) or _left_undone(seen, job, step)
        case Progress.RUNNING:
            step = _companions_first(seen, _running(seen, job))
            return _timed_policies(seen, job) or _left_undone(seen, job, step)
        case Progress.ENDING:
            return _ending(seen, job)
        case Progress.SUCCEEDED if seen.record.ordered is None and not _were_pods_taken(seen):
            return SUCCEEDED
        case Progress.SUCCEEDED:
            return _with_news_of_pods(seen, completed(seen, job))
        case Progress.FAILED:
            return _with_news_of_pods(seen, failed(seen, job))
        case Progress.STOPPED:
            return _aborted_or_terminated(seen, job)
        case _:
            assert_never(progress)


def _were_pods_taken(seen: ObservedState) -> bool:
    """Return whether the cluster ended a pod: Volcano may have counted it as succeeded."""
    return any(was_taken(run) for run in seen.runs.values())


def _with_news_of_pods(seen: ObservedState, step: Step) -> Step:
    return Wait() if isinstance(step, ConfirmPods) and seen.awaits_pods() else step


_ENDED: Final = MappingProxyType(
    {"Aborting": "Aborted", "Completing": "Completed", "Terminating": "Terminated"}
)


def _ending(seen: ObservedState, job: ObservedJob) -> Step:
    """Return the step while Volcano ends the pods: it waits until all of them are gone.

    A dead node never confirms that. Once its pods count as lost, nothing is left to end.
    """
    is_lost = any(pod.lost for pod in seen.own(seen.pods))
    if job.phase not in _ENDED or not is_lost or seen.still_runs() or seen.pods_stale:
        return Wait()
    return _by_phase(seen, replace(job, phase=_ENDED[job.phase]))


def _timed_policies(seen: ObservedState, job: ObservedJob) -> Step | None:
    """Return the step that a policy timed by this controller demands now; None if none does."""
    record = seen.record
    if record.ordered is not None:
        return IssueCommand(record.ordered, record.ordered_why or "")
    may_be_due = seen.timers or has_delayed(record.spec)
    return due_policies(seen, job) if may_be_due and not seen.pods_stale else None


def _left_undone(seen: ObservedState, job: ObservedJob, step: Step) -> Step:
    if seen.pods_stale or seen.jobs_stale:
        return step
    is_lost = _were_pods_taken(seen) and seen.still_runs()
    return missed_first(seen, job, step) if is_lost or has_policies(seen.record.spec) else step


def _companions_first(seen: ObservedState, step: Step) -> Step:
    if seen.parked is not None:
        return step if isinstance(step, UpdateStatus) else Wait()
    if not seen.companions_applied:
        # They may be refused for long. A job that runs is timed and charged all the same.
        says = isinstance(step, UpdateStatus) and _keeps_state(seen.record, step)
        return ApplyCompanions() if says or isinstance(step, Wait) else step
    if not isinstance(step, Wait):
        return step
    # The cache may just lag, so every other step comes first.
    return RestoreCompanions() if seen.service_missing else step


def _waiting(seen: ObservedState, job: ObservedJob) -> Step:
    record = seen.record
    reported = Explanation(record.reason or "", record.message or "", record.details or {})
    found = explain_waiting(job, seen.pods, record.explained, reported)
    return _update(seen, UpdateStatus(JobEvent.WAITS, found.reason, found.message, found.details))


def _update(seen: ObservedState, update: UpdateStatus) -> UpdateStatus | Wait:
    """Return *update* if it says something new.

    Counts of nodes and quotas change with every job that starts or ends.
    """
    record, step = seen.record, seen.update_if_new(update)
    if isinstance(step, Wait) or not _only_numbers_changed(record, update):
        return step
    since = (record.details or {}).get("at")
    again_at = since + QUIET_SECONDS if isinstance(since, int | float) else seen.now
    return step if seen.now >= again_at else Wait()


def _only_numbers_changed(record: JobRecord, update: UpdateStatus) -> bool:
    same = _keeps_state(record, update) and record.reason == update.reason
    return same and same_but_for_numbers(record.message, update.message)


def _keeps_state(record: JobRecord, update: UpdateStatus) -> bool:
    return record.state == next_state(record.state, update.event)


ABSENT_SECONDS: Final = 30.0
"""How long a running job may be without pods: Volcano mostly makes others within seconds."""


def _without_programs(
    seen: ObservedState, job: ObservedJob
) -> tuple[float | None, Explanation | None]:
    """Return when a running job reports that no program of it runs, and what; None if one may.

    Volcano's controllers may be away, and a busy one sees the end of a pod a minute late.
    """
    if (since := seen.absent_since()) is not None:
        return since + ABSENT_SECONDS, explain_absent(job, seen.record.explained)
    since = seen.all_ended_since()
    return (None, None) if since is None else (since + MISSED_SECONDS, NOT_NOTED)


def _running(seen: ObservedState, job: ObservedJob) -> Step:
    found, (idle_until, idle) = explain_running(job, seen.pods), _without_programs(seen, job)
    is_idle = idle_until is not None and seen.now >= idle_until
    if is_idle:
        found, idle_until = idle, None
    update = (
        UpdateStatus(JobEvent.STARTED, None, None)
        if found is None
        else UpdateStatus(JobEvent.STARTED, found.reason, found.message, found.details)
    )
    step: Step = _update(seen, update) if is_idle else seen.update_if_new(update)
    # The reason for which companions are refused stays, and its start hooks do not wait for them.
    may_say = seen.companions_applied or not _keeps_state(seen.record, update)
    if isinstance(step, UpdateStatus) and may_say:
        return step
    step = Wait(idle_until) if seen.started else seen.run_hook("start")
    if not isinstance(step, Wait) or seen.pods_stale or not (left := seen.left_running()):
        return step
    return only_sidecars_run(seen, job, left) or step


def _aborted_or_terminated(seen: ObservedState, job: ObservedJob) -> Step:
    if seen.record.ordered is not None and not seen.record.stopping:
        return outcome_of_command(seen.record)
    if not seen.record.stopping or job.phase != "Aborted":
        return aborted_or_terminated(seen, job)
    if seen.still_runs():
        return Wait()
    if seen.record.desired == "suspended":
        return seen.update_if_new(SUSPENDED)
    return StartNextAttempt("resumed", "resumed, and submitted again")


def _save_recovery_data(seen: ObservedState, job: ObservedJob, step: Wait) -> Step:
    """Return the step that saves recovery data, if nothing else is to be done."""
    what = to_keep(seen.record, job, seen.pods) if seen.companions_applied else None
    if seen.timers:
        due = [timer.due_at for timer in seen.timers.values()]
        step = Wait(min(due if step.until is None else [*due, step.until]))
    return step if what is None or what == seen.record.kept else SaveRecoveryData(what)
