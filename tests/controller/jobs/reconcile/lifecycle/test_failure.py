from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.history.job_record import State
from controller.jobs.history.retries import used_retries
from controller.jobs.reconcile.lifecycle.failure import GIVING_UP_SECONDS
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.steps import (
    ConfirmGivenUp,
    ConfirmGone,
    ConfirmNotRefused,
    ConfirmPods,
    SetOutcome,
    StartNextAttempt,
    Step,
    Submit,
    Wait,
)
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.progress import PodRecord
from controller.volcano.observed import Ended, ObservedPod
from tests.controller.jobs.history.test_retries import after_pods, job, on, ran, step_of
from tests.controller.jobs.reconcile.lifecycle.records import (
    ACCEPTED,
    RUNS,
    SUBMITTED,
    confirmed,
    gone,
)
from tests.controller.samples import UID, make_observed, make_observed_state, make_pod


@pytest.mark.parametrize(
    ("pod", "reason", "text"),
    [
        (make_pod(phase="Failed", ended=Ended(exit_code=3, signal=0, reason="Error",
                                              finished_at=None)), "exit_code", "exit code 3"),
        (make_pod(phase="Failed", ended=Ended(exit_code=137, signal=9, reason="OOMKilled",
                                              finished_at=None)), "out_of_memory", "memory"),
        (make_pod(phase="Failed", reason="Evicted", message="no disk"), "evicted", "no disk"),
    ],
)  # fmt: skip
def test_a_failure_is_explained_by_the_pod_that_failed(pod: object, reason: str, text: str) -> None:
    healthy = make_pod(1)
    step = decide(make_observed_state(RUNS, make_observed("Failed"), healthy, pod))  # type: ignore[arg-type]  # parametrized
    assert isinstance(step, SetOutcome)
    assert step.reason == reason
    assert text in (step.message or "")


@pytest.mark.parametrize(
    ("runs", "reason", "message"),
    [
        (gone("a", exit_code=7), "exit_code", "job 0 ended with exit code 7"),
        (gone("a", exit_code=137, reason="OOMKilled"), "out_of_memory", None),
        # The pod that failed first decides, not pods that were killed because of it.
        (gone("a") | gone("b", 1, exit_code=7), "exit_code", "job 1 ended with exit code 7"),
        (gone("a", exit_code=1, ended_at=9.0) | gone("b", 1, ended_at=8.0),
         "exit_code", "job 1 ended with exit code 143 (SIGTERM)"),
        # The last pod of a rank decides, not one that was replaced.
        (gone("a", exit_code=9) | gone("b", exit_code=7, seen_at=6.0),
         "exit_code", "job 0 ended with exit code 7"),
        (gone("a", exit_code=0), "failed", None),
    ],
)  # fmt: skip
def test_a_failure_is_explained_after_volcano_deleted_the_pods(
    runs: dict[str, PodRecord], reason: str, message: str | None
) -> None:
    step = confirmed(decide(make_observed_state(RUNS, make_observed("Failed"), runs=runs)))
    assert isinstance(step, SetOutcome)
    assert step.reason == reason
    assert message in (None, step.message)


def test_a_failure_is_not_concluded_before_a_pod_explains_it() -> None:
    seen = make_observed_state(RUNS, make_observed("Failed"), make_pod())
    assert decide(seen) == Wait()
    aged = replace(RUNS, kept='{"first-start": "2.0"}')
    assert decide(make_observed_state(aged, make_observed("Failed"), pods_stale=True)) == Wait()
    # A missing pod must be confirmed by the cluster, because the cache may be behind.
    unexplained = ConfirmPods(SetOutcome(State.FAILURE, "failed"))
    assert decide(make_observed_state(RUNS, make_observed("Failed"))) == unexplained
    said = make_observed("Failed", message="PodFailed")
    of_volcano = ConfirmPods(SetOutcome(State.FAILURE, "failed", "PodFailed"))
    assert decide(make_observed_state(RUNS, said)) == of_volcano
    assert decide(make_observed_state(RUNS, said, make_pod())) == Wait()
    over = make_pod(phase="Failed", ended=Ended(exit_code=4, signal=0, reason="Error",
                                                finished_at=5.0))  # fmt: skip
    step = decide(make_observed_state(RUNS, make_observed("Failed"), over))
    assert step == SetOutcome(State.FAILURE, "exit_code", "job 0 ended with exit code 4")


