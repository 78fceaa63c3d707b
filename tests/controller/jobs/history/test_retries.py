"""Tests which policy applies to a failed attempt, and how many retries it uses."""

from __future__ import annotations

from typing import Any

import pytest

from controller.jobs.history.job_record import State
from controller.jobs.history.retries import policies_of, triggered, used_retries
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.steps import (
    ConfirmGone,
    ConfirmPods,
    IssueCommand,
    SetOutcome,
    SetTimers,
    StartNextAttempt,
    Step,
    Wait,
)
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.progress import PodRecord, Timer
from tests.controller.samples import UID, make_observed, make_observed_state, make_record

SPEC = {"id": "j1", "owner": {"user": "ada"}, "image": "busybox"}


def job(*policies: dict[str, Any], **fields: Any) -> JobRecord:
    names = ("tasks", "interactive", "max_retry", "min_success", "replicas")
    spec = {name: fields.pop(name) for name in names if name in fields}
    values: dict[str, Any] = {"uid": UID, "state": "RUNNING", "reason": None, "message": None}
    whole = {**SPEC, **spec, "policies": list(policies)}
    kept = '{"first-start": "2.0"}'
    return make_record(**values | {"started_at": 2.0, "kept": kept, "spec": whole} | fields)


def on(action: str, **trigger: Any) -> dict[str, Any]:
    return {"action": action, **(trigger or {"event": "PodFailed"})}


def ran(index: int = 0, code: int | None = 7, *, task: str = "job", at: float = 9.0,
        **fields: Any) -> PodRecord:  # fmt: skip
    values: dict[str, Any] = {
        "job_id": "j1", "pod_uid": f"{task}-{index}", "attempt": 1, "rank": index, "task": task,
        "index": index, "pod": f"j-j1-{task}-{index}", "node": "n1",
        "phase": "Succeeded" if code == 0 else "Failed", "reason": "Error", "message": "",
        "exit_code": code, "signal": 0, "seen_at": 1.0, "started_at": 2.0, "ended_at": at,
    }  # fmt: skip
    return PodRecord(**values | fields)


def step_of(record: JobRecord, *runs: PodRecord, phase: str = "Failed", **fields: Any) -> Step:
    names = fields.keys() & {"retries", "max_retry", "ran"}
    observed = make_observed(phase, **{name: fields.pop(name) for name in names})
    known = {run.pod_uid: run for run in runs}
    return decide(make_observed_state(record, observed, runs=known, **fields))


def after_pods(step: Step) -> Step:
    """Return the step that follows once the cluster has confirmed the observed pods."""
    assert isinstance(step, ConfirmPods)
    return step.then


# Which policy applies


@pytest.mark.parametrize(
    ("runs", "action"),
    [
        ([ran()], "RestartJob"),
        # The pod that failed first decides, not the first rank.
        ([ran(0, 3, at=9.0), ran(1, 7, at=8.0)], "RestartJob"),
        ([ran(0, 3, at=8.0), ran(1, 7, at=9.0)], "AbortJob"),
        # A failure that no policy covers decides nothing.
        ([ran(0, 5, at=8.0), ran(1, 3, at=9.0)], "AbortJob"),
        # Pods killed because of another's failure, within its second, count as later.
        ([ran(0, 143, at=9.0), ran(1, 7, at=9.0)], "RestartJob"),
        # The last pod of a replica counts: earlier ones were replaced.
        ([ran(0, 3, at=5.0, pod_uid="old"), ran(0, 7, at=9.0, seen_at=6.0)], "RestartJob"),
        ([ran(0, 5)], None),
        ([ran(0, 0)], None),
        ([], None),
    ],
)
def test_the_first_failed_pod_with_a_matching_policy_decides(
    runs: list[PodRecord], action: str | None
) -> None:
    record = job(on("RestartJob", exit_code=7), on("AbortJob", exit_code=3), replicas=2)
    found = triggered(policies_of(record), runs)
    assert (found.rule.action if found is not None else None) == action


