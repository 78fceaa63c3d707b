"""Tests session statuses: they follow from store and cluster, and change only with them."""

from __future__ import annotations

from typing import Any

import pytest

from controller.sessions.statuses import ended_status, status_of
from shared.routes.route import Kind, Route
from shared.routes.statuses import MOST_DETAIL, MOST_NAME, Status
from tests.controller.samples import UID, make_job, make_pod, make_record
from tests.controller.sessions.test_routes import session

JOB = make_job(name="My notebook", interactive={"lab": {"kind": "web", "port": 8888}})
CREATED = make_record().created_at
IMAGE = JOB.effective_tasks[0].image


def told(pod: Any = None, *, ready: bool = False, job: Any = JOB, **record: Any) -> Status:
    made = make_record(**{"uid": UID, "state": "RUNNING", "reason": None, "message": None} | record)
    return status_of(session(), job=job, record=made, pod=pod, ready=ready)


def test_a_waiting_job_shows_since_when_and_why() -> None:
    record: dict[str, Any] = {
        "state": "IN_QUEUE",
        "reason": "unschedulable",
        "message": "0/3 nodes have a GPU",
    }
    status = Status(
        phase="queued", since=CREATED, reason="unschedulable", detail="0/3 nodes have a GPU",
        app="My notebook",
    )  # fmt: skip
    assert told(**record) == status
    # Volcano creates pods before a node has room for them.
    assert told(make_pod(node="", running=False, ready=False), **record) == status
    assert told(attempt=2, **record).since is None


@pytest.mark.parametrize(
    ("reason", "message"), [("queued", "waiting in the queue"), ("submitting", "being submitted")]
)
def test_a_detail_that_repeats_the_phase_is_omitted(reason: str, message: str) -> None:
    status = told(state="IN_QUEUE", reason=reason, message=message)
    assert (status.phase, status.reason, status.detail) == ("queued", reason, None)


def test_a_terminal_whose_program_runs_waits_for_a_hub() -> None:
    terminal = session(kind="terminal", endpoint=None, port=None)
    record = make_record(uid=UID, state="RUNNING", reason=None, message=None)
    status = status_of(terminal, job=JOB, record=record, pod=make_pod(started_at=9.0), ready=False)
    assert (status.phase, status.since, status.reason) == ("starting", 9.0, "no_hub")
    assert told(make_pod(ready=False)).reason is None


def test_a_suspended_job_has_no_queue_position() -> None:
    assert told(state="SUSPENDED", reason="suspended").phase == "suspended"


def test_a_pod_being_prepared_names_its_image() -> None:
    pod = make_pod(running=False, ready=False, waiting="ContainerCreating", created_at=7.0)
    status = told(pod, state="IN_QUEUE")
    assert (status.phase, status.since, status.detail) == ("preparing", 7.0, IMAGE)
    assert status.times == (("queued", CREATED),)
    failing = make_pod(running=False, ready=False, waiting="ImagePullBackOff", created_at=7.0)
    detail = told(failing, state="IN_QUEUE", message="the image cannot be pulled").detail
    assert detail == f"the image cannot be pulled: {IMAGE}"


def test_an_app_that_does_not_respond_yet_names_its_port() -> None:
    pod = make_pod(ready=False, created_at=7.0, started_at=9.0)
    status = told(pod)
    assert (status.phase, status.since, status.port) == ("starting", 9.0, 8888)
    assert status.times == (("queued", CREATED), ("preparing", 7.0))
    ready = told(make_pod(created_at=7.0, started_at=9.0), ready=True)
    assert (ready.phase, ready.times[-1]) == ("ready", ("starting", 9.0))


def test_a_job_without_its_pod_is_being_prepared_again() -> None:
    assert told(None).phase == "preparing"


def test_an_app_has_its_given_name_or_its_kind() -> None:
    interactive = {"lab": {"kind": "web", "port": 8888}}
    for fields, name in (({"kind": "jupyter"}, "jupyter"), ({}, "lab")):
        assert told(job=make_job(name=None, interactive=interactive, **fields)).app == name


def routed(status: Status | None, kind: Kind = "web") -> Route:
    """Return the last route of a session of *kind*."""
    sid = "a" * 26
    return Route(
        sid=sid, rev=1, job="j1", rank=0, kind=kind, owner="ada", hosts=(f"{sid}.h",),
        state="starting", status=status,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("record", "phase", "reason"),
    [
        ({"outcome": "SUCCESS", "end_reason": "completed"}, "finished", "completed"),
        ({"state": "SUCCESS", "reason": "completed"}, "finished", "completed"),
        ({"outcome": "FAILURE", "end_reason": "exit_code"}, "failed", "exit_code"),
        ({"outcome": "FAILURE", "end_reason": "out_of_memory"}, "failed", "out_of_memory"),
        ({"outcome": "FAILURE", "end_reason": "evicted"}, "evicted", "evicted"),
        ({"end_state": "EXPIRED", "end_reason": "expired"}, "expired", "expired"),
        ({"end_state": "FAILURE", "end_reason": "out_of_funds"}, "out_of_funds", "out_of_funds"),
        ({"end_state": "SUCCESS", "end_reason": "asked"}, "stopped", "asked"),
        ({"desired": "ended"}, "finished", None),
        ({}, "closed", None),
    ],
)
def test_the_end_of_a_job_is_reported(
    record: dict[str, Any], phase: str, reason: str | None
) -> None:
    made = make_record(**{"state": "RUNNING", "reason": None} | record)
    status = ended_status(routed(Status(phase="ready", app="Lab")), made, now=5.0)
    assert (status.phase, status.reason, status.since, status.app) == (phase, reason, 5.0, "Lab")


def test_an_end_contains_the_truncated_cluster_message() -> None:
    made = make_record(outcome="FAILURE", end_reason="failed", end_message="w" * 5000)
    detail = ended_status(routed(None), made, now=5.0).detail
    assert detail is not None
    assert len(detail) == MOST_DETAIL


def test_an_unknown_end_states_only_that() -> None:
    assert ended_status(routed(None), None, now=5.0) == Status(phase="ended", since=5.0)


@pytest.mark.parametrize("kind", ["terminal", "vnc", "web"])
def test_the_user_who_stopped_a_job_is_shown_only_where_apps_cannot_read_it(kind: Kind) -> None:
    by = {"cause": "asked", "by": "Ada Lovelace " + "x" * 100}
    asked = {"end_state": "SUCCESS", "end_reason": "asked", "end_details": by}
    over = {"state": "SUCCESS", "reason": "asked", "details": by}
    for record in (asked, over):
        made = make_record(**{"state": "CANCELING"} | record)
        status = ended_status(routed(None, kind), made, now=5.0)
        assert status.by == (None if kind == "web" else f"{by['by'][: MOST_NAME - 1]}…")
    failed = make_record(outcome="FAILURE", end_reason="failed", end_details=by)
    assert ended_status(routed(None, kind), failed, now=5.0).by is None
