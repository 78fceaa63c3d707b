"""Brings each job from what is to what should be, one step after another.

A key is a job's id. Whatever changed, the same is done: the job is observed once, in the store and
in the cache of the cluster; ``lifecycle`` decides a step; the step is done, and hands on the
observation where it has changed nothing else than what it wrote. Where it has, the job is enqueued
and observed anew. Nothing is done before store and cluster have been read whole.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.containment import Containment
from controller.jobs.pipeline.border import PluginFailed
from controller.jobs.reconcile.actions import Actions
from controller.jobs.reconcile.adoption import Adoption
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import Finish, RecordPods, Rest, Step, Submit
from controller.jobs.reconcile.observe import Observer
from controller.jobs.reconcile.owner_slots import Owner, OwnerSlots
from controller.jobs.reconcile.workqueue import Requeue, RequeueAfter, WorkQueue
from controller.kube.errors import KubeError
from controller.store.database import Store
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.instance import read_store_metadata
from controller.store.jobs.job_rows import JobRecord, changed_jobs, settled_jobs, unfinished_jobs
from controller.volcano.observed import ObservedPod
from shared.log import Outage

WORKERS: Final = 8
MOST_OF_OWNER: Final = 6
"""Of these, for the submissions of one owner."""
MOST_STEPS: Final = 20
"""On one observation; a job that wants more is enqueued, so that it cannot keep others waiting."""

LEAST_SECONDS: Final = 0.1
"""Between two looks at a job whose time has come."""

AT_ONCE: Final = 500
RESYNC_SECONDS: Final = 60.0
RESYNC_AT_ONCE: Final = 20
RESYNC_ROUND_SECONDS: Final = 600.0
"""In which all jobs are looked at, where a share of the time between these is enough for it."""
LEAST_RESYNC_SHARE: Final = 0.05
RESYNC_SHARE: Final = 0.25
"""Of the reconciler's time, for looks at what did not change."""
LONGEST_REST_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.5
"""How soon is noticed what another process wrote into the store, should nobody tell."""
STILL_SECONDS: Final = 300.0
"""Longer than any call of a worker may take."""
REST_SECONDS: Final = 0.02
"""After each look: many writes at once are looked at together."""

log = logging.getLogger(__name__)


class _StepMetrics(Protocol):
    def step_done(self, step: Step, seen: ObservedState, *, now: float) -> None: ...
    def step_failed(self, error: Exception) -> None: ...


class LogObserver:
    """Reads the logs of pods before these are gone; by itself, none."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Why logs are not stored now."""
        return ()

    def observe(
        self,
        record: JobRecord,
        pods: Sequence[ObservedPod],
        departed: Sequence[ObservedPod],
        written: Collection[str],
    ) -> None:
        """Begin to read what is to be read now; *written* are the pods that are written down."""

    def removal_waits_until(self, record: JobRecord) -> float | None:
        """Return until when pods of the job that have ended are to stay; None: for nothing."""

    def forget(self, job_id: str) -> None:
        """Take the job for gone."""


def rest_after(took: float, share: float) -> float:
    """Return for how many seconds a resync rests after a *share* of all jobs, which *took* so long.

    So that a round takes ten minutes, in no less than a twentieth of the time and no more than a
    quarter of it: few jobs are looked at more often, very many less often.
    """
    least, most = (took * (1 / part - 1) for part in (RESYNC_SHARE, LEAST_RESYNC_SHARE))
    rest = max(least, min(most, RESYNC_ROUND_SECONDS * share - took))
    # Where changes went first it took long, and says little about what it costs.
    return min(rest, LONGEST_REST_SECONDS)