def test_a_tasks_policy_precedes_the_jobs() -> None:
    tasks = [{"name": "a", "policies": [on("RestartTask", exit_code=7)]}, {"name": "b"}]
    policies = policies_of(job(on("TerminateJob"), tasks=tasks))
    of_a, of_b = ran(task="a", at=8.0), ran(task="b", at=9.0, rank=1)
    found = triggered(policies, [of_a, of_b])
    assert found is not None
    assert (found.rule.action, found.why) == ("RestartTask", "a 0 ended with exit code 7")
    found = triggered(policies, [of_b])
    assert found is not None
    assert found.rule.action == "TerminateJob"


def test_a_completed_task_may_decide_before_a_failure() -> None:
    tasks = [{"name": "a"}, {"name": "b"}]
    policies = policies_of(job(on("CompleteJob", event="TaskCompleted"), on("AbortJob"),
                               tasks=tasks))  # fmt: skip
    done, failed = ran(0, 0, task="a", at=8.0), ran(0, 7, task="b", at=9.0, rank=1)
    found = triggered(policies, [done, failed])
    assert found is not None
    assert (found.rule.action, found.why) == ("CompleteJob", "the task a is done")


def test_an_unreadable_spec_has_no_policies() -> None:
    assert not policies_of(make_record(spec={"id": "j1", "policies": [{"action": "Dance"}]}))


# The next step


@pytest.mark.parametrize("action", ["RestartJob", "RestartTask", "RestartPod"])
def test_a_restart_lost_by_volcano_starts_another_attempt(action: str) -> None:
    step = after_pods(step_of(job(on(action)), ran()))
    assert isinstance(step, StartNextAttempt)
    assert step.why == "retried"
    assert action in step.message
    assert "the whole job is started again" in step.message


def test_a_policy_applies_only_once_all_pod_ends_are_known() -> None:
    record = job(on("RestartJob"))
    assert isinstance(step_of(record, ran(), pods_stale=True), Wait)
    # Without a policy, a failure is final as soon as it is observed.
    assert step_of(job(), ran()) == SetOutcome(
        State.FAILURE, "exit_code", "job 0 ended with exit code 7"
    )


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        ({"max_retry": 0}, {}),
        ({"max_retry": 2, "retries_used": 2}, {}),
        ({"max_retry": 2}, {"retries": 2}),
        ({"max_retry": 3, "retries_used": 1}, {"retries": 2}),
        # Volcano gave up by itself: its count is one more than the restarts.
        ({"max_retry": 2}, {"retries": 3, "max_retry": 3}),
    ],
)
def test_without_retries_left_the_job_has_failed(
    fields: dict[str, Any], seen: dict[str, Any]
) -> None:
    step = after_pods(step_of(job(on("RestartJob"), **fields), ran(), **seen))
    assert step == SetOutcome(State.FAILURE, "exit_code", "job 0 ended with exit code 7")


@pytest.mark.parametrize("fields", [{"stopping": True}, {"stopping": True, "reason": "suspending"}])
def test_a_job_aborted_by_the_controller_is_never_restarted(fields: dict[str, Any]) -> None:
    step = after_pods(step_of(job(on("RestartJob"), **fields), ran()))
    assert isinstance(step, SetOutcome)
    assert step.outcome is State.FAILURE


@pytest.mark.parametrize(
    ("action", "outcome", "reason"),
    [
        ("AbortJob", State.FAILURE, "stopped"),
        ("TerminateJob", State.FAILURE, "stopped"),
        ("CompleteJob", State.SUCCESS, "completed"),
    ],
)
def test_an_end_lost_by_volcano_ends_the_job(action: str, outcome: State, reason: str) -> None:
    evicted = ran(reason="Evicted")
    for run in (ran(), evicted):
        step = after_pods(step_of(job(on(action)), run, evictions_allowed=1))
        assert isinstance(step, SetOutcome)
        assert (step.outcome, step.reason) == (outcome, reason)