def test_a_failure_without_message_is_concluded_by_a_pods_reason() -> None:
    text = "job 0 failed on its node: OutOfcpu: no room"
    full = make_pod(phase="Failed", running=False, reason="OutOfcpu", message="no room")
    step = decide(make_observed_state(RUNS, make_observed("Failed"), full))
    assert step == SetOutcome(State.FAILURE, "failed", text)


def test_events_of_failed_pods_are_awaited_for_half_a_minute() -> None:
    # Observed at 100: what Volcano's clock says does not matter.
    ended, restarts = make_observed("Failed", phase_since=5000.0), job(on("RestartJob"))
    seen = make_observed_state(restarts, ended, now=129.0, phase_seen_at=100.0)
    assert decide(seen) == Wait(130.0)
    assert isinstance(decide(replace(seen, now=130.0)), ConfirmPods)
    # The failure is known, no policy restarts anything, or this controller ended the VolcanoJob.
    seen = replace(seen, now=101.0)
    others = (job(on("AbortJob")), replace(restarts, ordered="AbortJob", ordered_why="so"))
    for one in (replace(seen, runs=gone("a")), *(replace(seen, record=one) for one in others)):
        assert isinstance(decide(one), ConfirmPods)
    # Volcano has removed the VolcanoJob meanwhile.
    removed = replace(seen, job=None, last=ended)
    assert decide(removed) == Wait(130.0)
    assert isinstance(decide(replace(removed, now=130.0)), ConfirmGone)
    assert decide(replace(removed, now=130.0, pods_stale=True)) == Wait()


QUOTA = {"uid": UID, "reason": "forbidden", "message": "exceeded quota", "details": {}}


def refused(cause: str, **fields: Any) -> Step:
    """Return the next step after Volcano gave up a job whose pods were refused for *cause*."""
    record = replace(SUBMITTED, explained=QUOTA | {"details": {"cause": cause}}, **fields)
    return decide(make_observed_state(record, make_observed("Terminated")))


def test_a_job_whose_pods_exceed_a_quota_waits_in_another_attempt() -> None:
    # Volcano terminates the job after fifteen tries, about three minutes, whoever uses the quota.
    stopped = SetOutcome(State.FAILURE, "stopped", "its VolcanoJob is Terminated")
    again = ConfirmGivenUp(StartNextAttempt("forbidden", "exceeded quota"), stopped)
    assert refused("quota") == again
    assert refused("missing_service_account") == again
    assert refused("queue_closed") == again
    ran = decide(
        make_observed_state(replace(RUNS, explained=QUOTA), make_observed("Terminated", ran=True))
    )
    of_another = replace(SUBMITTED, explained=QUOTA | {"uid": "of another"})
    for given in (ran, decide(make_observed_state(of_another, make_observed("Terminated")))):
        step = confirmed(given)
        assert isinstance(step, SetOutcome)
        assert step.reason == "stopped"


def test_a_job_that_volcano_gave_up_is_not_ended_before_its_events_are_read() -> None:
    job = make_observed("Terminated", phase_since=50.0)
    stopped = SetOutcome(State.FAILURE, "stopped", "its VolcanoJob is Terminated")
    assert decide(make_observed_state(SUBMITTED, job)) == ConfirmNotRefused(stopped)
    # A reason from before, such as a full queue, does not replace the events.
    queued = replace(SUBMITTED, explained=QUOTA | {"reason": "queued", "since": 3.0})
    assert decide(make_observed_state(queued, job)) == ConfirmNotRefused(stopped)
    # Nothing refuses the pods of an aborted job, nor of one that ran without an eviction.
    aborted = make_observed("Aborted")
    assert isinstance(decide(make_observed_state(SUBMITTED, aborted)), SetOutcome)
    ran = make_observed("Terminated", ran=True)
    assert isinstance(decide(make_observed_state(RUNS, ran)), SetOutcome)
    assert isinstance(decide(make_observed_state(RUNS, ran, runs=gone("a"))), SetOutcome)


def test_a_refusal_that_has_passed_does_not_resubmit_a_terminated_job() -> None:
    # The API server keeps events for an hour. Volcano gives up about three minutes after the first.
    later = decide(make_observed_state(SUBMITTED, make_observed("Terminated", phase_since=5000.0)))
    assert isinstance(later, ConfirmNotRefused)
    assert later.since == 5000.0 - GIVING_UP_SECONDS
    # The pods were refused, and then created; they wait for nodes.
    pod = make_pod(phase="Pending", running=False, deleting=True)
    made = make_observed_state(SUBMITTED, make_observed("Terminated", phase_since=50.0), pod)
    assert isinstance(decide(made), SetOutcome)


