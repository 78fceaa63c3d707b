from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.history.job_record import JobEvent, State
from controller.jobs.reconcile.lifecycle.missed_policies import MISSED_SECONDS
from controller.jobs.reconcile.lifecycle.next_step import ABSENT_SECONDS, decide
from controller.jobs.reconcile.lifecycle.steps import (
    AdoptNewerAttempt,
    DeletePods,
    DeleteVolcanoJob,
    EndTool,
    ExpireJob,
    Finish,
    Park,
    RecordPods,
    ResetForNextAttempt,
    RunHooks,
    SetOutcome,
    StartTool,
    Step,
    Submit,
    UpdateStatus,
    Wait,
)
from controller.jobs.tools.runs import DueRun
from controller.store.jobs.job_rows import RequestedEnd
from controller.store.jobs.relations import Predecessor
from controller.volcano.names import ATTEMPT_ANNOTATION, CREATED_ANNOTATION
from controller.volcano.observed import PROGRESS, Ended
from tests.controller.jobs.reconcile.lifecycle.records import (
    ACCEPTED,
    KEPT,
    RUNS,
    SUBMITTED,
    gone,
)
from tests.controller.samples import UID, make_observed, make_observed_state, make_pod, make_record


def test_an_accepted_job_is_submitted() -> None:
    assert decide(make_observed_state(ACCEPTED)) == Submit()


def test_a_create_without_response_is_resolved_by_submitting_again() -> None:
    assert decide(make_observed_state(ACCEPTED, make_observed("Pending"))) == Submit()


@pytest.mark.parametrize(
    ("attempt", "fields", "step"),
    [
        ("1", {}, DeleteVolcanoJob(UID)),
        ("1", {"created": "7.0"}, Submit()),
        ("1", {"deleting": True}, Wait()),
        ("1", {"removed_uid": UID, "deleting": True}, Wait()),
        ("1", {"removed_uid": "another"}, DeleteVolcanoJob(UID)),
        ("2", {"deleting": True}, Submit()),
    ],
)
def test_a_late_volcano_job_of_an_earlier_attempt_is_removed(
    attempt: str, fields: dict[str, Any], step: Step
) -> None:
    record = replace(ACCEPTED, attempt=2, removed_uid=fields.get("removed_uid"))
    annotations = {
        ATTEMPT_ANNOTATION: attempt,
        CREATED_ANNOTATION: fields.get("created", repr(record.created_at)),
    }
    deleting = fields.get("deleting", False)
    late = make_observed("Running", annotations=annotations, deleting=deleting)
    assert decide(make_observed_state(record, late)) == step


def test_the_attempts_own_volcano_job_is_recorded_as_it_is() -> None:
    created = {CREATED_ANNOTATION: repr(ACCEPTED.created_at)}
    made = make_observed("Running", annotations={ATTEMPT_ANNOTATION: "1", **created})
    assert decide(make_observed_state(ACCEPTED, made)) == Submit(made)


@pytest.mark.parametrize(
    ("predecessors", "step"),
    [
        (
            [("a", "RUNNING", None)],
            UpdateStatus(JobEvent.WAITS, "predecessor", "waits for the end of a"),
        ),
        (
            [("a", "CANCELING", "asked"), ("b", "SUCCESS", "completed"), ("c", "IN_QUEUE", None)],
            UpdateStatus(JobEvent.WAITS, "predecessor", "waits for the end of a and 1 more"),
        ),
        ([("a", "SUCCESS", "completed")], Submit()),
        (
            [("a", "RUNNING", None), ("b", "FAILURE", "exit_code")],
            SetOutcome(
                State.FAILURE,
                "predecessor",
                "the job b, which it follows, ended as FAILURE (exit_code)",
            ),
        ),
        (
            [("a", "SUCCESS", "asked")],
            SetOutcome(
                State.FAILURE,
                "predecessor",
                "the job a, which it follows, ended as SUCCESS (asked)",
            ),
        ),
        (
            [("a", None, None)],
            SetOutcome(
                State.FAILURE, "predecessor", "the job a, which it follows, is not known any more"
            ),
        ),
    ],
)
def test_a_job_waits_for_its_predecessors_and_fails_with_them(
    predecessors: list[tuple[str, str | None, str | None]], step: Step
) -> None:
    those = tuple(Predecessor(*one) for one in predecessors)
    assert decide(make_observed_state(ACCEPTED, predecessors=those)) == step
    # A submission without a response may have succeeded: the job is found, then ended as usual.
    assert decide(make_observed_state(ACCEPTED, make_observed(), predecessors=those)) == Submit()
    ended = replace(ACCEPTED, desired="ended", state="CANCELING")
    assert decide(make_observed_state(ended, predecessors=those)) == SetOutcome(
        State.SUCCESS, "asked", "ended as asked"
    )


def test_a_job_waiting_for_predecessors_can_be_suspended() -> None:
    suspended = replace(ACCEPTED, desired="suspended")
    those = (Predecessor("a", "RUNNING", None),)
    step = decide(make_observed_state(suspended, predecessors=those))
    assert step == UpdateStatus(JobEvent.SUSPENDED, "asked", "suspended as asked")