def test_without_records_no_restart_happens_and_the_job_states_it() -> None:
    step = after_pods(step_of(job(on("RestartJob", exit_code=3))))
    assert isinstance(step, SetOutcome)
    assert step.reason == "failed"
    assert "no record says which of its policies applied" in (step.message or "")
    # A known failure that none of the job's policies covers is final.
    step = after_pods(step_of(job(on("RestartJob", exit_code=3)), ran()))
    assert step == SetOutcome(State.FAILURE, "exit_code", "job 0 ended with exit code 7")


@pytest.mark.parametrize(
    ("policies", "again"),
    [
        ([on("RestartJob")], True),
        ([on("RestartPod", event="*")], True),
        ([on("RestartJob", exit_code=3), on("RestartTask")], True),
        ([on("AbortJob", exit_code=3), on("RestartJob")], False),
        ([on("RestartJob", event="PodEvicted")], False),
        ([on("AbortJob"), on("RestartJob", exit_code=3)], False),
    ],
)
def test_an_unobserved_failure_is_retried_if_every_failure_would_be(
    policies: list[dict[str, Any]], again: bool
) -> None:
    gone = ran(code=None, phase="Running", reason="Vanished")
    for runs in ((), (gone,), (ran(code=7, pod_uid="earlier", seen_at=0.5), gone)):
        step = after_pods(step_of(job(*policies), *runs))
        assert isinstance(step, StartNextAttempt) == again, runs
        if isinstance(step, StartNextAttempt):
            assert "how its pods failed was not observed" in step.message
    assert used_retries(0, [gone]) == 0


def test_completed_tasks_do_not_decide_an_unobserved_failure() -> None:
    tasks = [{"name": "a", "policies": [on("AbortJob")]}, {"name": "b"}]
    record, gone = job(on("RestartJob"), tasks=tasks), ran(task="b", code=None, phase="Running")
    step = after_pods(step_of(record, gone, ran(0, 0, task="a")))
    assert isinstance(step, StartNextAttempt)
    assert isinstance(after_pods(step_of(record, gone)), SetOutcome)


def test_the_last_pod_of_a_replica_is_known_by_its_restart_whatever_the_clocks_say() -> None:
    before = ran(code=3, pod_uid="before", seen_at=50.0, retry=0)
    after = ran(code=7, pod_uid="after", seen_at=40.0, retry=1)
    found = triggered(policies_of(job(on("RestartJob", exit_code=7))), [before, after])
    assert found is not None
    assert found.pod_uid == "after"


def test_policies_also_apply_to_a_deleted_volcano_job() -> None:
    record = job(on("RestartJob"))
    last = make_observed("Failed", deleting=True)
    step = decide(make_observed_state(record, None, runs={"job-0": ran()}, last=last))
    assert isinstance(step, ConfirmGone)
    assert isinstance(step.then, StartNextAttempt)
    assert step.then.why == "retried"


def test_evictions_are_compensated_up_to_a_limit_and_then_use_a_retry() -> None:
    record, evicted = job(on("RestartJob"), max_retry=1), ran(code=137, reason="Evicted")
    step = after_pods(step_of(record, evicted, evictions_allowed=1))
    assert isinstance(step, StartNextAttempt)
    assert step.why == "evicted"
    step = after_pods(step_of(record, evicted, evictions_allowed=0))
    assert isinstance(step, StartNextAttempt)
    assert step.why == "retried"


# Retries used


def test_used_retries_are_those_of_volcano_and_controller_without_evictions() -> None:
    policies = policies_of(job(on("RestartJob")))
    last = ran(seen_at=8.0)
    followed = triggered(policies, [last])
    evicted = ran(reason="Evicted", pod_uid="e", at=5.0)
    assert used_retries(0, [last], followed) == 1
    assert used_retries(2, [last], followed) == 3
    assert used_retries(2, [evicted, last], followed) == 2
    assert used_retries(2, [evicted, last], None) == 1
    assert used_retries(0, [evicted, last], None) == 0
    # Each following attempt uses a retry, whatever caused it, so that attempts are bounded.
    again = triggered(policies, [evicted])
    assert used_retries(0, [evicted], again) == 1


