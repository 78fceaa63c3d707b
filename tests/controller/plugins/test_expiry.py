from __future__ import annotations

import asyncio
import os

from controller.jobs.pipeline.plugin import JobFromServer
from controller.jobs.submission.commands import JobCommands
from controller.plugins.expiry import ExpiryPlugin
from controller.store.database import Store
from controller.store.jobs.job_rows import find_job, insert_job
from tests.clock import Clock
from tests.controller.samples import make_context, make_job, make_record


def seen_of(expires_at: float | None) -> JobFromServer:
    return JobFromServer(
        job=make_job(), namespace="jobs", uid="u", attempt=1, phase="Running", started_at=1.0,
        pods=(), expires_at=expires_at,
    )  # fmt: skip


async def test_the_time_limit_counts_from_the_first_start_plus_extensions(
    store: Store, clock: Clock
) -> None:
    commands = JobCommands(store, clock=clock, random=os.urandom, enqueue=lambda _: None)
    plugin = ExpiryPlugin(make_context(control=commands))
    start = clock.now
    async with store.write() as transaction:
        record = make_record(started_at=start, allocated_seconds=100.0, state="RUNNING")
        await insert_job(transaction, record, labels={})
    # The next leader continues the count; a past defect restarted it with each extension.
    clock.now += 60
    seen = seen_of(expires_at=record.expires_at)
    assert await plugin.on_job_start("j1", seen) == start + 100
    await asyncio.gather(*(commands.extend("j1", seconds=30) for _ in range(2)))
    clock.now = start + 159
    assert await plugin.on_job_monitoring([seen]) == {"j1": start + 160}
    clock.now = start + 160
    assert await plugin.on_job_monitoring([seen]) == {"j1": None}
    async with store.read() as transaction:
        ending = await find_job(transaction, "j1")
    assert ending is not None
    assert (ending.desired, ending.end_state) == ("ended", "EXPIRED")
