"""What follows from the VolcanoJob of an attempt, phase by phase."""

from __future__ import annotations

from typing import Final, assert_never

from controller.jobs.cluster.recovery import to_keep
from controller.jobs.history.explanations import explain_waiting, same_but_for_numbers
from controller.jobs.history.retries import policies_of, triggered
from controller.jobs.history.states import Happening, State, next_state
from controller.jobs.reconcile.lifecycle.failure import (
    after_failure,
    as_ordered,
    due_policies,
    failed,
    stopped_by_others,
)
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.sidecars import after_the_programs
from controller.jobs.reconcile.lifecycle.steps import (
    LOST,
    SUSPENDED,
    Conclude,
    Confirm,
    ConfirmPods,
    Expose,
    KeepForRecovery,
    Note,
    Rest,
    Restore,
    StartNextAttempt,
    Step,
    Stop,
)
from controller.store.jobs.job_rows import JobRecord
from controller.volcano.observed import ObservedJob
from controller.volcano.policies import Progress, progress_of
from controller.volcano.reasons.waiting import Explanation

QUIET_SECONDS: Final = 300.0
"""How long a message is not told again of which only numbers have changed."""
_SUCCEEDED: Final = Conclude(State.SUCCESS, "completed")
_OVER: Final = (Progress.SUCCEEDED, Progress.FAILED)
"""One that is over is removed by Volcano itself, perhaps before we have seen its end."""


def after_submission(seen: ObservedState) -> Step:
    """Return the next step for a job with a VolcanoJob of which it is not decided how it ends."""
    step = _next_step(seen)
    follows = isinstance(step, Conclude | Confirm | StartNextAttempt)
    # One whose policy waits for its time has been told to wait.
    if follows or (isinstance(step, ConfirmPods) and not seen.timers):
        return _told_to_run(seen) or step
    return step


def _next_step(seen: ObservedState) -> Step:
    record = seen.record
    if seen.job is None or seen.job.uid != record.uid:
        return Confirm(_as_it_was(seen))
    if seen.job.deleting and progress_of(seen.job.phase) not in _OVER:
        return Conclude(State.FAILURE, "deleted", "its VolcanoJob was deleted by somebody else")
    step = _living(seen, seen.job)
    return _keeping(seen, seen.job, step) if isinstance(step, Rest) else step


def _told_to_run(seen: ObservedState) -> Note | None:
    """Return the news that the job ran, if it was over before anybody looked.

    Where hundreds of jobs begin at once, a short one ends before its turn comes.
    """
    job = seen.job if seen.job is not None else seen.last
    waits = seen.record.state == State.IN_QUEUE
    if not waits or job is None or job.uid != seen.record.uid or not job.ran:
        return None
    return Note(Happening.STARTED, None, None)


def _as_it_was(seen: ObservedState) -> Conclude | StartNextAttempt:
    """Return what follows if the VolcanoJob is gone: its own end, if it had come to that."""
    if seen.last is None:
        return LOST
    match progress_of(seen.last.phase):
        case Progress.SUCCEEDED:
            return _SUCCEEDED
        case Progress.FAILED:
            policies = policies_of(seen.record)
            followed = triggered(policies, seen.runs.values())
            return after_failure(seen, seen.last, policies, followed)
        case _:
            return LOST


def _living(seen: ObservedState, job: ObservedJob) -> Step:
    progress = progress_of(job.phase)
    match progress:
        # Also one that was resumed meanwhile: the command may be on its way, or lost.
        case Progress.WAITING | Progress.RUNNING if (
            seen.record.desired == "suspended" or seen.record.stopping
        ):
            return Stop(job.uid)
        case Progress.WAITING:
            return due_policies(seen, job) or _expose_first(seen, _waiting(seen, job))
        case Progress.RUNNING:
            return due_policies(seen, job) or _expose_first(seen, _running(seen, job))
        case Progress.ENDING:
            return Rest()
        case Progress.SUCCEEDED:
            completes = seen.record.ordered == "CompleteJob"
            return as_ordered(seen.record) if completes else _SUCCEEDED
        case Progress.FAILED:
            step = failed(seen, job)
            # Pods are followed apart from VolcanoJobs: how they ended may still be to come.
            waits = isinstance(step, ConfirmPods) and (seen.blind or seen.still_runs())
            return Rest() if waits else step
        case Progress.STOPPED:
            return _stopped(seen, job)
        case _:
            assert_never(progress)


def _expose_first(seen: ObservedState, step: Step) -> Step:
    if seen.parked is not None:
        return step if isinstance(step, Note) else Rest()
    if not seen.exposed:
        return Expose()
    if not isinstance(step, Rest):
        return step
    # The cache may only be behind: so whatever else there is to do comes first.
    return Restore() if seen.lost else step


def _waiting(seen: ObservedState, job: ObservedJob) -> Step:
    record = seen.record
    told = Explanation(record.reason or "", record.message or "", record.details or {})
    found = explain_waiting(job, seen.pods, record.explained, told)
    note = Note(Happening.WAITS, found.reason, found.message, found.details)
    step = seen.note_if_new(note)
    if isinstance(step, Rest) or not _is_told_but_for_numbers(record, note):
        return step
    # Counts of nodes and quotas change with every job that comes and goes.
    since = (record.details or {}).get("at")
    again_at = since + QUIET_SECONDS if isinstance(since, int | float) else seen.now
    return step if seen.now >= again_at else Rest()


def _is_told_but_for_numbers(record: JobRecord, note: Note) -> bool:
    same_state = record.state == next_state(record.state, note.happening)
    same = same_state and record.reason == note.reason
    return same and same_but_for_numbers(record.message, note.message)


def _running(seen: ObservedState, job: ObservedJob) -> Step:
    noted = seen.note_if_new(Note(Happening.STARTED, None, None))
    if isinstance(noted, Note):
        return noted
    step = Rest() if seen.started else seen.run_hook("start")
    return (after_the_programs(seen, job) or step) if isinstance(step, Rest) else step


def _stopped(seen: ObservedState, job: ObservedJob) -> Step:
    if seen.record.ordered is not None and not seen.record.stopping:
        return as_ordered(seen.record)
    if not seen.record.stopping or job.phase != "Aborted":
        return stopped_by_others(seen, job)
    if seen.still_runs():
        return Rest()
    if seen.record.desired == "suspended":
        return seen.note_if_new(SUSPENDED)
    return StartNextAttempt("resumed", "resumed, and submitted again")


def _keeping(seen: ObservedState, job: ObservedJob, step: Rest) -> Step:
    """Keep what a lost store would lack, when there is nothing else to do."""
    what = to_keep(seen.record, job, seen.pods) if seen.exposed else None
    if seen.timers and step.until is None:
        step = Rest(min(timer.due_at for timer in seen.timers.values()))
    return step if what is None or what == seen.record.kept else KeepForRecovery(what)
