from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.history.job_record import JobEvent
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.steps import (
    ConfirmPods,
    IssueCommand,
    SetTimers,
    StartNextAttempt,
    UpdateStatus,
    Wait,
)
from tests.controller.jobs.history.test_retries import DELAYED, job, ran, step_of, timer
from tests.controller.jobs.reconcile.lifecycle.records import FAILED
from tests.controller.samples import make_observed, make_observed_state, make_pod


def test_a_delayed_policy_is_reported_once_and_applied_in_time() -> None:
    record, failed = job(DELAYED), ran(retry=1)
    text = "job 0 ended with exit code 7; RestartJob follows after a while, as its policy says"
    waits: dict[str, Any] = {"phase": "Failed", "now": 38.9}
    step = step_of(record, failed, timers=timer(record, 39.0), **waits)
    assert step == UpdateStatus(JobEvent.WAITS, "restarting", text)
    reported = job(DELAYED, state="IN_QUEUE", reason="restarting", message=text)
    assert step_of(reported, failed, timers=timer(reported, 39.0), **waits) == Wait(39.0)
    runs: dict[str, Any] = {"phase": "Running", "timers": timer(record, 39.0)}
    assert step_of(record, failed, now=38.9, **runs) == Wait(39.0)
    assert isinstance(step_of(record, failed, now=39.0, **runs), ConfirmPods)
    # A job that waited for the timer is not reported as running in between.
    assert isinstance(step_of(reported, failed, timers=timer(reported, 39.0), now=39.0, ran=True),
                      ConfirmPods)  # fmt: skip


def test_a_delayed_policy_is_not_late_because_all_pods_are_gone() -> None:
    record, failed = job(DELAYED), ran(retry=1)
    runs: dict[str, Any] = {"phase": "Running", "timers": timer(record, 12.0), "now": 10.0}
    assert step_of(record, failed, **runs) == Wait(12.0)


def test_a_policy_timeout_starts_with_its_trigger() -> None:
    step = decide(make_observed_state(job(DELAYED), make_observed(), FAILED, make_pod(1), now=10.0))
    assert isinstance(step, SetTimers)
    assert [one.trigger for one in step.timers] == ["PodFailed/pod-0"]
    # A failure that precedes all timers starts the timer first.
    step = decide(make_observed_state(job(DELAYED), make_observed("Failed"), FAILED, now=10.0))
    assert isinstance(step, SetTimers)
    assert [one.trigger for one in step.timers] == ["PodFailed/pod-0"]
    # A timer of a policy that no longer exists is removed.
    plain = job()
    assert step_of(plain, phase="Running", timers=timer(plain, 39.0)) == SetTimers(())


@pytest.mark.parametrize(("used", "restarts"), [(1, 0), (0, 1)])
def test_a_due_policy_counts_retries_of_volcano_and_controller(used: int, restarts: int) -> None:
    failed = ran(retry=1)
    for most, again in ((1, False), (2, True)):
        record = job(DELAYED, max_retry=most, retries_used=used)
        due = {**timer(record, 39.0)}
        due = {name: replace(one, retries=restarts) for name, one in due.items()}
        step = step_of(record, failed, phase="Running", now=39.0, timers=due, retries=restarts)
        then = step.then if isinstance(step, ConfirmPods) else None
        assert isinstance(then, StartNextAttempt) is again or then is None


def test_of_two_delayed_policies_the_earlier_is_applied() -> None:
    record = job(DELAYED, replicas=2)
    failed = ran(retry=1), ran(1, retry=1)
    other = {"PodFailed/job-1": replace(*timer(record, 41.0).values(), trigger="PodFailed/job-1")}
    for timers in (timer(record, 39.0) | other, other | timer(record, 39.0)):
        runs: dict[str, Any] = {"phase": "Running", "timers": timers}
        assert step_of(record, *failed, now=38.9, **runs) == Wait(39.0)
        step = step_of(record, *failed, now=39.0, **runs)
        text = "job 0 ended with exit code 7; started again by its policy RestartJob"
        assert step == ConfirmPods(StartNextAttempt("retried", text))


def test_a_command_without_recorded_reason_is_sent() -> None:
    assert step_of(job(DELAYED, ordered="AbortJob"), phase="Running") == IssueCommand(
        "AbortJob", ""
    )
