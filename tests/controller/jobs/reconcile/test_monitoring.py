from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import pytest
from prometheus_client import CollectorRegistry

from controller.jobs.cluster.informer import Indexer
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobFromServer, JobPlugin
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.monitoring import AGAIN_SECONDS, Monitoring
from controller.jobs.reconcile.reconciler import Reconciler, ReconcilerMetrics
from controller.jobs.reconcile.workqueue import WorkQueue
from controller.store.database import Store
from controller.store.instance import Mode, raise_term, set_maintenance
from controller.store.jobs.job_rows import find_job, insert_job, update_job
from controller.store.jobs.progress import due_jobs, set_due
from controller.volcano.observed import ObservedJob
from tests.clock import Clock
from tests.controller.samples import (
    forget_jobs,
    make_context,
    make_job,
    make_observed_state,
    make_record,
)

HELD: list[bool] = []


class Counting(JobPlugin):
    """A plugin that asks to see each job again after a given number of seconds."""

    name: ClassVar[str] = "counting"
    batches: ClassVar[list[list[str]]] = []
    answer: ClassVar[Any] = None

    async def on_job_monitoring(
        self, job_batch: Sequence[JobFromServer]
    ) -> Mapping[str, float | None]:
        self.batches.append([one.job.id for one in job_batch])
        if isinstance(self.answer, Exception):
            raise self.answer
        return {one.job.id: self.answer for one in job_batch}


