"""What is to be done next for a job, as a function of what is.

``decide`` looks at the store and the cluster and names one step; the reconciler does it, and asks
again. Nothing here acts, and nothing remembers: asked twice about the same, it says the same.
The way out of the cluster is here too: the order in which a job's parts go, and what comes late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, assert_never

from controller.jobs.history.explanations import (
    explain_running,
    explain_waiting,
    same_but_for_numbers,
)
from controller.jobs.history.job_record import (
    HOW_IT_ENDED,
    Happening,
    Outcome,
    State,
    next_state,
    to_keep,
)
from controller.jobs.history.pod_records import own_are_recorded
from controller.jobs.history.retries import policies_of, triggered
from controller.jobs.reconcile.lifecycle.failure import (
    after_failure,
    after_the_programs,
    as_ordered,
    due_policies,
    failed,
    stopped_by_others,
)
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import (
    LOST,
    SUSPENDED,
    AdoptNewerAttempt,
    Conclude,
    Confirm,
    ConfirmPods,
    EndOverdue,
    EndTool,
    Expose,
    Finish,
    KeepForRecovery,
    Note,
    Order,
    Park,
    RecordPods,
    Remove,
    RemovePods,
    Replace,
    Rest,
    Restore,
    RunHooks,
    StartNextAttempt,
    StartTool,
    Step,
    Stop,
    Submit,
)
from controller.jobs.spec.accepted import has_delayed
from controller.store.jobs.between_jobs import Predecessor
from controller.store.jobs.job_rows import REMOVED_REASONS, JobRecord
from controller.volcano.names import CREATED_ANNOTATION
from controller.volcano.observed import ObservedJob, ObservedPod
from controller.volcano.policies import Progress, progress_of
from controller.volcano.reasons.waiting import Explanation


def ending(seen: ObservedState) -> Step:
    """Return the next step for a job of which it is decided how it ends."""
    # Hooks begin before the removal, which does not wait for those that take long or fail.
    if not seen.completed and "complete" not in seen.paused:
        return RunHooks("complete")
    if (must_be_removed(seen.record) or _must_be_ended(seen)) and (step := removal(seen)):
        return step
    if not seen.completed or seen.still_runs():
        return Rest()  # what it uses is counted to the end
    if seen.record.outcome not in HOW_IT_ENDED:
        return Rest()  # a newer version has decided something else: it is that one's to tell
    return Finish() if seen.cleaned else seen.run_hook("cleanup")


def must_be_removed(record: JobRecord) -> bool:
    """Say whether the VolcanoJob goes at once, and not some time after its end by itself.

    Volcano never removes one that was aborted.
    """
    why = record.reason if record.is_final else record.end_reason
    return record.desired == "ended" or record.stopping or why in REMOVED_REASONS


def _must_be_ended(seen: ObservedState) -> bool:
    """Say whether only containers that are not the job's own run on, or did until it was removed.

    Volcano never ends one of which a pod runs.
    """
    record, job = seen.record, seen.job
    if record.removed_uid is not None and record.removed_uid == record.uid:
        return True
    return job is not None and job.uid == record.uid and bool(seen.left_running())


def removal(seen: ObservedState) -> Step | None:
    """Return what is left to do until the VolcanoJob and its pods are gone; None when they are.

    No pod is deleted before its VolcanoJob: Volcano would make it again, or take it for evicted.
    """
    record, job = seen.record, seen.job
    uid = record.uid or (job.uid if job is not None else None)
    if uid is None:
        return None
    shown = job is not None and job.uid == uid
    if seen.logs_until is not None and seen.now < seen.logs_until:
        return Rest(seen.logs_until)
    if record.removed_uid != uid:
        # Whoever else deletes it has said what is to become of its pods.
        others = shown and job is not None and job.deleting and record.desired != "ended"
        return Rest() if others else Remove(uid)
    own = seen.own(seen.pods)
    if left := tuple(pod for pod in own if not pod.deleting and _may_go(seen, pod)):
        return RemovePods(left)
    # A node that is dead confirms nothing; only the next attempt needs the names of its pods.
    awaited = [pod for pod in own if record.renewal is not None or not pod.lost]
    held_by_them = job is not None and job.deleting and own and not awaited
    return Rest() if awaited or (shown and not held_by_them) else None


def _may_go(seen: ObservedState, pod: ObservedPod) -> bool:
    """Say whether a pod of the VolcanoJob that is gone may be deleted.

    One that nobody owns any more was left there on purpose (``--cascade=orphan``): it goes only
    when somebody asks for the job's end.
    """
    return bool(pod.owner_uid) or seen.record.desired == "ended"


def late_pods(seen: ObservedState) -> tuple[ObservedPod, ...]:
    """Return the pods that Volcano has made, late, for a VolcanoJob that was gone already.

    Those of the job's own VolcanoJob are dealt with where that is removed.
    """
    if not seen.gone:
        return ()
    gone = seen.gone if seen.record.is_final else seen.gone - {seen.record.uid}
    return tuple(pod for pod in seen.pods if pod.owner_uid in gone and not pod.deleting)


def after_the_end(seen: ObservedState) -> Step:
    """Return what is left to do for a job that is over."""
    job, record = seen.job, seen.record
    if job is None or job.deleting or job.uid == record.removed_uid:
        return Rest()
    # Another one of the same job: its making was not answered, and came later than the end.
    late = job.uid != record.uid and _was_made_for(job, record)
    its_own = job.uid == record.uid and must_be_removed(record)
    return Remove(job.uid) if late or its_own else Rest()


def _was_made_for(job: ObservedJob, record: JobRecord) -> bool:
    return job.annotations.get(CREATED_ANNOTATION) == repr(record.created_at)


def _late(record: JobRecord, job: ObservedJob) -> Remove | Rest | None:
    """Return what follows where *job* is of an earlier attempt, which is over.

    A leader that was stopped while it asked for it has it made when it goes on, whoever leads then.
    """
    if job.attempt >= record.attempt or not _was_made_for(job, record):
        return None
    return Rest() if job.deleting or job.uid == record.removed_uid else Remove(job.uid)


def decide(seen: ObservedState) -> Step:
    """Return the next step."""
    record = seen.record
    if not own_are_recorded(seen.runs, seen.pods, seen.departed, record.uid):
        return RecordPods()
    if late := late_pods(seen):
        return RemovePods(late)
    if record.is_final:
        return after_the_end(seen)
    if seen.parked != record.parked:
        return Park(seen.parked)
    step = _undecided(seen) if record.outcome is None else ending(seen)
    # Tools come last: they keep the job from nothing.
    return StartTool(seen.due_tools[0]) if seen.due_tools and isinstance(step, Rest) else step


def _undecided(seen: ObservedState) -> Step:
    """Return the next step for a job of which it is not decided yet how it ends."""
    record = seen.record
    if seen.job is not None and _is_newer(seen.job, record):
        return AdoptNewerAttempt()
    if record.desired == "ended":
        return _ended_on_purpose(record)
    if seen.unwanted is not None:
        return EndTool(seen.unwanted)
    if seen.parked is not None and seen.overdue:
        return EndOverdue()  # its plugins may never have seen it
    if record.renewal is not None:
        return removal(seen) or Replace()
    if record.uid is None:
        return _before_submission(seen)
    return after_submission(seen)


def _is_newer(job: ObservedJob, record: JobRecord) -> bool:
    # What somebody writes into the annotations of an attempt that is known makes it no other one.
    return job.uid != record.uid and job.attempt > record.attempt


_ON_PURPOSE: Final[Mapping[str | None, Outcome]] = MappingProxyType(
    {"FAILURE": State.FAILURE, "EXPIRED": State.EXPIRED}
)
"""Any other end that somebody asked for is a success."""


def _ended_on_purpose(record: JobRecord) -> Conclude:
    outcome = _ON_PURPOSE.get(record.end_state, State.SUCCESS)
    reason, message = record.end_reason or "asked", record.end_message or "ended as asked"
    return Conclude(outcome, reason, message, record.end_details)


def _before_submission(seen: ObservedState) -> Step:
    if seen.parked is not None:
        return seen.note_if_new(Note(Happening.WAITS, "parked", seen.parked))
    if seen.job is not None:
        # Its making was not answered: it is found, whatever is wanted by now.
        return _late(seen.record, seen.job) or Submit()
    if bad := [one for one in seen.predecessors if not (one.goes_on or one.ended_well)]:
        return _never_begins(bad[0])
    if seen.record.desired == "suspended":
        return seen.note_if_new(SUSPENDED)
    if ahead := [one.job_id for one in seen.predecessors if one.goes_on]:
        return seen.note_if_new(Note(Happening.WAITS, "predecessor", _waits_for(ahead)))
    if seen.held is not None:
        return seen.note_if_new(Note(Happening.WAITS, "paused", seen.held))
    return Submit()


def _never_begins(one: Predecessor) -> Conclude:
    how = f"ended as {one.state} ({one.reason})" if one.state else "is not known any more"
    return Conclude(State.FAILURE, "predecessor", f"the job {one.job_id}, which it follows, {how}")


def _waits_for(job_ids: Sequence[str]) -> str:
    others = len(job_ids) - 1
    more = f" and {others} more" if others else ""
    return f"waits for the end of {job_ids[0]}{more}"


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
            return _timed(seen, job) or _expose_first(seen, _waiting(seen, job))
        case Progress.RUNNING:
            return _timed(seen, job) or _expose_first(seen, _running(seen, job))
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


def _timed(seen: ObservedState, job: ObservedJob) -> Step | None:
    """Return what is to be done about policies that we time; None if nothing is now."""
    record = seen.record
    if record.ordered is not None:
        return Order(record.ordered, record.ordered_why or "")
    may_be_due = seen.timers or has_delayed(record.spec)
    return due_policies(seen, job) if may_be_due and not seen.blind else None


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
    found = explain_running(job, seen.pods)
    noted = seen.note_if_new(
        Note(Happening.STARTED, None, None)
        if found is None
        else Note(Happening.STARTED, found.reason, found.message, found.details)
    )
    if isinstance(noted, Note):
        return noted
    step = Rest() if seen.started else seen.run_hook("start")
    if not isinstance(step, Rest) or seen.blind or not (left := seen.left_running()):
        return step
    return after_the_programs(seen, job, left) or step


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
