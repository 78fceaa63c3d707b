"""Tests the end of an attempt and of its VolcanoJob: writes to the store, and cluster commands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.history.job_record import State
from controller.jobs.reconcile.ending import EVENTS_SECONDS
from controller.jobs.reconcile.lifecycle.steps import (
    ConfirmNotRefused,
    IssueCommand,
    SetOutcome,
    StartNextAttempt,
)
from controller.kube.errors import Forbidden, Unavailable
from controller.store.database import Store
from controller.store.jobs.job_rows import (
    update_and_notify,
)
from controller.store.jobs.progress import (
    PodRecord,
    record_attempt,
    timers_of,
    update_attempt,
)
from controller.volcano.names import (
    ATTEMPT_ANNOTATION,
    EVICTIONS_ANNOTATION,
    RETRIES_USED_ANNOTATION,
)
from controller.volcano.observed import ObservedJob
from tests.clock import Clock
from tests.controller.jobs.reconcile.end_world import ENDS, RUNS, WHY, run, seconds_of, world
from tests.controller.samples import UID, make_observed, make_observed_state, make_pod, make_record

# One attempt


async def test_a_suspension_is_recorded_before_the_abort(store: Store, clock: Clock) -> None:
    record = replace(RUNS, desired="suspended")
    async with world(store, clock, record) as w:
        await w.ends.abort_volcano_job(make_observed_state(record))
        assert (w.cluster.told, (await w.record()).stopping) == ([], False)
        assert (
            await seconds_of(w.ends.abort_volcano_job(make_observed_state(record, make_observed())))
            == 2.0
        )
        assert w.cluster.told == [("AbortJob", "j1", UID)]
        after = await w.record()
        assert after.stopping
        assert (after.reason, after.message) == ("suspending", "being suspended")
        # While Volcano is away, hundreds of jobs may wait for it.
        w.cluster.is_pending = True
        seen = make_observed_state(after, make_observed())
        assert await seconds_of(w.ends.abort_volcano_job(seen)) == 10.0


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"stopping": True, "reason": "suspending"}, "not suspended: no right"),
        ({"stopping": True, "reason": None}, "being suspended"),
        ({"stopping": False, "reason": "suspending"}, "being suspended"),
    ],
)
async def test_a_refused_abort_is_told_until_volcano_takes_it(
    store: Store, clock: Clock, values: dict[str, Any], told: str
) -> None:
    record = replace(RUNS, desired="suspended", message="not suspended: no right", **values)
    async with world(store, clock, record) as w:
        w.cluster.forbids = True
        seen = make_observed_state(record, make_observed())
        with pytest.raises(Forbidden):
            await w.ends.abort_volcano_job(seen)
        refused = await w.record()
        assert (refused.stopping, refused.message) == (True, told)
        w.cluster.forbids = False
        await seconds_of(w.ends.abort_volcano_job(replace(seen, record=refused)))
        assert (await w.record()).message == "being suspended"


async def test_a_job_resumed_meanwhile_is_not_aborted(store: Store, clock: Clock) -> None:
    # Volcano would abort it and the job would fail: no record would say that the controller did it.
    record = replace(RUNS, desired="suspended")
    async with world(store, clock, record) as w:
        async with store.write() as transaction:
            await update_and_notify(transaction, record, now=clock.now, desired="run")
        await w.ends.abort_volcano_job(make_observed_state(record, make_observed()))
        assert (w.cluster.told, (await w.record()).stopping) == ([], False)


async def test_a_policy_command_is_recorded_as_the_controllers(store: Store, clock: Clock) -> None:
    async with world(store, clock, RUNS) as w:
        seen = make_observed_state(RUNS, make_observed())
        order = IssueCommand("TerminateJob", "it took too long")
        assert await seconds_of(w.actions.do(order, seen)) == 2.0
        assert w.cluster.told == [("TerminateJob", "j1", UID)]
        after = await w.record()
        assert (after.ordered, after.ordered_why) == (order.action, order.why)


async def test_a_policy_sends_no_command_after_another_request(store: Store, clock: Clock) -> None:
    async with world(store, clock, RUNS) as w:
        async with store.write() as transaction:
            await update_and_notify(transaction, RUNS, now=clock.now, desired="suspended")
        seen = make_observed_state(RUNS, make_observed())
        await w.actions.do(IssueCommand("TerminateJob", "it took too long"), seen)
        assert (w.cluster.told, (await w.record()).ordered) == ([], None)


@pytest.mark.parametrize(
    ("why", "outcome", "evictions"),
    [
        ("evicted", "EVICTED", 3),
        ("forbidden", "REFUSED", 2),
        ("resumed", "SUSPENDED", 2),
        ("retried", "RETRIED", 2),
    ],
)
async def test_a_replaced_attempt_is_closed_with_the_reason(
    store: Store, clock: Clock, why: Any, outcome: str, evictions: int
) -> None:
    record = replace(RUNS, evictions=2)
    job = make_observed("Failed", retries=4, max_retry=3)
    async with world(store, clock, record) as w:
        await w.ends.start_next_attempt(
            StartNextAttempt(why, "once more", WHY), make_observed_state(record, job)
        )
        after = await w.record()
        assert (after.renewal, after.evictions, after.state) == (why, evictions, "IN_QUEUE")
        assert (after.reason, after.message) == (why, "once more")
        assert after.details == {**WHY, "at": clock.now}
        (closed,) = await w.attempts()
        assert (closed.outcome, closed.reason, closed.message) == (outcome, why, "once more")
        assert (closed.details, closed.ended_at) == (WHY, clock.now)
        assert (closed.retries, closed.restarts) == (4, 2)


async def test_an_end_before_the_next_attempt_leaves_the_last_one_as_it_ended(
    store: Store, clock: Clock
) -> None:
    async with world(store, clock, RUNS) as w:
        seen = make_observed_state(RUNS, make_observed("Failed"))
        await w.ends.start_next_attempt(StartNextAttempt("evicted", "once more", WHY), seen)
        closed = await w.attempts()
        clock.now += 60.0
        await w.somebody_ends_it()
        seen = replace(seen, record=await w.record())
        await w.ends.set_outcome(SetOutcome(State.SUCCESS, "asked"), seen)
        assert (await w.record()).outcome == "SUCCESS"
        assert await w.attempts() == closed


async def test_a_given_up_job_is_decided_anew_if_an_event_says_that_its_pods_were_refused(
    store: Store, clock: Clock
) -> None:
    job = make_observed("Terminated", phase_since=50.0)
    event = {"reason": "FailedCreate", "message": "exceeded quota: q"}
    at = {"metadata": {"creationTimestamp": "2026-11-22T10:00:00Z"}}
    stopped = SetOutcome(State.FAILURE, "stopped", "its VolcanoJob is Terminated")
    async with world(store, clock, RUNS) as w:
        w.cluster.events = [event | at]
        seen = make_observed_state(RUNS, job)
        assert await w.actions.do(ConfirmNotRefused(stopped), seen) is None
        after = await w.record()
        assert after.outcome is None
        assert after.explained == {
            "uid": UID,
            "since": 50.0,
            "reason": "forbidden",
            "message": "exceeded quota: q",
            "details": {"cause": "quota"},
        }
        # An event from before is no reason.
        await w.actions.do(ConfirmNotRefused(stopped, since=9e9), replace(seen, record=after))
        assert (await w.record()).end_reason == "stopped"


async def test_a_job_ends_without_events_that_cannot_be_read_for_long(
    store: Store, clock: Clock
) -> None:
    job = make_observed("Terminated", phase_since=50.0)
    stopped = SetOutcome(State.FAILURE, "stopped", "its VolcanoJob is Terminated")
    async with world(store, clock, RUNS) as w:
        w.cluster.events_fail = True
        seen = make_observed_state(RUNS, job, now=1000.0, phase_seen_at=1000.0 - EVENTS_SECONDS + 1)
        with pytest.raises(Unavailable):
            await w.actions.do(ConfirmNotRefused(stopped), seen)
        with pytest.raises(Unavailable):
            await w.ends.was_commanded(seen, "AbortJob")
        seen = replace(seen, now=1001.0)
        # In an outage of the whole API server, the events are only late.
        w.cluster.all_fails = True
        with pytest.raises(Unavailable):
            await w.actions.do(ConfirmNotRefused(stopped), seen)
        w.cluster.all_fails = False
        assert not await w.ends.was_commanded(seen, "AbortJob")
        await w.actions.do(ConfirmNotRefused(stopped), seen)
        assert (await w.record()).end_reason == "stopped"


async def test_a_decision_from_before_a_requested_end_is_dropped(
    store: Store, clock: Clock
) -> None:
    async with world(store, clock, RUNS) as w:
        seen = make_observed_state(RUNS, make_observed("Failed"))
        await w.somebody_ends_it()
        await w.ends.start_next_attempt(StartNextAttempt("evicted", "once more"), seen)
        assert await w.ends.set_outcome(SetOutcome(State.FAILURE, "failed"), seen) is None
        after = await w.record()
        assert (after.renewal, after.outcome, after.state) == (None, None, "CANCELING")
        assert [one.ended_at for one in await w.attempts()] == [None]


async def test_the_next_attempt_waits_for_objects_missing_from_the_cache(
    store: Store, clock: Clock
) -> None:
    record = replace(RUNS, renewal="evicted")
    async with world(store, clock, record) as w:
        w.cluster.job = make_observed()
        assert await seconds_of(w.ends.reset_for_next_attempt(record)) == 1.0
        assert w.cluster.told == [("remove", "jobs", "j-j1", UID, True)]
        w.cluster.job, w.cluster.pods = None, [make_pod(0, owner_uid="another"), make_pod(1)]
        assert await seconds_of(w.ends.reset_for_next_attempt(record)) == 1.0
        assert (await w.record()).attempt == 1
        w.cluster.pods = [make_pod(0, owner_uid="another")]
        await w.ends.reset_for_next_attempt(record)
        assert (await w.record()).attempt == 2


async def test_the_next_attempt_starts_without_state_of_the_last(
    store: Store, clock: Clock
) -> None:
    record = replace(
        RUNS, renewal="resumed", stopping=True, kept="{}", ordered="AbortJob", ordered_why="x"
    )
    async with world(store, clock, record) as w:
        assert not await w.is_due()
        await w.ends.reset_for_next_attempt(record)
        assert w.cluster.told == [("volcanos", "jobs", "j-j1", UID), ("withdraw", "j1", "jobs")]
        after = await w.record()
        assert (after.attempt, after.uid, after.renewal, after.stopping) == (2, None, None, False)
        assert (after.kept, after.ordered, after.ordered_why) == (None, None, None)
        assert await w.is_due()
        async with store.read() as transaction:
            assert await timers_of(transaction, "j1") == {}


@pytest.mark.parametrize(
    ("renewal", "attempt", "runs", "used"),
    [
        ("resumed", {"retries": 2}, [], 2),
        # The next attempt uses one more retry, whatever caused it.
        ("retried", {"retries": 2}, [], 3),
        # Evictions cost the job no retry. Runs of other attempts do not count.
        ("resumed", {"retries": 2}, [run(reason="Evicted")], 1),
        ("resumed", {"retries": 2}, [run(reason="Evicted", attempt=2)], 2),
        # Already counted, by a leader that was to begin the next attempt and did not.
        ("retried", {"retries": 2, "used": 5}, [], None),
        ("retried", {"retries": 2, "uid": "another"}, [], None),
    ],
)
async def test_the_retries_of_an_attempt_are_added_once_at_the_next(
    store: Store,
    clock: Clock,
    renewal: str,
    attempt: dict[str, Any],
    runs: list[PodRecord],
    used: int | None,
) -> None:
    record = replace(RUNS, renewal=renewal, retries_used=1)
    async with world(store, clock, record, *runs) as w:
        async with store.write() as transaction:
            await record_attempt(transaction, "j1", 0, uid="an earlier one", now=0.5)
            await update_attempt(transaction, "j1", 1, **attempt)
        await w.ends.reset_for_next_attempt(record)
        assert (await w.record()).retries_used == 1 + (used or 0)
        assert (await w.attempts())[1].used == (attempt.get("used") if used is None else used)


async def test_unrecorded_retries_of_an_attempt_count_as_none(store: Store, clock: Clock) -> None:
    record = replace(RUNS, renewal="retried", retries_used=1)
    async with world(store, clock, record, uid=None) as w:
        await w.ends.reset_for_next_attempt(record)
        assert ((await w.record()).attempt, (await w.record()).retries_used) == (2, 1)


async def test_a_later_attempt_in_the_cluster_is_adopted(store: Store, clock: Clock) -> None:
    record = replace(
        RUNS, renewal="evicted", stopping=True, kept="{}", ordered="AbortJob", ordered_why="x",
        retries_used=1, evictions=7,
    )  # fmt: skip
    past = {ATTEMPT_ANNOTATION: "3", RETRIES_USED_ANNOTATION: "4", EVICTIONS_ANNOTATION: "2"}
    later = make_observed(uid="later", annotations=past)
    async with world(store, clock, record) as w:
        await w.ends.adopt_newer_attempt(make_observed_state(record))
        assert await w.record() == record
        await w.ends.adopt_newer_attempt(make_observed_state(record, later))
        after = await w.record()
        assert (after.attempt, after.uid, after.renewal, after.stopping) == (
            3,
            "later",
            None,
            False,
        )
        assert (after.kept, after.ordered, after.ordered_why) == (None, None, None)
        # The larger count is used: the store's, or the one that the VolcanoJob was made with.
        assert (after.retries_used, after.evictions) == (4, 7)
        message = "found in the cluster, later than in the store"
        assert (after.state, after.reason, after.message) == ("IN_QUEUE", "adopted", message)
        lost, found = await w.attempts()
        assert (lost.outcome, lost.reason, lost.message) == ("LOST", "lost", message)
        assert (found.attempt, found.uid, found.submitted_at) == (3, "later", clock.now)
        assert await w.is_due()


@pytest.mark.parametrize(
    ("phase", "stopping"), [("Aborting", True), ("Aborted", True), ("Running", False)]
)
async def test_a_later_attempt_that_is_aborted_was_suspended(
    store: Store, clock: Clock, phase: str, stopping: bool
) -> None:
    later = make_observed(phase, uid="later", annotations={ATTEMPT_ANNOTATION: "2"})
    async with world(store, clock, RUNS) as w:
        await w.ends.adopt_newer_attempt(make_observed_state(RUNS, later))
        assert (await w.record()).stopping is stopping


async def test_a_later_attempt_is_not_adopted_after_a_new_request(
    store: Store, clock: Clock
) -> None:
    later = make_observed(uid="later", annotations={ATTEMPT_ANNOTATION: "2"})
    async with world(store, clock, RUNS) as w:
        await w.somebody_ends_it()
        await w.ends.adopt_newer_attempt(make_observed_state(RUNS, later))
        assert ((await w.record()).attempt, len(await w.attempts())) == (1, 1)


# The VolcanoJob and its pods


@pytest.mark.parametrize("job", [make_observed(), None])
async def test_a_removed_volcano_job_is_recorded(
    store: Store, clock: Clock, job: ObservedJob | None
) -> None:
    async with world(store, clock, RUNS) as w:
        await w.ends.delete_volcano_job(RUNS, job, UID)
        assert w.cluster.told == [("remove", "jobs", "j-j1", UID, job is not None)]
        after = await w.record()
        assert (after.uid, after.removed_uid) == (UID, UID)
        assert [one.ended_at for one in await w.attempts()] == [None]


async def test_a_volcano_job_of_another_instance_keeps_its_pods_while_they_run(
    store: Store, clock: Clock
) -> None:
    async with world(store, clock, RUNS) as w:
        w.cluster.given_away = True
        asked = w.ends.delete_volcano_job(RUNS, None, UID, in_use=True)
        assert await seconds_of(asked) == 30.0
        # Without the record of a deletion, no pod is deleted.
        assert (await w.record()).removed_uid is None
        await w.ends.delete_volcano_job(RUNS, None, UID, in_use=False)
        assert (await w.record()).removed_uid == UID


async def test_a_volcano_job_of_a_crashed_leader_is_recorded_before_removal(
    store: Store, clock: Clock
) -> None:
    decided = replace(ENDS, uid=None, started_at=None)
    async with world(store, clock, decided, uid=None) as w:
        await w.ends.delete_volcano_job(decided, make_observed(), UID)
        after = await w.record()
        assert (after.uid, after.removed_uid) == (UID, UID)
        (attempt,) = await w.attempts()
        assert (attempt.attempt, attempt.uid, attempt.submitted_at) == (1, UID, clock.now)
        assert (attempt.outcome, attempt.reason) == ("SUCCESS", "completed")
        assert (attempt.message, attempt.details) == ("it is done", WHY)
        assert attempt.ended_at == clock.now


async def test_a_volcano_job_removed_before_the_decision_has_no_outcome(
    store: Store, clock: Clock
) -> None:
    record = make_record(renewal="evicted")
    async with world(store, clock, record, uid=None) as w:
        await w.ends.delete_volcano_job(record, make_observed(), UID)
        (attempt,) = await w.attempts()
        assert (attempt.uid, attempt.outcome, attempt.ended_at) == (UID, None, None)


@pytest.mark.parametrize("shown", [True, False])
async def test_a_foreign_volcano_job_is_not_recorded_as_attempt(
    store: Store, clock: Clock, shown: bool
) -> None:
    record = make_record()
    job = make_observed(annotations={ATTEMPT_ANNOTATION: "2"}) if shown else None
    async with world(store, clock, record, uid=None) as w:
        await w.ends.delete_volcano_job(record, job, UID)
        after = await w.record()
        assert (after.uid, after.removed_uid, await w.attempts()) == (None, UID, [])


async def test_pods_are_deleted_and_observed_again(store: Store, clock: Clock) -> None:
    pods = [make_pod(0), make_pod(1)]
    async with world(store, clock, RUNS) as w:
        assert await seconds_of(w.ends.delete_pods(RUNS, pods)) == 2.0
        assert w.cluster.told == [("pods", "jobs", "j-j1-job-0", "j-j1-job-1")]
        # The cluster's garbage collector deletes them later.
        w.cluster.forbids = True
        assert await seconds_of(w.ends.delete_pods(RUNS, pods)) == 30.0
