"""Reconciles jobs: observes each, decides one step after another, and does it.

A key of the work queue is a job's id, and every change enqueues the same key. A worker observes the
job once, in the store and in the informer's cache. ``lifecycle`` decides a step from that
observation, and ``actions`` does it. A step that changed nothing but its own writes hands on the
observation for the next step. After any other step the job is enqueued and observed anew.

No job is reconciled before the store and the cluster have both been read completely.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client import Counter as MetricCounter

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.containment import Containment
from controller.jobs.history.job_record import JobEvent, State
from controller.jobs.pipeline.border import PluginFailed
from controller.jobs.reconcile.actions import Actions
from controller.jobs.reconcile.adoption import Adoption
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import (
    PUBLISHED_STEPS,
    Finish,
    RecordPods,
    Step,
    Submit,
    UpdateStatus,
    Wait,
)
from controller.jobs.reconcile.observe import LogObserver, Observer
from controller.jobs.reconcile.sources import JobSources
from controller.jobs.reconcile.workqueue import Reason, Requeue, RequeueAfter, WorkQueue
from controller.jobs.spec.accepted import owner_of
from controller.jobs.spec.model import OwnerKey
from controller.kube.errors import KubeError
from controller.store.database import Store
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.jobs.job_rows import JobRecord

WORKERS: Final = 8
SUBMISSIONS_PER_OWNER: Final = 6
"""The maximum number of workers that the submissions of one owner use at a time."""
MOST_STEPS: Final = 20
"""The maximum number of steps on one observation. A job that needs more is enqueued, so that other
jobs get a worker.
"""
LEAST_SECONDS: Final = 0.1
"""The shortest time after which a due job is reconciled again."""
STALL_SECONDS: Final = 300.0
"""Longer than any call of a worker may take."""
SLOT_SECONDS: Final = 60.0
"""The pause before a job without a submission slot is reconciled again, if no slot becomes free
earlier.
"""

log = logging.getLogger(__name__)

_AGE_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)


class ReconcilerMetrics:
    """Metrics of the reconciler."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(MetricCounter, registry=registry)
        histogram = partial(Histogram, buckets=_AGE_SECONDS, registry=registry)
        self._registry = registry
        self._steps = counter("fumarole_controller_steps", "Completed steps of jobs", ["step"])
        self._enqueued = counter(
            "fumarole_controller_enqueued",
            "Jobs added to the work queue, by reason",
            ["reason"],
        )
        self._failures = counter(
            "fumarole_controller_failures", "Failed steps, which are retried, by error", ["error"]
        )
        self._submitting = histogram(
            "fumarole_controller_submit_seconds",
            "Seconds from a job's acceptance to its VolcanoJob",
        )
        self._starting = histogram(
            "fumarole_controller_start_seconds", "Seconds from a job's acceptance to its first run"
        )
        self._held = Gauge(
            "fumarole_controller_submission_held",
            "1 while maintenance holds submission; the value of the leader counts",
            registry=registry,
        )

    def watch(
        self,
        *,
        queued: Callable[[], int],
        routes: Callable[[], int],
        leads: Callable[[], bool],
        parked: Callable[[], int] = int,
        unfollowed: Callable[[], int] = int,
    ) -> None:
        """Register gauges whose values these functions return."""
        for name, text, read in (
            ("fumarole_controller_queue", "Jobs in the work queue", queued),
            ("fumarole_controller_routes", "Published routes", routes),
            ("fumarole_controller_leads", "1 while this process leads", leads),
            (
                "fumarole_controller_parked_jobs",
                "Jobs that this version of the controller cannot process",
                parked,
            ),
            (
                "fumarole_controller_unfollowed_kinds",
                "Kinds of objects that cannot be watched now",
                unfollowed,
            ),
        ):
            gauge = Gauge(name, text, registry=self._registry)
            gauge.set_function(read)

    def submission_held(self, held: bool) -> None:
        """Record whether maintenance holds submission."""
        self._held.set(held)

    def job_enqueued(self, reason: Reason) -> None:
        """Count an addition to the work queue."""
        self._enqueued.labels(reason).inc()

    def step_done(self, step: Step, seen: ObservedState, *, now: float) -> None:
        """Count a completed step."""
        name = type(step).__name__
        self._steps.labels(PUBLISHED_STEPS.get(name, name)).inc()
        age = max(0.0, now - seen.record.created_at)
        if isinstance(step, Submit):
            self._submitting.observe(age)
        begins = seen.record.state != State.RUNNING
        if isinstance(step, UpdateStatus) and step.event is JobEvent.STARTED and begins:
            self._starting.observe(age)

    def step_failed(self, error: Exception) -> None:
        """Count a failed step."""
        self._failures.labels(type(error).__name__).inc()


