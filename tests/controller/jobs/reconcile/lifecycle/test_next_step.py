from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.history.job_record import JobEvent, State
from controller.jobs.reconcile.lifecycle.next_step import decide
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
from controller.volcano.policies import PROGRESS
from tests.controller.jobs.reconcile.lifecycle.records import ACCEPTED, KEPT, RUNS, SUBMITTED
from tests.controller.samples import UID, make_observed, make_pod, make_record, make_seen


def test_what_was_accepted_is_submitted() -> None:
    assert decide(make_seen(ACCEPTED)) == Submit()


def test_a_volcano_job_whose_making_was_never_answered_is_found_by_submitting() -> None:
    assert decide(make_seen(ACCEPTED, make_observed("Pending"))) == Submit()


@pytest.mark.parametrize(
    ("attempt", "fields", "step"),
    [
        ("1", {}, DeleteVolcanoJob(UID)),
        ("1", {"created": "7.0"}, Submit()),
        ("1", {"deleting": True}, Wait()),
        ("1", {"removed_uid": UID}, Wait()),
        ("2", {}, Submit()),
    ],
)
def test_what_an_earlier_leader_makes_late_of_an_earlier_attempt_is_removed(
    attempt: str, fields: dict[str, Any], step: Step
) -> None:
    record = replace(ACCEPTED, attempt=2, removed_uid=fields.get("removed_uid"))
    annotations = {
        ATTEMPT_ANNOTATION: attempt,
        CREATED_ANNOTATION: fields.get("created", repr(record.created_at)),
    }
    deleting = fields.get("deleting", False)
    late = make_observed("Running", annotations=annotations, deleting=deleting)
    assert decide(make_seen(record, late)) == step


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
def test_a_job_waits_for_those_that_it_follows_and_fails_with_them(
    predecessors: list[tuple[str, str | None, str | None]], step: Step
) -> None:
    those = tuple(Predecessor(*one) for one in predecessors)
    assert decide(make_seen(ACCEPTED, predecessors=those)) == step
    # A submission without a response may have succeeded: the job is found, then ended as usual.
    assert decide(make_seen(ACCEPTED, make_observed(), predecessors=those)) == Submit()
    ended = replace(ACCEPTED, desired="ended", state="CANCELING")
    assert decide(make_seen(ended, predecessors=those)) == SetOutcome(
        State.SUCCESS, "asked", "ended as asked"
    )


def test_a_job_that_waits_for_others_can_be_suspended_meanwhile() -> None:
    suspended = replace(ACCEPTED, desired="suspended")
    those = (Predecessor("a", "RUNNING", None),)
    step = decide(make_seen(suspended, predecessors=those))
    assert step == UpdateStatus(JobEvent.SUSPENDED, "asked", "suspended as asked")


def test_a_job_that_is_not_submitted_yet_waits_where_it_is() -> None:
    waiting = replace(ACCEPTED, desired="suspended")
    assert decide(make_seen(waiting)) == UpdateStatus(
        JobEvent.SUSPENDED, "asked", "suspended as asked"
    )
    # A VolcanoJob whose creation got no response is looked up first.
    assert decide(make_seen(waiting, make_observed("Pending"))) == Submit()


def test_nothing_is_submitted_while_submission_is_held() -> None:
    step = decide(make_seen(ACCEPTED, submission_hold="the disks are full"))
    assert step == UpdateStatus(JobEvent.WAITS, "paused", "the disks are full")
    told = replace(ACCEPTED, reason="paused", message="the disks are full")
    assert decide(make_seen(told, submission_hold="the disks are full")) == Wait()
    assert decide(make_seen(told)) == Submit()


def test_pods_are_written_down_before_anything_else_is_done() -> None:
    pod = make_pod()
    assert decide(make_seen(RUNS, make_observed("Failed"), pod, runs={})) == RecordPods()
    gone = make_seen(RUNS, make_observed(), departed=(pod,), runs={})
    assert decide(gone) == RecordPods()
    # Pods of another VolcanoJob with the same name are foreign.
    foreign = make_pod(owner_uid="of another")
    assert decide(make_seen(RUNS, make_observed(), foreign, runs={})) != RecordPods()


@pytest.mark.parametrize(
    "fields",
    [
        {"uid": None},
        {"uid": "of the first"},
        {"uid": "of the first", "renewal": "evicted"},
        {"uid": "of the first", "desired": "ended", "state": "CANCELING"},
    ],
)
def test_an_attempt_that_is_later_than_the_stores_is_gone_on_with(fields: dict[str, Any]) -> None:
    record = make_record(attempt=1, **fields)
    later = make_observed(annotations={ATTEMPT_ANNOTATION: "2"})
    assert decide(make_seen(record, later)) == AdoptNewerAttempt()
    assert (
        decide(make_seen(replace(record, attempt=2, uid=UID, renewal=None), later))
        != AdoptNewerAttempt()
    )
    # Somebody changed the annotation of a known VolcanoJob.
    assert decide(make_seen(replace(record, uid=UID, renewal=None), later)) != AdoptNewerAttempt()