def test_an_evicted_job_whose_next_pod_is_refused_is_resubmitted() -> None:
    # A drain may also evict the pods of an admission webhook.
    runs = gone("a", reason="EvictionByEvictionAPI", ended_at=40.0)
    job = make_observed("Terminated", ran=True, phase_since=50.0)
    seen = make_observed_state(RUNS, job, runs=runs, evictions_allowed=1)
    step = decide(seen)
    assert isinstance(step, ConfirmNotRefused)
    assert step.since == 40.0
    kept = QUOTA | {"since": 50.0, "message": "failed calling webhook"}
    again = confirmed(decide(replace(seen, record=replace(RUNS, explained=kept))))
    assert isinstance(again, StartNextAttempt)
    assert again.why == "evicted"
    assert again.message.endswith("was refused (failed calling webhook); submitted again")
    # A refusal from before it ran is no reason, and evictions are replaced a number of times only.
    before = replace(RUNS, explained=kept | {"since": 3.0})
    assert decide(replace(seen, record=before)) == step
    spent = replace(RUNS, explained=kept, evictions=1)
    assert decide(replace(seen, record=spent)) == step.then


def test_only_refusals_after_the_last_eviction_of_a_rank_count() -> None:
    evicted: dict[str, Any] = {"reason": "Evicted"}
    job = make_observed("Terminated", ran=True, phase_since=90.0)
    again = gone("a", ended_at=10.0, seen_at=1.0, **evicted) | gone(
        "b", ended_at=40.0, seen_at=20.0, **evicted
    )
    ranks = gone("a", ended_at=60.0, **evicted) | gone("b", 1, ended_at=40.0, **evicted)
    for runs in (again, ranks):
        step = decide(make_observed_state(RUNS, job, runs=runs, evictions_allowed=1))
        assert isinstance(step, ConfirmNotRefused)
        assert step.since == 40.0
    # The pod after the evicted one ran, and failed by itself.
    later = gone("a", ended_at=10.0, seen_at=1.0, **evicted) | gone("b", exit_code=3, seen_at=20.0)
    seen = make_observed_state(RUNS, job, runs=later, evictions_allowed=1)
    assert isinstance(decide(seen), SetOutcome)


def test_a_job_whose_pods_are_finally_refused_fails_with_the_reason() -> None:
    causes = "pod_security", "limit_range", "admission", "quota_unspecified", "pod_invalid"
    for_good = map(refused, causes)
    assert isinstance(confirmed(refused("quota", attempt=499)), StartNextAttempt)
    for step in (*for_good, refused("quota", attempt=500)):
        assert step == SetOutcome(State.FAILURE, "refused", "exceeded quota")


@pytest.mark.parametrize(
    "pod",
    [
        make_pod(phase="Failed", reason="Evicted", message="no disk"),
        make_pod(phase="Failed", reason="NodeLost"),
        make_pod(phase="Failed", disrupted="PreemptionByScheduler",
                 ended=Ended(exit_code=137, signal=9, reason="Error", finished_at=3.0)),
    ],
)  # fmt: skip
def test_an_evicted_job_is_resubmitted_up_to_the_limit(
    pod: ObservedPod,
) -> None:
    # Other ranks fail because this one is missing; they are not the cause.
    how = Ended(exit_code=1, signal=0, reason="Error", finished_at=3.0)
    other = make_pod(1, phase="Failed", ended=how)
    seen = make_observed_state(RUNS, make_observed("Failed"), other, pod, evictions_allowed=1)
    step = decide(seen)
    assert isinstance(step, StartNextAttempt)
    assert step.why == "evicted"
    spent = make_observed_state(
        replace(RUNS, evictions=1), make_observed("Failed"), pod, evictions_allowed=1
    )
    step = decide(spent)
    assert isinstance(step, SetOutcome)
    assert (step.outcome, step.reason) == (State.FAILURE, "evicted")


def test_a_job_evicted_for_its_storage_limit_is_not_resubmitted() -> None:
    pod = make_pod(phase="Failed", running=False, reason="StorageLimit", message="too much")
    step = decide(make_observed_state(RUNS, make_observed("Failed"), pod, evictions_allowed=3))
    assert isinstance(step, SetOutcome)
    assert (step.outcome, step.reason) == (State.FAILURE, "failed")
    unstarted = replace(pod, started_at=None)
    step = decide(
        make_observed_state(SUBMITTED, make_observed("Failed"), unstarted, evictions_allowed=3)
    )
    assert isinstance(step, SetOutcome)