class OwnerSlots:
    """Limits how many submissions of one owner run at once.

    Without it, the submissions of an owner with hundreds of jobs would occupy all workers, and the
    jobs of other owners would wait for the last of them. Slots are given in the order of requests.

    Args:
        most: Slots of each owner.
        enqueue: Enqueues a job, which then requests a slot again.
    """

    def __init__(self, most: int, enqueue: Callable[[str], None]) -> None:
        self._most = most
        self._enqueue = enqueue
        self._used = Counter[OwnerKey]()
        self._waiting: dict[OwnerKey, dict[str, None]] = {}
        self._owners: dict[str, OwnerKey] = {}

    def __len__(self) -> int:
        return len(self._owners)

    @contextmanager
    def take(self, owner: OwnerKey, job_id: str) -> Iterator[None]:
        """Hold a slot until the block ends.

        Raises:
            RequeueAfter: If no slot is free. The job is enqueued as soon as one is.
        """
        if self._used[owner] >= self._most:
            self._waiting.setdefault(owner, {})[job_id] = None
            self._owners[job_id] = owner
            raise RequeueAfter(SLOT_SECONDS)
        self._drop(job_id)
        self._used[owner] += 1
        try:
            yield
        finally:
            self._used[owner] -= 1
            self._enqueue_waiting(owner)

    def forget(self, job_id: str) -> None:
        """Take the job out of the line: it needs no slot now."""
        if (owner := self._drop(job_id)) is not None:
            self._enqueue_waiting(owner)

    def _drop(self, job_id: str) -> OwnerKey | None:
        owner = self._owners.pop(job_id, None)
        if owner is not None:
            del self._waiting[owner][job_id]
        return owner

    def _enqueue_waiting(self, owner: OwnerKey) -> None:
        # The jobs keep their places in the line until they are reconciled, so that none is lost.
        for job_id in [*islice(self._waiting.get(owner, ()), self._most - self._used[owner])]:
            self._enqueue(job_id)
        if not self._used[owner]:
            del self._used[owner]
        if not self._waiting.get(owner, True):
            del self._waiting[owner]


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Reconciler:
    """Reconciles jobs until it is cancelled, as the leader."""

    store: InitVar[Store]
    informer: InformerCache
    observer: Observer
    actions: Actions
    adoption: Adoption
    """Deals with VolcanoJobs of this instance that the store does not know."""
    queue: WorkQueue
    job_changed: Callable[[str], None]
    """Called with a job's id after a step or another process has changed the job."""
    metrics: ReconcilerMetrics
    logs: InitVar[LogObserver | None] = None
    """Sees each observation, so that it reads logs before pods are deleted."""
    background: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    """Further tasks that run as long as the reconciler."""
    resync_per_second: InitVar[float | None] = None
    """How many unchanged jobs are reconciled a second; None: see ``sources``."""
    _logs: LogObserver = field(init=False)
    _sources: JobSources = field(init=False)
    _slots: OwnerSlots = field(init=False)
    _progress_at: float | None = None

    def __post_init__(
        self, store: Store, logs: LogObserver | None, resync_per_second: float | None
    ) -> None:
        self._logs = logs or LogObserver()
        self._sources = JobSources(
            store=store,
            informer=self.informer,
            queue=self.queue,
            job_changed=self.job_changed,
            contained=Containment("jobs cannot be enqueued", self.metrics.step_failed),
            resync_per_second=resync_per_second,
        )
        self._slots = OwnerSlots(
            SUBMISSIONS_PER_OWNER, lambda job_id: self.queue.enqueue(job_id, "waits")
        )

    def faults(self) -> tuple[str, ...]:
        """Return why this process must be restarted: jobs are queued, and no worker proceeds.

        Every call of a worker has a deadline, and a call that fails counts as progress. So only a
        defect of this program stops all workers for so long.
        """
        since = self._progress_at
        stalled = 0.0 if since is None else time.monotonic() - since
        stalled = min(stalled, self.queue.waiting_seconds)
        if stalled < STALL_SECONDS:
            return ()
        return (f"jobs wait, and the reconciler has done nothing for {stalled:.0f} s",)

    @property
    def degraded(self) -> tuple[str, ...]:
        """Problems of this process that do not keep jobs from proceeding."""
        return self._logs.problems

    @property
    def parked(self) -> int:
        """The number of jobs that this version cannot process."""
        return self.observer.parked

    def look_at_store(self) -> None:
        """Poll the store at once: another process has notified a change."""
        self._sources.look_at_store()

    async def run(self) -> None:
        """Reconcile; returns only by an error that ends this process' leadership."""
        async with asyncio.TaskGroup() as tasks:
            await self.informer.complete()
            await self.adoption.settle()
            since = await self._sources.enqueue_all()
            tasks.create_task(self._sources.resync())
            tasks.create_task(self._sources.poll_store(since))
            for work in self.background:
                tasks.create_task(work())
            for _ in range(WORKERS):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            self._note_progress()
            key = await self.queue.take()
            try:
                requeue = await self.reconcile(key)
            except LeadershipLost:
                raise
            except (KubeError, StoreUnavailable, PluginFailed) as error:
                self._retry(key, error)
            except Exception as error:
                # A defect that one job meets must not stop the others.
                self.metrics.step_failed(error)
                log.exception("reconciling failed", extra={"job": key})
                self.queue.failed(key, at_least=5.0)
            else:
                self.queue.done(key)
                if requeue is not None:
                    self.queue.enqueue(key, requeue.reason, after=requeue.after)

    def _note_progress(self) -> None:
        self._progress_at = time.monotonic()

    def _retry(self, key: str, error: Exception) -> None:
        retry_after = getattr(error, "retry_after_seconds", None) or 0.0
        self.metrics.step_failed(error)
        pause = self.queue.failed(key, at_least=retry_after)
        log.warning(
            "a step failed and is tried again",
            extra={"job": key, "why": str(error), "in_seconds": round(pause, 1)},
        )

    async def reconcile(self, job_id: str) -> Requeue | None:
        """Observe the job once and do the steps that follow; return when to reconcile it again.

        None: after the next change.

        Raises:
            LeadershipLost: Another process leads; nothing may be done any more.
            KubeError, StoreUnavailable, PluginFailed: The step is to be tried again.
        """
        seen = await self.observer.observe(job_id)
        if seen is None:
            self._logs.forget(job_id)
            self._slots.forget(job_id)
            await self.adoption.look_at(job_id)
            return None
        for run in seen.ending_runs:
            self.queue.enqueue(run, "cluster")
        self._notify_job_of_tool(seen.record)
        for _ in range(MOST_STEPS):
            self._note_progress()
            step = self._decide(seen)
            if isinstance(step, Wait):
                return _soonest(seen.requeue_after, step.until, seen.now)
            try:
                after = await self._do(step, seen)
            except RequeueAfter as later:
                return Requeue(later.seconds, "waits")
            finally:
                self.job_changed(job_id)
                self._notify_job_of_tool(seen.record)
            self.metrics.step_done(step, seen, now=self.observer.clock())
            if seen.record.tool is not None and isinstance(step, Finish):
                # The tool may be due to run again.
                self.queue.enqueue(seen.record.tool["job"], "step")
            if after is None:
                if isinstance(step, RecordPods):
                    self._read_logs_of_departed(seen)
                break
            seen = after
        return Requeue(0.0, "step")

    def _decide(self, seen: ObservedState) -> Step:
        logs_until = self._logs.observe(seen.record, seen.pods, seen.departed, seen.runs)
        step = decide(seen if logs_until is None else replace(seen, logs_until=logs_until))
        if not isinstance(step, Submit):
            self._slots.forget(seen.record.id)
        return step

    async def _do(self, step: Step, seen: ObservedState) -> ObservedState | None:
        record = seen.record
        try:
            if not isinstance(step, Submit):
                return await self.actions.do(step, seen)
            with self._slots.take(owner_of(record), record.id):
                return await self.actions.do(step, seen)
        except KubeError as error:
            await self.actions.react_to_refusal(step, record, error)
            raise

    def _notify_job_of_tool(self, record: JobRecord) -> None:
        """Report a change of the job, if *record* is the run of one of its tools.

        Sessions that lead to a tool belong to the tool's job.
        """
        if record.tool is not None:
            self.job_changed(record.tool["job"])

    def _read_logs_of_departed(self, seen: ObservedState) -> None:
        """Read the logs of pods that were gone when they were recorded just now.

        The next observation does not show these pods.
        """
        left = {pod.uid for pod in seen.own(seen.departed)}
        self._logs.observe(seen.record, seen.pods, seen.departed, {*seen.runs, *left})


def _soonest(requeue_after: float | None, until: float | None, now: float) -> Requeue | None:
    """Return when the job is reconciled though nothing changes; None: never."""
    times = [requeue_after, None if until is None else max(LEAST_SECONDS, until - now)]
    known = [seconds for seconds in times if seconds is not None]
    return Requeue(min(known), "due") if known else None
