"""Deletes the records of jobs that ended long ago."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Final, NamedTuple

from controller.jobs.containment import Containment
from controller.store.database import FencedStore, Transaction
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.jobs.batches import forget_batches
from controller.store.jobs.hook_failures import forget_lone_hook_failures
from controller.store.jobs.job_lists import fill_in_kinds
from controller.store.jobs.job_rows import jobs_ended_before
from controller.store.jobs.public_links import forget_links
from controller.store.jobs.tombstones import (
    Tombstone,
    delete_job_records,
    forget_tombstones,
    old_tombstones,
)
from controller.store.outbox.update_rows import forget_old_updates
from controller.store.outbox.usage_entries import forget_usage
from controller.store.sessions.session_rows import fill_in_owners

EVERY_SECONDS: Final = 300.0
AT_ONCE: Final = 200
"""Jobs in one transaction, so that no other writer waits long."""

_BATCHES_AT_ONCE: Final = 10
"""Each may have a thousand items."""

PAUSE_SECONDS: Final = 0.1
MOST_ENTRIES: Final = 1000
LONE_SECONDS: Final = 86400.0
"""How long the hook failure of a job that was never accepted is kept."""

log = logging.getLogger(__name__)


class RetentionPeriods(NamedTuple):
    """Retention periods, in seconds.

    Attributes:
        history: The record of a job, from its end.
        tombstone: The tombstone of a deleted record, from then on.
        updates: The updates sent to orchestrators about an ended job; None: as long as its record.
    """

    history: float
    tombstone: float
    updates: float | None = None


@dataclass(slots=True, eq=False, repr=False)
class Retention:
    """Deletes records, as the leader of *term*; each VolcanoJob leaves a tombstone."""

    store: FencedStore
    _: KW_ONLY
    keep: RetentionPeriods
    may_be_there: Callable[[str], bool]
    """Returns whether the cluster may have a VolcanoJob of a job."""
    clock: Callable[[], float]
    """Unix seconds."""
    failed: InitVar[Callable[[Exception], None]]
    _contained: Containment = field(init=False)

    def __post_init__(self, failed: Callable[[Exception], None]) -> None:
        self._contained = Containment("old records cannot be deleted", failed)

    async def run(self) -> None:
        """Delete what is due every five minutes; returns only by LeadershipLost."""
        await self._contained.repeat(self.tidy, lambda: EVERY_SECONDS)

    async def tidy(self) -> int:
        """Delete the records that are due; return the number of deleted jobs.

        A job that cannot be deleted does not keep others from being deleted.

        Raises:
            LeadershipLost: If another process leads.
            StoreUnavailable: If the store does not respond.
        """
        before, total = self.clock() - self.keep.history, 0
        with self._contained.of("jobs"):
            total = await self._forget_jobs(before)
        if total:
            log.info("deleted records of jobs that ended long ago", extra={"jobs": total})
        with self._contained.of("batches"):
            await self._in_pages(
                lambda found: forget_batches(found, before=before, limit=_BATCHES_AT_ONCE),
                _BATCHES_AT_ONCE,
            )
        with self._contained.of("usage"):
            await self._in_pages(
                lambda found: forget_usage(found, before=before, limit=MOST_ENTRIES), MOST_ENTRIES
            )
        if self.keep.updates is not None:
            with self._contained.of("updates"):
                await self._forget_updates(self.clock() - self.keep.updates)
        with self._contained.of("tombstones"):
            await self._forget_tombstones(before - self.keep.tombstone)
        with self._contained.of("links"):
            async with self.store.write() as transaction:
                await forget_links(transaction, now=self.clock())
        with self._contained.of("lists"):
            await self._in_pages(_fill_in_lists, AT_ONCE)
        with self._contained.of("hooks"):
            async with self.store.write() as transaction:
                await forget_lone_hook_failures(transaction, before=self.clock() - LONE_SECONDS)
        return total

    async def _forget_jobs(self, before: float) -> int:
        after, total = "", 0
        while True:
            async with self.store.write() as transaction:
                over = await jobs_ended_before(
                    transaction, finished_before=before, limit=AT_ONCE, after=after
                )
            total += await self._forget(over, before)
            if len(over) < AT_ONCE:
                return total
            after = over[-1]
            await asyncio.sleep(PAUSE_SECONDS)

    async def _forget(self, job_ids: Sequence[str], before: float) -> int:
        """Delete all of them together; if that fails, one by one."""
        try:
            async with self.store.write() as transaction:
                await delete_job_records(transaction, job_ids, at=before)
        except (LeadershipLost, StoreUnavailable):
            raise
        except Exception:  # noqa: BLE001 - one job causes it: the loop below finds out which
            gone = 0
            for job_id in job_ids:
                with self._contained.of(f"job {job_id}"):
                    async with self.store.write() as transaction:
                        await delete_job_records(transaction, [job_id], at=before)
                    gone += 1
            return gone
        return len(job_ids)

    async def _in_pages(self, work: Callable[[Transaction], Awaitable[int]], page: int) -> None:
        """Run *work* in one transaction after another, until one deletes less than a *page*."""
        done = page
        while done == page:
            async with self.store.write() as transaction:
                done = await work(transaction)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _forget_updates(self, before: float) -> None:
        after = 0
        while True:
            async with self.store.write() as transaction:
                after, more = await forget_old_updates(
                    transaction, before=before, after=after, limit=MOST_ENTRIES
                )
            if not more:
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _forget_tombstones(self, before: float) -> None:
        """Delete tombstones of VolcanoJobs that are gone; the others are evidence for a removal."""
        after: Tombstone | None = None
        while True:
            async with self.store.write() as transaction:
                old = await old_tombstones(
                    transaction, before=before, after=after, limit=MOST_ENTRIES
                )
                gone = [one for one in old if not self.may_be_there(one.job_id)]
                await forget_tombstones(transaction, gone)
            if len(old) < MOST_ENTRIES:
                return
            after = old[-1]
            await asyncio.sleep(PAUSE_SECONDS)


async def _fill_in_lists(transaction: Transaction) -> int:
    jobs = await fill_in_kinds(transaction, limit=AT_ONCE)
    return max(jobs, await fill_in_owners(transaction, limit=AT_ONCE))
