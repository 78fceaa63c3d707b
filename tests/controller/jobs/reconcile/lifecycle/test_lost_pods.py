"""Tests pods that the cluster has ended and that stay, while other pods of the job go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.history.job_record import State
from controller.jobs.reconcile.lifecycle.missed_policies import LOST_SECONDS
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import (
    ConfirmGone,
    ConfirmPods,
    SetOutcome,
    StartNextAttempt,
    Wait,
)
from controller.store.jobs.job_rows import JobRecord
from controller.volcano.observed import Ended, ObservedPod
from tests.controller.jobs.history.test_retries import job, on
from tests.controller.samples import make_observed, make_observed_state, make_pod, recorded_pods

DUE_AT = 9.0 + LOST_SECONDS
EVICTED = make_pod(phase="Failed", running=False, reason="Evicted", message="no disk")
REFUSED = make_pod(phase="Failed", running=False, started_at=None, reason="OutOfcpu")
# As a kubelet that has restarted gives a running pod up (Kubernetes issues 124586 and 133382).
GIVEN_UP = make_pod(phase="Failed", running=False, reason="NodeAffinity")
DONE = make_pod(
    phase="Succeeded",
    running=False,
    ended=Ended(exit_code=0, signal=0, reason="Completed", finished_at=8.0),
)


def lost(
    pod: ObservedPod = EVICTED, *others: ObservedPod, of: JobRecord, **fields: Any
) -> ObservedState:
    pods = pod, *(others or (make_pod(1),))
    values: dict[str, Any] = {"now": DUE_AT, "evictions_allowed": 1}
    return make_observed_state(of, make_observed(), *pods, **values | fields)


@pytest.mark.parametrize("pod", [EVICTED, REFUSED, GIVEN_UP])
def test_ranks_do_not_wait_for_one_that_the_cluster_has_ended(pod: ObservedPod) -> None:
    seen = lost(pod, of=job(replicas=2))
    step = decide(seen)
    assert isinstance(step, ConfirmPods)
    assert isinstance(step.then, StartNextAttempt)
    assert step.then.why == "evicted"
    # A node that is removed takes its pods along, and Volcano makes others.
    assert decide(replace(seen, now=DUE_AT - 1)) == Wait(DUE_AT)
    assert decide(replace(seen, pods_stale=True)) == Wait()
    # The job would not be submitted again.
    assert decide(replace(seen, evictions_allowed=0)) == Wait()


ELASTIC = [{"name": "job", "replicas": 2, "min_available": 1}]
CHAINED = [{"name": "job"}, {"name": "after", "depends_on": ["job"]}]


@pytest.mark.parametrize(
    "record",
    [
        job(tasks=ELASTIC),
        job(replicas=2, min_success=1),
        # Its users may still work in the other pod.
        job(replicas=2, interactive={"lab": {"kind": "web", "port": 8888}}),
        # Volcano counts the pods of all tasks together.
        job(tasks=CHAINED),
        # Volcano carries the policy out, or is late.
        job(on("AbortJob"), replicas=2),
        job(replicas=2, parked="of a newer version"),
    ],
)
def test_a_job_that_may_still_succeed_goes_on(record: JobRecord) -> None:
    other = make_pod(0, task="after", uid="b") if record.spec.get("tasks") == CHAINED else None
    others = (other,) if other is not None else ()
    step = decide(lost(EVICTED, *others, of=record, parked=record.parked))
    assert isinstance(step, Wait)


@pytest.mark.parametrize("policies", [[], [on("RestartJob")]])
def test_pods_that_a_kubelet_refuses_after_their_success_have_succeeded(
    policies: list[dict[str, Any]],
) -> None:
    record = job(*policies, replicas=2)
    other = replace(DONE, index=1, uid="pod-1", name="j-j1-job-1")
    refused = REFUSED_AFTERWARDS
    seen = make_observed_state(
        record, make_observed("Failed"), refused, other, now=DUE_AT, evictions_allowed=1,
        runs=recorded_pods(record, DONE, other),
    )  # fmt: skip
    assert decide(seen) == ConfirmPods(SetOutcome(State.SUCCESS, "completed"))
    # While another rank runs, nothing follows.
    running = replace(seen, job=make_observed(), pods=(refused, make_pod(1)))
    running = replace(running, runs=recorded_pods(record, DONE, make_pod(1)))
    assert decide(running) == Wait()


def test_a_failed_pod_that_a_kubelet_refuses_has_failed_by_itself() -> None:
    record = job(replicas=2)
    how = Ended(exit_code=3, signal=0, reason="Error", finished_at=8.0)
    failed = replace(DONE, phase="Failed", ended=how)
    other = replace(DONE, index=1, uid="pod-1", name="j-j1-job-1")
    refused = replace(failed, reason="UnexpectedAdmissionError", ended=None)
    seen = make_observed_state(
        record, make_observed("Failed"), refused, other, evictions_allowed=1,
        runs=recorded_pods(record, failed, other),
    )  # fmt: skip
    step = decide(seen)
    assert isinstance(step, SetOutcome)
    assert (step.outcome, step.reason) == (State.FAILURE, "exit_code")


REFUSED_AFTERWARDS = replace(DONE, phase="Failed", reason="UnexpectedAdmissionError", ended=None)
# Kubernetes' taint manager sets the condition on pods that have ended, too.
EVICTED_AFTERWARDS = replace(DONE, disrupted="DeletionByTaintManager", deleting=True)


@pytest.mark.parametrize("done", [DONE, REFUSED_AFTERWARDS, EVICTED_AFTERWARDS])
def test_a_job_that_used_up_its_retries_has_failed_though_enough_had_succeeded(
    done: ObservedPod,
) -> None:
    # Volcano ended the pods of the other ranks, and calls the job failed.
    record = job(on("RestartJob"), tasks=ELASTIC, max_retry=1)
    how = Ended(exit_code=3, signal=0, reason="Error", finished_at=8.0)
    failed = make_pod(1, phase="Failed", running=False, ended=how)
    seen = make_observed_state(
        record, make_observed("Failed", retries=1), done, failed,
        runs=recorded_pods(record, DONE, failed),
    )  # fmt: skip
    step = decide(seen)
    assert isinstance(step, ConfirmPods)
    assert isinstance(step.then, SetOutcome)
    assert (step.then.outcome, step.then.reason) == (State.FAILURE, "exit_code")


# Since Kubernetes 1.27, an evicted program that ends with exit code 0 has succeeded (118310).
INTERRUPTED = replace(DONE, disrupted="TerminationByKubelet", disruption="The node was low on disk")
ALSO_DONE = replace(DONE, index=1, uid="pod-1", name="j-j1-job-1")


def completed(of: JobRecord, *pods: ObservedPod, **fields: Any) -> ObservedState:
    values: dict[str, Any] = {"now": DUE_AT, "evictions_allowed": 1}
    return make_observed_state(of, make_observed("Completed"), *pods, **values | fields)


@pytest.mark.parametrize("policies", [[], [on("RestartJob")]])
def test_a_job_whose_interrupted_program_ended_well_is_submitted_again(
    policies: list[dict[str, Any]],
) -> None:
    seen = completed(job(*policies), INTERRUPTED)
    step = decide(seen)
    assert isinstance(step, ConfirmPods)
    assert isinstance(step.then, StartNextAttempt)
    assert (step.then.why, (step.then.details or {})["cause"]) == ("evicted", "node_shutdown")
    assert "The node was low on disk" in step.then.message
    # It ends as evicted once it may not be submitted again.
    step = decide(replace(seen, evictions_allowed=0))
    assert isinstance(step, ConfirmPods)
    assert isinstance(step.then, SetOutcome)
    assert (step.then.outcome, step.then.reason) == (State.FAILURE, "evicted")
    assert (step.then.message or "").endswith("The node was low on disk")
    # The pods' watch may be behind that of the VolcanoJobs.
    assert decide(replace(seen, pods_stale=True)) == Wait()
    # Volcano deletes ended VolcanoJobs.
    assert seen.job is not None
    step = decide(replace(seen, job=None, last=seen.job, pods=(), departed=(INTERRUPTED,)))
    assert isinstance(step, ConfirmGone)
    assert isinstance(step.then, StartNextAttempt)


@pytest.mark.parametrize(
    "record",
    [
        job(tasks=ELASTIC),
        job(replicas=2, min_success=1),
        job(tasks=[{"name": "job", "policies": [on("CompleteJob", event="TaskCompleted")]},
                   {"name": "worker"}]),
    ],
)  # fmt: skip
def test_an_interrupted_program_does_not_matter_if_others_were_enough(record: JobRecord) -> None:
    worker = INTERRUPTED, ALSO_DONE
    if len(record.spec.get("tasks", [])) == 2:
        worker = replace(INTERRUPTED, task="worker", uid="pod-w", name="j-j1-worker-0"), DONE
    assert decide(completed(record, *worker)) == SetOutcome(State.SUCCESS, "completed")


def test_a_gang_is_submitted_again_if_one_of_its_programs_was_interrupted() -> None:
    step = decide(completed(job(replicas=2), INTERRUPTED, ALSO_DONE))
    assert isinstance(step, ConfirmPods)
    assert isinstance(step.then, StartNextAttempt)


def test_a_completed_job_is_not_judged_by_pods_whose_successors_nobody_observed() -> None:
    # Volcano made another pod, which succeeded and was deleted while no controller led.
    record = job(replicas=2)
    seen = completed(record, ALSO_DONE, runs=recorded_pods(record, EVICTED, ALSO_DONE),
                     departed=(EVICTED,))  # fmt: skip
    assert decide(seen) == SetOutcome(State.SUCCESS, "completed")


def test_no_retry_is_used_for_a_program_that_was_interrupted() -> None:
    seen = lost(INTERRUPTED, of=job(on("RestartJob"), replicas=2), evictions_allowed=0)
    assert decide(seen) == Wait()
