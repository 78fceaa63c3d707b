"""Provides the controller's job components over a cluster and a store, and crash points."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.cluster.prerequisites import Prerequisites
from controller.jobs.cluster.priorities import PriorityValues
from controller.jobs.history.job_record import JobRecords
from controller.jobs.pipeline.border import HookRecorder
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.reconcile.actions import Actions
from controller.jobs.reconcile.adoption import Adoption
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import Step
from controller.jobs.reconcile.observe import Observer
from controller.jobs.reconcile.plugin_calls import PluginCalls
from controller.jobs.reconcile.reconciler import Reconciler, ReconcilerMetrics
from controller.jobs.reconcile.workqueue import WorkQueue
from controller.jobs.spec.accepted import Vault
from controller.jobs.spec.model import Job
from controller.jobs.submission.accept import Submissions
from controller.jobs.submission.commands import JobCommands
from controller.kube.client import Kube
from controller.kube.kinds import VCJOBS
from controller.site.job_defaults import JobDefaults
from controller.store.database import Store, Transaction
from controller.store.errors import StoreUnavailable
from controller.store.jobs.job_rows import JobRecord, find_job, oldest_jobs
from tests.controller.samples import make_defaults

LINK_KEY = os.urandom(32)
PAUSE_SECONDS, LONG_PAUSE_SECONDS = 0.05, 0.25
T = TypeVar("T")


class Crash(BaseException):
    """Simulates the death of the process at this point."""


class Tripwire:
    """Counts calls that leave the process, and raises ``Crash`` at one of them.

    A call has two crash points: before it, and after its effect but before its response.
    """

    def __init__(self, at: int | None = None) -> None:
        self.points: list[str] = []
        self._at = at

    def pass_by(self, point: str) -> None:
        """Raise ``Crash`` if this is the chosen point."""
        self.points.append(point)
        if len(self.points) - 1 == self._at:
            raise Crash(point)


class TrippedKube:
    """A client that passes a tripwire around each call, and records in *made* what it creates."""

    # These are made of several calls, each of which passes the tripwire.
    ensure_deleted = Kube.ensure_deleted
    unless_gone = Kube.unless_gone
    unless_going = Kube.unless_going

    def __init__(self, kube: Kube, wire: Tripwire, made: Mapping[str, set[str]]) -> None:
        self._kube = kube
        self._wire = wire
        self._made = made

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._kube, name)

        async def call(*args: Any, **options: Any) -> Any:
            self._wire.pass_by(f"before {name}")
            response = await real(*args, **options)
            if name == "create" and args[0] == VCJOBS:
                self._made[response["metadata"]["name"]].add(response["metadata"]["uid"])
            self._wire.pass_by(f"after {name}")
            return response

        return call


class TrippedStore(Store):
    """A store that passes a tripwire around each transaction.

    Stores that stand for separate processes take turns to write, without blocking a thread of this
    process: the writer needs a thread to commit in.
    """

    def __init__(self, url: str, wire: Tripwire, turn: asyncio.Lock) -> None:
        super().__init__(url)
        self._writing = turn
        self._wire = wire

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Transaction]:
        self._wire.pass_by("before write")
        async with super().write() as transaction:
            yield transaction
        self._wire.pass_by("after write")

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Transaction]:
        self._wire.pass_by("before read")
        async with super().read() as transaction:
            yield transaction
        self._wire.pass_by("after read")


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of *call*, repeated while the store is busy: repeating is safe."""
    for _ in range(5):
        with suppress(StoreUnavailable):
            return await call()
    return await call()


class CheckedActions(Actions):
    """Actions that check each handed-on observation against a fresh one."""

    observer: Observer

    async def do(self, step: Step, seen: ObservedState) -> ObservedState | None:
        after = await super().do(step, seen)
        if after is not None:
            fresh = await self.observer.observe(seen.record.id)
            assert fresh is not None, step
            assert after.record == fresh.record, step
            assert (after.runs, after.timers) == (fresh.runs, fresh.timers), step
            # Whether hooks are known depends on the cluster, which may have changed meanwhile.
            both = after.knows_hooks and fresh.knows_hooks
            assert not both or after.hooks == fresh.hooks, step
        return after


