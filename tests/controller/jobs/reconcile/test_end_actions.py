"""What each step of an end leaves in the store, and what it tells the cluster."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.history.job_record import JobRecords
from controller.jobs.history.states import State
from controller.jobs.reconcile.actions import Actions
from controller.jobs.reconcile.ending import EndActions
from controller.jobs.reconcile.lifecycle.steps import (
    LOST,
    Conclude,
    Confirm,
    Order,
    StartNextAttempt,
)
from controller.jobs.reconcile.plugin_calls import PluginCalls
from controller.jobs.reconcile.workqueue import RequeueAfter
from controller.kube.errors import Forbidden
from controller.store.database import Store
from controller.store.instance import raise_term
from controller.store.jobs.between_jobs.mount_points import (
    MountPoints,
    hold_mount_points,
    last_jobs_of,
)
from controller.store.jobs.between_jobs.predecessors import predecessors_of, record_predecessors
from controller.store.jobs.job_rows import (
    JobRecord,
    RequestedEnd,
    ask_to_end,
    changed_jobs,
    find_job,
    insert_job,
    tell_job,
)
from controller.store.jobs.progress.attempts import (
    Attempt,
    CompanionRecord,
    attempts_of,
    companions_of,
    due_jobs,
    move_attempt,
    record_attempt,
    record_companions,
    record_hooks,
    set_due,
)
from controller.store.jobs.progress.hook_runs import hooks_of
from controller.store.jobs.progress.pods import PodRecord, upsert_pod_records
from controller.store.jobs.progress.timers import Timer, replace_timers, timers_of
from controller.store.outbox.update_rows import updates_of
from controller.store.vault import Vault
from controller.volcano.names import (
    ATTEMPT_ANNOTATION,
    EVICTIONS_ANNOTATION,
    RETRIES_USED_ANNOTATION,
)
from controller.volcano.observed import ObservedJob, ObservedPod
from shared.audit import LOGGER
from tests.controller.conftest import Clock
from tests.controller.samples import UID, make_observed, make_pod, make_record, make_seen

RUNS = make_record(uid=UID, state="RUNNING", reason=None, message=None, started_at=2.0)
WHY = {"cause": "a test"}
ENDS = make_record(
    uid=UID, state="RUNNING", reason=None, message=None, started_at=2.0, outcome="SUCCESS",
    end_state="SUCCESS", end_reason="completed", end_message="it is done", end_details=WHY,
)  # fmt: skip


class Cluster:
    """Shows a VolcanoJob and pods that the cache does not, and remembers what it is told."""

    def __init__(self) -> None:
        self.job: ObservedJob | None = None
        self.pods: list[ObservedPod] = []
        self.forbids = False
        self.told: list[tuple[object, ...]] = []

    async def find_volcano_job(self, namespace: str, name: str, job_id: str) -> ObservedJob | None:
        assert (namespace, name, job_id) == ("jobs", "j-j1", "j1")
        return self.job

    async def find_pods(self, namespace: str, job_id: str) -> list[ObservedPod]:
        assert (namespace, job_id) == ("jobs", "j1")
        return self.pods

    async def command(self, job_id: str, job: ObservedJob, action: str) -> None:
        self.told.append((action, job_id, job.uid))

    async def withdraw_command(self, job_id: str, namespace: str) -> None:
        self.told.append(("withdraw", job_id, namespace))

    async def remove_volcano_job(self, namespace: str, name: str, uid: str, *, shown: bool) -> None:
        self.told.append(("remove", namespace, name, uid, shown))

    async def remove_pods(self, namespace: str, pods: Sequence[ObservedPod]) -> None:
        if self.forbids:
            raise Forbidden("no right")
        self.told.append(("pods", namespace, *(pod.name for pod in pods)))

    async def remove_companion(self, job_id: str, companion: CompanionRecord) -> None:
        self.told.append(("companion", job_id, companion.name))


@dataclass
class World:
    """A job in a store, and what is done with it."""

    store: Store
    clock: Clock
    cluster: Cluster
    ends: EndActions
    actions: Actions

    async def record(self) -> JobRecord:
        async with self.store.read() as transaction:
            record = await find_job(transaction, "j1")
        assert record is not None
        return record

    async def attempts(self) -> list[Attempt]:
        async with self.store.read() as transaction:
            return await attempts_of(transaction, "j1")

    async def is_due(self) -> bool:
        async with self.store.read() as transaction:
            return bool(await due_jobs(transaction, now=self.clock.now, limit=9))

    async def somebody_ends_it(self) -> None:
        async with self.store.write() as transaction:
            record = await find_job(transaction, "j1")
            assert record is not None
            await ask_to_end(transaction, record, now=self.clock.now)


@asynccontextmanager
async def world(
    store: Store, clock: Clock, record: JobRecord, *runs: PodRecord, uid: str | None = UID
) -> AsyncIterator[World]:
    """Give a job whose attempt is the VolcanoJob *uid*, with a plugin and a timer that wait."""
    async with store.write() as transaction:
        await insert_job(transaction, record, labels={})
        term = await raise_term(transaction)
        if uid is not None:
            await record_attempt(transaction, "j1", 1, uid=uid, now=1.0)
        await set_due(transaction, "j1", "usage", at=clock.now + 900)
        timer = Timer(job_id="j1", trigger="t", attempt=1, due_at=9e9, action="AbortJob",
                      why="w", retries=0)  # fmt: skip
        await replace_timers(transaction, "j1", timers=[timer])
        if runs:
            await upsert_pod_records(transaction, runs)
    cluster = Cluster()
    records = JobRecords(store, term=term, vault=Vault([b"x" * 32]), clock=clock)
    nothing: Any = None
    actions = Actions(
        records,
        pipeline=nothing,
        cluster=cast(JobObjects, cluster),
        prerequisites=nothing,
        recorder=nothing,
        calls=PluginCalls(),
    )
    yield World(store, clock, cluster, EndActions(records, cast(JobObjects, cluster)), actions)


def run(uid: str = "pod-0", **fields: Any) -> PodRecord:
    values: dict[str, Any] = {
        "job_id": "j1", "pod_uid": uid, "attempt": 1, "rank": 0, "task": "job", "index": 0,
        "pod": "j-j1-job-0", "node": "n1", "phase": "Failed", "reason": "Error", "message": "",
        "exit_code": 1, "signal": 0, "seen_at": 5.0, "started_at": 4.0, "ended_at": 7.0,
    }  # fmt: skip
    return PodRecord(**values | fields)


async def seconds_of(work: Any) -> float:
    """Return after how many seconds it is to be looked at again."""
    with pytest.raises(RequeueAfter) as again:
        await work
    return again.value.seconds


# One attempt


async def test_one_that_is_suspended_is_noted_as_ours_and_aborted(
    store: Store, clock: Clock
) -> None:
    record = replace(RUNS, desired="suspended")
    async with world(store, clock, record) as w:
        await w.ends.stop(make_seen(record))
        assert (w.cluster.told, (await w.record()).stopping) == ([], False)
        assert await seconds_of(w.ends.stop(make_seen(record, make_observed()))) == 2.0
        assert w.cluster.told == [("AbortJob", "j1", UID)]
        after = await w.record()
        assert after.stopping
        assert (after.reason, after.message) == ("suspending", "being suspended")


async def test_one_that_is_resumed_meanwhile_is_not_aborted(store: Store, clock: Clock) -> None:
    # Volcano would abort it, and the job fail: nothing would say that it was us.
    record = replace(RUNS, desired="suspended")
    async with world(store, clock, record) as w:
        async with store.write() as transaction:
            await tell_job(transaction, record, now=clock.now, desired="run")
        await w.ends.stop(make_seen(record, make_observed()))
        assert (w.cluster.told, (await w.record()).stopping) == ([], False)


async def test_what_a_policy_orders_is_noted_as_ours(store: Store, clock: Clock) -> None:
    async with world(store, clock, RUNS) as w:
        seen = make_seen(RUNS, make_observed())
        order = Order("TerminateJob", "it took too long")
        assert await seconds_of(w.actions.do(order, seen)) == 2.0
        assert w.cluster.told == [("TerminateJob", "j1", UID)]
        after = await w.record()
        assert (after.ordered, after.ordered_why) == (order.action, order.why)


async def test_a_policy_orders_nothing_once_something_else_is_asked_for(
    store: Store, clock: Clock
) -> None:
    async with world(store, clock, RUNS) as w:
        async with store.write() as transaction:
            await tell_job(transaction, RUNS, now=clock.now, desired="suspended")
        seen = make_seen(RUNS, make_observed())
        await w.actions.do(Order("TerminateJob", "it took too long"), seen)
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
async def test_an_attempt_that_another_one_follows_is_closed_with_the_reason(
    store: Store, clock: Clock, why: Any, outcome: str, evictions: int
) -> None:
    record = replace(RUNS, evictions=2)
    job = make_observed("Failed", retries=4, max_retry=3)
    async with world(store, clock, record) as w:
        await w.ends.renew(StartNextAttempt(why, "once more", WHY), make_seen(record, job))
        after = await w.record()
        assert (after.renewal, after.evictions, after.state) == (why, evictions, "IN_QUEUE")
        assert (after.reason, after.message, after.details) == (why, "once more", WHY)
        (closed,) = await w.attempts()
        assert (closed.outcome, closed.reason, closed.message) == (outcome, why, "once more")
        assert (closed.details, closed.ended_at) == (WHY, clock.now)
        assert (closed.retries, closed.restarts) == (4, 2)


async def test_what_was_decided_before_somebody_asked_for_the_end_is_not_done(
    store: Store, clock: Clock
) -> None:
    async with world(store, clock, RUNS) as w:
        seen = make_seen(RUNS, make_observed("Failed"))
        await w.somebody_ends_it()
        await w.ends.renew(StartNextAttempt("evicted", "once more"), seen)
        assert await w.ends.conclude(Conclude(State.FAILURE, "failed"), seen) is None
        after = await w.record()
        assert (after.renewal, after.outcome, after.state) == (None, None, "CANCELING")
        assert [one.ended_at for one in await w.attempts()] == [None]


async def test_the_next_attempt_waits_for_what_the_cache_does_not_show(
    store: Store, clock: Clock
) -> None:
    record = replace(RUNS, renewal="evicted")
    async with world(store, clock, record) as w:
        w.cluster.job = make_observed()
        assert await seconds_of(w.ends.replace(record)) == 1.0
        assert w.cluster.told == [("remove", "jobs", "j-j1", UID, True)]
        w.cluster.job, w.cluster.pods = None, [make_pod(0, owner_uid="another"), make_pod(1)]
        assert await seconds_of(w.ends.replace(record)) == 1.0
        assert (await w.record()).attempt == 1
        w.cluster.pods = [make_pod(0, owner_uid="another")]
        await w.ends.replace(record)
        assert (await w.record()).attempt == 2


async def test_the_next_attempt_begins_with_nothing_of_the_last_one(
    store: Store, clock: Clock
) -> None:
    record = replace(
        RUNS, renewal="resumed", stopping=True, kept="{}", ordered="AbortJob", ordered_why="x"
    )
    async with world(store, clock, record) as w:
        assert not await w.is_due()
        await w.ends.replace(record)
        assert w.cluster.told == [("withdraw", "j1", "jobs")]
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
        # The one that another attempt carries out comes on top, whatever it was.
        ("retried", {"retries": 2}, [], 3),
        # What the cluster took away is not the job's to pay, nor are runs of other attempts.
        ("resumed", {"retries": 2}, [run(reason="Evicted")], 1),
        ("resumed", {"retries": 2}, [run(reason="Evicted", attempt=2)], 2),
        # Counted before, by whoever was to begin the next attempt and did not.
        ("retried", {"retries": 2, "used": 5}, [], None),
        ("retried", {"retries": 2, "uid": "another"}, [], None),
    ],
)
async def test_the_retries_of_an_attempt_are_counted_once_with_the_beginning_of_the_next(
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
            await move_attempt(transaction, "j1", 1, **attempt)
        await w.ends.replace(record)
        assert (await w.record()).retries_used == 1 + (used or 0)
        assert (await w.attempts())[1].used == (attempt.get("used") if used is None else used)


async def test_the_retries_of_an_attempt_that_nobody_noted_are_none(
    store: Store, clock: Clock
) -> None:
    record = replace(RUNS, renewal="retried", retries_used=1)
    async with world(store, clock, record, uid=None) as w:
        await w.ends.replace(record)
        assert ((await w.record()).attempt, (await w.record()).retries_used) == (2, 1)


async def test_a_later_attempt_that_the_cluster_shows_is_gone_on_with(
    store: Store, clock: Clock
) -> None:
    record = replace(
        RUNS, renewal="evicted", stopping=True, kept="{}", ordered="AbortJob", ordered_why="x",
        retries_used=1, evictions=7,
    )  # fmt: skip
    past = {ATTEMPT_ANNOTATION: "3", RETRIES_USED_ANNOTATION: "4", EVICTIONS_ANNOTATION: "2"}
    later = make_observed(uid="later", annotations=past)
    async with world(store, clock, record) as w:
        await w.ends.catch_up(make_seen(record))
        assert await w.record() == record
        await w.ends.catch_up(make_seen(record, later))
        after = await w.record()
        assert (after.attempt, after.uid, after.renewal, after.stopping) == (
            3,
            "later",
            None,
            False,
        )
        assert (after.kept, after.ordered, after.ordered_why) == (None, None, None)
        # What is more counts: the store's, or what the VolcanoJob was made with.
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
        await w.ends.catch_up(make_seen(RUNS, later))
        assert (await w.record()).stopping is stopping


async def test_a_later_attempt_is_left_alone_where_somebody_has_asked_meanwhile(
    store: Store, clock: Clock
) -> None:
    later = make_observed(uid="later", annotations={ATTEMPT_ANNOTATION: "2"})
    async with world(store, clock, RUNS) as w:
        await w.somebody_ends_it()
        await w.ends.catch_up(make_seen(RUNS, later))
        assert ((await w.record()).attempt, len(await w.attempts())) == (1, 1)


# The VolcanoJob and its pods


@pytest.mark.parametrize("job", [make_observed(), None])
async def test_what_was_removed_is_remembered(
    store: Store, clock: Clock, job: ObservedJob | None
) -> None:
    async with world(store, clock, RUNS) as w:
        await w.ends.remove(RUNS, job, UID)
        assert w.cluster.told == [("remove", "jobs", "j-j1", UID, job is not None)]
        after = await w.record()
        assert (after.uid, after.removed_uid) == (UID, UID)
        assert [one.ended_at for one in await w.attempts()] == [None]


async def test_a_volcano_job_whose_maker_died_is_noted_before_it_goes(
    store: Store, clock: Clock
) -> None:
    decided = replace(ENDS, uid=None, started_at=None)
    async with world(store, clock, decided, uid=None) as w:
        await w.ends.remove(decided, make_observed(), UID)
        after = await w.record()
        assert (after.uid, after.removed_uid) == (UID, UID)
        (attempt,) = await w.attempts()
        assert (attempt.attempt, attempt.uid, attempt.submitted_at) == (1, UID, clock.now)
        assert (attempt.outcome, attempt.reason) == ("SUCCESS", "completed")
        assert (attempt.message, attempt.details) == ("it is done", WHY)
        assert attempt.ended_at == clock.now


async def test_one_that_is_removed_before_its_end_is_decided_has_no_outcome(
    store: Store, clock: Clock
) -> None:
    record = make_record(renewal="evicted")
    async with world(store, clock, record, uid=None) as w:
        await w.ends.remove(record, make_observed(), UID)
        (attempt,) = await w.attempts()
        assert (attempt.uid, attempt.outcome, attempt.ended_at) == (UID, None, None)


@pytest.mark.parametrize("shown", [True, False])
async def test_what_is_no_attempt_of_the_job_is_not_noted_as_one(
    store: Store, clock: Clock, shown: bool
) -> None:
    record = make_record()
    job = make_observed(annotations={ATTEMPT_ANNOTATION: "2"}) if shown else None
    async with world(store, clock, record, uid=None) as w:
        await w.ends.remove(record, job, UID)
        after = await w.record()
        assert (after.uid, after.removed_uid, await w.attempts()) == (None, UID, [])


async def test_pods_are_deleted_and_looked_for_again(store: Store, clock: Clock) -> None:
    pods = [make_pod(0), make_pod(1)]
    async with world(store, clock, RUNS) as w:
        assert await seconds_of(w.ends.remove_pods(RUNS, pods)) == 2.0
        assert w.cluster.told == [("pods", "jobs", "j-j1-job-0", "j-j1-job-1")]
        # The cluster's own collector does it, in its time.
        w.cluster.forbids = True
        assert await seconds_of(w.ends.remove_pods(RUNS, pods)) == 30.0


# The job


async def test_how_a_job_will_end_is_decided_and_not_told_yet(store: Store, clock: Clock) -> None:
    job = make_observed("Failed", retries=4, max_retry=3)
    runs = {one.pod_uid: one for one in (run(started_at=6.0), run("b"), run("c", started_at=None))}
    async with world(store, clock, RUNS) as w:
        seen = make_seen(RUNS, job, runs=runs)
        after = await w.ends.conclude(Conclude(State.FAILURE, "exit_code", "it broke", WHY), seen)
        assert after == await w.record()
        assert (after.outcome, after.end_state) == ("FAILURE", "FAILURE")
        assert (after.end_reason, after.end_message) == ("exit_code", "it broke")
        assert (after.end_details, after.state, after.started_at) == (WHY, "RUNNING", 2.0)
        (closed,) = await w.attempts()
        assert (closed.outcome, closed.reason) == ("FAILURE", "exit_code")
        assert (closed.message, closed.details) == ("it broke", WHY)
        assert (closed.ended_at, closed.started_at) == (clock.now, 4.0)
        assert (closed.retries, closed.restarts) == (4, 2)


async def test_one_that_ran_between_two_looks_began_when_its_first_pod_did(
    store: Store, clock: Clock
) -> None:
    record = make_record(uid=UID)
    runs = {one.pod_uid: one for one in (run(started_at=6.0), run("b"))}
    async with world(store, clock, record) as w:
        await w.ends.conclude(Conclude(State.SUCCESS, "completed"), make_seen(record, runs=runs))
        assert (await w.record()).started_at == 4.0


async def test_one_of_which_no_pod_began_has_not_begun(store: Store, clock: Clock) -> None:
    record = make_record(uid=UID)
    async with world(store, clock, record) as w:
        await w.ends.conclude(Conclude(State.FAILURE, "failed"), make_seen(record))
        assert (await w.record()).started_at is None
        assert [one.started_at for one in await w.attempts()] == [None]


@pytest.mark.parametrize(
    ("shown", "last", "restarts"),
    [
        (None, make_observed("Failed", retries=4), 4),
        (make_observed("Failed", retries=3), make_observed("Failed", retries=4), 3),
        # Another VolcanoJob's counts are not the attempt's: what was seen last stays.
        (make_observed("Failed", uid="another", retries=3), None, 1),
        (None, None, 1),
    ],
)
async def test_an_attempt_keeps_the_count_of_restarts_that_was_seen_last(
    store: Store,
    clock: Clock,
    shown: ObservedJob | None,
    last: ObservedJob | None,
    restarts: int,
) -> None:
    async with world(store, clock, RUNS) as w:
        async with store.write() as transaction:
            await move_attempt(transaction, "j1", 1, retries=1, restarts=1)
        await w.ends.conclude(LOST, make_seen(RUNS, shown, last=last))
        (closed,) = await w.attempts()
        assert (closed.retries, closed.restarts) == (restarts, restarts)


async def test_what_follows_from_a_volcano_job_that_is_gone_waits_for_the_cluster_to_say_so(
    store: Store, clock: Clock
) -> None:
    again = Confirm(StartNextAttempt("evicted", "once more"))
    async with world(store, clock, RUNS) as w:
        w.cluster.job = make_observed()
        assert await seconds_of(w.ends.confirm(again, make_seen(RUNS))) == 1.0
        assert (await w.record()).renewal is None
        w.cluster.job = None
        await w.ends.confirm(again, make_seen(RUNS))
        assert (await w.record()).renewal == "evicted"


async def test_a_job_that_is_over_is_told_with_all_that_is_known(
    store: Store, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    logging.getLogger(LOGGER).propagate = True
    runs = [run(started_at=6.0), run("b", rank=1, index=1), run("a", attempt=2, started_at=3.0)]
    async with world(store, clock, ENDS, *runs) as w:
        async with store.write() as transaction:
            points = MountPoints(place="here", names=("a",), cleaner={})
            assert await hold_mount_points(transaction, "j1", points)
        await w.ends.finish(ENDS)
        after = await w.record()
        assert (after.state, after.reason, after.message) == ("SUCCESS", "completed", "it is done")
        assert (after.details, after.finished_at, after.started_at) == (WHY, clock.now, 2.0)
        assert after.sealed is None
        assert [one.started_at for one in await w.attempts()] == [4.0]
        async with store.read() as transaction:
            told = await updates_of(transaction, "j1")
            assert [one["rank"] for one in told[-1].exits or ()] == [0, 1]
            assert await timers_of(transaction, "j1") == {}
            # Nothing was made there: the folder is nobody's.
            assert await last_jobs_of(transaction, "here") == []
            assert await due_jobs(transaction, now=9e9, limit=9) == {}
    assert w.cluster.told == []
    (audited,) = [one for one in caplog.records if one.name == LOGGER]
    said = {name: getattr(audited, name) for name in ("event", "job", "reason")}
    assert said == {"event": "ended", "job": "j1", "reason": "completed"}


@pytest.mark.parametrize(
    ("state", "outcome", "told"),
    [
        ("RUNNING", "FAILURE", "FAILURE"),
        ("CANCELING", "EXPIRED", "EXPIRED"),
        ("RUNNING", None, "FAILURE"),
        ("of a later version", "SUCCESS", "SUCCESS"),
    ],
)
async def test_the_outcome_is_the_state_from_whatever_state(
    store: Store, clock: Clock, state: str, outcome: str | None, told: str
) -> None:
    record = replace(ENDS, state=state, outcome=outcome)
    async with world(store, clock, record) as w:
        await w.ends.finish(record)
        assert (await w.record()).state == told


@pytest.mark.parametrize(
    "fields", [{"stopping": True}, {"ordered": "AbortJob"}, {"stopping": True, "ordered": "x"}]
)
async def test_a_command_that_volcano_may_still_find_is_withdrawn(
    store: Store, clock: Clock, fields: dict[str, Any]
) -> None:
    record = replace(ENDS, **fields)
    async with world(store, clock, record) as w:
        await w.ends.finish(record)
        assert w.cluster.told == [("withdraw", "j1", "jobs")]


async def test_what_the_volcano_job_owns_goes_with_it_and_all_else_is_removed(
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


async def test_a_job_that_was_never_seen_to_be_submitted_is_looked_for_before_it_is_over(
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
            # The last hooks have not seen its pods: they run once more.
            assert [*await hooks_of(transaction, "j1", 1)] == ["complete"]
        w.cluster.job = None
        await w.ends.finish(record)
        after = await w.record()
        # Some of its pods ran, if never as many as it takes.
        assert (after.state, after.started_at) == ("SUCCESS", 4.0)


async def test_a_job_that_was_submitted_is_not_looked_for_again(store: Store, clock: Clock) -> None:
    async with world(store, clock, ENDS) as w:
        w.cluster.job = make_observed()
        await w.ends.finish(ENDS)
        assert (w.cluster.told, (await w.record()).state) == ([], "SUCCESS")


async def test_jobs_that_wait_for_the_end_are_looked_at(store: Store, clock: Clock) -> None:
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


async def test_a_job_that_somebody_has_ended_meanwhile_is_not_over_yet(
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


async def test_a_plugin_ends_a_job_as_its_owner_would_and_one_that_is_over_stays(
    store: Store, clock: Clock
) -> None:
    how = RequestedEnd("FAILURE", "out_of_funds", "no money", WHY)
    async with world(store, clock, RUNS) as w:
        await w.ends.ask(RUNS, how)
        after = await w.record()
        assert (after.desired, after.state, after.reason) == ("ended", "CANCELING", "out_of_funds")
        assert (after.end_state, after.end_message) == ("FAILURE", "no money")
        await w.ends.ask(replace(RUNS, id="unknown"), how)


async def test_a_job_that_is_over_cannot_be_ended(store: Store, clock: Clock) -> None:
    over = replace(ENDS, state="SUCCESS", reason="completed", finished_at=9.0)
    async with world(store, clock, over) as w:
        await w.ends.ask(over, RequestedEnd("FAILURE", "out_of_funds", "no money"))
        assert (await w.record()).desired == "run"
