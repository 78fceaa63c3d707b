"""Sources of the work queue: changes in the store, and the periodic resync of all jobs.

The informer is the third source: it enqueues a job when a watch shows a change. The resync finds
changes that a watch or another process failed to report.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.containment import Containment
from controller.jobs.reconcile.workqueue import WorkQueue
from controller.store.database import Store
from controller.store.errors import StoreUnavailable
from controller.store.instance import read_store_metadata
from controller.store.jobs.job_rows import changed_jobs, settled_jobs, unfinished_jobs
from shared.log import Outage

QUERY_JOBS: Final = 500
"""The number of jobs that one query checks for settled ones."""
RESYNC_SECONDS: Final = 60.0
"""Pause between two resyncs of all jobs."""
RESYNC_BATCH: Final = 20
RESYNC_ROUND_SECONDS: Final = 600.0
"""The duration of a resync of all jobs, unless it needs more or less than the two shares below."""
LEAST_RESYNC_SHARE: Final = 0.05
RESYNC_SHARE: Final = 0.25
"""The largest share of the reconciler's time that a resync uses."""
LONGEST_REST_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.5
"""Interval at which the store is polled for changes by other processes, if none is notified."""
POLL_PAUSE_SECONDS: Final = 0.02
"""Pause after each poll, so that many writes at once are read together."""

log = logging.getLogger(__name__)


def rest_after(took: float, share: float) -> float:
    """Return how many seconds a resync rests after a batch that took *took* seconds.

    *share* is the batch's part of all jobs. A round takes ten minutes, but at least 5 % and at
    most 25 % of the reconciler's time. So few jobs are resynced more often, and very many less
    often.
    """
    least, most = (took * (1 / part - 1) for part in (RESYNC_SHARE, LEAST_RESYNC_SHARE))
    rest = max(least, min(most, RESYNC_ROUND_SECONDS * share - took))
    # A batch that changed jobs have overtaken took long, which is no measure of its own cost.
    return min(rest, LONGEST_REST_SECONDS)


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class JobSources:
    """Enqueue jobs that another process has changed in the store, and all jobs periodically."""

    store: Store
    informer: InformerCache
    queue: WorkQueue
    """Where jobs are enqueued."""
    job_changed: Callable[[str], None]
    """Called with the id of a job that another process has changed."""
    contained: Containment
    """Contains unexpected errors, which would end the process' leadership."""
    resync_per_second: float | None
    """The number of jobs a second that the resync enqueues; None: see :func:`rest_after`."""
    _notified: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _outage: Outage = field(
        default_factory=lambda: Outage(
            log, begins="the store cannot be read", ends="the store is read again"
        ),
        init=False,
    )

    async def enqueue_all(self) -> int:
        """Enqueue all jobs; return the store's revision from before the read.

        The call retries until the store can be read.
        """
        while True:
            try:
                # The revision first: a change during the reads is then found by the poll.
                since = await self._revision()
                await self._enqueue_all()
            except StoreUnavailable as error:
                self._outage.failed(error)
                await asyncio.sleep(POLL_SECONDS)
            else:
                self._outage.passed()
                return since

    async def _revision(self) -> int:
        async with self.store.read() as transaction:
            return (await read_store_metadata(transaction)).revision

    async def _enqueue_all(self) -> None:
        async with self.store.read() as transaction:
            found = dict.fromkeys(await unfinished_jobs(transaction))
        for job_id in found | dict.fromkeys(self.informer.job_ids()):
            self.queue.enqueue(job_id, "resync")

    async def resync(self) -> None:
        """Enqueue all unsettled jobs periodically, in batches, until cancelled."""
        while True:
            await asyncio.sleep(RESYNC_SECONDS)
            unsettled: Sequence[str] = ()
            try:
                with self.contained.of("all jobs"):
                    unsettled = await self._unsettled()
            except StoreUnavailable as error:
                log.warning("the store cannot be read", extra={"why": str(error)})
            for start in range(0, len(unsettled), RESYNC_BATCH):
                batch = unsettled[start : start + RESYNC_BATCH]
                await self._resync_batch(batch, len(batch) / len(unsettled))

    async def _unsettled(self) -> list[str]:
        """Return the jobs that may need a step.

        A job is settled once it is over and only Volcano has to remove its VolcanoJob; there may
        be thousands of those.
        """
        async with self.store.read() as transaction:
            found = dict.fromkeys(await unfinished_jobs(transaction))
        cached = self.informer.jobs.job_ids()
        for start in range(0, len(cached), QUERY_JOBS):
            some, settled = cached[start : start + QUERY_JOBS], set[str]()
            # If the query fails, each of these jobs counts as unsettled.
            with self.contained.of(f"jobs from {some[0]}"):
                async with self.store.read() as transaction:
                    settled = await settled_jobs(transaction, some)
            found |= dict.fromkeys(job_id for job_id in some if job_id not in settled)
        return list(found)

    async def _resync_batch(self, job_ids: Sequence[str], share: float) -> None:
        """Enqueue a batch, this *share* of all jobs, and wait until the next batch is due."""
        began = time.monotonic()
        for job_id in job_ids:
            self.queue.enqueue(job_id, "resync")
        await self.queue.background_done()
        took = time.monotonic() - began
        if self.resync_per_second is None:
            await asyncio.sleep(rest_after(took, share))
        else:
            await asyncio.sleep(max(0.0, len(job_ids) / self.resync_per_second - took))

    def look_at_store(self) -> None:
        """Poll the store at once: another process has notified a change."""
        self._notified.set()

    async def poll_store(self, since: int) -> None:
        """Enqueue each job whose row another process changes after revision *since*."""
        seen = since
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._notified.wait()
            self._notified.clear()
            changed: Sequence[str] = ()
            try:
                with self.contained.of("changes in the store"):
                    async with self.store.read() as transaction:
                        changed, seen = await changed_jobs(transaction, after=seen)
                self._outage.passed()
            except StoreUnavailable as error:
                self._outage.failed(error)
            for job_id in changed:
                # A revocation must not wait until a worker is free.
                with self.contained.of(f"job {job_id}"):
                    self.job_changed(job_id)
                self.queue.enqueue(job_id, "store")
            await asyncio.sleep(POLL_PAUSE_SECONDS)
