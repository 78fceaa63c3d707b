"""What comes next where something waits, is parked, is late, or was ended by somebody else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.jobs.history.states import Happening, State
from controller.jobs.reconcile.lifecycle import decide, hooks_matter
from controller.jobs.reconcile.steps import (
    Conclude,
    ConfirmPods,
    EndOverdue,
    EndTool,
    Finish,
    Note,
    Park,
    Remove,
    RemovePods,
    Rest,
    RunHooks,
    SetTimers,
    StartNextAttempt,
    StartTool,
    Step,
    Submit,
)
from controller.jobs.tools.runs import DueRun
from controller.store.jobs.job_rows import JobRecord, RequestedEnd
from controller.volcano.names import CREATED_ANNOTATION
from controller.volcano.observed import Ended
from tests.controller.jobs.history.test_retries import (
    DELAYED,
    after_pods,
    job,
    on,
    ran,
    step_of,
    timer,
)
from tests.controller.samples import UID, make_observed, make_pod, make_record, make_seen

ACCEPTED = make_record()
SUBMITTED = make_record(uid=UID)
RUNS = make_record(uid=UID, state="RUNNING", reason=None, message=None, started_at=2.0,
                   kept='{"first-start": "2.0"}')  # fmt: skip
ENDS = replace(RUNS, outcome="SUCCESS", end_reason="completed")
WHY = "this version cannot read it"
FAILED = make_pod(
    phase="Failed", ended=Ended(exit_code=3, signal=0, reason="Error", finished_at=8.0)
)


# What is observed after a step


@pytest.mark.parametrize(
    ("record", "knows_hooks", "goes_on"),
    [
        (replace(SUBMITTED, reason="queued"), True, True),
        (replace(SUBMITTED, reason="queued"), False, True),
        (RUNS, True, True),
        (RUNS, False, False),
        (replace(SUBMITTED, outcome="SUCCESS"), True, True),
        (replace(SUBMITTED, outcome="SUCCESS"), False, False),
        (replace(SUBMITTED, state="SUCCESS"), True, False),
        (replace(SUBMITTED, attempt=2), True, False),
        (replace(SUBMITTED, uid="another"), True, False),
        (None, True, False),
    ],
)
def test_a_job_is_not_observed_anew_where_all_that_matters_is_known(
    record: JobRecord | None, knows_hooks: bool, goes_on: bool
) -> None:
    last = make_observed("Failed")
    seen = make_seen(SUBMITTED, make_observed(), last=last, knows_hooks=knows_hooks)
    after = seen.after(record)
    assert (after is not None) == goes_on
    if after is not None and record is not None:
        assert after == replace(seen, record=record, last=last if record.outcome is None else None)


def test_hooks_matter_while_a_job_runs_and_once_its_end_is_decided() -> None:
    assert not hooks_matter(SUBMITTED)
    assert hooks_matter(RUNS)
    assert hooks_matter(replace(SUBMITTED, outcome="FAILURE"))


# Parked


def test_a_job_that_this_version_cannot_read_is_parked_and_said_to_be() -> None:
    assert decide(make_seen(ACCEPTED, parked=WHY)) == Park(WHY)
    parked = replace(ACCEPTED, parked=WHY)
    assert decide(make_seen(parked)) == Park(None)
    assert decide(make_seen(parked, parked=WHY)) == Note(Happening.WAITS, "parked", WHY)
    told = replace(parked, reason="parked", message=WHY)
    assert decide(make_seen(told, parked=WHY)) == Rest()
    # Also where its making was not answered: it is made by nobody now.
    assert decide(make_seen(told, make_observed(), parked=WHY)) == Rest()
    assert decide(make_seen(told, parked=WHY, overdue=True)) == EndOverdue()
    assert decide(make_seen(ACCEPTED, overdue=True)) == Submit()
    ended = replace(told, desired="ended", state="CANCELING")
    assert isinstance(decide(make_seen(ended, parked=WHY)), Conclude)


def test_a_parked_job_is_followed_and_nothing_is_made_for_it() -> None:
    starts = decide(make_seen(replace(SUBMITTED, parked=WHY), make_observed(), parked=WHY))
    assert starts == Note(Happening.STARTED, None, None)
    runs = replace(RUNS, parked=WHY)
    for fields in ({"exposed": False}, {"started": False}, {"lost": True}):
        assert decide(make_seen(runs, make_observed(), parked=WHY, **fields)) == Rest()


# Tools


def test_tools_are_run_where_there_is_nothing_else_to_do() -> None:
    due = cast(DueRun, SimpleNamespace()), cast(DueRun, SimpleNamespace())
    assert decide(make_seen(RUNS, make_observed(), due_tools=due)) == StartTool(due[0])
    waits = decide(make_seen(RUNS, make_observed(), started=False, due_tools=due))
    assert waits == RunHooks("start")


def test_a_run_that_nobody_wants_ends_as_is_said() -> None:
    how = RequestedEnd("SUCCESS", "closed", "its pod has gone")
    assert decide(make_seen(RUNS, make_observed(), unwanted=how)) == EndTool(how)


# What others did


def test_a_volcano_job_that_somebody_deletes_is_told_of() -> None:
    step = decide(make_seen(RUNS, make_observed(deleting=True)))
    text = "its VolcanoJob was deleted by somebody else"
    assert step == Conclude(State.FAILURE, "deleted", text)


@pytest.mark.parametrize(
    ("phase", "action"), [("Aborted", "AbortJob"), ("Terminated", "TerminateJob")]
)
def test_one_that_volcano_stopped_by_a_policy_says_by_which(phase: str, action: str) -> None:
    why = "job 0 ended with exit code 7"
    step = step_of(job(on(action)), ran(), phase=phase)
    assert isinstance(step, Conclude)
    assert (step.outcome, step.reason) == (State.FAILURE, "stopped")
    assert step.message == f"{why}: {action}, as its policy says"
    assert (step.details or {})["cause"]
    # Whoever else did it: what is known of its pods is said all the same.
    for record in (job(), job(on("CompleteJob"))):
        step = step_of(record, ran(), phase=phase)
        assert isinstance(step, Conclude)
        assert step.message == f"its VolcanoJob is {phase}: {why}"
    assert step_of(job(), phase=phase) == Conclude(
        State.FAILURE, "stopped", f"its VolcanoJob is {phase}"
    )


@pytest.mark.parametrize("stopping", [True, False])
def test_what_we_ordered_is_the_end_unless_it_is_suspended_meanwhile(stopping: bool) -> None:
    ordered = job(ordered="TerminateJob", ordered_why="so", stopping=stopping)
    step = step_of(ordered, phase="Aborted")
    end = Conclude(State.FAILURE, "stopped", "so: TerminateJob, as its policy says")
    assert (step == end) is not stopping
    assert isinstance(step, StartNextAttempt) is stopping
    completed = job(ordered="CompleteJob", ordered_why="so")
    done = Conclude(State.SUCCESS, "completed", "so: CompleteJob, as its policy says")
    assert step_of(completed, phase="Completed") == done
    # What was ordered and came too late is no reason for a good end.
    plain = step_of(job(ordered="AbortJob", ordered_why="so"), phase="Completed")
    assert plain == Conclude(State.SUCCESS, "completed")


@pytest.mark.parametrize(
    "fields", [{"stopping": True}, {"ordered": "AbortJob", "ordered_why": "so"}]
)
def test_no_policy_follows_what_we_had_done(fields: dict[str, Any]) -> None:
    step = after_pods(step_of(job(on("RestartJob"), **fields), ran()))
    assert isinstance(step, Conclude)
    failed = "job 0 ended with exit code 7"
    said = "so: AbortJob, as its policy says" if "ordered" in fields else failed
    assert (step.outcome, step.message) == (State.FAILURE, said)


@pytest.mark.parametrize(
    ("action", "outcome", "reason"),
    [("AbortJob", State.FAILURE, "stopped"), ("CompleteJob", State.SUCCESS, "completed")],
)
def test_an_end_that_a_policy_wants_says_so(action: str, outcome: Any, reason: str) -> None:
    step = after_pods(step_of(job(on(action)), ran()))
    assert isinstance(step, Conclude)
    text = f"job 0 ended with exit code 7: {action}, as its policy says"
    assert (step.outcome, step.reason, step.message) == (outcome, reason, text)
    assert (step.details or {})["cause"]


def test_another_attempt_says_why() -> None:
    step = after_pods(step_of(job(on("RestartTask")), ran()))
    assert isinstance(step, StartNextAttempt)
    assert step.message == (
        "job 0 ended with exit code 7; Volcano has not carried out its policy RestartTask: "
        "the whole job is started again, as another attempt"
    )
    evicted = ran(code=137, reason="Evicted")
    step = after_pods(step_of(job(on("RestartJob")), evicted, evictions_allowed=1))
    assert isinstance(step, StartNextAttempt)
    assert (step.why, step.message.endswith("; submitted again")) == ("evicted", True)
    gives_up: dict[str, Any] = {"retries": 2, "max_retry": 2}
    # It was made good for, at the cost of a retry that another failure needed.
    before = ran(code=137, at=5.0, reason="Evicted", pod_uid="before", seen_at=0.5)
    record = job(on("AbortJob", exit_code=99))
    step = after_pods(step_of(record, before, ran(), evictions_allowed=1, **gives_up))
    assert isinstance(step, StartNextAttempt)
    assert step.message.endswith("; submitted again: retries that went to evictions are given back")


def test_where_nothing_says_what_applied_nothing_is_started_again() -> None:
    step = after_pods(step_of(job(on("RestartJob"))))
    assert isinstance(step, Conclude)
    assert step.message == (
        "it failed; no record says which of its policies applied, so nothing is started again"
    )


# What waits for its time


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


def told_with(at: object, message: str, reason: str = "queued") -> JobRecord:
    details: Mapping[str, Any] | None = None if at is None else {"at": at}
    explained = {"uid": UID, "reason": "queued", "message": "waiting in the queue: 4 of 9"}
    return replace(SUBMITTED, reason=reason, message=message, details=details, explained=explained)


NEWS = Note(Happening.WAITS, "queued", "waiting in the queue: 4 of 9")


@pytest.mark.parametrize(
    ("record", "now", "step"),
    [
        # Counts change with every job that comes and goes: they are told after a while.
        (told_with(1000, "waiting in the queue: 3 of 9"), 1299.9, Rest()),
        (told_with(1000.0, "waiting in the queue: 3 of 9"), 1300.0, NEWS),
        (told_with(None, "waiting in the queue: 3 of 9"), 1000.0, NEWS),
        (told_with("soon", "waiting in the queue: 3 of 9"), 1000.0, NEWS),
        (told_with(1000, "waiting in the queue: 4 of 9"), 2000.0, Rest()),
        # Anything else is told at once.
        (told_with(1000, "waiting in the queue: it is full"), 1000.0, NEWS),
        (told_with(1000, "waiting in the queue: 3 of 9", "paused"), 1000.0, NEWS),
        (replace(told_with(1000, "waiting in the queue: 3 of 9"), state="RUNNING"), 1000.0, NEWS),
    ],
)
def test_why_a_job_waits_is_not_told_anew_for_every_number(
    record: JobRecord, now: float, step: Step
) -> None:
    assert decide(make_seen(record, make_observed("Pending"), now=now)) == step


# The end


def test_one_that_is_ended_without_a_word_was_ended_as_asked() -> None:
    asked = replace(RUNS, desired="ended", state="CANCELING")
    expected = Conclude(State.SUCCESS, "asked", "ended as asked")
    assert decide(make_seen(asked)) == expected
    assert decide(make_seen(replace(asked, end_state="of a later version"))) == expected
    said = replace(asked, end_state="EXPIRED", end_reason="expired", end_message="its time is over",
                   end_details={"a": 1})  # fmt: skip
    end = Conclude(State.EXPIRED, "expired", "its time is over", {"a": 1})
    assert decide(make_seen(said)) == end


def test_hooks_that_wait_hold_up_their_own_step_alone() -> None:
    complete, cleanup = frozenset({"complete"}), frozenset({"cleanup"})
    assert decide(make_seen(RUNS, make_observed(), started=False, paused=frozenset({"start"}))) == (
        Rest()
    )
    removes = replace(ENDS, desired="ended")
    assert decide(make_seen(removes, make_observed())) == RunHooks("complete")
    assert decide(make_seen(removes, make_observed(), paused=complete)) == Remove(UID)
    assert decide(make_seen(ENDS, paused=complete)) == Rest()
    assert decide(make_seen(ENDS, paused=cleanup)) == RunHooks("complete")
    assert decide(make_seen(ENDS, completed=True, paused=complete)) == RunHooks("cleanup")
    assert decide(make_seen(ENDS, completed=True, paused=cleanup)) == Rest()
    assert decide(make_seen(ENDS, completed=True, cleaned=True)) == Finish()
    later = replace(ENDS, outcome="of a later version")
    assert decide(make_seen(later, completed=True, cleaned=True)) == Rest()


def test_pods_whose_logs_are_being_read_stay_for_a_while() -> None:
    removes = replace(ENDS, desired="ended")
    seen = make_seen(removes, make_observed(), FAILED, completed=True, logs_until=50.0)
    assert decide(replace(seen, now=49.9)) == Rest(50.0)
    assert decide(replace(seen, now=50.0)) == Remove(UID)


def test_a_pod_that_was_left_on_purpose_goes_only_with_the_job() -> None:
    # As by ``kubectl delete --cascade=orphan``.
    left = make_pod(owner_uid="")
    runs = make_seen(RUNS, None, make_pod()).runs
    renewing = replace(RUNS, renewal="evicted", removed_uid=UID)
    assert decide(make_seen(renewing, None, left, runs=runs)) == Rest()
    ending = replace(ENDS, desired="ended", removed_uid=UID)
    step = decide(make_seen(ending, None, left, runs=runs, completed=True))
    assert step == RemovePods((left,))


FINAL = make_record(uid=UID, state="FAILURE", reason="exit_code", created_at=5.5)


@pytest.mark.parametrize(
    ("record", "fields", "removed"),
    [
        # Its making was not answered, and came later than the end.
        (FINAL, {"uid": "late", "created": "5.5"}, True),
        (FINAL, {"uid": "late", "created": "5.6"}, False),
        (FINAL, {"uid": "late", "created": "5.5", "deleting": True}, False),
        (replace(FINAL, removed_uid="late"), {"uid": "late", "created": "5.5"}, False),
        (FINAL, {"created": "5.5"}, False),
        (replace(FINAL, desired="ended"), {"created": "5.5"}, True),
        (replace(FINAL, stopping=True), {"created": "5.5"}, True),
        (replace(FINAL, reason="stopped"), {"created": "5.5"}, True),
        (replace(FINAL, desired="ended"), {"uid": "another", "created": "9"}, False),
    ],
)
def test_what_is_there_after_the_end_is_removed_where_it_is_the_jobs(
    record: JobRecord, fields: dict[str, Any], removed: bool
) -> None:
    said = {name: value for name, value in fields.items() if name != "created"}
    annotations = {CREATED_ANNOTATION: fields["created"]}
    observed = make_observed("Failed", annotations=annotations, **said)
    assert decide(make_seen(record, observed)) == (Remove(observed.uid) if removed else Rest())