def test_an_unsubmitted_job_stays_in_its_state() -> None:
    waiting = replace(ACCEPTED, desired="suspended")
    assert decide(make_observed_state(waiting)) == UpdateStatus(
        JobEvent.SUSPENDED, "asked", "suspended as asked"
    )
    # A VolcanoJob whose creation got no response is looked up first.
    assert decide(make_observed_state(waiting, make_observed("Pending"))) == Submit()


def test_no_job_is_submitted_while_submission_is_held() -> None:
    step = decide(make_observed_state(ACCEPTED, submission_hold="the disks are full"))
    assert step == UpdateStatus(JobEvent.WAITS, "paused", "the disks are full")
    reported = replace(ACCEPTED, reason="paused", message="the disks are full")
    assert decide(make_observed_state(reported, submission_hold="the disks are full")) == Wait()
    assert decide(make_observed_state(reported)) == Submit()


def test_pods_are_recorded_before_any_other_step() -> None:
    pod = make_pod()
    assert decide(make_observed_state(RUNS, make_observed("Failed"), pod, runs={})) == RecordPods()
    gone = make_observed_state(RUNS, make_observed(), departed=(pod,), runs={})
    assert decide(gone) == RecordPods()
    # Pods of another VolcanoJob with the same name are foreign.
    foreign = make_pod(owner_uid="of another")
    assert decide(make_observed_state(RUNS, make_observed(), foreign, runs={})) != RecordPods()


@pytest.mark.parametrize(
    "fields",
    [
        {"uid": None},
        {"uid": "of the first"},
        {"uid": "of the first", "renewal": "evicted"},
        {"uid": "of the first", "desired": "ended", "state": "CANCELING"},
    ],
)
def test_a_later_attempt_than_the_stored_one_is_adopted(fields: dict[str, Any]) -> None:
    record = make_record(attempt=1, **fields)
    later = make_observed(annotations={ATTEMPT_ANNOTATION: "2"})
    assert decide(make_observed_state(record, later)) == AdoptNewerAttempt()
    assert (
        decide(make_observed_state(replace(record, attempt=2, uid=UID, renewal=None), later))
        != AdoptNewerAttempt()
    )
    # Somebody changed the annotation of a known VolcanoJob.
    assert (
        decide(make_observed_state(replace(record, uid=UID, renewal=None), later))
        != AdoptNewerAttempt()
    )


WHY = "this version cannot read it"


def test_a_job_unreadable_by_this_version_is_parked_and_reported() -> None:
    assert decide(make_observed_state(ACCEPTED, parked=WHY)) == Park(WHY)
    parked = replace(ACCEPTED, parked=WHY)
    assert decide(make_observed_state(parked)) == Park(None)
    assert decide(make_observed_state(parked, parked=WHY)) == UpdateStatus(
        JobEvent.WAITS, "parked", WHY
    )
    reported = replace(parked, reason="parked", message=WHY)
    assert decide(make_observed_state(reported, parked=WHY)) == Wait()
    # Holds also if its creation got no response: nothing creates a parked job now.
    assert decide(make_observed_state(reported, make_observed(), parked=WHY)) == Wait()
    assert decide(make_observed_state(reported, parked=WHY, overdue=True)) == ExpireJob()
    assert decide(make_observed_state(ACCEPTED, overdue=True)) == Submit()
    ended = replace(reported, desired="ended", state="CANCELING")
    assert isinstance(decide(make_observed_state(ended, parked=WHY)), SetOutcome)


def test_a_parked_job_is_observed_and_nothing_is_created() -> None:
    starts = decide(
        make_observed_state(replace(SUBMITTED, parked=WHY), make_observed(), parked=WHY)
    )
    assert starts == UpdateStatus(JobEvent.STARTED, None, None)
    runs = replace(KEPT, parked=WHY)
    for fields in ({"companions_applied": False}, {"started": False}, {"service_missing": True}):
        assert decide(make_observed_state(runs, make_observed(), parked=WHY, **fields)) == Wait()


def test_tools_run_only_if_no_other_step_is_due() -> None:
    due = cast(DueRun, SimpleNamespace()), cast(DueRun, SimpleNamespace())
    assert decide(make_observed_state(KEPT, make_observed(), due_tools=due)) == StartTool(due[0])
    waits = decide(make_observed_state(KEPT, make_observed(), started=False, due_tools=due))
    assert waits == RunHooks("start")


def test_an_unwanted_tool_run_ends_with_its_reason() -> None:
    how = RequestedEnd("SUCCESS", "closed", "its pod has gone")
    assert decide(make_observed_state(KEPT, make_observed(), unwanted=how)) == EndTool(how)


def test_a_requested_end_concludes_a_job_in_any_state() -> None:
    asked = make_record(uid=UID, state="CANCELING", desired="ended")
    for phase in PROGRESS:
        step = decide(make_observed_state(asked, make_observed(phase)))
        assert isinstance(step, SetOutcome)
        assert step.outcome is State.SUCCESS