@dataclass
class Parts:
    """A reconciler whose steps the test runs itself."""

    store: Store
    reconciler: Reconciler
    actions: Actions
    adoption: Adoption
    submissions: Submissions
    commands: JobCommands
    term: int
    calls: PluginCalls

    async def record(self, job_id: str) -> JobRecord:
        async with self.store.read() as transaction:
            record = await find_job(transaction, job_id)
        assert record is not None
        return record

    async def submit(self, *jobs: Job) -> None:
        results = await patiently(lambda: self.submissions.submit(jobs, "atomic"))
        assert [one.result for one in results] == ["created"] * len(jobs), results

    async def drive(self, job_id: str, until: Callable[[JobRecord], bool]) -> JobRecord:
        """Reconcile until the record satisfies *until*, with pauses for the cluster to proceed."""
        deadline, before, changed_at = time.monotonic() + 150, None, time.monotonic()
        while not until(record := await self.record(job_id)):
            now = time.monotonic()
            assert now < deadline, record
            before, changed_at = record, changed_at if record == before else now
            # Each pass uses much of the CPU time that the cluster needs to proceed.
            pause = PAUSE_SECONDS if now - changed_at < 1 else LONG_PAUSE_SECONDS
            await self.look(job_id, tools=record.tools > 0, pause=pause)
        return record

    async def look(self, job_id: str, *, tools: bool, pause: float = PAUSE_SECONDS) -> None:
        """Reconcile the job and its tools once, then pause for the cluster to proceed."""
        # The reconciler also retries: a store with many users can be busy.
        with suppress(StoreUnavailable):
            await self.reconciler.reconcile(job_id)
            for run in await self.runs_of(job_id) if tools else ():
                await self.reconciler.reconcile(run.id)
        await asyncio.sleep(pause)

    async def runs_of(self, job_id: str) -> list[JobRecord]:
        """Return every run of the job's tools."""
        async with self.store.read() as transaction:
            every = await oldest_jobs(transaction, after=(0.0, ""), limit=10**6)
        return [one for one in every if one.tool is not None and one.tool["job"] == job_id]

    async def drive_to_the_end(self, job_id: str) -> JobRecord:
        return await self.drive(job_id, lambda record: record.is_final)


def make_parts(
    *,
    kube: Any,
    store: Store,
    informer: InformerCache,
    pipeline: Pipeline,
    term: int,
    instance: str,
    evictions_allowed: int = 0,
    defaults: JobDefaults | None = None,
    checked: bool = True,
) -> Parts:
    """Wire all parts as the process does; *checked* also checks each handed-on observation."""
    vault = Vault([LINK_KEY])
    queue = WorkQueue(clock=time.monotonic, random=random.random)
    calls = PluginCalls(lambda job_id: queue.enqueue(job_id, "plugin"))
    cluster = JobObjects(kube, instance=instance)
    # A check is not a product call, so it must not count as a crash point.
    checked = checked and not isinstance(store, TrippedStore)
    actions = (CheckedActions if checked else Actions)(
        JobRecords(store.fenced(term), vault=vault, clock=time.time),
        pipeline=pipeline,
        cluster=cluster,
        prerequisites=Prerequisites(kube, instance=instance, clock=time.monotonic),
        priorities=PriorityValues(kube, clock=time.monotonic),
        recorder=HookRecorder(store.fenced(term), clock=time.time),
        calls=calls,
    )
    adoption = Adoption(
        store=store.fenced(term),
        kube=kube,
        informer=informer,
        cluster=cluster,
        instance=instance,
        namespace="jobs",
        defaults=make_defaults(),
        clock=time.time,
    )
    observer = Observer(
        store, informer, pipeline, evictions_allowed=evictions_allowed, is_busy=calls.is_busy
    )
    if isinstance(actions, CheckedActions):
        actions.observer = Observer(store, informer, pipeline, evictions_allowed=evictions_allowed)
    reconciler = Reconciler(
        store=store,
        informer=informer,
        observer=observer,
        actions=actions,
        adoption=adoption,
        queue=queue,
        job_changed=lambda _job: None,
        metrics=ReconcilerMetrics(CollectorRegistry()),
    )
    submissions = Submissions(
        store=store,
        pipeline=pipeline,
        vault=vault,
        defaults=defaults or make_defaults(),
        clock=time.time,
        random=os.urandom,
        enqueue=lambda _job: None,
    )
    commands = JobCommands(store, clock=time.time, random=os.urandom, enqueue=lambda _job: None)
    return Parts(store, reconciler, actions, adoption, submissions, commands, term, calls)


@asynccontextmanager
async def running_informer(kube: Kube, instance: str) -> AsyncIterator[InformerCache]:
    """Yield an informer's cache that has read the cluster, and follows it."""
    informer = InformerCache(kube, instance=instance, changed=lambda _job: None)
    watching = asyncio.create_task(informer.run())
    await informer.complete()
    yield informer
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