@pytest.mark.parametrize("why", ["Evicted", "PreemptionByScheduler", "EvictionByEvictionAPI"])
def test_an_eviction_is_compensated_after_volcano_deleted_the_pod(why: str) -> None:
    seen = make_observed_state(RUNS, make_observed("Failed"), runs=gone("a", reason=why))
    step = decide(replace(seen, evictions_allowed=1))
    assert isinstance(step, StartNextAttempt)
    assert step.why == "evicted"


FULL: dict[str, Any] = {
    "reason": "OutOfcpu", "message": "no room", "exit_code": None, "started_at": None,
}  # fmt: skip


def test_a_pod_rejected_by_a_kubelet_is_compensated() -> None:
    full = make_pod(phase="Failed", running=False, started_at=None, reason="OutOfcpu")
    runs = gone("a", **FULL)
    for seen in (make_observed_state(RUNS, make_observed("Failed"), full),
                 make_observed_state(RUNS, make_observed("Failed"), runs=runs)):  # fmt: skip
        step = confirmed(decide(replace(seen, evictions_allowed=1)))
        assert isinstance(step, StartNextAttempt)
        assert step.why == "evicted"
        assert step.message.startswith("job 0 failed on its node: OutOfcpu")
        spent = replace(seen, record=replace(RUNS, evictions=1), evictions_allowed=1)
        step = confirmed(decide(spent))
        assert isinstance(step, SetOutcome)
        assert step.reason == "failed"


def test_a_restart_after_a_kubelet_rejection_uses_no_retry() -> None:
    for started_at in (None, 2.0):
        rejected = {**FULL, "started_at": started_at}
        full, *others = (*gone("a", **rejected).values(), *gone("b", 1).values())
        assert used_retries(2, [full, *others], None) == 1
    # The restart of a pod that failed by itself, timed out or lacked its files is a retry.
    for fields in ({"exit_code": 1}, {"reason": "DeadlineExceeded"},
                   {"reason": "Init:fumarole-files"}, {"reason": ""}):  # fmt: skip
        assert used_retries(1, gone("a", **{**FULL, **fields}).values(), None) == 1


def test_retries_used_by_evictions_are_restored() -> None:
    evicted = gone("a", reason="Evicted", exit_code=137, seen_at=3.0)
    failed = gone("b", exit_code=7, seen_at=6.0)
    exhausted = make_observed("Failed", retries=2, max_retry=2)
    seen = make_observed_state(RUNS, exhausted, runs=evicted | failed, evictions_allowed=1)
    step = decide(seen)
    assert isinstance(step, StartNextAttempt)
    assert step.why == "evicted"
    # Not more often than evictions are allowed to be replaced,
    assert isinstance(decide(replace(seen, evictions_allowed=0)), SetOutcome)
    # nor if the job has used all retries, or no policy asked for a restart.
    assert isinstance(decide(replace(seen, runs=failed)), SetOutcome)
    left = make_observed("Failed", retries=1, max_retry=2)
    assert isinstance(decide(replace(seen, job=left)), SetOutcome)


@pytest.mark.parametrize(
    ("phase", "action"), [("Aborted", "AbortJob"), ("Terminated", "TerminateJob")]
)
def test_a_job_stopped_by_a_policy_names_the_policy(phase: str, action: str) -> None:
    why = "job 0 ended with exit code 7"
    step = step_of(job(on(action)), ran(), phase=phase)
    assert isinstance(step, SetOutcome)
    assert (step.outcome, step.reason) == (State.FAILURE, "stopped")
    assert step.message == f"{why}: {action}, as its policy says"
    assert (step.details or {})["cause"]
    # Whoever did it, the known state of the pods is reported.
    for record in (job(), job(on("CompleteJob"))):
        step = confirmed(step_of(record, ran(), phase=phase))
        assert isinstance(step, SetOutcome)
        assert step.message == f"its VolcanoJob is {phase}: {why}"
    step = confirmed(step_of(job(), phase=phase))
    assert step == SetOutcome(State.FAILURE, "stopped", f"its VolcanoJob is {phase}")


@pytest.mark.parametrize(
    "fields", [{"stopping": True}, {"ordered": "AbortJob", "ordered_why": "so"}]
)
def test_no_policy_applies_to_an_end_ordered_by_the_controller(fields: dict[str, Any]) -> None:
    step = after_pods(step_of(job(on("RestartJob"), **fields), ran()))
    assert isinstance(step, SetOutcome)
    failed = "job 0 ended with exit code 7"
    said = "so: AbortJob, as its policy says" if "ordered" in fields else failed
    assert (step.outcome, step.message) == (State.FAILURE, said)