@pytest.fixture
async def monitoring(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Monitoring:
    monkeypatch.setattr(Counting, "batches", [])
    monkeypatch.setattr(Counting, "answer", None)
    async with store.write() as transaction:
        term = await raise_term(transaction)
        for job_id in ("a", "b", "c"):
            await insert_job(transaction, make_record(id=job_id), labels={})

    async def observe(job_id: str) -> ObservedState | None:
        async with store.read() as transaction:
            record = await find_job(transaction, job_id)
        return None if record is None else make_observed_state(record)

    def show(seen: ObservedState) -> JobFromServer:
        return JobFromServer(
            job=make_job(id=seen.record.id), namespace="jobs", uid="", attempt=1, phase="",
            started_at=None, pods=(),
        )  # fmt: skip

    pipeline = Pipeline([Counting(make_context())], instance="test", namespace="jobs")
    return Monitoring(
        store=store.fenced(term),
        pipeline=pipeline,
        observe=observe,
        show=show,
        looked_until=clock,
        held=HELD.append,
        clock=clock,
        failed=print,
    )


async def look(monitoring: Monitoring, store: Store, clock: Clock) -> None:
    """Run monitoring until nothing is due."""
    looking = asyncio.create_task(monitoring.run())
    async with asyncio.timeout(30):
        while await all_due(store, clock()) and not looking.done():
            await asyncio.sleep(0.01)
    looking.cancel()
    with suppress(asyncio.CancelledError):
        await looking


async def all_due(store: Store, now: float) -> dict[str, list[str]]:
    async with store.read() as transaction:
        return await due_jobs(transaction, now=now, limit=99)


async def due_at(store: Store, clock: Clock, seconds: float) -> list[str]:
    return (await all_due(store, clock() + seconds)).get("counting", [])


async def make_due(store: Store, clock: Clock, *ids: str, plugin: str = "counting") -> None:
    async with store.write() as transaction:
        for place, job_id in enumerate(ids):
            await set_due(transaction, job_id, plugin, at=clock() - 10 + place)


@pytest.mark.parametrize("mode", ["running", "paused", "draining"])
async def test_whether_maintenance_holds_submission_is_reported(
    monitoring: Monitoring, store: Store, clock: Clock, mode: Mode
) -> None:
    async with store.write() as transaction:
        await set_maintenance(transaction, mode, None, now=clock())
    HELD.clear()
    await make_due(store, clock, "a")
    await look(monitoring, store, clock)
    assert [mode != "running"] == HELD


async def test_due_jobs_are_delivered_in_one_batch_and_once(
    monitoring: Monitoring, store: Store, clock: Clock
) -> None:
    await make_due(store, clock, "b", "a")
    await look(monitoring, store, clock)
    assert Counting.batches == [["b", "a"]]
    assert await due_at(store, clock, 10**9) == []


async def test_a_plugin_receives_a_job_at_its_requested_time(
    monitoring: Monitoring, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "answer", clock() + 500)
    await make_due(store, clock, "a")
    await look(monitoring, store, clock)
    assert await due_at(store, clock, 499) == []
    assert await due_at(store, clock, 500) == ["a"]


async def test_a_job_that_ends_during_monitoring_is_not_due_again(
    monitoring: Monitoring, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ends(_: object, job_batch: Sequence[JobFromServer]) -> Mapping[str, float | None]:
        async with store.write() as transaction:
            record = await find_job(transaction, "a")
            assert record is not None
            over = {"state": "SUCCESS", "outcome": "SUCCESS", "finished_at": 1.0}
            await update_job(transaction, record, now=1.0, **over)
            record = await find_job(transaction, "b")
            assert record is not None
            await update_job(transaction, record, now=1.0, **over | {"finished_at": 3.0})
            # The first job no longer has a record.
            assert await forget_jobs(transaction, finished_before=2.0, limit=9) == 1
        return {one.job.id: clock() + 500 for one in job_batch}

    monkeypatch.setattr(Counting, "on_job_monitoring", ends)
    await make_due(store, clock, "a", "b", "c")
    await look(monitoring, store, clock)
    assert await due_at(store, clock, 10**9) == ["c"]


@pytest.mark.parametrize("failure", [ZeroDivisionError(), None])
async def test_a_job_without_result_or_with_failure_is_due_again(
    monitoring: Monitoring,
    store: Store,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception | None,
) -> None:
    if failure is not None:
        monkeypatch.setattr(Counting, "answer", failure)
    else:
        monkeypatch.setattr(Counting, "on_job_monitoring", _forgets)
    await make_due(store, clock, "a")
    await look(monitoring, store, clock)
    assert await due_at(store, clock, AGAIN_SECONDS - 1) == []
    assert await due_at(store, clock, AGAIN_SECONDS) == ["a"]


async def _forgets(_self: Any, _batch: Any) -> dict[str, float | None]:
    return {}


async def test_an_ended_or_deleted_job_is_not_monitored(
    monitoring: Monitoring, store: Store, clock: Clock
) -> None:
    await make_due(store, clock, "a", "b")
    async with store.write() as transaction:
        await update_job(transaction, make_record(id="a"), now=1.0, outcome="SUCCESS")
    await look(monitoring, store, clock)
    assert Counting.batches == [["b"]]
    assert await due_at(store, clock, 10**9) == []


async def test_a_removed_plugin_blocks_no_job(
    monitoring: Monitoring, store: Store, clock: Clock
) -> None:
    await make_due(store, clock, "a", plugin="gone")
    await look(monitoring, store, clock)
    assert await all_due(store, 10**12) == {}


async def test_a_full_batch_is_followed_by_the_next_at_once(
    monitoring: Monitoring, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.jobs.reconcile.monitoring.BATCH", 2)
    await make_due(store, clock, "a", "b", "c")
    monkeypatch.setattr("controller.jobs.reconcile.monitoring.LOOK_SECONDS", 3600.0)
    await look(monitoring, store, clock)
    assert Counting.batches == [["a", "b"], ["c"]]


class HangingPlugin(JobPlugin):
    """A plugin whose hook never returns."""

    name: ClassVar[str] = "stuck"

    async def on_job_monitoring(
        self, job_batch: Sequence[JobFromServer]
    ) -> Mapping[str, float | None]:
        await asyncio.Event().wait()
        return {}


async def test_a_hanging_plugin_delays_no_other_plugin(
    monitoring: Monitoring, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(
        [HangingPlugin(make_context()), Counting(make_context())], instance="test", namespace="jobs"
    )
    monkeypatch.setattr(monitoring, "_pipeline", pipeline)
    await make_due(store, clock, "a", "b", plugin="stuck")
    looking = asyncio.create_task(monitoring.run())
    async with asyncio.timeout(30):
        for number in (1, 2):
            await make_due(store, clock, "c")
            while len(Counting.batches) < number or "counting" in await all_due(store, clock()):
                await asyncio.sleep(0.01)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    assert await all_due(store, clock()) == {"stuck": ["a", "b"]}


class BusyCache:
    """A cache whose watch delivers events all the time."""

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
        """Return at once: the cache is complete."""

    def job_ids(self) -> list[str]:
        return []


class IdleObserver:
    """An adoption and observer that find nothing."""

    async def settle(self) -> None:
        """Return at once: nothing has to be settled."""

    async def observe(self, job_id: str) -> None:
        """Observe nothing of the job."""

    async def look_at(self, job_id: str) -> None:
        """Find nothing to adopt."""


async def test_a_busy_watch_does_not_starve_monitoring(
    monitoring: Monitoring, store: Store, clock: Clock
) -> None:
    # In UCloud/Compute scheduled checks ran only after 30 s without an event.
    await make_due(store, clock, "a")
    queue = WorkQueue(clock=asyncio.get_running_loop().time, random=lambda: 0.5)
    nothing: Any = IdleObserver()
    informer: Any = BusyCache(lambda job_id: queue.enqueue(job_id, "cluster"))
    reconciler = Reconciler(
        store=store,
        informer=informer,
        observer=nothing,
        actions=nothing,
        adoption=nothing,
        queue=queue,
        job_changed=lambda _: None,
        metrics=ReconcilerMetrics(CollectorRegistry()),
        background=(monitoring.run,),
    )
    tasks = [asyncio.create_task(one.run()) for one in (informer, reconciler)]
    try:
        async with asyncio.timeout(30):
            while not Counting.batches:
                await asyncio.sleep(0.01)
        before = informer.told
        await asyncio.sleep(0.05)
        assert informer.told > before, "the watch was not busy"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
