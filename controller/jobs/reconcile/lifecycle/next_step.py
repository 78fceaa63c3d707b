"""What is to be done next for a job, as a function of what is.

``decide`` looks at the store and the cluster and names one step; the reconciler does it, and asks
again. Nothing here acts, and nothing remembers: asked twice about the same, it says the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from controller.jobs.history.pod_records import are_recorded
from controller.jobs.history.states import Happening, Outcome, State
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.removal import after_the_end, ending, late_pods, removal
from controller.jobs.reconcile.lifecycle.steps import (
    SUSPENDED,
    AdoptNewerAttempt,
    Conclude,
    EndOverdue,
    EndTool,
    Note,
    Park,
    RecordPods,
    RemovePods,
    Replace,
    Rest,
    StartTool,
    Step,
    Submit,
)
from controller.jobs.reconcile.lifecycle.submitted import after_submission
from controller.store.jobs.between_jobs.predecessors import Predecessor
from controller.store.jobs.job_rows import JobRecord
from controller.volcano.observed import ObservedJob


def decide(seen: ObservedState) -> Step:
    """Return the next step."""
    record = seen.record
    if not are_recorded(seen.runs, seen.own(seen.pods), seen.own(seen.departed)):
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
    return job.attempt > record.attempt and job.uid != record.uid


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
        return Submit()  # its making was not answered: it is found, whatever is wanted by now
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
