"""Tests how attempts and jobs end, step by step, over a store and a recording fake cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Self

import pytest

from controller.jobs.history.job_record import JobRecords, State
from controller.jobs.history.retries import used_retries
from controller.jobs.reconcile.ending import EndActions
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.steps import LOST, SetOutcome
from controller.jobs.reconcile.workqueue import RequeueAfter
from controller.jobs.spec.accepted import Vault
from controller.store.database import Store
from controller.store.instance import raise_term
from controller.store.jobs.job_rows import JobRecord, find_job, insert_job
from controller.store.jobs.progress import (
    CompanionRecord,
    companions_of,
    record_companions,
)
from tests.clock import Clock
from tests.controller.jobs.reconcile.lifecycle.records import confirmed
from tests.controller.samples import UID, make_observed, make_observed_state, make_pod, make_record

RUNS = make_record(uid=UID, state="RUNNING", reason=None, message=None, started_at=2.0)


class Cluster:
    """A fake cluster with at most one VolcanoJob; records removals."""

    def __init__(self, uid: str | None = None) -> None:
        self.uid = uid
        self.removed: list[str] = []

    async def find_volcano_job(self, *_: Any) -> Any:
        return None if self.uid is None else SimpleNamespace(uid=self.uid, name="j-j1")

    @property
    def companions(self) -> Self:
        return self

    async def remove(self, _job: str, companion: CompanionRecord) -> None:
        self.removed.append(companion.name)

    async def withdraw_command(self, *_: Any) -> None:
        return None

    async def find_pods(self, *_: Any, **__: Any) -> list[Any]:
        return []

    def __getattr__(self, name: str) -> Any:
        async def nothing(*_: Any, **__: Any) -> None:
            return None

        return nothing


async def ending(store: Store, clock: Clock, record: JobRecord, cluster: Any) -> EndActions:
    async with store.write() as transaction:
        await insert_job(transaction, record, labels={})
        term = await raise_term(transaction)
    records = JobRecords(store.fenced(term), vault=Vault([b"x" * 32]), clock=clock)
    return EndActions(records, cluster)


async def found(store: Store) -> JobRecord:
    async with store.read() as transaction:
        record = await find_job(transaction, "j1")
    assert record is not None
    return record


async def test_unowned_companions_are_kept_for_the_next_attempt_and_others_removed(
    store: Store, clock: Clock
) -> None:
    record = make_record(uid=UID, renewal="evicted")
    cluster = Cluster()
    ends = await ending(store, clock, record, cluster)
    passing = CompanionRecord(
        kind="Secret", namespace="jobs", name="passes", uid="1", owner_uid=UID
    )
    lasting = CompanionRecord(
        kind="Service", namespace="jobs", name="lasts", uid="2", owner_uid=None, lasting=True
    )
    async with store.write() as transaction:
        await record_companions(transaction, "j1", [passing, lasting])
    await ends.reset_for_next_attempt(record)
    assert cluster.removed == ["passes"]
    async with store.read() as transaction:
        assert [one.name for one in await companions_of(transaction, "j1")] == ["lasts"]
    after = await found(store)
    assert (after.attempt, after.uid, after.renewal) == (2, None, None)


async def test_a_volcano_job_with_another_uid_is_not_the_jobs(store: Store, clock: Clock) -> None:
    cluster = Cluster(UID)
    ends = await ending(store, clock, RUNS, cluster)
    with pytest.raises(RequeueAfter):
        await ends.confirm_gone(RUNS)
    cluster.uid = "another one's"
    await ends.confirm_gone(RUNS)
    await ends.set_outcome(LOST, make_observed_state(RUNS))
    assert ((await found(store)).outcome, (await found(store)).end_reason) == ("FAILURE", "lost")


def test_uncounted_evictions_restore_no_retry() -> None:
    pods = [make_pod(n, phase="Failed", reason="Evicted") for n in range(3)]
    evicted = make_observed_state(RUNS, None, *pods).runs.values()
    assert used_retries(1, evicted, None) == 0
    assert used_retries(5, evicted, None) == 2


@pytest.mark.parametrize(
    ("stopping", "phase", "ends"),
    [(True, "Aborted", False), (True, "Terminated", True), (False, "Aborted", True)],
)
def test_only_a_job_aborted_by_the_controller_becomes_suspended(
    stopping: bool, phase: str, ends: bool
) -> None:
    record = make_record(
        uid=UID, state="RUNNING", reason="suspending", message="x", started_at=2.0,
        desired="suspended", stopping=stopping,
    )  # fmt: skip
    step = confirmed(decide(make_observed_state(record, make_observed(phase))))
    assert isinstance(step, SetOutcome) == ends
    if isinstance(step, SetOutcome):
        assert (step.outcome, step.reason) == (State.FAILURE, "stopped")


@pytest.mark.parametrize(("phase", "reason"), [("Running", "deleted"), ("Completed", "completed")])
def test_a_deleted_job_that_had_ended_keeps_its_outcome(phase: str, reason: str) -> None:
    step = decide(make_observed_state(RUNS, make_observed(phase, deleting=True)))
    assert isinstance(step, SetOutcome)
    assert step.reason == reason
