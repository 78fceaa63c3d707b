"""Tests that waiting jobs know their predecessors' ends, even after the record is deleted."""

from __future__ import annotations

from controller.store.database import Store, Transaction
from controller.store.jobs.job_rows import find_job, insert_jobs, update_job
from controller.store.jobs.relations import (
    Predecessor,
    predecessors_of,
    record_predecessors,
    settle_followers,
)
from controller.store.jobs.tombstones import delete_job_records
from tests.controller.samples import make_record


async def add(transaction: Transaction, job_id: str, *after: str, state: str = "IN_QUEUE") -> None:
    record = make_record(id=job_id, state=state, reason="completed")
    await insert_jobs(transaction, [(record, {})])
    await record_predecessors(transaction, job_id, after)


async def end(transaction: Transaction, job_id: str, state: str, reason: str) -> list[str]:
    record = await find_job(transaction, job_id)
    assert record is not None
    await update_job(transaction, record, now=5.0, state=state, reason=reason, finished_at=5.0)
    return sorted(await settle_followers(transaction, job_id, state=state, reason=reason))


async def test_an_end_is_stored_with_its_followers(store: Store) -> None:
    async with store.write() as transaction:
        for job_id, after in (("a", ()), ("b", ("a",)), ("c", ("a", "b"))):
            await add(transaction, job_id, *after)
    async with store.write() as transaction:
        assert [one.goes_on for one in await predecessors_of(transaction, "c")] == [True, True]
        assert await end(transaction, "a", "FAILURE", "exit_code") == ["b", "c"]
    async with store.write() as transaction:
        await delete_job_records(transaction, ["a"], at=9.0)
        # A later job with this id is another job.
        await add(transaction, "a")
        await end(transaction, "a", "SUCCESS", "completed")
        found = await predecessors_of(transaction, "c")
    assert found[0] == Predecessor("a", "FAILURE", "exit_code")
    assert (found[0].goes_on, found[0].ended_well, found[1].goes_on) == (False, False, True)


async def test_the_end_of_an_already_ended_predecessor_is_known_at_once(store: Store) -> None:
    async with store.write() as transaction:
        await add(transaction, "a", state="SUCCESS")
        await add(transaction, "b", "a")
        await delete_job_records(transaction, ["a"], at=9.0)
        (found,) = await predecessors_of(transaction, "b")
        assert (found.state, found.goes_on, found.ended_well) == ("SUCCESS", False, True)
        # An end deleted by a version without this table is unknown.
        await add(transaction, "c", "nobody")
        (lost,) = await predecessors_of(transaction, "c")
    assert (lost.goes_on, lost.ended_well) == (False, False)
    assert not Predecessor("x", "SUCCESS", "asked").ended_well
