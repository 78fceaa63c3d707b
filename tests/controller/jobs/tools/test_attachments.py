"""Tests concurrent attaching and removing of tools, through several API processes."""

from __future__ import annotations

import asyncio
import time

import pytest
import sqlalchemy as sa

from controller.jobs.tools.attachments import Tools
from controller.jobs.tools.plans import ToolPlans
from controller.store.database import Store
from controller.store.jobs.job_rows import find_job, insert_job, lock_job
from controller.store.jobs.tools import attach_tools, set_run, tools_of
from tests.controller.jobs.tools.test_runs import make_tool
from tests.controller.new_stores import BOTH
from tests.controller.running import eventually
from tests.controller.samples import make_defaults, make_pipeline, make_record

pytestmark = pytest.mark.both_stores

RUN = f"tool.{'a' * 24}"
_WAITING = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")


@pytest.fixture
async def enqueued(store: Store) -> list[str]:
    """Store a job with two tools, of which one runs; return the list that enqueued jobs go to."""
    tools = [make_tool(name=name) for name in ("board", "shell")]
    of = {"job": "j1", "name": "board", "rank": 0, "asked_at": 5.0}
    async with store.write() as transaction:
        await insert_job(transaction, make_record(tools=len(tools)), labels={})
        await insert_job(transaction, make_record(id=RUN, tool=of), labels={})
        await attach_tools(transaction, tools)
        await set_run(transaction, tools[0], RUN)
    return []


@pytest.fixture
def tools(store: Store, enqueued: list[str]) -> Tools:
    return Tools(
        store,
        plans=ToolPlans(make_pipeline(), make_defaults()),
        clock=time.time,
        enqueue=enqueued.append,
        routes=enqueued.append,
    )


async def left(store: Store) -> tuple[list[str], int, str]:
    """Return the job's tools, the count in its record, and what its run is to do."""
    async with store.read() as transaction:
        names = [one.name for one in await tools_of(transaction, "j1")]
        job, run = await find_job(transaction, "j1"), await find_job(transaction, RUN)
    assert job is not None
    assert run is not None
    return names, job.tools, run.desired


async def test_removing_a_tool_removes_its_run_and_is_idempotent(
    store: Store, tools: Tools, enqueued: list[str]
) -> None:
    assert await tools.remove("j1", "board", rank=0) is True
    assert sorted(enqueued) == ["j1", "j1", RUN]
    assert await left(store) == (["shell"], 1, "ended")
    assert await tools.remove("j1", "board", rank=0) is False
    assert await tools.remove("j2", "board", rank=0) is None
    assert await left(store) == (["shell"], 1, "ended")


@pytest.mark.parametrize("store_url", BOTH[1:], indirect=True)
async def test_concurrent_removals_of_a_tool_remove_it_once(
    store: Store, store_url: str, tools: Tools
) -> None:
    other = Store(store_url)

    async def both_wait() -> bool:
        async with other.read() as transaction:
            return (await transaction.scalar(_WAITING) or 0) >= 2

    async with asyncio.TaskGroup() as tasks, store.write() as transaction:
        await lock_job(transaction, "j1")
        both = [tasks.create_task(tools.remove("j1", "board", rank=0)) for _ in range(2)]
        await eventually(both_wait, what="nobody waits for the job")
    await other.close()
    assert sorted(one.result() or False for one in both) == [False, True]
    assert await left(store) == (["shell"], 1, "ended")
