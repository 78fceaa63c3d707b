"""Tests that due times hold under load: within two seconds, as the docs promise."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any, Final, cast

import pytest_asyncio

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.reconcile.monitoring import Monitoring
from controller.jobs.reconcile.observe import Observer
from controller.jobs.reconcile.workqueue import WorkQueue
from controller.jobs.submission.commands import JobCommands
from controller.plugins.expiry import ExpiryPlugin
from controller.store.database import Store
from controller.store.instance import raise_revision, raise_term, set_maintenance
from controller.store.jobs.job_rows import JobRecord, insert_jobs
from controller.store.jobs.progress import set_due
from controller.store.outbox.update_rows import updates_of
from tests.controller.jobs.parts import Parts, make_parts
from tests.controller.samples import make_context, make_record
from tests.overruns import overruns

PROMISED: Final = 2.0
WORKERS: Final = 8
JOBS: Final = 1000


class World:
    """A leader's components over a store, and the load that keeps them busy."""

    def __init__(self, store: Store, parts: Parts, monitoring: Monitoring) -> None:
        self.store = store
        self.parts = parts
        self.monitoring = monitoring
        self.queue = WorkQueue(clock=time.monotonic, random=lambda: 0.5)
        self.looks = 0

    async def reconcile(self) -> None:
        """Reconcile as the reconciler does, with jobs whose watch always delivers events."""
        while True:
            key = await self.queue.take()
            await self.parts.reconciler.reconcile(key)
            self.looks += 1
            self.queue.done(key)
            self.queue.enqueue(key, "asked")

    async def write(self) -> None:
        """Write to the store all the time, as the API does."""
        while True:
            async with self.store.write() as transaction:
                await raise_revision(transaction)


@pytest_asyncio.fixture
async def world(store: Store) -> AsyncIterator[World]:
    kube = cast(Any, None)
    commands = JobCommands(store, clock=time.time, random=os.urandom, enqueue=lambda _job: None)
    plugins = [ExpiryPlugin(make_context(control=commands))]
    pipeline = Pipeline(plugins, instance="test", namespace="jobs")
    async with store.write() as transaction:
        term = await raise_term(transaction)
        # Paused, so that nothing is submitted: observing is what a burst of waiting jobs costs.
        await set_maintenance(transaction, "paused", None, now=time.time())
    informer = InformerCache(kube, instance="test", changed=lambda _job: None)
    parts = make_parts(
        kube=kube,
        store=store,
        term=term,
        informer=informer,
        pipeline=pipeline,
        instance="test",
    )
    monitoring = Monitoring(
        store=store.fenced(term),
        pipeline=pipeline,
        observe=Observer(store, informer, pipeline).observe,
        show=parts.actions.view_of,
        looked_until=time.time,
        held=lambda _held: None,
        clock=time.time,
        failed=print,
    )
    yield World(store, parts, monitoring)


def made(job_id: str, **fields: Any) -> JobRecord:
    return make_record(id=job_id, spec={**make_record().spec, "id": job_id}, **fields)


async def start(store: Store, *ids: str, over_in: float) -> None:
    """Insert running jobs whose time is over in *over_in* seconds."""
    now = time.time()
    fields: dict[str, Any] = {"state": "RUNNING", "uid": "u", "started_at": now - 60}
    running = [made(one, allocated_seconds=60 + over_in, **fields) for one in ids]
    async with store.write() as transaction:
        await insert_jobs(transaction, [(record, {}) for record in running])
        for record in running:
            await set_due(transaction, record.id, "expiry", at=now + over_in)


async def lateness(world: World, job_id: str) -> float:
    """Return the seconds between the end of the job's time and the decision to end it."""
    async with asyncio.timeout(60):
        while (record := await world.parts.record(job_id)).desired != "ended":
            await asyncio.sleep(0.05)
    return await _decided(world, record) - (record.expires_at or 0.0)


async def _decided(world: World, record: JobRecord) -> float:
    async with world.store.read() as transaction:
        updates = await updates_of(transaction, record.id)
    return next(one.at for one in updates if one.state == "CANCELING")


async def test_a_time_limit_is_enforced_while_a_thousand_jobs_are_reconciled(world: World) -> None:
    waiting = [made(f"j{number}") for number in range(JOBS)]
    async with world.store.write() as transaction:
        await insert_jobs(transaction, [(record, {}) for record in waiting])
    for record in waiting:
        world.queue.enqueue(record.id, "asked")
    # Only now: inserting a thousand jobs may take longer than this job's time.
    await start(world.store, "short", over_in=2.0)
    async with overruns() as machine, asyncio.TaskGroup() as tasks:
        busy = [tasks.create_task(world.reconcile()) for _ in range(WORKERS)]
        busy += [tasks.create_task(one()) for one in (world.write, world.monitoring.run)]
        late = await lateness(world, "short")
        for task in busy:
            task.cancel()
    assert world.looks > WORKERS, "nothing kept it busy"
    assert 0 <= late < PROMISED + machine.longest


async def test_jobs_that_expired_during_a_downtime_end_at_once(world: World) -> None:
    ids = [f"j{number}" for number in range(150)]
    await start(world.store, *ids, over_in=-3600.0)
    began = time.time()
    async with overruns() as machine, asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(world.monitoring.run())
        for job_id in ids:
            await lateness(world, job_id)
        looking.cancel()
    last = max([await _decided(world, await world.parts.record(job_id)) for job_id in ids])
    assert last - began < PROMISED + machine.longest