@pytest.mark.parametrize(
    ("state", "reason"), [("EXPIRED", "expired"), ("FAILURE", "out_of_funds"), ("SUCCESS", "asked")]
)
def test_a_requested_end_reports_the_callers_message(state: str, reason: str) -> None:
    ended = replace(RUNS, desired="ended", end_state=state, end_reason=reason, end_message="so")
    step = decide(make_observed_state(ended, make_observed()))
    assert step == SetOutcome(State(state), reason, "so")  # type: ignore[arg-type]  # one of three


def test_a_requested_end_without_message_has_the_default_text() -> None:
    asked = replace(KEPT, desired="ended", state="CANCELING")
    expected = SetOutcome(State.SUCCESS, "asked", "ended as asked")
    assert decide(make_observed_state(asked)) == expected
    assert decide(make_observed_state(replace(asked, end_state="of a later version"))) == expected
    said = replace(asked, end_state="EXPIRED", end_reason="expired", end_message="its time is over",
                   end_details={"a": 1})  # fmt: skip
    end = SetOutcome(State.EXPIRED, "expired", "its time is over", {"a": 1})
    assert decide(make_observed_state(said)) == end


def test_an_unsubmitted_job_can_end() -> None:
    asked = make_record(desired="ended", state="CANCELING")
    assert isinstance(decide(make_observed_state(asked)), SetOutcome)
    ending = make_record(desired="ended", state="CANCELING", outcome="SUCCESS")
    assert decide(make_observed_state(ending, completed=True, cleaned=True)) == Finish()


records = st.builds(
    make_record,
    desired=st.sampled_from(["run", "suspended", "ended"]),
    renewal=st.sampled_from([None, None, "evicted", "resumed"]),
    stopping=st.booleans(),
    state=st.sampled_from(State).map(str),
    outcome=st.none() | st.sampled_from(["SUCCESS", "FAILURE"]),
    uid=st.none() | st.just(UID),
    removed_uid=st.sampled_from([None, UID]),
    reason=st.sampled_from([None, "asked", "stopped", "deleted", "queued"]),
)


observed = st.builds(
    make_observed,
    st.sampled_from([*PROGRESS, "Unheard of"]),
    uid=st.sampled_from([UID, "of another"]),
    deleting=st.booleans(),
)


flags = st.fixed_dictionaries(
    {name: st.booleans() for name in ("companions_applied", "started", "completed", "cleaned")}
)


@given(records, st.none() | observed, st.lists(st.builds(make_pod), max_size=2), flags)
def test_only_the_jobs_own_volcano_job_is_ever_removed(
    record: object, job: object, pods: list[object], done: dict[str, bool]
) -> None:
    seen = make_observed_state(record, job, *pods, **done)  # type: ignore[arg-type]  # from strategies
    step = decide(seen)
    if isinstance(step, DeleteVolcanoJob):
        assert step.uid == (seen.record.uid or (seen.job and seen.job.uid))
        assert seen.record.outcome or seen.record.is_final or seen.record.renewal
    if isinstance(step, DeletePods):
        assert seen.record.removed_uid == UID
        assert all(pod.owner_uid == UID and not pod.deleting for pod in step.pods)
    if seen.record.is_final:
        assert isinstance(step, Wait | DeleteVolcanoJob)
    if isinstance(step, ResetForNextAttempt):
        assert not any(pod.owner_uid == seen.record.uid for pod in seen.pods)
    if isinstance(step, Submit):
        assert seen.record.uid is None
        assert seen.record.desired == "run" or seen.job is not None


def test_a_running_job_says_that_volcano_has_not_noted_the_end_of_its_programs() -> None:
    how = Ended(exit_code=0, signal=0, reason="Completed", finished_at=8.0)
    done = make_pod(phase="Succeeded", running=False, ended=how)
    ended = make_observed_state(KEPT, make_observed(), done, now=9.0)
    due_at = 9.0 + MISSED_SECONDS
    assert decide(ended) == Wait(due_at)
    step = decide(replace(ended, now=due_at))
    assert isinstance(step, UpdateStatus)
    assert (step.event, step.reason) == (JobEvent.STARTED, "not_taken_up")
    told = replace(KEPT, reason=step.reason, message=step.message)
    assert decide(replace(ended, record=told, now=due_at)) == Wait()
    # Its pods may have changed since, or another rank still runs.
    assert decide(replace(ended, now=due_at, pods_stale=True)) == Wait()
    others = make_observed_state(KEPT, make_observed(), done, make_pod(1), now=due_at)
    assert decide(others) == Wait()


def test_a_running_job_says_that_its_pods_are_absent_a_while_after_the_last_one() -> None:
    runs = gone("a", ended_at=7.0) | gone("b", 1, ended_at=20.0)
    absent = make_observed_state(KEPT, make_observed(), runs=runs, now=7.0 + ABSENT_SECONDS)
    due_at = 20.0 + ABSENT_SECONDS
    assert decide(absent) == Wait(due_at)
    step = decide(replace(absent, now=due_at))
    assert isinstance(step, UpdateStatus)
    assert step.event is JobEvent.STARTED
    # Another pod may be there.
    assert decide(replace(absent, now=due_at, pods_stale=True)) == Wait()
