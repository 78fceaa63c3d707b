"""Hands jobs whose time has come to the plugins that asked for it, in batches.

Due times are in the store, so that none is lost with a process; they are looked at on a clock of
their own, so that no busy watch can keep them waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from controller.jobs.lifecycle import Seen
from controller.jobs.pipeline import Pipeline, PluginFailed
from controller.jobs.plugin import JobFromServer
from controller.kube.errors import KubeError
from controller.store.database import Store
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.jobs import hold_jobs
from controller.store.leadership import refresh_leadership
from controller.store.progress import due_jobs, set_due

LOOK_SECONDS: Final = 0.5
ALIVE_SECONDS: Final = 5.0
"""How often is written down that somebody looks."""

BATCH: Final = 100
AGAIN_SECONDS: Final = 60.0
"""When a job is looked at again that the plugin failed with, or said nothing about."""

log = logging.getLogger(__name__)


class Monitoring:
    """Calls ``on_job_monitoring``, as the leader of *term*.

    Args:
        store: Where due times are.
        term: The leader's.
        pipeline: The plugins.
        see: Returns a job as it is, None where the store does not know it.
        show: Returns what plugins are shown of it.
        clock: Unix seconds.
    """

    def __init__(
        self,
        *,
        store: Store,
        term: int,
        pipeline: Pipeline,
        see: Callable[[str], Awaitable[Seen | None]],
        show: Callable[[Seen], JobFromServer],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._term = term
        self._pipeline = pipeline
        self._see = see
        self._show = show
        self._clock = clock
        self._served: set[str] = set()

    async def run(self) -> None:
        """Look every half second; returns only by LeadershipLost."""
        alive_at = 0.0
        async with asyncio.TaskGroup() as tasks:
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
                except StoreUnavailable as error:
                    log.warning("due times cannot be read", extra={"why": str(error)})
                await asyncio.sleep(LOOK_SECONDS)

    async def _say_alive(self) -> None:
        """Write down that this leader looks: what happens while none does, nobody has seen."""
        async with self._store.write() as transaction:
            if not await refresh_leadership(transaction, term=self._term, now=self._clock()):
                raise LeadershipLost("another controller leads")

    async def _due(self) -> dict[str, list[str]]:
        async with self._store.read() as transaction:
            return await due_jobs(transaction, now=self._clock(), limit=BATCH)

    async def _serve(self, plugin: str, job_ids: Sequence[str]) -> None:
        """Hand over *job_ids*, and what is due after them, until a batch is not full."""
        try:
            while job_ids:
                await self._hand_over(plugin, job_ids)
                full = len(job_ids) == BATCH
                job_ids = (await self._due()).get(plugin, ()) if full else ()
        except StoreUnavailable as error:
            log.warning("due jobs are handed over later", extra={"why": str(error)})
        finally:
            self._served.discard(plugin)

    async def _hand_over(self, plugin: str, job_ids: Sequence[str]) -> None:
        seen = [await self._see(job_id) for job_id in job_ids]
        batch = [self._show(one) for one in seen if one is not None and one.record.outcome is None]
        again = dict.fromkeys(job_ids) | {
            one.job.id: self._clock() + AGAIN_SECONDS for one in batch
        }
        again |= await self._ask(plugin, batch)
        async with self._store.lead(self._term) as transaction:
            held = await hold_jobs(transaction, job_ids)
            for job_id, at in again.items():
                # The plugin takes its time: one may have ended since, or be forgotten.
                goes_on = job_id in held and held[job_id].outcome is None
                await set_due(transaction, job_id, plugin, at=at if goes_on else None)

    async def _ask(self, plugin: str, batch: Sequence[JobFromServer]) -> dict[str, float | None]:
        """Return when the plugin wants to see each again; what it fails with comes again."""
        if not batch:
            return {}
        known = {one.job.id for one in batch}
        try:
            told = await self._pipeline.monitor(plugin, batch)
        except LookupError:
            # The plugin was taken out of the settings; put back, it begins with the next start.
            return dict.fromkeys(known)
        except (PluginFailed, KubeError) as error:
            log.warning("monitoring failed", extra={"plugin": plugin, "why": str(error)})
            return {}
        return {job_id: at for job_id, at in told.items() if job_id in known}