def taken(index: int = 0, retry: int | None = 0, **fields: Any) -> PodRecord:
    values = {"reason": "EvictionByEvictionAPI", "pod_uid": f"taken-{index}-{retry}"}
    return ran(index, retry=retry, **values | fields)


def going(index: int = 0, **fields: Any) -> PodRecord:
    return ran(index, None, **{"phase": "Running", "ended_at": None} | fields)


def test_an_eviction_that_volcano_counts_several_times_uses_no_retry() -> None:
    # With RestartPod or RestartTask, each change of the deleted pod counts once more.
    unstarted = ran(retry=2, pod_uid="unstarted", started_at=None)
    again = ran(retry=3, pod_uid="again")
    assert used_retries(3, [taken(), again]) == 0
    assert used_retries(3, [taken(), unstarted, again]) == 0
    assert used_retries(4, [taken(), again]) == 1
    # Evictions of several pods at once share the counted restarts.
    both = [taken(), taken(1), again, ran(1, retry=2, pod_uid="other")]
    assert used_retries(3, both) == 0
    # Volcano gave up before another pod ran.
    assert used_retries(4, [taken(retry=1), ran(1, retry=0)]) == 1
    # The second eviction is another one.
    assert used_retries(5, [taken(), ran(retry=1), taken(retry=2), ran(retry=5, pod_uid="z")]) == 1


def test_an_eviction_without_a_policy_gives_no_retry_back() -> None:
    # Volcano only creates the pod again. Then the program fails twice.
    failures = [ran(retry=0, seen_at=2.0), ran(retry=1, pod_uid="b"), ran(retry=2, pod_uid="c")]
    assert used_retries(2, [taken(), *failures]) == 2
    # A Volcano that does not write the count on its pods.
    assert used_retries(2, [taken(retry=None), ran()]) == 1
    # Only failures are started again: Volcano counts no deleted pod.
    policies = policies_of(job(on("RestartPod"), max_retry=8))
    others = [ran(1, retry=0), ran(1, retry=1, pod_uid="x"), ran(1, retry=2, pod_uid="y")]
    assert used_retries(2, [taken(), *others], policies=policies) == 2
    assert used_retries(2, [taken(retry=None), ran()], policies=policies) == 2
    # The kubelet's own evictions fail the pod, which that policy covers.
    assert used_retries(1, [taken(reason="Evicted")], policies=policies) == 0


def test_failures_of_other_pods_during_an_eviction_use_retries() -> None:
    restart = [on("RestartPod"), on("RestartPod", event="PodEvicted")]
    policies = policies_of(job(*restart, max_retry=8))
    waits = going(retry=1, pod_uid="waits", started_at=None)
    others = [ran(1, retry=0), ran(1, retry=2, pod_uid="x"), going(1, retry=3, pod_uid="y")]
    # The successor of the evicted pod has not started, and another pod has failed twice.
    assert used_retries(3, [taken(), waits, *others], policies=policies) == 2
    # Of four restarts, two are the eviction's.
    assert used_retries(4, [taken(), waits, *others], policies=policies) == 2
    # Failures before the eviction of a pod that was never restarted count, too.
    again = going(retry=4, pod_uid="again")
    assert used_retries(4, [taken(), again, *others], policies=policies) == 2


def test_pods_that_end_with_an_evicted_one_use_no_retry() -> None:
    restart = [on("RestartJob"), on("RestartJob", event="PodEvicted")]
    policies = policies_of(job(*restart, max_retry=8))
    stopped = [ran(1, 143, retry=0), ran(2, 1, retry=0)]
    again = [going(n, retry=1, pod_uid=f"again-{n}") for n in range(3)]
    assert used_retries(1, [taken(), *stopped, *again], policies=policies) == 0
    # Then a new pod fails before the evicted pod's successor has started.
    waits = ran(0, retry=1, pod_uid="waits", started_at=None, code=143)
    failed, third = ran(1, retry=1, pod_uid="failed"), going(1, retry=2, pod_uid="third")
    assert used_retries(2, [taken(), *stopped, waits, failed, third], policies=policies) == 1


