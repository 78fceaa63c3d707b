"""Tests batches in the store: made once, counted from indexes, items outlive job records."""

from __future__ import annotations

import asyncio
from typing import Any

from controller.store.database import Store
from controller.store.errors import AlreadyThere
from controller.store.jobs.batches import (
    BatchItem,
    BatchRecord,
    add_to_batch,
    batch_counts,
    batch_items,
    find_batch,
    find_item,
    insert_batch,
    newest_batches,
)
from controller.store.jobs.job_lists import live_jobs_of_batch
from controller.store.jobs.job_rows import find_job, insert_jobs, lock_jobs
from controller.store.jobs.tombstones import delete_job_records
from controller.store.paging import Key
from tests.controller.samples import make_record


def make_batch(batch_id: str = "b1", **fields: Any) -> BatchRecord:
    values: dict[str, Any] = {
        "id": batch_id, "owner_user": "ada", "owner_project": None, "mode": "atomic",
        "fingerprint": b"f", "created_at": 1.0, "items": 3, "jobs": 2,
    }  # fmt: skip
    return BatchRecord(**values | fields)


def make_items(*results: str) -> list[BatchItem]:
    return [
        BatchItem(
            index=index,
            job_id=f"j{index}",
            result=result,
            parameters={"n": index, "x": 0.5, "t": "é", "yes": True},
            problems=None if result == "created" else [{"path": "id", "message": "is wrong"}],
        )
        for index, result in enumerate(results)
    ]


async def fill(store: Store, batch: BatchRecord, *states: str) -> None:
    jobs = [
        make_record(id=f"j{n}", state=state, batch=batch.id, batch_index=n)
        for n, state in enumerate(states)
    ]
    async with store.write() as transaction:
        await insert_batch(transaction, batch, make_items(*["created"] * len(states), "rejected"))
        await insert_jobs(transaction, [(one, {}) for one in jobs])


async def test_of_two_concurrent_creations_of_a_batch_one_finds_the_other(
    store: Store, store_url: str
) -> None:
    async def make(by: Store) -> str:
        try:
            async with by.write() as transaction:
                if await find_batch(transaction, "b1") is not None:
                    return "there"  # SQLite: writers take turns
                await asyncio.sleep(0.1)
                await insert_batch(transaction, make_batch(), make_items("created"))
        except AlreadyThere:
            return "there"
        return "made"

    other = Store(store_url)
    try:
        assert sorted(await asyncio.gather(make(store), make(other))) == ["made", "there"]
    finally:
        await other.close()
    async with store.read() as transaction:
        assert len(await batch_items(transaction, "b1", after=-1, limit=9)) == 1


async def test_items_are_stored_as_given_and_show_the_state_of_their_jobs(
    store: Store,
) -> None:
    await fill(store, make_batch(), "RUNNING", "SUCCESS")
    async with store.read() as transaction:
        items = await batch_items(transaction, "b1", after=-1, limit=9)
        assert [one.state for one in items] == ["RUNNING", "SUCCESS", None]
        assert items[1].parameters == {"n": 1, "x": 0.5, "t": "é", "yes": True}
        assert (items[0].problems, items[2].problems) == (
            None,
            [{"path": "id", "message": "is wrong"}],
        )
        assert await find_item(transaction, "b1", 2) == items[2]
        assert await find_item(transaction, "b1", 3) is None
        assert await live_jobs_of_batch(transaction, "b1") == ["j0"]
    async with store.write() as transaction:
        await delete_job_records(transaction, ["j1"], at=9.0)
        await insert_jobs(transaction, [(make_record(id="j1", state="RUNNING"), {})])
    async with store.read() as transaction:
        items = await batch_items(transaction, "b1", after=0, limit=1)
        assert [one.state for one in items] == ["SUCCESS"]
        assert await batch_counts(transaction, ["b1", "b2"]) == {
            "b1": {"RUNNING": 1, "SUCCESS": 1},
            "b2": {},
        }


async def test_existing_jobs_are_assigned_to_a_batch(store: Store) -> None:
    async with store.write() as transaction:
        await insert_jobs(transaction, [(make_record(id=f"j{n}"), {}) for n in range(3)])
    async with store.write() as transaction:
        await lock_jobs(transaction, ["j0", "j2"])
        await add_to_batch(transaction, "b1", {"j0": 4, "j2": 5})
        await add_to_batch(transaction, "b1", {})
    async with store.read() as transaction:
        found = [await find_job(transaction, f"j{n}") for n in range(3)]
    assert [(one.batch, one.batch_index) for one in found if one is not None] == [
        ("b1", 4), (None, None), ("b1", 5),
    ]  # fmt: skip


async def test_pagination_is_stable_among_equal_keys(store: Store) -> None:
    async with store.write() as transaction:
        for number in range(7):
            project = "sun" if number % 2 else None
            batch = make_batch(f"b{number}", created_at=number // 3, owner_project=project)
            await insert_batch(transaction, batch, [])
    async with store.read() as transaction:
        seen: list[str] = []
        after: Key | None = None
        while True:
            page, after = await newest_batches(transaction, after=after, limit=2)
            seen += [one.id for one in page]
            if after is None:
                break
        assert seen == ["b6", "b5", "b4", "b3", "b2", "b1", "b0"]
        page, _ = await newest_batches(transaction, user="ada", project="sun", after=None, limit=9)
    assert [one.id for one in page] == ["b5", "b3", "b1"]
