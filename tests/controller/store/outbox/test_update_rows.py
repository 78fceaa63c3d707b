from __future__ import annotations

import asyncio

import pytest

from controller.store.database import Store
from controller.store.instance import raise_term
from controller.store.jobs.job_rows import (
    FINAL_STATES,
    insert_job,
    lock_job,
    request_end,
    update_job,
)
from controller.store.outbox.update_rows import Forgotten, read_counter, updates_after, updates_of
from tests.controller.samples import forget_jobs, make_record


async def test_updates_are_read_in_order_from_a_position(store: Store) -> None:
    async with store.write() as transaction:
        await insert_job(transaction, make_record(), labels={})
        record = await update_job(transaction, make_record(), now=2.0, state="RUNNING", reason=None)
        await update_job(transaction, record, now=3.0, state="SUCCESS",
                       exits=[{"rank": 0, "exit_code": 0}])  # fmt: skip
    async with store.read() as transaction:
        every = await updates_after(transaction, 0, limit=9)
        assert [one.id for one in every] == [1, 2, 3]
        assert [one.state for one in every] == ["IN_QUEUE", "RUNNING", "SUCCESS"]
        assert every[2].exits == [{"rank": 0, "exit_code": 0}]
        assert await updates_after(transaction, 1, limit=1) == every[1:2]
        assert await updates_after(transaction, 3, limit=9) == []
        assert await read_counter(transaction, "updates") == 3
        assert await updates_of(transaction, "j1") == every


async def test_no_update_is_committed_below_a_read_position(store: Store) -> None:
    """Each writer pauses between taking its number and committing."""
    async with store.write() as transaction:
        for number in range(6):
            await insert_job(transaction, make_record(id=f"j{number}"), labels={})
    read: list[int] = []
    over = asyncio.Event()

    async def write(number: int) -> None:
        for step in range(5):
            async with store.write() as transaction:
                record = await lock_job(transaction, f"j{number}")
                assert record is not None
                await update_job(transaction, record, now=1.0, message=f"{step}")
                await asyncio.sleep(0.001 * (number % 3))

    async def follow() -> None:
        last = 6
        while True:
            ended = over.is_set()
            async with store.read() as transaction:
                page = await updates_after(transaction, last, limit=4)
            read.extend(one.id for one in page)
            last = read[-1] if read else last
            if not page:
                if ended:
                    return
                await asyncio.sleep(0.001)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        await asyncio.gather(*(write(number) for number in range(6)))
        over.set()
    assert read == list(range(7, 37))


async def test_a_reader_behind_deleted_updates_is_notified(store: Store) -> None:
    async with store.write() as transaction:
        await insert_job(transaction, make_record(), labels={})
        over = await update_job(
            transaction, make_record(), now=2.0, state=FINAL_STATES[0], finished_at=2.0
        )
        await insert_job(transaction, make_record(id="j2"), labels={})
        assert over.is_final
        assert await forget_jobs(transaction, finished_before=3.0, limit=9) == 1
    async with store.read() as transaction:
        with pytest.raises(Forgotten) as caught:
            await updates_after(transaction, 1, limit=9)
        assert caught.value.through == 2
        assert [one.job_id for one in await updates_after(transaction, 2, limit=9)] == ["j2"]


async def test_concurrent_writes_of_updates_complete(store: Store) -> None:
    """All transactions take locks in one order, so none waits for ever."""
    async with store.write() as transaction:
        term = await raise_term(transaction)
        for number in range(4):
            await insert_job(transaction, make_record(id=f"j{number}"), labels={})

    async def lead(number: int) -> None:
        for step in range(8):
            async with store.fenced(term).write() as transaction:
                record = await lock_job(transaction, f"j{number}")
                assert record is not None
                await asyncio.sleep(0)
                await insert_job(transaction, make_record(id=f"k{number}-{step}"), labels={})
                await update_job(transaction, record, now=1.0, message=f"{step}")

    async def ask(number: int) -> None:
        async with store.write() as transaction:
            record = await lock_job(transaction, f"j{number}")
            assert record is not None
            await request_end(transaction, record, now=2.0)

    async with asyncio.timeout(30):
        await asyncio.gather(*(lead(number) for number in range(4)), *map(ask, range(4)))