# Policies that the controller times


DELAYED = {"action": "RestartJob", "event": "PodFailed", "timeout_seconds": 30}


def timer(record: JobRecord, due_at: float, action: str = "RestartJob") -> dict[str, Timer]:
    name = "PodFailed/job-0"
    made = Timer(job_id="j1", trigger=name, attempt=record.attempt, due_at=due_at, action=action,
                 why="job 0 ended with exit code 7", retries=0)  # fmt: skip
    return {name: made}


def test_a_delayed_restart_of_a_failed_job_waits_until_due() -> None:
    record = job(DELAYED)
    failed = ran(retry=1)  # gone: only its timer still refers to it
    step = step_of(record, failed, now=10.0, timers=timer(record, 39.0))
    assert not isinstance(step, ConfirmPods | SetOutcome)
    reported = job(DELAYED, state="IN_QUEUE", reason="restarting", message=step.message)  # type: ignore[union-attr]  # carries a message
    assert step_of(reported, failed, now=10.0, timers=timer(reported, 39.0)) == Wait(39.0)
    step = after_pods(step_of(reported, failed, now=39.0, timers=timer(reported, 39.0)))
    text = "job 0 ended with exit code 7; started again by its policy RestartJob"
    assert step == StartNextAttempt("retried", text)


def test_a_due_policy_of_a_running_job_is_a_command_or_another_attempt() -> None:
    failed = ran(retry=1)
    record = job(DELAYED)
    due = after_pods(step_of(record, failed, phase="Running", now=39.0, timers=timer(record, 39.0)))
    assert isinstance(due, StartNextAttempt)
    spent = job(DELAYED, max_retry=1, retries_used=1)
    due = after_pods(step_of(spent, failed, phase="Running", now=39.0, timers=timer(spent, 39.0)))
    assert due == IssueCommand("TerminateJob", "job 0 ended with exit code 7, and no retry is left")
    aborts = job({**DELAYED, "action": "AbortJob"})
    timers = timer(aborts, 39.0, "AbortJob")
    due = after_pods(step_of(aborts, failed, phase="Running", now=39.0, timers=timers))
    assert due == IssueCommand("AbortJob", "job 0 ended with exit code 7")
    # Stale pods decide nothing.
    pods_stale = step_of(aborts, failed, phase="Running", now=39.0, timers=timers, pods_stale=True)
    assert pods_stale == Wait(39.0), pods_stale


@pytest.mark.parametrize("phase", ["Running", "Pending", "Restarting"])
def test_a_command_is_sent_until_volcano_has_begun_it(phase: str) -> None:
    ordered = job(DELAYED, ordered="AbortJob", ordered_why="so")
    assert step_of(ordered, ran(), phase=phase) == IssueCommand("AbortJob", "so")
    assert isinstance(step_of(ordered, ran(), phase="Aborting"), Wait)
    end = step_of(ordered, ran(), phase="Aborted")
    assert end == SetOutcome(State.FAILURE, "stopped", "so: AbortJob, as its policy says")
    # Holds also if Volcano lost that command too.
    assert after_pods(step_of(ordered, ran())) == end
    completes = job(DELAYED, ordered="CompleteJob", ordered_why="so")
    for last in ("Failed", "Completed"):
        step = step_of(completes, ran(), phase=last)
        step = after_pods(step) if last == "Failed" else step
        assert isinstance(step, SetOutcome)
        assert step.outcome is State.SUCCESS


def test_a_timer_without_trigger_is_removed() -> None:
    record = job(DELAYED)
    step = step_of(record, phase="Running", now=10.0, timers=timer(record, 39.0))
    assert step == SetTimers(())
