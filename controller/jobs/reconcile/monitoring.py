"""Hands jobs whose time has come to the plugins that asked for it, in batches.

Due times are in the store, so that none is lost with a process; they are looked at on a clock of
their own, so that no busy watch can keep them waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from controller.jobs.pipeline.border import PluginFailed
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobFromServer
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.store.database import Store
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.instance import refresh_leadership
from controller.store.jobs.job_rows import lock_jobs
from controller.store.jobs.progress import due_jobs, set_due
from shared.log import Outage

LOOK_SECONDS: Final = 0.5
ALIVE_SECONDS: Final = 5.0
"""How often is written down that somebody looks."""

BATCH: Final = 100
AGAIN_SECONDS: Final = 60.0
"""When a job is looked at again that the plugin failed with, or said nothing about."""

ALONE_AT_ONCE: Final = 8
"""Jobs with which a plugin has failed are handed to it one by one, so many at a time."""

log = logging.getLogger(__name__)


class Monitoring:
    """Calls ``on_job_monitoring``, as the leader of *term*.

    Args:
        store: Where due times are.
        observe: Returns a job as it is, None where the store does not know it.
        show: Returns what plugins are shown of it.
        looked_until: Says until when the cluster was followed; now, while it is.
        clock: Unix seconds.
    """

    def __init__(
        self,
        *,
        store: Store,
        term: int,
        pipeline: Pipeline,
        observe: Callable[[str], Awaitable[ObservedState | None]],
        show: Callable[[ObservedState], JobFromServer],
        clock: Callable[[], float],
        looked_until: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._term = term
        self._pipeline = pipeline
        self._see = observe
        self._show = show
        self._clock = clock
        self._looked_until = looked_until or clock
        self._served: set[str] = set()
        self._suspects: dict[str, set[str]] = {}
        self._alone: set[tuple[str, str]] = set()
        self._gates: dict[str, asyncio.Semaphore] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Look every half second; returns only by LeadershipLost."""
        alive_at = 0.0
        outage = Outage(log, begins="due times cannot be read", ends="due times are read again")
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            while True:
                try:
                    if not 0.0 <= self._clock() - alive_at < ALIVE_SECONDS:
                        await self._say_alive()
                        alive_at = self._clock()
                    # Side by side: what one plugin has to do must not make another one late.
                    for plugin, job_ids in (await self._due()).items():
                        if plugin not in self._served:
                            self._served.add(plugin)
                            tasks.create_task(self._serve(plugin, job_ids))
                    outage.passed()
                except StoreUnavailable as error:
                    outage.failed(error)
                await asyncio.sleep(LOOK_SECONDS)

    async def _say_alive(self) -> None:
        """Write down that this leader looks: what happens while none does, nobody has seen.

        Nor has one that leads on while the API server is away: the next leader must know.
        """
        until = self._looked_until()
        async with self._store.write() as transaction:
            if not await refresh_leadership(transaction, term=self._term, now=until):
                raise LeadershipLost("another controller leads")

    async def _due(self) -> dict[str, list[str]]:
        async with self._store.read() as transaction:
            return await due_jobs(transaction, now=self._clock(), limit=BATCH)

    async def _serve(self, plugin: str, job_ids: Sequence[str]) -> None:
        """Hand over *job_ids*, and what is due after them, until a batch is not full."""
        try:
            while job_ids:
                suspects = self._suspects.get(plugin, set())
                alone = [job_id for job_id in job_ids if job_id in suspects]
                await self._put_aside(plugin, alone)
                if together := [job_id for job_id in job_ids if job_id not in suspects]:
                    await self._hand_over(plugin, together)
                full = len(job_ids) == BATCH
                job_ids = (await self._due()).get(plugin, ()) if full else ()
        except StoreUnavailable as error:
            log.warning("due jobs are handed over later", extra={"why": str(error)})
        except LeadershipLost:
            raise
        except Exception:
            # One plugin's batch must not be the end of all others; it is due again.
            log.exception("due jobs cannot be handed over", extra={"plugin": plugin})
            await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._served.discard(plugin)

    async def _put_aside(self, plugin: str, job_ids: Sequence[str]) -> None:
        """Have those with which the plugin failed handed over one by one, beside all others."""
        if not job_ids or self._tasks is None:
            return
        async with self._store.lead(self._term) as transaction:
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
            log.warning("a due job is handed over later", extra={"why": str(error)})
        except LeadershipLost:
            raise
        except Exception:
            log.exception("a due job cannot be handed over", extra={"plugin": plugin})
        finally:
            self._alone.discard((plugin, job_id))

    async def _hand_over(self, plugin: str, job_ids: Sequence[str]) -> None:
        batch = await self._batch(job_ids)
        # After a failure of several it is not known whose it was: each is seen by itself, at once.
        again_at = self._clock() + (AGAIN_SECONDS if len(batch) == 1 else 0.0)
        try:
            told = await self._ask(plugin, batch)
            again_at = self._clock() + AGAIN_SECONDS
            self._suspects.get(plugin, set()).difference_update(job_ids)
        except PluginFailed as error:
            log.warning("monitoring failed", extra={"plugin": plugin, "why": str(error)})
            told = {}
            self._suspects.setdefault(plugin, set()).update(one.job.id for one in batch)
        again = dict.fromkeys(job_ids) | {one.job.id: again_at for one in batch} | told
        async with self._store.lead(self._term) as transaction:
            held = await lock_jobs(transaction, job_ids)
            for job_id, at in again.items():
                # The plugin takes its time: one may have ended since, or be forgotten.
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
        """Return when the plugin wants to see each again.

        Raises:
            PluginFailed: If it fails with one of them, whichever that is.
        """
        if not batch:
            return {}
        try:
            return await self._pipeline.monitor(plugin, batch)
        except LookupError:
            # The plugin was taken out of the settings; put back, it begins with the next start.
            return dict.fromkeys(one.job.id for one in batch)
