"""Commands for an accepted job: end, suspend, resume, more time.

A command is stored before it is answered, and the reconciler carries it out. Each locks the job's
record, so that concurrent commands come one after the other. Two callers that add time both add it.
A job that runs out of time during an extension either ends or continues.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, replace
from typing import Final

from controller.jobs.history.job_record import CommandRefused, refuse_ending
from controller.loop_turn import LoopTurn
from controller.site.product_list import Catalogue
from controller.store.database import Store, Transaction
from controller.store.jobs.job_lists import live_jobs_of_batch
from controller.store.jobs.job_rows import (
    ASKED,
    JobRecord,
    RequestedEnd,
    add_extension,
    find_extension,
    lock_job,
    lock_jobs,
    request_end,
    unfinished_of,
    update_and_notify,
)
from controller.store.outbox.update_rows import raise_counter, read_counter

EXPIRED: Final = RequestedEnd("EXPIRED", "expired", "its time is over")
OUT_OF_FUNDS: Final = RequestedEnd("FAILURE", "out_of_funds", "there are no funds for it any more")
LONGEST_SECONDS: Final = 1e10
"""The longest time allocation of a job, whose end is also a due time of plugins."""
_KEY_BYTES: Final = 16
_TOGETHER: Final = 100
_ANYTHING: Final = Catalogue()


def asked_by(whom: str | None) -> RequestedEnd:
    """Return the requested end of a job, with the requester if the caller names one."""
    return replace(ASKED, details={"cause": ASKED.reason, "by": whom}) if whom else ASKED


@dataclass(frozen=True, slots=True)
class OwnerFilter:
    """The owner of jobs: a project, or a user outside projects."""

    user: str | None
    project: str | None


@dataclass(slots=True, eq=False, repr=False)
class JobCommands:
    """Accepts commands; every method raises StoreUnavailable if nothing could be stored."""

    store: Store
    _: KW_ONLY
    clock: Callable[[], float]
    """Unix seconds."""
    random: Callable[[int], bytes]
    enqueue: Callable[[str], None]
    """Called with the id of a job to reconcile."""
    catalogue: Catalogue = _ANYTHING
    """The products, which allow or forbid extensions."""

    async def end(self, job_id: str, how: RequestedEnd = ASKED) -> JobRecord | None:
        """Request the end of the job, and return the job; None if there is none.

        A repetition changes nothing. For an ended job, the objects that are left in the cluster are
        removed.
        """
        async with self._locked(job_id) as (transaction, record):
            if record is None:
                return None
            return await request_end(transaction, record, now=self.clock(), how=how)

    async def end_all(
        self,
        job_ids: Collection[str],
        how: RequestedEnd = ASKED,
        *,
        which: Callable[[JobRecord], bool] = lambda _: True,
    ) -> dict[str, JobRecord]:
        """Request the end of each job for which *which* holds; return their new records.

        A hundred jobs share one commit.

        Raises:
            StoreUnavailable: If some could not be stored; a repetition is safe.
        """
        ids, ended, turn = sorted(set(job_ids)), dict[str, JobRecord](), LoopTurn()
        for first in range(0, len(ids), _TOGETHER):
            async with self.store.write() as transaction:
                held = await lock_jobs(transaction, ids[first : first + _TOGETHER])
                some, now = [one for one in held.values() if which(one)], self.clock()
                for record in some:
                    ended[record.id] = await request_end(transaction, record, now=now, how=how)
                    await turn.rest()
            for record in some:
                self.enqueue(record.id)
        return ended

    async def end_batch(self, batch_id: str) -> dict[str, JobRecord]:
        """Request the end of the jobs of the batch that are not over; return them.

        They are ended a hundred at a time, as in :meth:`end_all`. A repetition ends what was left.

        Raises:
            StoreUnavailable: If some could not be stored; a repetition is safe.
        """
        async with self.store.read() as transaction:
            job_ids = await live_jobs_of_batch(transaction, batch_id)
        return await self.end_all(job_ids, which=_is_active)

    async def suspend(self, job_id: str) -> JobRecord | None:
        """Suspend the job: its VolcanoJob is aborted and kept. A repetition changes nothing.

        Raises:
            CommandRefused: If it is over, or about to be.
        """
        return await self._set_desired(job_id, "suspended")

    async def resume(self, job_id: str) -> JobRecord | None:
        """Resume a suspended job. A repetition changes nothing.

        Raises:
            CommandRefused: If it is over, or about to be.
        """
        return await self._set_desired(job_id, "run")

    async def _set_desired(self, job_id: str, desired: str) -> JobRecord | None:
        async with self._locked(job_id) as (transaction, record):
            if record is None:
                return None
            refuse_ending(record)
            if record.desired == desired:
                return record
            return await update_and_notify(transaction, record, now=self.clock(), desired=desired)

    async def extend(
        self, job_id: str, *, seconds: float, key: str | None = None
    ) -> tuple[JobRecord, bool] | None:
        """Add *seconds* to the job's time; None if there is no such job.

        Returns the job, and whether the time was added: a repeated call adds nothing.

        Args:
            job_id: The job.
            seconds: The additional time.
            key: The idempotency key: a repetition with it adds nothing. Without one, every call
                adds.

        Raises:
            CommandRefused: If the job is over or about to be, has no end, its product offers no
                more time, *key* was used for another number of seconds, or the time would be too
                long.
        """
        async with self._locked(job_id) as (transaction, record):
            if record is None:
                return None
            before = await find_extension(transaction, job_id, key) if key is not None else None
            if before is not None:
                if before != seconds:
                    raise CommandRefused(
                        "key_reused", "this key has added another number of seconds"
                    )
                return record, False
            refuse_ending(record)
            if not self.catalogue.offers(record.product, "extend"):
                raise CommandRefused("not_offered", "the job's product offers no more time")
            if record.allocated_seconds is None:
                raise CommandRefused("no_end", "the job was given no time that could be extended")
            more = record.allocated_seconds + seconds
            if more > LONGEST_SECONDS:
                raise CommandRefused("too_long", "the job would have more than 300 years")
            now, name = self.clock(), key or self.random(_KEY_BYTES).hex()
            await add_extension(transaction, job_id, name, seconds=seconds, now=now)
            record = await update_and_notify(transaction, record, now=now, allocated_seconds=more)
            return record, True

    async def end_if_over(self, job_ids: Collection[str]) -> dict[str, float | None]:
        """End the jobs whose time is over; return when each will be over, None for never.

        All are in one transaction, so that none of many due jobs waits for the commits of the
        others.

        Raises:
            StoreUnavailable: If it could not be stored; none was ended.
        """
        again, over = dict[str, float | None].fromkeys(job_ids), list[JobRecord]()
        async with self.store.write() as transaction:
            held, now = await lock_jobs(transaction, job_ids), self.clock()
            for record in held.values():
                if record.is_final or record.expires_at is None:
                    continue
                if now < record.expires_at:
                    again[record.id] = record.expires_at
                else:
                    over.append(record)
            for record in over:
                await request_end(transaction, record, now=now, how=EXPIRED)
        for record in over:
            self.enqueue(record.id)
        return again

    async def acknowledge(
        self, through: int, *, owners: Collection[OwnerFilter], job_ids: Collection[str]
    ) -> tuple[int, list[str]] | None:
        """End the jobs that are out of funds, then record that usage up to *through* was taken.

        Returns the ledger's position up to which usage was taken, and the jobs that end for lack of
        funds. Returns None, and does nothing, if the ledger does not reach that far.

        This is not one transaction: an owner may have thousands of jobs, and other writers would
        have to wait. If the process stops in between, a repetition finds the jobs ended.

        Raises:
            StoreUnavailable: If not all could be stored; a repetition is safe.
        """
        ids = set(job_ids)
        async with self.store.read() as transaction:
            if through > await read_counter(transaction, "usage"):
                return None
            for owner in owners:
                ids |= set(await unfinished_of(transaction, user=owner.user, project=owner.project))
        ended = await self.end_all(ids, OUT_OF_FUNDS, which=_is_active)
        async with self.store.write() as transaction:
            reached = await raise_counter(transaction, "usage_acknowledged", through)
        return reached, list(ended)

    @asynccontextmanager
    async def _locked(self, job_id: str) -> AsyncIterator[tuple[Transaction, JobRecord | None]]:
        async with self.store.write() as transaction:
            yield transaction, await lock_job(transaction, job_id)
        self.enqueue(job_id)


def _is_active(record: JobRecord) -> bool:
    return not record.is_final and record.desired != "ended"
