"""Tests the end of a job: writes to the store, and commands to the cluster."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.history.job_record import State
from controller.jobs.reconcile.ending import LOOK_AGAIN_SECONDS
from controller.jobs.reconcile.lifecycle.steps import (
    LOST,
    SetOutcome,
    StartNextAttempt,
)
from controller.store.database import Store
from controller.store.jobs.folders import (
    MountPoints,
    hold_mount_points,
    last_jobs_of,
    places_to_clean,
    record_missing_mount_points,
)
from controller.store.jobs.job_rows import (
    RequestedEnd,
    changed_jobs,
    insert_job,
)
from controller.store.jobs.progress import (
    CompanionRecord,
    PodRecord,
    companions_of,
    due_jobs,
    hooks_of,
    record_companions,
    record_hooks,
    timers_of,
    update_attempt,
)
from controller.store.jobs.relations import predecessors_of, record_predecessors
from controller.store.outbox.update_rows import updates_of
from controller.volcano.observed import ObservedJob
from shared.audit import LOGGER
from tests.clock import Clock
from tests.controller.jobs.reconcile.end_world import ENDS, RUNS, WHY, run, seconds_of, world
from tests.controller.samples import UID, make_observed, make_observed_state, make_record


async def test_the_outcome_is_decided_before_it_is_reported(store: Store, clock: Clock) -> None:
    job = make_observed("Failed", retries=4, max_retry=3)
    runs = {one.pod_uid: one for one in (run(started_at=6.0), run("b"), run("c", started_at=None))}
    async with world(store, clock, RUNS) as w:
        seen = make_observed_state(RUNS, job, runs=runs)
        after = await w.ends.set_outcome(
            SetOutcome(State.FAILURE, "exit_code", "it broke", WHY), seen
        )
        assert after == await w.record()
        assert (after.outcome, after.end_state) == ("FAILURE", "FAILURE")
        assert (after.end_reason, after.end_message) == ("exit_code", "it broke")
        assert (after.end_details, after.state, after.started_at) == (WHY, "RUNNING", 2.0)
        (closed,) = await w.attempts()
        assert (closed.outcome, closed.reason) == ("FAILURE", "exit_code")
        assert (closed.message, closed.details) == ("it broke", WHY)
        assert (closed.ended_at, closed.started_at) == (clock.now, 4.0)
        assert (closed.retries, closed.restarts) == (4, 2)


async def test_a_job_that_ran_unobserved_started_with_its_first_pod(
    store: Store, clock: Clock
) -> None:
    record = make_record(uid=UID)
    runs = {one.pod_uid: one for one in (run(started_at=6.0), run("b"))}
    async with world(store, clock, record) as w:
        await w.ends.set_outcome(
            SetOutcome(State.SUCCESS, "completed"), make_observed_state(record, runs=runs)
        )
        assert (await w.record()).started_at == 4.0


async def test_a_job_without_started_pods_has_not_started(store: Store, clock: Clock) -> None:
    record = make_record(uid=UID)
    async with world(store, clock, record) as w:
        await w.ends.set_outcome(SetOutcome(State.FAILURE, "failed"), make_observed_state(record))
        assert (await w.record()).started_at is None
        assert [one.started_at for one in await w.attempts()] == [None]


@pytest.mark.parametrize(
    ("shown", "last", "restarts"),
    [
        (None, make_observed("Failed", retries=4), 4),
        (make_observed("Failed", retries=3), make_observed("Failed", retries=4), 3),
        # Counts of another VolcanoJob do not count; the last observed count stays.
        (make_observed("Failed", uid="another", retries=3), None, 1),
        (None, None, 1),
    ],
)
async def test_an_attempt_keeps_its_last_observed_restart_count(
    store: Store,
    clock: Clock,
    shown: ObservedJob | None,
    last: ObservedJob | None,
    restarts: int,
) -> None:
    async with world(store, clock, RUNS) as w:
        async with store.write() as transaction:
            await update_attempt(transaction, "j1", 1, retries=1, restarts=1)
        await w.ends.set_outcome(LOST, make_observed_state(RUNS, shown, last=last))
        (closed,) = await w.attempts()
        assert (closed.retries, closed.restarts) == (restarts, restarts)


async def test_a_missing_volcano_job_is_acted_on_only_after_a_confirming_read(
    store: Store, clock: Clock
) -> None:
    async with world(store, clock, RUNS) as w:
        w.cluster.job = make_observed()
        assert await seconds_of(w.ends.confirm_gone(RUNS)) == 1.0
        w.cluster.job = None
        await w.ends.confirm_gone(RUNS)
        await w.ends.start_next_attempt(
            StartNextAttempt("evicted", "once more"), make_observed_state(RUNS)
        )
        assert (await w.record()).renewal == "evicted"


async def test_a_final_update_holds_all_known_facts(
    store: Store, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    logging.getLogger(LOGGER).propagate = True
    runs = [run(started_at=6.0), run("b", rank=1, index=1), run("a", attempt=2, started_at=3.0)]
    ends = replace(ENDS, spec={**ENDS.spec, "output": "/home/out"})
    async with world(store, clock, ends, *runs) as w:
        async with store.write() as transaction:
            points = MountPoints(place="here", names=("a",), cleaner={})
            assert await hold_mount_points(transaction, "j1", points)
        await w.ends.finish(ends)
        after = await w.record()
        assert (after.state, after.reason, after.message) == ("SUCCESS", "completed", "it is done")
        assert (after.details, after.finished_at, after.started_at) == (WHY, clock.now, 2.0)
        assert after.sealed is None
        assert [one.started_at for one in await w.attempts()] == [4.0]
        async with store.read() as transaction:
            updates = await updates_of(transaction, "j1")
            assert [one["rank"] for one in updates[-1].exits or ()] == [0, 1]
            assert await timers_of(transaction, "j1") == {}
            # No mount point was made there, so the job no longer has the folder.
            assert await last_jobs_of(transaction, "here") == []
            assert await due_jobs(transaction, now=9e9, limit=9) == {}
    assert w.cluster.told == []
    (audited,) = [one for one in caplog.records if one.name == LOGGER]
    said = {name: getattr(audited, name) for name in ("event", "job", "reason")}
    assert said == {"event": "ended", "job": "j1", "reason": "completed"}


@pytest.mark.parametrize("parked", [None, "this version cannot read it"])
async def test_an_output_folder_is_released_only_by_a_job_that_may_hold_it(
    store: Store, clock: Clock, parked: str | None
) -> None:
    ends = replace(ENDS, parked=parked)
    async with world(store, clock, ends) as w:
        async with store.write() as transaction:
            points = MountPoints(place="here", names=("a",), cleaner={})
            assert await hold_mount_points(transaction, "j1", points)
            await record_missing_mount_points(transaction, "j1", {0})
        await w.ends.finish(ends)
        async with store.read() as transaction:
            released = await places_to_clean(transaction, limit=9)
    assert list(released) == ([] if parked is None else ["here"])


@pytest.mark.parametrize(
    ("state", "outcome", "told"),
    [
        ("RUNNING", "FAILURE", "FAILURE"),
        ("CANCELING", "EXPIRED", "EXPIRED"),
        ("RUNNING", None, "FAILURE"),
        ("of a later version", "SUCCESS", "SUCCESS"),
    ],
)
async def test_the_outcome_becomes_the_state_from_any_state(
    store: Store, clock: Clock, state: str, outcome: str | None, told: str
) -> None:
    record = replace(ENDS, state=state, outcome=outcome)
    async with world(store, clock, record) as w:
        await w.ends.finish(record)
        assert (await w.record()).state == told


@pytest.mark.parametrize(
    "fields", [{"stopping": True}, {"ordered": "AbortJob"}, {"stopping": True, "ordered": "x"}]
)
async def test_a_pending_command_is_withdrawn(
    store: Store, clock: Clock, fields: dict[str, Any]
) -> None:
    record = replace(ENDS, **fields)
    async with world(store, clock, record) as w:
        await w.ends.finish(record)
        assert w.cluster.told == [("withdraw", "j1", "jobs")]


async def test_unowned_objects_are_removed_besides_the_volcano_job(
    store: Store, clock: Clock
) -> None:
    owned = CompanionRecord(kind="Secret", namespace="jobs", name="owned", uid="1", owner_uid=UID)
    left = CompanionRecord(kind="Service", namespace="jobs", name="left", uid="2", owner_uid=None)
    async with world(store, clock, ENDS) as w:
        async with store.write() as transaction:
            await record_companions(transaction, "j1", [owned, left])
        await w.ends.finish(ENDS)
        assert w.cluster.told == [("companion", "j1", "left")]
        async with store.read() as transaction:
            assert await companions_of(transaction, "j1") == []


async def test_a_possibly_submitted_job_is_read_before_it_is_final(
    store: Store, clock: Clock
) -> None:
    record = replace(ENDS, uid=None, started_at=None)
    async with world(store, clock, record, run(), run("b", started_at=None), uid=None) as w:
        async with store.write() as transaction:
            for hook in ("complete", "cleanup"):
                await record_hooks(transaction, "j1", 1, hook=hook, plugins=["accounting"], now=1.0)
        w.cluster.job = make_observed()
        assert await seconds_of(w.ends.finish(record)) == 1.0
        assert w.cluster.told == [("remove", "jobs", "j-j1", UID, True)]
        async with store.read() as transaction:
            # The earlier hooks did not see these pods, so they run once more.
            assert [*await hooks_of(transaction, "j1", 1)] == ["complete"]
        w.cluster.job = None
        await w.ends.finish(record)
        after = await w.record()
        # Some pods ran, though never as many as the gang needs.
        assert (after.state, after.started_at) == ("SUCCESS", 4.0)


async def test_a_known_submitted_job_is_not_read_again(store: Store, clock: Clock) -> None:
    async with world(store, clock, ENDS) as w:
        w.cluster.job = make_observed()
        await w.ends.finish(ENDS)
        assert (w.cluster.told, (await w.record()).state) == ([], "SUCCESS")


async def test_followers_are_enqueued_at_the_end(store: Store, clock: Clock) -> None:
    async with world(store, clock, ENDS) as w:
        async with store.write() as transaction:
            await insert_job(transaction, make_record(id="j2"), labels={})
            await record_predecessors(transaction, "j2", ["j1"])
            _, before = await changed_jobs(transaction, after=0)
        await w.ends.finish(ENDS)
        async with store.read() as transaction:
            assert (await changed_jobs(transaction, after=before))[0] == ["j2"]
            (one,) = await predecessors_of(transaction, "j2")
            assert (one.state, one.reason) == ("SUCCESS", "completed")


async def test_a_job_with_a_concurrently_requested_end_is_not_final_yet(
    store: Store, clock: Clock
) -> None:
    async with world(store, clock, ENDS) as w:
        async with store.write() as transaction:
            await insert_job(transaction, make_record(id="j2"), labels={})
            await record_predecessors(transaction, "j2", ["j1"])
        await w.somebody_ends_it()
        await w.ends.finish(ENDS)
        assert (await w.record()).state == "CANCELING"
        async with store.read() as transaction:
            assert (await predecessors_of(transaction, "j2"))[0].goes_on


async def test_a_plugin_can_end_a_job_and_an_ended_one_is_unchanged(
    store: Store, clock: Clock
) -> None:
    how = RequestedEnd("FAILURE", "out_of_funds", "no money", WHY)
    async with world(store, clock, RUNS) as w:
        await w.ends.request_end_of(RUNS, how)
        after = await w.record()
        assert (after.desired, after.state, after.reason) == ("ended", "CANCELING", "out_of_funds")
        assert (after.end_state, after.end_message) == ("FAILURE", "no money")
        await w.ends.request_end_of(replace(RUNS, id="unknown"), how)


async def test_an_ended_job_cannot_be_ended(store: Store, clock: Clock) -> None:
    over = replace(ENDS, state="SUCCESS", reason="completed", finished_at=9.0)
    async with world(store, clock, over) as w:
        await w.ends.request_end_of(over, RequestedEnd("FAILURE", "out_of_funds", "no money"))
        assert (await w.record()).desired == "run"


NEVER: dict[str, Any] = {"started_at": None, "exit_code": None}


@pytest.mark.parametrize(
    ("runs", "waits"),
    [
        ((), True),
        ((run(phase="Pending", **NEVER),), True),
        ((run(**NEVER), run("b", rank=1, phase="Pending", **NEVER)), True),
        # A check of its files failed, so its program will never report anything.
        ((run(**NEVER), run("b", rank=1, **NEVER)), False),
        ((run(), run("b", rank=1, phase="Pending", **NEVER)), False),
    ],
)
async def test_the_last_hook_waits_for_events_of_pods_that_may_have_run(
    store: Store, clock: Clock, runs: Sequence[PodRecord], waits: bool
) -> None:
    async with world(store, clock, ENDS, *runs) as w:
        async with store.write() as transaction:
            await update_attempt(transaction, "j1", 1, started_at=2.0, ended_at=clock.now)
        seen = make_observed_state(ENDS, runs={one.pod_uid: one for one in runs}, now=clock.now)
        assert await w.actions._knows_pods(seen) is not waits
        assert await w.actions._knows_pods(replace(seen, now=clock.now + 31))
        assert not await w.actions._knows_pods(replace(seen, pods_stale=True))


async def test_a_revived_volcano_job_is_deleted_only_after_a_confirming_read(
    store: Store, clock: Clock
) -> None:
    final = replace(ENDS, state=State.SUCCESS)
    async with world(store, clock, final) as w:
        # The cache lags: it shows the VolcanoJob as it was.
        for there in (
            None,
            make_observed("Running", deleting=True),
            make_observed("Running", uid="another"),
            make_observed("Completed"),
        ):
            w.cluster.job = there
            assert await seconds_of(w.ends.delete_revived_job(final, UID)) == LOOK_AGAIN_SECONDS
        assert not w.cluster.told
        w.cluster.job = make_observed("Running")
        await w.ends.delete_revived_job(final, UID)
        removed = ("remove", "jobs", "j-j1", UID, True)
        assert w.cluster.told == [removed]
        # One that was deleted before is deleted again, in any phase.
        w.cluster.job = make_observed("Completed")
        await w.ends.delete_revived_job(replace(final, removed_uid=UID), UID)
        assert w.cluster.told == [removed, removed]