class Reconciler:
    """Works on jobs until it is cancelled, as the leader.

    Args:
        observer: Observes a job in both.
        actions: Does a step.
        adoption: Deals with VolcanoJobs of ours that the store does not know.
        queue: Which jobs are to be looked at.
        told: Called with a job's id after something about it has changed.
        metrics: Counts what is done.
        logs: Told of each job that is looked at.
        beside: What else the leader does all the time, from when it may act.
        resync_per_second: How many jobs are looked at a second though nothing changed; None: as
            :func:`rest_after` says.
    """

    def __init__(
        self,
        *,
        store: Store,
        informer: InformerCache,
        observer: Observer,
        actions: Actions,
        adoption: Adoption,
        queue: WorkQueue,
        told: Callable[[str], None],
        metrics: _StepMetrics,
        logs: LogObserver | None = None,
        beside: Sequence[Callable[[], Awaitable[None]]] = (),
        resync_per_second: float | None = None,
    ) -> None:
        self._resync_per_second = resync_per_second
        self._store = store
        self._informer = informer
        self._observer = observer
        self._actions = actions
        self._adoption = adoption
        self._queue = queue
        self._told = told
        self._metrics = metrics
        self._logs = logs or LogObserver()
        self._beside = tuple(beside)
        self._contained = Containment("not looked at", metrics.step_failed)
        self._news = asyncio.Event()
        self._slots = OwnerSlots(MOST_OF_OWNER, lambda job_id: queue.enqueue(job_id, "waits"))
        self._unread = Outage(
            log, begins="the store cannot be read", ends="the store is read again"
        )
        self._moved_at: float | None = None

    def faults(self) -> tuple[str, ...]:
        """Return why this process is to be ended: jobs wait, and no worker does anything.

        Every call of a worker has a deadline: one that fails, since store or cluster are away, is
        something done. So nothing but a fault of ours stands still for so long.
        """
        since = self._moved_at
        still = 0.0 if since is None else time.monotonic() - since
        still = min(still, self._queue.waiting_seconds)
        if still < STILL_SECONDS:
            return ()
        return (f"jobs wait, and the reconciler has done nothing for {still:.0f} s",)

    @property
    def degraded(self) -> tuple[str, ...]:
        """Troubles of this process with which jobs go on all the same."""
        return self._logs.problems

    @property
    def parked(self) -> int:
        """How many jobs this version cannot go on with."""
        return self._observer.parked

    def _moves(self) -> None:
        self._moved_at = time.monotonic()

    async def run(self) -> None:
        """Work; returns only by an error that ends this process' leadership."""
        async with asyncio.TaskGroup() as tasks:
            await self._informer.complete()
            await self._adoption.settle()
            since = await self._begin()
            tasks.create_task(self._resync())
            tasks.create_task(self._poll(since))
            for other in self._beside:
                tasks.create_task(_running(other))
            for _ in range(WORKERS):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            self._moves()
            key = await self._queue.take()
            try:
                requeue = await self.reconcile(key)
            except LeadershipLost:
                raise
            except (KubeError, StoreUnavailable, PluginFailed) as error:
                self._try_again(key, error)
            except Exception as error:
                # One job that cannot be dealt with must not be the end of all others.
                self._metrics.step_failed(error)
                log.exception("reconciling failed", extra={"job": key})
                self._queue.failed(key, at_least=5.0)
            else:
                self._queue.done(key)
                if requeue is not None:
                    self._queue.enqueue(key, requeue.reason, after=requeue.after)

    def _try_again(self, key: str, error: Exception) -> None:
        asked = getattr(error, "retry_after_seconds", None) or 0.0
        self._metrics.step_failed(error)
        pause = self._queue.failed(key, at_least=asked)
        log.warning(
            "a step failed and is tried again",
            extra={"job": key, "why": str(error), "in_seconds": round(pause, 1)},
        )

    async def reconcile(self, job_id: str) -> Requeue | None:
        """Observe the job once and do what follows; return when to look again, if not None.

        Raises:
            LeadershipLost: Nothing may be done any more.
            KubeError, StoreUnavailable, PluginFailed: The same is to be tried again.
        """
        seen = await self._observer.observe(job_id)
        if seen is None:
            self._logs.forget(job_id)
            self._slots.forget(job_id)
            await self._adoption.look_at(job_id)
            return None
        for run in seen.ending_runs:
            self._queue.enqueue(run, "cluster")
        self._tell(seen.record)
        for _ in range(MOST_STEPS):
            self._moves()
            step = self._decide(seen)
            if isinstance(step, Rest):
                return _soonest(seen.again_in, step.until, seen.now)
            try:
                after = await self._do(step, seen)
            except RequeueAfter as later:
                return Requeue(later.seconds, "waits")
            finally:
                self._told(job_id)
                self._tell(seen.record)
            self._metrics.step_done(step, seen, now=time.time())
            if seen.record.tool is not None and isinstance(step, Finish):
                # Another run may follow.
                self._queue.enqueue(seen.record.tool["job"], "step")
            if after is None:
                if isinstance(step, RecordPods):
                    self._see_those_that_left(seen)
                break
            seen = after
        return Requeue(0.0, "step")

    def _decide(self, seen: ObservedState) -> Step:
        self._logs.observe(seen.record, seen.pods, seen.departed, seen.runs)
        logs_until = self._logs.removal_waits_until(seen.record)
        step = decide(seen if logs_until is None else replace(seen, logs_until=logs_until))
        if not isinstance(step, Submit):
            self._slots.forget(seen.record.id)
        return step

    async def _do(self, step: Step, seen: ObservedState) -> ObservedState | None:
        record = seen.record
        try:
            if not isinstance(step, Submit):
                return await self._actions.do(step, seen)
            # One owner's submissions leave workers to everybody else.
            with self._slots.take(_owner_of(record), record.id):
                return await self._actions.do(step, seen)
        except KubeError as error:
            await self._actions.tell_refusal(step, record, error)
            raise

    def _tell(self, record: JobRecord) -> None:
        """Have the sessions looked at that lead to a tool, if *record* is of one: its job's."""
        if record.tool is not None:
            self._told(record.tool["job"])

    def _see_those_that_left(self, seen: ObservedState) -> None:
        """Have logs read of pods that were written down just now, as they had gone already.

        Another look shows them no more.
        """
        left = {pod.uid for pod in seen.own(seen.departed)}
        self._logs.observe(seen.record, seen.pods, seen.departed, {*seen.runs, *left})

    async def _begin(self) -> int:
        """Have everything looked at once; return the store's revision before that."""
        while True:
            try:
                # Before all are read: what comes meanwhile is seen by one of the two.
                since = await self._revision()
                await self._add_all()
            except StoreUnavailable as error:
                self._unread.failed(error)
                await asyncio.sleep(POLL_SECONDS)
            else:
                self._unread.passed()
                return since

    async def _add_all(self) -> None:
        """Have everything looked at once; what changes overtakes it."""
        async with self._store.read() as transaction:
            found = dict.fromkeys(await unfinished_jobs(transaction))
        for job_id in found | dict.fromkeys(self._informer.job_ids()):
            self._queue.enqueue(job_id, "resync")

    async def _unsettled(self) -> list[str]:
        """Return the jobs that something may have to be done for.

        Those that are over, and only wait for Volcano to remove them, are not among them: there
        may be thousands.
        """
        async with self._store.read() as transaction:
            found = dict.fromkeys(await unfinished_jobs(transaction))
        seen = self._informer.jobs.job_ids()
        for start in range(0, len(seen), AT_ONCE):
            some, settled = seen[start : start + AT_ONCE], set[str]()
            # Where that cannot be read, each of them is looked at.
            with self._contained.of(f"jobs from {some[0]}"):
                async with self._store.read() as transaction:
                    settled = await settled_jobs(transaction, some)
            found |= dict.fromkeys(job_id for job_id in some if job_id not in settled)
        return list(found)

    async def _resync(self) -> None:
        """Look at everything now and then, a few at a time: whatever was missed ends here."""
        while True:
            await asyncio.sleep(RESYNC_SECONDS)
            unsettled: Sequence[str] = ()
            try:
                with self._contained.of("all jobs"):
                    unsettled = await self._unsettled()
            except StoreUnavailable as error:
                log.warning("the store cannot be read", extra={"why": str(error)})
            for start in range(0, len(unsettled), RESYNC_AT_ONCE):
                some = unsettled[start : start + RESYNC_AT_ONCE]
                await self._look_at_some(some, len(some) / len(unsettled))

    async def _look_at_some(self, job_ids: Sequence[str], share: float) -> None:
        """Have the jobs, this *share* of all, looked at; return when it is time for others."""
        began = time.monotonic()
        for job_id in job_ids:
            self._queue.enqueue(job_id, "resync")
        await self._queue.background_done()
        took = time.monotonic() - began
        if self._resync_per_second is None:
            await asyncio.sleep(rest_after(took, share))
        else:
            await asyncio.sleep(max(0.0, len(job_ids) / self._resync_per_second - took))

    def look_at_store(self) -> None:
        """Have looked, at once, at what another process has written."""
        self._news.set()

    async def _poll(self, since: int) -> None:
        """Notice jobs that an API in another process was asked for, or to end."""
        seen = since
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._news.wait()
            self._news.clear()
            changed: Sequence[str] = ()
            try:
                with self._contained.of("what was written"):
                    async with self._store.read() as transaction:
                        changed, seen = await changed_jobs(transaction, after=seen)
                self._unread.passed()
            except StoreUnavailable as error:
                self._unread.failed(error)
            for job_id in changed:
                # Who is to be let in no more must not wait until a worker has the time.
                with self._contained.of(f"job {job_id}"):
                    self._told(job_id)
                self._queue.enqueue(job_id, "store")
            await asyncio.sleep(REST_SECONDS)

    async def _revision(self) -> int:
        async with self._store.read() as transaction:
            return (await read_store_metadata(transaction)).revision


def _owner_of(record: JobRecord) -> Owner:
    """Return whose the job is: its project's, or its user's where it has none."""
    return (
        ("project", record.owner_project) if record.owner_project else ("user", record.owner_user)
    )


def _soonest(again_in: float | None, until: float | None, now: float) -> Requeue | None:
    """Return when a job is looked at though nothing changes; None: it is not."""
    times = [again_in, None if until is None else max(LEAST_SECONDS, until - now)]
    known = [seconds for seconds in times if seconds is not None]
    return Requeue(min(known), "due") if known else None


async def _running(work: Callable[[], Awaitable[None]]) -> None:
    await work()
