"""Forgets what nobody needs any more: records of jobs that have long been over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from controller.jobs.containment import Containment
from controller.store.database import Store
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.jobs.hook_runs import forget_lone_hook_failures
from controller.store.jobs.job_lists import fill_in_kinds
from controller.store.jobs.job_rows import forget_these_jobs, long_over
from controller.store.jobs.public_links import forget_links
from controller.store.outbox.usage_entries import forget_usage
from controller.store.sessions.session_lists import fill_in_owners

EVERY_SECONDS: Final = 300.0
AT_ONCE: Final = 200
"""So that nobody waits long for the store."""

MOST_ENTRIES: Final = 5000
LONE_SECONDS: Final = 86400.0
"""How long is remembered that a hook failed with a job that was never accepted."""

log = logging.getLogger(__name__)


class Retention:
    """Drops records, as the leader of *term*; a tombstone is left for each VolcanoJob.

    Args:
        store: Where they are.
        term: The leader's.
        history_seconds: How long a job that is over is remembered.
        clock: Unix seconds.
        failed: Counts what nobody expected.
    """

    def __init__(
        self,
        store: Store,
        *,
        term: int,
        history_seconds: float,
        clock: Callable[[], float],
        failed: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._term = term
        self._history_seconds = history_seconds
        self._clock = clock
        self._contained = Containment("cannot be forgotten", failed)

    async def run(self) -> None:
        """Tidy up every five minutes; returns only by LeadershipLost."""
        while True:
            try:
                gone = await self.tidy()
            except StoreUnavailable as error:
                log.warning("the store cannot be tidied up", extra={"why": str(error)})
            else:
                if gone:
                    log.info("forgot jobs that have long been over", extra={"jobs": gone})
            await asyncio.sleep(EVERY_SECONDS)

    async def tidy(self) -> int:
        """Forget what is due; return how many jobs that were.

        A job that cannot be forgotten does not keep others from it.

        Raises:
            LeadershipLost: If another one leads.
            StoreUnavailable: If the store does not answer.
        """
        before, total = self._clock() - self._history_seconds, 0
        with self._contained.of("jobs"):
            total = await self._forget_jobs(before)
        with self._contained.of("usage"):
            await self._forget_usage(before)
        with self._contained.of("links"):
            async with self._store.lead(self._term) as transaction:
                await forget_links(transaction, now=self._clock())
        with self._contained.of("lists"):
            await self._fill_in_lists()
        with self._contained.of("hooks"):
            async with self._store.lead(self._term) as transaction:
                await forget_lone_hook_failures(transaction, before=self._clock() - LONE_SECONDS)
        return total

    async def _forget_jobs(self, before: float) -> int:
        after, total = "", 0
        while True:
            async with self._store.lead(self._term) as transaction:
                over = await long_over(
                    transaction, finished_before=before, limit=AT_ONCE, after=after
                )
            total += await self._forget(over, before)
            if len(over) < AT_ONCE:
                return total
            after = over[-1]
            await asyncio.sleep(0.1)

    async def _forget(self, job_ids: Sequence[str], before: float) -> int:
        """Forget all of them together; where that fails, each that can be."""
        try:
            async with self._store.lead(self._term) as transaction:
                await forget_these_jobs(transaction, job_ids, at=before)
        except (LeadershipLost, StoreUnavailable):
            raise
        except Exception:  # noqa: BLE001 - it is one job's: below it is found out whose, and said
            gone = 0
            for job_id in job_ids:
                with self._contained.of(f"job {job_id}"):
                    async with self._store.lead(self._term) as transaction:
                        await forget_these_jobs(transaction, [job_id], at=before)
                    gone += 1
            return gone
        return len(job_ids)

    async def _fill_in_lists(self) -> None:
        filled = AT_ONCE
        while filled == AT_ONCE:
            async with self._store.lead(self._term) as transaction:
                jobs = await fill_in_kinds(transaction, limit=AT_ONCE)
                filled = max(jobs, await fill_in_owners(transaction, limit=AT_ONCE))
            await asyncio.sleep(0.1)

    async def _forget_usage(self, before: float) -> None:
        gone = MOST_ENTRIES
        while gone == MOST_ENTRIES:
            async with self._store.lead(self._term) as transaction:
                gone = await forget_usage(transaction, before=before, limit=MOST_ENTRIES)
            await asyncio.sleep(0.1)
