"""Tests jobs whose stored spec this version cannot read."""

from __future__ import annotations

from typing import Any

import pytest

from controller.jobs.history.job_record import JobEvent, read_known, why_parked
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.steps import (
    ApplyCompanions,
    DeleteVolcanoJob,
    ExpireJob,
    Finish,
    Park,
    RunHooks,
    SaveRecoveryData,
    SetOutcome,
    Submit,
    UpdateStatus,
    Wait,
)
from tests.controller.samples import UID, make_observed, make_observed_state, make_record

SPEC: dict[str, Any] = {"id": "j1", "owner": {"user": "ada"}, "image": "busybox"}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, None),
        ({"spec": SPEC | {"colour": "red"}}, "colour: unknown field"),
        ({"spec": SPEC | {"resources": {"cpu": "1", "fpga": 2}}}, "resources.fpga: unknown field"),
        ({"spec": SPEC | {"replicas": "many"}}, "replicas"),
        ({"spec": SPEC | {"parameters": {"p": {"type": "quantum"}}}}, "parameters.p"),
        ({"spec": SPEC | {"parameters": 7}}, "is not a stored job"),
        ({"spec": []}, "is not a stored job"),
        ({"spec": None}, "is not a stored job"),
        ({"state": "HIBERNATED"}, "state 'HIBERNATED'"),
        ({"desired": "moved"}, "'moved'"),
        ({"outcome": "ARCHIVED"}, "'ARCHIVED'"),
    ],
)
def test_an_unreadable_field_is_reported(fields: dict[str, Any], why: str | None) -> None:
    found = why_parked(make_record(**fields))
    assert found == why if why is None or found is None else why in found


def test_the_readable_part_of_a_job_is_used() -> None:
    spec = SPEC | {
        "colour": "red",
        "resources": {"cpu": "2", "fpga": 2},
        "tasks": [{"name": "a", "replicas": 3, "flavour": "x"}, {"name": "b"}],
        "topology": {"numa": "a policy of tomorrow"},
    }
    job = read_known(make_record(spec=spec))
    assert str(job.resources.cpu) == "2"
    assert [(task.name, task.replicas) for task in job.tasks] == [("a", 3), ("b", None)]
    assert job.topology.numa is None
    # The record itself is unchanged.
    assert spec["colour"] == "red"
    unreadable: list[Any] = [None, [], {"owner": 3}, {"parameters": {"x": 1}}]
    for broken in unreadable:
        least = read_known(make_record(spec=broken))
        assert (least.id, least.owner.user) == ("j1", "ada")


WHY = "this version cannot read it: colour: unknown field"
PARKED = make_record(parked=WHY)
RUNS = make_record(parked=WHY, uid=UID, state="RUNNING", reason=None, message=None, started_at=2.0)


def test_a_parked_job_is_observed_and_never_submitted() -> None:
    assert decide(make_observed_state(make_record(), parked=WHY)) == Park(WHY)
    assert decide(make_observed_state(PARKED)) == Park(None)
    assert decide(make_observed_state(make_record())) == Submit()
    waits = UpdateStatus(JobEvent.WAITS, "parked", WHY)
    assert decide(make_observed_state(PARKED, parked=WHY)) == waits
    waiting = make_record(parked=WHY, reason="parked", message=WHY)
    assert decide(make_observed_state(waiting, parked=WHY)) == Wait()
    queued = make_record(parked=WHY, uid=UID)
    seen = make_observed_state(queued, make_observed(), parked=WHY, companions_applied=False)
    assert decide(seen) == UpdateStatus(JobEvent.STARTED, None, None)
    for undone in ("started", "companions_applied"):
        seen = make_observed_state(RUNS, make_observed(), parked=WHY, **{undone: False})
        assert isinstance(decide(seen), Wait | SaveRecoveryData)
    readable = make_record(uid=UID, state="RUNNING", reason=None, message=None, started_at=2.0)
    assert (
        decide(make_observed_state(readable, make_observed(), companions_applied=False))
        == ApplyCompanions()
    )


def test_a_parked_job_ends_as_any_other() -> None:
    over = make_observed_state(RUNS, make_observed(), parked=WHY, overdue=True)
    assert decide(over) == ExpireJob()
    # A job whose plugins enforce the deadline is not ended here.
    readable = make_record(uid=UID, state="RUNNING", reason=None, message=None, started_at=2.0)
    assert decide(make_observed_state(readable, make_observed(), overdue=True)) != ExpireJob()
    asked = make_record(parked=WHY, uid=UID, desired="ended", end_state="EXPIRED")
    assert isinstance(decide(make_observed_state(asked, make_observed(), parked=WHY)), SetOutcome)
    ends = make_record(parked=WHY, uid=UID, desired="ended", outcome="EXPIRED")
    assert decide(make_observed_state(ends, make_observed(), parked=WHY)) == RunHooks("complete")
    going = make_observed_state(ends, make_observed(), parked=WHY, completed=True)
    assert decide(going) == DeleteVolcanoJob(UID)
    gone = make_record(parked=WHY, uid=UID, removed_uid=UID, desired="ended", outcome="EXPIRED")
    assert decide(make_observed_state(gone, parked=WHY, completed=True, cleaned=True)) == Finish()
    strange = make_record(parked=WHY, uid=UID, removed_uid=UID, desired="ended", outcome="ARCHIVED")
    assert decide(make_observed_state(strange, parked=WHY, completed=True, cleaned=True)) == Wait()
