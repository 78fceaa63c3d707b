"""Tests jobs with a webhook's sidecar that outlives the job's own programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.history.job_record import State
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.steps import (
    ConfirmPods,
    DeletePods,
    DeleteVolcanoJob,
    SetOutcome,
    StartNextAttempt,
    Step,
    Wait,
)
from controller.store.jobs.job_rows import JobRecord
from controller.volcano.observed import Ended, ObservedPod
from tests.controller.jobs.reconcile.lifecycle.records import KEPT
from tests.controller.samples import UID, make_observed, make_observed_state, make_pod, make_record

SEEN_AT = 9.0
LEFT_SECONDS = 20.0
DUE_AT = SEEN_AT + LEFT_SECONDS
SAID = "its containers istio-proxy went on after its program, and were ended"


def left(index: int = 0, code: int = 0, **fields: Any) -> ObservedPod:
    """Return a pod whose program has ended while its sidecar runs."""
    ended = Ended(exit_code=code, signal=0, reason="", finished_at=8.0)
    fields = {"running": False, "others_running": ("istio-proxy",), "ended": ended} | fields
    return make_pod(index, **fields)


def job(**fields: Any) -> JobRecord:
    spec = {"id": "j1", "owner": {"user": "ada"}, "image": "busybox", **fields}
    values = {"uid": UID, "state": "RUNNING", "reason": None, "message": None, "started_at": 2.0}
    return make_record(spec=spec, kept='{"first-start": "2.0"}', **values)


def step_of(record: JobRecord, *pods: ObservedPod, now: float = DUE_AT) -> Step:
    seen = make_observed_state(
        record, make_observed(), *pods, now=now, sidecar_seconds=LEFT_SECONDS
    )
    return decide(seen)


def test_a_job_ends_some_time_after_its_main_container() -> None:
    assert step_of(job(), left(), now=DUE_AT - 1) == Wait(DUE_AT)
    assert step_of(job(), left()) == ConfirmPods(SetOutcome(State.SUCCESS, "completed", SAID))


def test_a_sidecar_of_a_long_job_has_as_much_time_as_one_of_a_short_job() -> None:
    seen = make_observed_state(
        job(), make_observed(), left(), now=5001.0, sidecar_seconds=LEFT_SECONDS,
        ended_since={"pod-0": 5000.0},
    )  # fmt: skip
    assert decide(seen) == Wait(5000 + LEFT_SECONDS)


def test_the_sidecars_of_each_pod_have_their_own_time() -> None:
    since = {"pod-0": 10.0, "pod-1": 30.0, "pod-2": 50.0}
    proxies: dict[str, Any] = {"others_running": ("istio-proxy", "vault")}
    pods = left(**proxies), left(1, **proxies), left(2, **proxies)
    seen = make_observed_state(
        job(replicas=3), make_observed(), *pods, sidecar_seconds=LEFT_SECONDS, ended_since=since
    )
    for now, until in ((10.0, 30.0), (30.0, 50.0), (50.0, 70.0)):
        assert decide(replace(seen, now=now)) == Wait(until)
    step = decide(replace(seen, now=70.0))
    assert isinstance(step, ConfirmPods)
    assert isinstance(step.then, SetOutcome)
    assert (step.then.message or "").startswith("its containers istio-proxy, vault went on")


def test_a_job_has_not_succeeded_until_all_its_tasks_have() -> None:
    record = job(tasks=[{"name": "job"}, {"name": "worker"}])
    worker = left(code=7, uid="w", name="j-j1-worker-0", task="worker")
    step = step_of(record, left(), worker)
    assert isinstance(step, ConfirmPods)
    assert isinstance(step.then, SetOutcome)
    assert step.then.outcome is State.FAILURE


def test_a_failed_main_container_fails_the_job_despite_sidecars() -> None:
    step = step_of(job(), left(code=7))
    text = f"job 0 ended with exit code 7; {SAID}"
    assert step == ConfirmPods(SetOutcome(State.FAILURE, "exit_code", text))


@pytest.mark.parametrize(
    "other",
    [
        (),  # not created yet
        (make_pod(1),),
        (left(1, deleting=True),),
    ],
)
def test_a_running_or_startable_container_is_awaited(other: tuple[ObservedPod, ...]) -> None:
    assert step_of(job(replicas=2), left(), *other) == Wait()


def test_a_pod_without_sidecars_is_left_to_its_kubelet() -> None:
    assert step_of(job(), left(others_running=())) == Wait()


ELASTIC = [{"name": "job", "replicas": 2, "min_available": 1}]


@pytest.mark.parametrize(
    ("fields", "code", "outcome"),
    [
        ({}, 1, State.FAILURE),
        ({"min_success": 1}, 1, State.SUCCESS),
        ({"tasks": ELASTIC}, 1, State.SUCCESS),
        ({"tasks": ELASTIC, "min_success": 2}, 1, State.FAILURE),
        ({}, 0, State.SUCCESS),
    ],
)
def test_completion_is_counted_as_volcano_does(
    fields: dict[str, Any], code: int, outcome: State
) -> None:
    ended = left(1, code, phase="Failed" if code else "Succeeded", others_running=())
    step = step_of(job(replicas=2, **fields), left(), ended)
    assert isinstance(step, ConfirmPods)
    assert isinstance(step.then, SetOutcome)
    assert step.then.outcome is outcome


def test_a_policy_applies_while_other_ranks_run() -> None:
    record = job(replicas=2, max_retry=1, policies=[{"event": "PodFailed", "action": "RestartJob"}])
    step = step_of(record, left(code=7), make_pod(1))
    assert isinstance(step, ConfirmPods)
    assert isinstance(step.then, StartNextAttempt)
    assert step.then.why == "retried"


def test_a_completed_task_completes_the_job_by_its_policy() -> None:
    done = {"event": "TaskCompleted", "action": "CompleteJob"}
    record = job(tasks=[{"name": "job", "policies": [done]}, {"name": "worker"}])
    worker = make_pod(0, uid="w", name="j-j1-worker-0", task="worker")
    step = step_of(record, left(), worker)
    assert isinstance(step, ConfirmPods)
    assert isinstance(step.then, SetOutcome)
    assert step.then.outcome is State.SUCCESS


def test_an_unstarted_or_unobserved_job_is_left_alone() -> None:
    restarting = decide(make_observed_state(job(), make_observed("Completing"), left(), now=DUE_AT))
    assert restarting == Wait()
    assert (
        decide(make_observed_state(job(), make_observed(), left(), now=DUE_AT, pods_stale=True))
        == Wait()
    )


def test_remaining_sidecars_are_removed_with_the_volcano_job() -> None:
    over = make_record(**{**_fields(job()), "outcome": "SUCCESS", "end_reason": "completed"})
    seen = make_observed_state(
        over, make_observed(), left(), completed=True, cleaned=True, now=DUE_AT
    )
    assert decide(seen) == DeleteVolcanoJob(UID)
    removed = make_record(**{**_fields(over), "removed_uid": UID})
    seen = make_observed_state(removed, None, left(), completed=True, cleaned=True, now=DUE_AT)
    assert decide(seen) == DeletePods((left(),))
    # Ended pods stay for their logs, until Volcano removes the VolcanoJob.
    ended = left(phase="Succeeded", others_running=())
    seen = make_observed_state(over, make_observed("Completed"), ended, completed=True)
    assert not isinstance(decide(seen), DeleteVolcanoJob)


def _fields(record: JobRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in JobRecord.__slots__}


def test_the_sample_job_has_no_other_step_due() -> None:
    assert decide(make_observed_state(KEPT, make_observed(), make_pod())) == Wait()
