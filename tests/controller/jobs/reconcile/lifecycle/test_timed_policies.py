from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.history.states import Happening
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.steps import (
    ConfirmPods,
    Note,
    Rest,
    SetTimers,
    StartNextAttempt,
)
from tests.controller.jobs.history.test_retries import DELAYED, job, ran, step_of, timer
from tests.controller.jobs.reconcile.lifecycle.records import FAILED
from tests.controller.samples import make_observed, make_pod, make_seen


def test_a_delayed_policy_waits_is_told_once_and_follows_in_time() -> None:
    record, failed = job(DELAYED), ran(retry=1)
    text = "job 0 ended with exit code 7; RestartJob follows after a while, as its policy says"
    waits: dict[str, Any] = {"phase": "Failed", "now": 38.9}
    step = step_of(record, failed, timers=timer(record, 39.0), **waits)
    assert step == Note(Happening.WAITS, "restarting", text)
    told = job(DELAYED, state="IN_QUEUE", reason="restarting", message=text)
    assert step_of(told, failed, timers=timer(told, 39.0), **waits) == Rest(39.0)
    runs: dict[str, Any] = {"phase": "Running", "timers": timer(record, 39.0)}
    assert step_of(record, failed, now=38.9, **runs) == Rest(39.0)
    assert isinstance(step_of(record, failed, now=39.0, **runs), ConfirmPods)


def test_a_policy_with_a_timeout_is_timed_as_soon_as_something_triggers_it() -> None:
    step = decide(make_seen(job(DELAYED), make_observed(), FAILED, make_pod(1), now=10.0))
    assert isinstance(step, SetTimers)
    assert [one.trigger for one in step.timers] == ["PodFailed/pod-0"]
    # A job that has failed before anything was timed is timed first, too.
    step = step_of(job(DELAYED), ran(retry=1), now=38.9)
    assert isinstance(step, SetTimers)
    assert [one.trigger for one in step.timers] == ["PodFailed/job-0"]
    # One that is left from a policy that is no longer there goes.
    plain = job()
    assert step_of(plain, phase="Running", timers=timer(plain, 39.0)) == SetTimers(())


@pytest.mark.parametrize(("used", "restarts"), [(1, 0), (0, 1)])
def test_what_is_due_counts_the_retries_that_both_have_used(used: int, restarts: int) -> None:
    failed = ran(retry=1)
    for most, again in ((1, False), (2, True)):
        record = job(DELAYED, max_retry=most, retries_used=used)
        due = {**timer(record, 39.0)}
        due = {name: replace(one, retries=restarts) for name, one in due.items()}
        step = step_of(record, failed, phase="Running", now=39.0, timers=due, retries=restarts)
        then = step.then if isinstance(step, ConfirmPods) else None
        assert isinstance(then, StartNextAttempt) is again or then is None
