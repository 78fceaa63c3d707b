"""Calls ``on_job_monitoring`` of plugins for the jobs that are due, in batches.

Due times are in the store, so that none is lost with a process. They are polled by a clock, so that
a busy watch cannot delay them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from controller.jobs.containment import Containment
from controller.jobs.pipeline.border import PluginFailed
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobFromServer
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.store.database import FencedStore
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.instance import read_maintenance, refresh_leadership
from controller.store.jobs.job_rows import lock_jobs
from controller.store.jobs.progress import due_jobs, set_due

LOOK_SECONDS: Final = 0.5
ALIVE_SECONDS: Final = 5.0
"""Interval at which this leader records that it observes the cluster."""

BATCH: Final = 100
AGAIN_SECONDS: Final = 60.0
"""The pause before a job is due again with which the plugin failed, or for which it returned
nothing.
"""

ALONE_AT_ONCE: Final = 8
"""The maximum number of jobs that are handed singly to a plugin at a time, after it failed with
them.
"""

log = logging.getLogger(__name__)


class Monitoring:
    """Calls ``on_job_monitoring``, as the leader of *term*.

    Args:
        observe: Returns the observed state of a job, None if the store does not know it.
        show: Returns the view of plugins of a job.
        looked_until: Returns the time until which the cluster was observed; now, while it is.
        held: Called every few seconds with whether maintenance holds submission.
        clock: Unix seconds.
    """

    def __init__(
        self,
        *,
        store: FencedStore,
        pipeline: Pipeline,
        observe: Callable[[str], Awaitable[ObservedState | None]],
        show: Callable[[ObservedState], JobFromServer],
        clock: Callable[[], float],
        looked_until: Callable[[], float],
        held: Callable[[bool], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._see = observe
        self._show = show
        self._clock = clock
        self._looked_until = looked_until
        self._held = held
        self._served: set[str] = set()
        self._suspects: dict[str, set[str]] = {}
        self._alone: set[tuple[str, str]] = set()
        self._gates: dict[str, asyncio.Semaphore] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._contained = Containment("due times cannot be read", failed)
        self._alive_at = 0.0

    async def run(self) -> None:
        """Poll every half second; returns only by LeadershipLost."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await self._contained.repeat(partial(self._poll, tasks), lambda: LOOK_SECONDS)

    async def _poll(self, tasks: asyncio.TaskGroup) -> None:
        if not 0.0 <= self._clock() - self._alive_at < ALIVE_SECONDS:
            await self._record_alive()
            self._alive_at = self._clock()
        # Concurrently: a slow plugin must not delay the others.
        for plugin, job_ids in (await self._due()).items():
            if plugin not in self._served:
                self._served.add(plugin)
                tasks.create_task(self._serve(plugin, job_ids))

    async def _record_alive(self) -> None:
        """Record that this leader observes the cluster, which is unobserved without a leader.

        While the API server is unavailable, this leader observes nothing either. The next leader
        must know that.
        """
        until = self._looked_until()
        async with self._store.write() as transaction:
            await refresh_leadership(transaction, now=until)
            maintenance = await read_maintenance(transaction)
        self._held(maintenance.hold_reason is not None)

    async def _due(self) -> dict[str, list[str]]:
        async with self._store.read() as transaction:
            return await due_jobs(transaction, now=self._clock(), limit=BATCH)

    async def _serve(self, plugin: str, job_ids: Sequence[str]) -> None:
        """Hand over *job_ids*, and the jobs due after them, until a batch is not full."""
        try:
            while job_ids:
                suspects = self._suspects.get(plugin, set())
                alone = [job_id for job_id in job_ids if job_id in suspects]
                await self._hand_over_singly(plugin, alone)
                if together := [job_id for job_id in job_ids if job_id not in suspects]:
                    await self._hand_over(plugin, together)
                full = len(job_ids) == BATCH
                job_ids = (await self._due()).get(plugin, ()) if full else ()
        except StoreUnavailable as error:
            log.warning("due jobs are handed to a plugin later", extra={"why": str(error)})
        except LeadershipLost:
            raise
        except Exception:
            # A failing batch of one plugin must not stop the others; it stays due.
            log.exception("due jobs cannot be handed to a plugin", extra={"plugin": plugin})
            await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._served.discard(plugin)

    async def _hand_over_singly(self, plugin: str, job_ids: Sequence[str]) -> None:
        """Hand over jobs with which the plugin failed one by one, beside the batches."""
        if not job_ids or self._tasks is None:
            return
        async with self._store.write() as transaction:
            held = await lock_jobs(transaction, job_ids)
            for job_id in job_ids:
                at = self._clock() + AGAIN_SECONDS if job_id in held else None
                await set_due(transaction, job_id, plugin, at=at)
        for job_id in job_ids:
            if (plugin, job_id) not in self._alone:
                self._alone.add((plugin, job_id))
                self._tasks.create_task(self._serve_alone(plugin, job_id))

    async def _serve_alone(self, plugin: str, job_id: str) -> None:
        gate = self._gates.setdefault(plugin, asyncio.Semaphore(ALONE_AT_ONCE))
        try:
            async with gate:
                await self._hand_over(plugin, [job_id])
        except StoreUnavailable as error:
            log.warning("a due job is handed to a plugin later", extra={"why": str(error)})
        except LeadershipLost:
            raise
        except Exception:
            log.exception("a due job cannot be handed to a plugin", extra={"plugin": plugin})
        finally:
            self._alone.discard((plugin, job_id))

    async def _hand_over(self, plugin: str, job_ids: Sequence[str]) -> None:
        batch = await self._batch(job_ids)
        # If a batch of several fails, the culprit is unknown: each job is handed over singly, at
        # once.
        again_at = self._clock() + (AGAIN_SECONDS if len(batch) == 1 else 0.0)
        try:
            next_times = await self._ask(plugin, batch)
            again_at = self._clock() + AGAIN_SECONDS
            self._suspects.get(plugin, set()).difference_update(job_ids)
        except PluginFailed as error:
            log.warning(
                "a plugin failed to monitor jobs", extra={"plugin": plugin, "why": str(error)}
            )
            next_times = {}
            self._suspects.setdefault(plugin, set()).update(one.job.id for one in batch)
        again = dict.fromkeys(job_ids) | {one.job.id: again_at for one in batch} | next_times
        async with self._store.write() as transaction:
            held = await lock_jobs(transaction, job_ids)
            for job_id, at in again.items():
                # The plugin may take long: a job may have ended since, or have been dropped.
                goes_on = job_id in held and held[job_id].outcome is None
                await set_due(transaction, job_id, plugin, at=at if goes_on else None)
                if not goes_on:
                    self._suspects.get(plugin, set()).discard(job_id)

    async def _batch(self, job_ids: Sequence[str]) -> list[JobFromServer]:
        batch = []
        for job_id in job_ids:
            seen = await self._see(job_id)
            if seen is not None and seen.record.outcome is None:
                batch.append(self._show(seen))
        return batch

    async def _ask(self, plugin: str, batch: Sequence[JobFromServer]) -> dict[str, float | None]:
        """Return the time of the next monitoring of each job.

        Raises:
            PluginFailed: If it fails with one of them.
        """
        if not batch:
            return {}
        try:
            return await self._pipeline.monitor(plugin, batch)
        except LookupError:
            # The plugin was removed from the settings. If it is added again, it begins at the next
            # start.
            return dict.fromkeys(one.job.id for one in batch)
