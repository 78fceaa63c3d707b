"""Tests commands for many jobs: they do not block other writers, and can be repeated."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from controller.jobs.submission.commands import JobCommands, OwnerFilter
from controller.store.database import Store
from controller.store.errors import StoreUnavailable
from controller.store.jobs.job_rows import find_jobs, insert_jobs
from controller.store.outbox.update_rows import raise_counter, read_counter
from tests.controller.samples import make_record

MANY = 250
IDS = [f"j{number:03}" for number in range(MANY)]
ADA = [OwnerFilter("ada", None)]


@pytest.fixture
async def enqueued(store: Store) -> list[str]:
    """Give Ada many jobs and the ledger an entry; return the list that enqueued jobs go to."""
    async with store.write() as transaction:
        await insert_jobs(transaction, [(make_record(id=job_id), {}) for job_id in IDS])
        await raise_counter(transaction, "usage", 7)
    return []


@pytest.fixture
def commands(store: Store, enqueued: list[str]) -> JobCommands:
    return JobCommands(store, clock=time.time, random=os.urandom, enqueue=enqueued.append)


async def ending(store: Store) -> int:
    """Return the number of jobs that are to end."""
    async with store.write() as transaction:
        found = await find_jobs(transaction, IDS)
    return sum(1 for one in found.values() if one.desired == "ended")


async def test_a_writer_does_not_wait_for_all_jobs_of_an_owner(
    store: Store, enqueued: list[str]
) -> None:
    begun = asyncio.Event()

    def enqueue(job_id: str) -> None:
        enqueued.append(job_id)
        begun.set()

    async def meanwhile() -> int:
        await begun.wait()
        return await ending(store)

    commands = JobCommands(store, clock=time.time, random=os.urandom, enqueue=enqueue)
    async with asyncio.TaskGroup() as tasks:
        other = tasks.create_task(meanwhile())
        ended = tasks.create_task(commands.acknowledge(7, owners=ADA, job_ids=[]))
    assert ended.result() == (7, IDS)
    assert sorted(enqueued) == IDS
    assert 0 < other.result() < MANY
    assert await ending(store) == MANY


async def test_usage_is_acknowledged_only_with_the_ends_for_lack_of_funds(
    store: Store, commands: JobCommands, enqueued: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = store.write, 2

    def gone() -> object:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoreUnavailable("it is gone")
        return real()

    with monkeypatch.context() as patch:
        patch.setattr(store, "write", gone)
        with pytest.raises(StoreUnavailable):
            await commands.acknowledge(7, owners=ADA, job_ids=["never-was"])
    async with store.read() as transaction:
        assert await read_counter(transaction, "usage_acknowledged") == 0
    assert enqueued == IDS[: await ending(store)] == IDS[:200]
    assert await commands.acknowledge(7, owners=ADA, job_ids=[]) == (7, IDS[200:])
    assert enqueued == IDS


async def test_an_ended_job_is_not_ended_again_for_lack_of_funds(
    store: Store, commands: JobCommands, enqueued: list[str]
) -> None:
    async with store.write() as transaction:
        over = make_record(id="over", state="SUCCESS", finished_at=2.0)
        await insert_jobs(transaction, [(over, {})])
    assert await commands.acknowledge(0, owners=[], job_ids=["over", IDS[0]]) == (0, [IDS[0]])
    async with store.read() as transaction:
        assert (await find_jobs(transaction, ["over"]))["over"].desired == "run"
    assert enqueued == [IDS[0]]
