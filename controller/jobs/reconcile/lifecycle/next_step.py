"""What is to be done next for a job, as a function of what is.

``decide`` looks at the store and the cluster and names one step; the reconciler does it, and asks
again. Nothing here acts, and nothing remembers: asked twice about the same, it says the same.
The way out of the cluster is here too: the order in which a job's parts go, and what comes late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from controller.jobs.history.pod_records import own_are_recorded
from controller.jobs.history.states import HOW_IT_ENDED, Happening, Outcome, State
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.sidecars import left_running
from controller.jobs.reconcile.lifecycle.steps import (
    SUSPENDED,
    AdoptNewerAttempt,
    Conclude,
    EndOverdue,
    EndTool,
    Finish,
    Note,
    Park,
    RecordPods,
    Remove,
    RemovePods,
    Replace,
    Rest,
    RunHooks,
    StartTool,
    Step,
    Submit,
)
from controller.jobs.reconcile.lifecycle.submitted import after_submission
from controller.store.jobs.between_jobs.connections import Predecessor
from controller.store.jobs.job_rows import REMOVED_REASONS, JobRecord
from controller.volcano.names import CREATED_ANNOTATION
from controller.volcano.observed import ObservedJob, ObservedPod


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
    return job is not None and job.uid == record.uid and bool(left_running(seen, job))


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
