from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Store
from controller.store.errors import AlreadyThere
from controller.store.instance import ensure_position, read_store_metadata
from controller.store.jobs.job_rows import (
    changed_jobs,
    find_job,
    find_jobs,
    has_jobs,
    insert_job,
    lock_job,
    request_end,
    touch_unsubmitted,
    unfinished_jobs,
    update_and_notify,
    update_job,
)
from controller.store.jobs.tombstones import has_tombstone
from tests.controller.postgres import Postgres
from tests.controller.samples import forget_jobs, make_record


async def insert(store: Store, *ids: str, labels: dict[str, str] | None = None, **f: Any) -> None:
    async with store.write() as transaction:
        for job_id in ids:
            await insert_job(transaction, make_record(id=job_id, **f), labels=labels or {})


async def transitions(store: Store) -> list[tuple[str, str | None]]:
    table = tables.transitions
    query = sa.select(table.c.state, table.c.reason).where(table.c.job_id == "j1")
    async with store.read() as transaction:
        rows = await transaction.execute(query.order_by(table.c.id))
        return [(row.state, row.reason) for row in rows]


async def test_a_job_is_found_as_it_was_inserted(store: Store) -> None:
    record = make_record(spec={"id": "j1", "labels": {"a": "b"}}, sealed=b"x", fingerprint=b"y")
    async with store.write() as transaction:
        assert not await has_jobs(transaction)
        await insert_job(transaction, record, labels={"a": "b"})
    async with store.read() as transaction:
        assert await find_job(transaction, "j1") == record
        assert await find_job(transaction, "j2") is None
        assert await has_jobs(transaction)


async def test_a_job_is_inserted_once(store: Store) -> None:
    await insert(store, "j1")
    with pytest.raises(AlreadyThere, match="j1"):
        await insert(store, "j1")


@pytest.mark.needs("postgres")
async def test_locking_all_waiting_jobs_and_locking_one_do_not_deadlock(
    postgres: Postgres,
) -> None:
    url = postgres.new_database()
    store, other = Store(url), Store(url)
    await store.open()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity="test")
    await insert(store, "j1", "j2")

    async def touch() -> None:
        async with other.write() as transaction:
            await touch_unsubmitted(transaction)

    async with asyncio.TaskGroup() as tasks, store.write() as transaction:
        record = await lock_job(transaction, "j1")
        assert record is not None
        touching = tasks.create_task(touch())
        await asyncio.sleep(0.3)
        assert not touching.done()
        await update_and_notify(transaction, record, now=2.0, desired="suspended")
    async with store.read() as transaction:
        assert sorted((await changed_jobs(transaction, after=3))[0]) == ["j1", "j2"]
    await store.close()
    await other.close()


async def test_a_record_shows_no_spec_and_no_secret() -> None:
    assert "canary" not in repr(make_record(spec={"x": "canary"}, sealed=b"canary"))


async def test_only_real_transitions_are_recorded(store: Store) -> None:
    await insert(store, "j1")
    async with store.write() as transaction:
        record = await lock_job(transaction, "j1")
        assert record is not None
        for _ in range(2):
            values = {"state": "RUNNING", "reason": None, "message": None}
            record = await update_job(transaction, record, now=2.0, **values)
        after = await update_job(transaction, record, now=3.0, uid="u")
        assert after == await find_job(transaction, "j1")
    assert await transitions(store) == [("IN_QUEUE", "submitting"), ("RUNNING", None)]


async def test_requesting_an_end_is_idempotent(store: Store) -> None:
    await insert(store, "j1")
    async with store.write() as transaction:
        record = (await find_jobs(transaction, ["j1"]))["j1"]
        once = await request_end(transaction, record, now=2.0)
        assert (once.desired, once.state, once.reason) == ("ended", "CANCELING", "asked")
        assert await request_end(transaction, once, now=3.0) == once
    assert await transitions(store) == [("IN_QUEUE", "submitting"), ("CANCELING", "asked")]


async def test_an_ended_job_is_unchanged_by_a_requested_end(store: Store) -> None:
    await insert(store, "j1", state="FAILURE", reason="exit_code")
    async with store.write() as transaction:
        record = await find_job(transaction, "j1")
        assert record is not None
        after = await request_end(transaction, record, now=2.0)
    assert (after.desired, after.state, after.reason) == ("ended", "FAILURE", "exit_code")


async def test_a_decided_end_is_not_changed_by_a_request(store: Store) -> None:
    decided: dict[str, Any] = {
        "outcome": "FAILURE",
        "end_state": "FAILURE",
        "end_reason": "exit_code",
    }
    await insert(store, "j1", **decided)
    async with store.write() as transaction:
        record = await find_job(transaction, "j1")
        assert record is not None
        after = await request_end(transaction, record, now=2.0)
    assert (after.desired, after.state, after.end_reason) == ("ended", "CANCELING", "exit_code")


async def test_requests_since_a_revision_are_found(store: Store) -> None:
    await insert(store, "a")
    async with store.read() as transaction:
        seen = (await read_store_metadata(transaction)).revision
    await insert(store, "b")
    async with store.write() as transaction:
        record = await find_job(transaction, "a")
        assert record is not None
        await request_end(transaction, record, now=1.0)
    async with store.read() as transaction:
        ids, latest = await changed_jobs(transaction, after=seen)
        assert sorted(ids) == ["a", "b"]
        assert await changed_jobs(transaction, after=latest) == ([], latest)


async def test_only_jobs_ended_long_ago_are_deleted(store: Store) -> None:
    await insert(store, "old", state="SUCCESS", finished_at=10.0, uid="u-old", labels={"a": "b"})
    await insert(store, "new", state="SUCCESS", finished_at=100.0, uid="u-new")
    await insert(store, "runs", state="RUNNING", uid="u-runs")
    async with store.write() as transaction:
        assert await forget_jobs(transaction, finished_before=50.0, limit=10) == 1
    async with store.read() as transaction:
        assert await find_job(transaction, "old") is None
        assert await unfinished_jobs(transaction) == ["runs"]
        assert await has_tombstone(transaction, "old", "u-old")
        assert not await has_tombstone(transaction, "old", "u-of-another")
        assert not await has_tombstone(transaction, "new", "u-new")
        labels = await transaction.scalar(sa.select(sa.func.count()).select_from(tables.job_labels))
        assert labels == 0


async def test_more_jobs_than_bound_parameters_are_found(store: Store) -> None:
    async with store.write() as transaction:
        await insert_job(transaction, make_record(), labels={})
    async with store.read() as transaction:
        found = await find_jobs(transaction, [*map(str, range(40_000)), "j1"])
    assert found.keys() == {"j1"}
