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
from tests.controller.jobs.reconcile.lifecycle.records import gone
from tests.controller.samples import make_observed, make_observed_state, make_pod, recorded_pods

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


EVICTED_AT, AGAIN_AT = 500.0, 501.0
EVICTION_DUE_AT = AGAIN_AT + MISSED_SECONDS


def evicted(
    record: JobRecord, *, again: bool = True, retry: int | None = 0, **fields: Any
) -> ObservedState:
    """Return a job of two ranks; the first was evicted, and Volcano has only made a new pod."""
    pods = [make_pod(1, uid="old-1", retry=0)]
    pods += [make_pod(0, uid="new", retry=retry)] if again else []
    runs = recorded_pods(record, *pods)
    if again:
        runs["new"] = replace(runs["new"], seen_at=AGAIN_AT)
    values = {"reason": "EvictionByEvictionAPI", "exit_code": None, "phase": "Running", "retry": 0}
    runs |= gone("old", 0, **values, ended_at=EVICTED_AT)
    observed = make_observed("Running", retries=fields.pop("retries", 0))
    return make_observed_state(
        record, observed, *pods, **{"now": EVICTION_DUE_AT, "runs": runs} | fields
    )


def on_eviction(action: str) -> dict[str, Any]:
    return on(action, event="PodEvicted")


def test_a_restart_after_an_eviction_that_volcano_missed_is_another_attempt() -> None:
    seen = evicted(two(on_eviction("RestartJob")), evictions_allowed=1)
    step = decide(seen)
    assert isinstance(step, ConfirmPods)
    assert isinstance(step.then, StartNextAttempt)
    assert step.then.why == "evicted"
    assert step.then.message == (
        "job 0 was evicted: it was asked to leave its node; Volcano has not carried out its policy"
        " RestartJob: the whole job is started again, as another attempt"
    )
    assert decide(replace(seen, now=EVICTION_DUE_AT - 1)) == Wait(EVICTION_DUE_AT)
    # Without evictions left, it is a retry like others.
    step = decide(replace(seen, evictions_allowed=0))
    assert isinstance(step, ConfirmPods)
    assert isinstance(step.then, StartNextAttempt)
    assert step.then.why == "retried"
    record = two(on_eviction("RestartJob"), max_retry=0)
    assert decide(replace(seen, record=record, evictions_allowed=0)) == ConfirmPods(
        IssueCommand(
            "TerminateJob",
            "job 0 was evicted: it was asked to leave its node, and no retry is left",
        )
    )


@pytest.mark.parametrize("action", ["AbortJob", "TerminateJob", "CompleteJob"])
def test_an_end_after_an_eviction_that_volcano_missed_is_commanded(action: str) -> None:
    why = "job 0 was evicted: it was asked to leave its node"
    step = decide(evicted(two(on_eviction(action))))
    assert step == ConfirmPods(IssueCommand(action, why))


def test_a_carried_out_eviction_policy_is_not_missed() -> None:
    record = two(on_eviction("RestartJob"))
    # Volcano counted the restart before it created the pod again.
    assert decide(evicted(record, retry=1, retries=1)) == Wait()
    assert decide(evicted(record, retries=1)) == Wait()
    # The pod is not there yet, or Volcano sets no count.
    assert not isinstance(decide(evicted(record, again=False)), ConfirmPods)
    assert decide(evicted(record, retry=None)) == Wait()
    # Nothing more is demanded than the new pod; or no policy applies.
    for policy in (on_eviction("RestartPod"), on("RestartJob")):
        assert decide(evicted(two(policy))) == Wait()


def test_pods_that_were_evicted_together_have_all_begun_anew() -> None:
    seen = evicted(two(on_eviction("RestartJob")), evictions_allowed=1)
    other = replace(seen.runs["old-1"], ended_at=EVICTED_AT + 40.0, reason="Evicted")
    again = replace(seen.runs["new"], pod_uid="new-1", index=1, rank=1, seen_at=AGAIN_AT + 44.0)
    pods = tuple(replace(pod, uid="new-1") if pod.index else pod for pod in seen.pods)
    runs = {**seen.runs, "old-1": other, "new-1": again}
    assert decide(replace(seen, runs=runs, pods=pods)) == Wait()
    # Evicted much later, it should have begun anew together with the first one.
    runs["old-1"] = replace(other, ended_at=2000.0)
    runs["new-1"] = replace(again, seen_at=2001.0)
    late = replace(seen, runs=runs, pods=pods, now=2001.0 + MISSED_SECONDS)
    assert isinstance(decide(late), ConfirmPods)


def test_a_task_restarts_as_far_as_its_eviction_policy_reaches() -> None:
    tasks = [{"name": "job"}, {"name": "other"}]
    seen = evicted(job(on_eviction("RestartTask"), tasks=tasks), evictions_allowed=1)
    pods = tuple(replace(pod, task="other", index=0) if pod.index else pod for pod in seen.pods)
    runs = {**seen.runs, "old-1": replace(seen.runs["old-1"], task="other", index=0)}
    alone = replace(seen, runs=runs, pods=pods)
    assert decide(alone) == Wait()
    whole = job(on_eviction("RestartJob"), tasks=tasks)
    assert isinstance(decide(replace(alone, record=whole)), ConfirmPods)
