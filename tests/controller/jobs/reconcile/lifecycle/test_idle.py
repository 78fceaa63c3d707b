from __future__ import annotations

from dataclasses import replace

from controller.jobs.history.job_record import JobEvent
from controller.jobs.reconcile.lifecycle.idle import ABSENT_SECONDS
from controller.jobs.reconcile.lifecycle.missed_policies import MISSED_SECONDS
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.steps import UpdateStatus, Wait
from controller.volcano.observed import Ended
from tests.controller.jobs.reconcile.lifecycle.records import KEPT, gone
from tests.controller.samples import make_observed, make_observed_state, make_pod


def test_a_running_job_says_that_volcano_has_not_noted_the_end_of_its_programs() -> None:
    how = Ended(exit_code=0, signal=0, reason="Completed", finished_at=8.0)
    done = make_pod(phase="Succeeded", running=False, ended=how)
    ended = make_observed_state(KEPT, make_observed(), done, now=9.0)
    due_at = 9.0 + MISSED_SECONDS
    assert decide(ended) == Wait(due_at)
    step = decide(replace(ended, now=due_at))
    assert isinstance(step, UpdateStatus)
    assert (step.event, step.reason) == (JobEvent.STARTED, "not_taken_up")
    told = replace(KEPT, reason=step.reason, message=step.message)
    assert decide(replace(ended, record=told, now=due_at)) == Wait()
    # Its pods may have changed since, or another rank still runs.
    assert decide(replace(ended, now=due_at, pods_stale=True)) == Wait()
    others = make_observed_state(KEPT, make_observed(), done, make_pod(1), now=due_at)
    assert decide(others) == Wait()


def test_a_running_job_says_that_its_pods_are_absent_a_while_after_the_last_one() -> None:
    runs = gone("a", ended_at=7.0) | gone("b", 1, ended_at=20.0)
    absent = make_observed_state(KEPT, make_observed(), runs=runs, now=7.0 + ABSENT_SECONDS)
    due_at = 20.0 + ABSENT_SECONDS
    assert decide(absent) == Wait(due_at)
    step = decide(replace(absent, now=due_at))
    assert isinstance(step, UpdateStatus)
    assert step.event is JobEvent.STARTED
    # Another pod may be there.
    assert decide(replace(absent, now=due_at, pods_stale=True)) == Wait()
