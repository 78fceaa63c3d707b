"""Tests retention: how long records, tombstones and updates are kept."""

from __future__ import annotations

import pytest

from controller.jobs.history import retention as module
from controller.jobs.history.retention import Retention, RetentionPeriods
from controller.store.database import Store
from controller.store.errors import LeadershipLost
from controller.store.instance import raise_term
from controller.store.jobs.batches import (
    BatchItem,
    BatchRecord,
    batch_counts,
    batch_items,
    find_batch,
    insert_batch,
)
from controller.store.jobs.job_rows import insert_job, known_jobs
from controller.store.jobs.tombstones import has_tombstone
from controller.store.jobs.tools import AttachedTool, attach_tools, detach_tool
from controller.store.outbox.update_rows import Forgotten, updates_after, updates_of
from controller.volcano.names import TOOL_PREFIX
from tests.clock import Clock
from tests.controller.samples import make_record

OVER = {"state": "SUCCESS", "outcome": "SUCCESS", "finished_at": 100.0, "created_at": 50.0}


async def led(store: Store, *job_ids: str, **fields: object) -> int:
    """Insert these jobs, and return the term of a new leader."""
    async with store.write() as transaction:
        term = await raise_term(transaction)
        for job_id in job_ids:
            record = make_record(id=job_id, uid=f"uid-{job_id}", **OVER | fields)
            await insert_job(transaction, record, labels={})
    return term


def make_retention(
    store: Store, term: int, clock: Clock, *there: str, updates: float | None = None
) -> Retention:
    def failed(error: Exception) -> None:
        raise error

    return Retention(
        store.fenced(term),
        keep=RetentionPeriods(history=60.0, tombstone=1000.0, updates=updates),
        may_be_there=there.__contains__,
        clock=clock,
        failed=failed,
    )


async def buried(store: Store, *job_ids: str) -> set[str]:
    async with store.read() as transaction:
        return {one for one in job_ids if await has_tombstone(transaction, one, f"uid-{one}")}


async def test_a_tombstone_is_deleted_some_time_after_its_record(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ENTRIES", 2)
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    jobs = [f"j{number}" for number in range(5)]
    term = await led(store, *jobs)
    retention = make_retention(store, term, clock, "j0", "j3")
    clock.now = 200.0
    assert await retention.tidy() == 5
    clock.now = 1100.0
    assert await retention.tidy() == 0
    assert await buried(store, *jobs) == set(jobs)
    # A tombstone stays while its VolcanoJob exists: it permits the removal. Without it, the
    # VolcanoJob would be adopted.
    clock.now = 1300.0
    await retention.tidy()
    assert await buried(store, *jobs) == {"j0", "j3"}
    await make_retention(store, term, clock).tidy()
    assert await buried(store, *jobs) == set()


async def test_the_last_run_of_a_tool_is_kept_with_the_tool(store: Store, clock: Clock) -> None:
    before, last = (f"{TOOL_PREFIX}{number}" for number in (1, 2))
    term = await led(store, before, last, tool={"job": "j1", "name": "board", "rank": 0})
    async with store.write() as transaction:
        await insert_job(transaction, make_record(id="j1", tools=1), labels={})
        tool = AttachedTool(
            job_id="j1", name="board", rank=0, spec={}, shape={}, charged={}, unshared=[],
            asked_at=1.0, run=last,
        )  # fmt: skip
        await attach_tools(transaction, [tool])
    retention = make_retention(store, term, clock)
    clock.now = 200.0
    assert await retention.tidy() == 1
    async with store.write() as transaction:
        assert await known_jobs(transaction, [before, last]) == {last}
        await detach_tool(transaction, tool)
    assert await retention.tidy() == 1


async def test_a_batch_is_kept_until_its_last_job_is_deleted(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    await led(store, "a", batch="both", batch_index=0)
    await led(store, "b", finished_at=150.0, batch="both", batch_index=1)
    async with store.write() as transaction:
        for batch_id, created_at in (("both", 50.0), ("young", 195.0), ("empty", 50.0)):
            record = BatchRecord(
                id=batch_id, owner_user="ada", owner_project=None, mode="atomic",
                fingerprint=b"", created_at=created_at, items=2, jobs=2,
            )  # fmt: skip
            items = [
                BatchItem(index=n, job_id=f"{'ab'[n]}", result="created", parameters={},
                          problems=None)
                for n in range(2)
            ]  # fmt: skip
            await insert_batch(transaction, record, items)
        term = await raise_term(transaction)
    clock.now = 200.0
    await make_retention(store, term, clock).tidy()
    async with store.read() as transaction:
        assert await find_batch(transaction, "both") is not None
        assert await find_batch(transaction, "empty") is None
        states = [one.state for one in await batch_items(transaction, "both", after=-1, limit=9)]
        assert states == ["SUCCESS", "SUCCESS"]
        assert await batch_counts(transaction, ["both"]) == {"both": {"SUCCESS": 2}}
    clock.now = 220.0
    await make_retention(store, term, clock).tidy()
    async with store.read() as transaction:
        assert await find_batch(transaction, "both") is None
        assert await batch_items(transaction, "both", after=-1, limit=9) == []
        assert await find_batch(transaction, "young") is not None


async def test_old_updates_of_ended_jobs_are_deleted(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ENTRIES", 2)
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    await led(store, "a", "b")
    await led(store, "runs", finished_at=None, state="RUNNING", outcome=None)
    term = await led(store, "c")
    clock.now = 115.0
    await make_retention(store, term, clock, updates=70.0).tidy()
    async with store.read() as transaction:
        assert len(await updates_after(transaction, 0, limit=10)) == 4
    clock.now = 125.0
    await make_retention(store, term, clock, updates=70.0).tidy()
    async with store.read() as transaction:
        assert await known_jobs(transaction, ["a", "b", "c", "runs"]) == {"a", "b", "c", "runs"}
        assert [await updates_of(transaction, one) for one in "abc"] == [[], [], []]
        # The last update of a running job stays: it tells a reader the job's state.
        assert len(await updates_of(transaction, "runs")) == 1
        with pytest.raises(Forgotten):
            await updates_after(transaction, 0, limit=10)


async def test_a_lost_leader_deletes_nothing(store: Store, clock: Clock) -> None:
    term = await led(store, "a")
    retention = make_retention(store, term, clock, updates=1.0)
    await led(store)
    clock.now = 10_000.0
    with pytest.raises(LeadershipLost):
        await retention.tidy()
    async with store.read() as transaction:
        assert await known_jobs(transaction, ["a"]) == {"a"}
        assert len(await updates_of(transaction, "a")) == 1