WHY = "this version cannot read it"


def test_a_job_that_this_version_cannot_read_is_parked_and_said_to_be() -> None:
    assert decide(make_seen(ACCEPTED, parked=WHY)) == Park(WHY)
    parked = replace(ACCEPTED, parked=WHY)
    assert decide(make_seen(parked)) == Park(None)
    assert decide(make_seen(parked, parked=WHY)) == UpdateStatus(JobEvent.WAITS, "parked", WHY)
    told = replace(parked, reason="parked", message=WHY)
    assert decide(make_seen(told, parked=WHY)) == Wait()
    # Holds also if its creation got no response: nothing creates a parked job now.
    assert decide(make_seen(told, make_observed(), parked=WHY)) == Wait()
    assert decide(make_seen(told, parked=WHY, overdue=True)) == ExpireJob()
    assert decide(make_seen(ACCEPTED, overdue=True)) == Submit()
    ended = replace(told, desired="ended", state="CANCELING")
    assert isinstance(decide(make_seen(ended, parked=WHY)), SetOutcome)


def test_a_parked_job_is_followed_and_nothing_is_made_for_it() -> None:
    starts = decide(make_seen(replace(SUBMITTED, parked=WHY), make_observed(), parked=WHY))
    assert starts == UpdateStatus(JobEvent.STARTED, None, None)
    runs = replace(KEPT, parked=WHY)
    for fields in ({"companions_applied": False}, {"started": False}, {"service_missing": True}):
        assert decide(make_seen(runs, make_observed(), parked=WHY, **fields)) == Wait()


def test_tools_are_run_where_there_is_nothing_else_to_do() -> None:
    due = cast(DueRun, SimpleNamespace()), cast(DueRun, SimpleNamespace())
    assert decide(make_seen(KEPT, make_observed(), due_tools=due)) == StartTool(due[0])
    waits = decide(make_seen(KEPT, make_observed(), started=False, due_tools=due))
    assert waits == RunHooks("start")


def test_a_run_that_nobody_wants_ends_as_is_said() -> None:
    how = RequestedEnd("SUCCESS", "closed", "its pod has gone")
    assert decide(make_seen(KEPT, make_observed(), unwanted=how)) == EndTool(how)


def test_asking_to_end_a_job_concludes_it_whatever_it_does() -> None:
    asked = make_record(uid=UID, state="CANCELING", desired="ended")
    for phase in PROGRESS:
        step = decide(make_seen(asked, make_observed(phase)))
        assert isinstance(step, SetOutcome)
        assert step.outcome is State.SUCCESS


@pytest.mark.parametrize(
    ("state", "reason"), [("EXPIRED", "expired"), ("FAILURE", "out_of_funds"), ("SUCCESS", "asked")]
)
def test_a_job_that_is_ended_on_purpose_is_told_as_who_ended_it_said(
    state: str, reason: str
) -> None:
    ended = replace(RUNS, desired="ended", end_state=state, end_reason=reason, end_message="so")
    step = decide(make_seen(ended, make_observed()))
    assert step == SetOutcome(State(state), reason, "so")  # type: ignore[arg-type]  # one of three


def test_one_that_is_ended_without_a_word_was_ended_as_asked() -> None:
    asked = replace(KEPT, desired="ended", state="CANCELING")
    expected = SetOutcome(State.SUCCESS, "asked", "ended as asked")
    assert decide(make_seen(asked)) == expected
    assert decide(make_seen(replace(asked, end_state="of a later version"))) == expected
    said = replace(asked, end_state="EXPIRED", end_reason="expired", end_message="its time is over",
                   end_details={"a": 1})  # fmt: skip
    end = SetOutcome(State.EXPIRED, "expired", "its time is over", {"a": 1})
    assert decide(make_seen(said)) == end


def test_a_job_that_was_never_submitted_can_end() -> None:
    asked = make_record(desired="ended", state="CANCELING")
    assert isinstance(decide(make_seen(asked)), SetOutcome)
    ending = make_record(desired="ended", state="CANCELING", outcome="SUCCESS")
    assert decide(make_seen(ending, completed=True, cleaned=True)) == Finish()


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
    seen = make_seen(record, job, *pods, **done)  # type: ignore[arg-type]  # from strategies
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
