"""Bugs that UCloud/Compute had, or may have had: each test says that this one is absent here.

docs/plugins/promises.md lists them all; those of others' pages are tested where their parts are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from prometheus_client import CollectorRegistry

from controller.jobs.cluster.informer import Indexer
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobFromServer, JobPlugin
from controller.jobs.reconcile.lifecycle import ObservedState
from controller.jobs.reconcile.monitoring import Monitoring
from controller.jobs.reconcile.reconciler import Reconciler
from controller.jobs.reconcile.workqueue import WorkQueue
from controller.jobs.usage.ledger import Ledger
from controller.metrics import ControllerMetrics
from controller.plugins.accounting import AccountingPlugin
from controller.store.database import Store
from controller.store.instance.leadership import raise_term
from controller.store.jobs.job_rows import find_job, insert_job
from controller.store.jobs.pods import upsert_pod_records
from controller.store.jobs.progress import record_attempt, set_due
from controller.store.outbox.usage_entries import usage_after
from controller.volcano.observed import ObservedJob
from tests.controller.conftest import Clock
from tests.controller.jobs.usage.test_amounts import run
from tests.controller.samples import (
    make_context,
    make_defaults,
    make_job,
    make_record,
    make_seen,
)


class Watched(JobPlugin):
    """Says when it was asked to look."""

    name: ClassVar[str] = "watched"
    looked: ClassVar[asyncio.Event]

    async def on_job_monitoring(
        self, job_batch: Sequence[JobFromServer]
    ) -> Mapping[str, float | None]:
        self.looked.set()
        return {one.job.id: None for one in job_batch}


class BusyCache:
    """A watch that tells of something all the time."""

    def __init__(self, changed: Any) -> None:
        self.jobs = Indexer[ObservedJob](changed)
        self._changed = changed
        self.told = 0

    async def run(self) -> None:
        while True:
            self._changed("j1")
            self.told += 1
            await asyncio.sleep(0)

    async def complete(self) -> None:
        """It is."""

    def job_ids(self) -> list[str]:
        return []


class Nothing:
    """Adopts nothing, and has nothing to see."""

    async def settle(self) -> None:
        """There is nothing to be settled."""

    async def observe(self, job_id: str) -> None:
        """See nothing of the job."""

    async def look_at(self, job_id: str) -> None:
        """Find nothing to adopt."""


async def test_a_busy_watch_does_not_starve_monitoring(store: Store, clock: Clock) -> None:
    # There, scheduled checks ran only after 30 s without an event.
    Watched.looked = asyncio.Event()
    async with store.write() as transaction:
        term = await raise_term(transaction)
        await insert_job(transaction, make_record(), labels={})
        await set_due(transaction, "j1", "watched", at=clock() - 1)

    async def observe(job_id: str) -> ObservedState | None:
        async with store.read() as transaction:
            record = await find_job(transaction, job_id)
        return None if record is None else make_seen(record)

    monitoring = Monitoring(
        store=store,
        term=term,
        pipeline=Pipeline([Watched(make_context())], instance="test", namespace="jobs"),
        observe=observe,
        show=lambda _: view(),
        clock=clock,
    )
    queue = WorkQueue(clock=asyncio.get_running_loop().time, random=lambda: 0.5)
    nothing: Any = Nothing()
    informer: Any = BusyCache(lambda job_id: queue.enqueue(job_id, "cluster"))
    reconciler = Reconciler(
        store=store,
        informer=informer,
        observer=nothing,
        actions=nothing,
        adoption=nothing,
        queue=queue,
        told=lambda _: None,
        metrics=ControllerMetrics(CollectorRegistry()),
        beside=(monitoring.run,),
    )
    tasks = [asyncio.create_task(one.run()) for one in (informer, reconciler)]
    try:
        async with asyncio.timeout(30):
            await Watched.looked.wait()
        before = informer.told
        await asyncio.sleep(0.05)
        assert informer.told > before, "the watch was not busy"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def view() -> JobFromServer:
    return JobFromServer(
        job=make_job(), namespace="jobs", uid="u", attempt=1, phase="Running", started_at=1000.0,
        pods=(),
    )  # fmt: skip


async def test_a_start_that_is_seen_again_resets_no_charge(store: Store, clock: Clock) -> None:
    # There, each new master set the time of the last charge to now, and what ran before was free.
    clock.now = 1000.0
    defaults = make_defaults(FUMAROLE_CONTROLLER_USAGE_PERIOD_SECONDS="100")
    plugin = AccountingPlugin(make_context(ledger=Ledger(store, defaults=defaults, clock=clock)))
    record = make_record(uid="u", state="RUNNING", started_at=1000.0)
    async with store.write() as transaction:
        await insert_job(transaction, record, labels={})
        await record_attempt(transaction, "j1", 1, uid="u", now=1000.0)
        await upsert_pod_records(transaction, [run(1000.0)])
    assert await plugin.on_job_start("j1", view()) == 1100.0
    for now, due in ((1090.0, 1100.0), (1250.0, 1300.0), (1299.0, 1300.0)):
        clock.now = now
        assert await plugin.on_job_start("j1", view()) == due
    assert await plugin.on_job_monitoring([view()]) == {"j1": 1300.0}
    async with store.read() as transaction:
        entries = await usage_after(transaction, 0, limit=9)
    charged = [(one.period, one.seconds, one.until) for one in entries]
    assert charged == [(0, 100.0, 1100.0), (1, 200.0, 1200.0)]