@pytest.mark.parametrize(
    ("action", "outcome", "reason"),
    [("AbortJob", State.FAILURE, "stopped"), ("CompleteJob", State.SUCCESS, "completed")],
)
def test_an_end_by_policy_states_the_policy(action: str, outcome: Any, reason: str) -> None:
    step = after_pods(step_of(job(on(action)), ran()))
    assert isinstance(step, SetOutcome)
    text = f"job 0 ended with exit code 7: {action}, as its policy says"
    assert (step.outcome, step.reason, step.message) == (outcome, reason, text)
    assert (step.details or {})["cause"]


def test_another_attempt_states_its_reason() -> None:
    step = after_pods(step_of(job(on("RestartTask")), ran()))
    assert isinstance(step, StartNextAttempt)
    assert step.message == (
        "job 0 ended with exit code 7; Volcano has not carried out its policy RestartTask: "
        "the whole job is started again, as another attempt"
    )
    evicted = ran(code=137, reason="Evicted")
    step = after_pods(step_of(job(on("RestartJob")), evicted, evictions_allowed=1))
    assert isinstance(step, StartNextAttempt)
    assert step.why == "evicted"
    assert step.message == "job 0 was evicted: Evicted; submitted again"
    gives_up: dict[str, Any] = {"retries": 2, "max_retry": 2}
    # The eviction was replaced, at the cost of a retry that another failure needed.
    before = ran(code=137, at=5.0, reason="Evicted", pod_uid="before", seen_at=0.5)
    record = job(on("AbortJob", exit_code=99), on("RestartJob", event="PodEvicted"))
    step = after_pods(step_of(record, before, ran(), evictions_allowed=1, **gives_up))
    assert isinstance(step, StartNextAttempt)
    assert step.message == (
        "job 0 ended with exit code 7; submitted again: "
        "retries that went to evictions are given back"
    )


def test_without_a_known_policy_nothing_is_restarted() -> None:
    step = after_pods(step_of(job(on("RestartJob", exit_code=3))))
    assert isinstance(step, SetOutcome)
    assert step.message == (
        "it failed; no record says which of its policies applied, so nothing is started again"
    )


REFUSED_AT = 100.0


def after_refusals(count: int, **fields: Any) -> JobRecord:
    """Return a job whose last *count* attempts failed because a kubelet refused a pod."""
    details = {"cause": "node_refused", "at": REFUSED_AT}
    values: dict[str, Any] = {"reason": "evicted", "details": details}
    values |= {"evictions": count, "attempt": count + 1}
    return replace(ACCEPTED, **values | fields)


@pytest.mark.parametrize(("count", "pause"), [(1, 10.0), (2, 20.0), (3, 40.0), (9, 60.0)])
def test_an_attempt_after_a_kubelets_refusal_waits_longer_each_time(
    count: int, pause: float
) -> None:
    seen = make_observed_state(after_refusals(count))
    assert decide(replace(seen, now=REFUSED_AT)) == Wait(REFUSED_AT + pause)
    assert decide(replace(seen, now=REFUSED_AT + pause - 1)) == Wait(REFUSED_AT + pause)
    assert decide(replace(seen, now=REFUSED_AT + pause)) == Submit()


@pytest.mark.parametrize(
    ("now", "fields"),
    [
        (REFUSED_AT - 3600, {}),
        (REFUSED_AT, {"details": {"cause": "preempted", "at": REFUSED_AT}}),
        (REFUSED_AT, {"details": {"cause": "node_refused"}}),
        (REFUSED_AT, {"details": {"cause": "node_refused", "at": "soon"}}),
        (REFUSED_AT, {"details": None}),
        (REFUSED_AT, {"reason": "preparing"}),
    ],
    ids=["a clock that went back", "preempted", "no time", "no number", "no details", "tried"],
)
def test_every_other_next_attempt_is_submitted_at_once(now: float, fields: dict[str, Any]) -> None:
    seen = make_observed_state(after_refusals(1, **fields))
    assert decide(replace(seen, now=now)) == Submit()


def test_the_end_of_a_job_does_not_wait_for_its_next_attempt() -> None:
    seen = make_observed_state(after_refusals(1, desired="ended"))
    assert isinstance(decide(replace(seen, now=REFUSED_AT)), SetOutcome)
