"""Tests policies that Volcano has missed: the pod that triggered one stays, and others go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.history.job_record import State
from controller.jobs.reconcile.lifecycle.missed_policies import MISSED_SECONDS
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import (
    ConfirmPods,
    IssueCommand,
    RunHooks,
    SetOutcome,
    StartNextAttempt,
    Wait,
)
from controller.store.jobs.job_rows import JobRecord
from controller.volcano.observed import Ended
from tests.controller.jobs.history.test_retries import job, on
from tests.controller.samples import make_observed, make_observed_state, make_pod

ENDED_AT = 8.0
SEEN_AT = 9.0
DUE_AT = SEEN_AT + MISSED_SECONDS
FAILED = make_pod(
    phase="Failed",
    running=False,
    ended=Ended(exit_code=7, signal=0, reason="Error", finished_at=ENDED_AT),
)
DONE = replace(
    FAILED,
    phase="Succeeded",
    ended=Ended(exit_code=0, signal=0, reason="Completed", finished_at=ENDED_AT),
)
WHY = "job 0 ended with exit code 7"


def missed(record: JobRecord, first: Any = FAILED, **fields: Any) -> ObservedState:
    """Return a running job of two ranks, of which the first has ended some minutes ago."""
    names = fields.keys() & {"retries", "max_retry"}
    observed = make_observed(fields.pop("phase", "Running"), **{n: fields.pop(n) for n in names})
    return make_observed_state(record, observed, first, make_pod(1), **{"now": DUE_AT} | fields)


def two(*policies: dict[str, Any], **fields: Any) -> JobRecord:
    return job(*policies, **{"replicas": 2} | fields)


def test_a_restart_that_volcano_missed_is_another_attempt() -> None:
    seen = missed(two(on("RestartJob")))
    step = decide(seen)
    assert isinstance(step, ConfirmPods)
    assert isinstance(step.then, StartNextAttempt)
    assert step.then.why == "retried"
    assert f"{WHY}; Volcano has not carried out its policy RestartJob" in step.then.message
    # Volcano may only be slow. The step does not depend on another change.
    assert decide(replace(seen, now=DUE_AT - 1)) == Wait(DUE_AT)


def test_volcano_has_its_time_for_an_end_that_a_node_reported_late() -> None:
    # Its node was cut off for minutes. Volcano has learned of the end as late as this controller.
    late = {"ended_since": {"pod-0": 1000.0}}
    assert decide(missed(two(on("RestartJob")), now=1001.0, **late)) == Wait(1000 + MISSED_SECONDS)
    tasks = [{"name": "a", "replicas": 2}, {"name": "b"}]
    record = job(on("CompleteJob", event="TaskCompleted"), tasks=tasks)
    pods = [replace(DONE, task="a", index=n, name=f"j-j1-a-{n}", uid=f"a-{n}") for n in (0, 1)]
    since = {"a-0": 20.0, "a-1": 1000.0}
    seen = make_observed_state(
        record, make_observed(), *pods, make_pod(task="b"), now=1001.0, ended_since=since
    )
    assert decide(seen) == Wait(1000 + MISSED_SECONDS)


@pytest.mark.parametrize(("sidecar_seconds", "until"), [(60.0, SEEN_AT + 60.0), (600.0, DUE_AT)])
def test_a_job_is_due_at_the_earlier_of_two_times(sidecar_seconds: float, until: float) -> None:
    ended = Ended(exit_code=0, signal=0, reason="Completed", finished_at=ENDED_AT)
    pods = FAILED, make_pod(1, running=False, ended=ended, others_running=("istio-proxy",))
    seen = make_observed_state(
        two(on("RestartJob")), make_observed(), *pods, now=20.0, sidecar_seconds=sidecar_seconds
    )
    assert decide(seen) == Wait(until)


def test_the_start_hook_runs_while_volcano_may_still_carry_out_a_policy() -> None:
    assert decide(missed(two(on("RestartJob")), now=20.0, started=False)) == RunHooks("start")


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_policy_is_missed_while_a_gang_is_not_complete_too(phase: str) -> None:
    assert isinstance(decide(missed(two(on("RestartPod")), phase=phase)), ConfirmPods)


@pytest.mark.parametrize("action", ["AbortJob", "TerminateJob", "CompleteJob"])
def test_an_end_that_volcano_missed_is_commanded(action: str) -> None:
    step = decide(missed(two(on(action))))
    assert step == ConfirmPods(IssueCommand(action, WHY))


def test_a_job_whose_last_retry_volcano_missed_ends() -> None:
    ends = ConfirmPods(IssueCommand("TerminateJob", f"{WHY}, and no retry is left"))
    for fields in ({"max_retry": 0}, {"max_retry": 2, "retries_used": 2}):
        assert decide(missed(two(on("RestartJob"), **fields))) == ends
    assert decide(missed(two(on("RestartJob"), max_retry=1), retries=1)) == ends


def test_a_missed_failure_by_an_eviction_uses_no_retry() -> None:
    evicted = make_pod(phase="Failed", running=False, reason="Evicted", message="no disk")
    record = two(on("RestartJob"), max_retry=0)
    # A pod without containers does not say when it ended; the record does.
    step = decide(missed(record, evicted, evictions_allowed=1, now=1000.0))
    assert isinstance(step, ConfirmPods)
    assert isinstance(step.then, StartNextAttempt)
    assert step.then.why == "evicted"


def test_workers_end_although_volcano_missed_the_end_of_their_master() -> None:
    tasks = [{"name": "master"}, {"name": "worker"}]
    record = job(on("CompleteJob", event="TaskCompleted"), tasks=tasks)
    worker = make_pod(0, task="worker", name="j-j1-worker-0", uid="worker-0")
    master = replace(DONE, task="master", name="j-j1-master-0")
    seen = make_observed_state(record, make_observed(), master, worker, now=DUE_AT)
    assert decide(seen) == ConfirmPods(IssueCommand("CompleteJob", "the task master is done"))
    # The end is then the job's success.
    ordered = replace(record, ordered="CompleteJob", ordered_why="the task master is done")
    after = decide(make_observed_state(ordered, make_observed("Completed"), master))
    assert isinstance(after, SetOutcome)
    assert after.outcome is State.SUCCESS


def test_nothing_is_missed_without_a_policy_for_a_pod_that_stays() -> None:
    seen = missed(two(on("RestartJob")))
    # Volcano is restarting the job, or deletes the pod.
    for phase in ("Restarting", "Completing"):
        assert not isinstance(decide(missed(two(on("RestartJob")), phase=phase)), ConfirmPods)
    leaving = replace(FAILED, deleting=True)
    assert decide(missed(two(on("RestartJob")), leaving)) == Wait()
    assert decide(replace(seen, pods_stale=True)) == Wait()
    assert decide(replace(seen, jobs_stale=True)) == Wait()
    # No policy applies.
    assert decide(missed(two())) == Wait()
    assert decide(missed(two(on("RestartJob", exit_code=3)))) == Wait()
    assert decide(missed(two(on("CompleteJob", event="TaskCompleted")), DONE)) == Wait()
