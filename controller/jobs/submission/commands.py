"""What is wished for a job after it was accepted: to end, to wait, to go on, to have more time.

A wish is in the store before it is answered, and the reconciler carries it out. Each holds the
job's record, so that simultaneous ones come one after the other: time that two callers add adds
up, and a job that runs out of it while somebody adds some either ends or goes on, never both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from controller.jobs.history.job_record import CommandRefused, refuse_ending
from controller.kube.loop_turn import LoopTurn
from controller.site.product_list import Catalogue
from controller.store.database import Store, Transaction
from controller.store.jobs.job_lists import live_jobs_of_batch
from controller.store.jobs.job_rows import (
    ASKED,
    JobRecord,
    RequestedEnd,
    lock_job,
    lock_jobs,
    request_end,
    unfinished_of,
    update_and_notify,
)
from controller.store.jobs.progress import add_extension, find_extension
from controller.store.outbox.update_rows import raise_counter, read_counter

EXPIRED: Final = RequestedEnd("EXPIRED", "expired", "its time is over")
OUT_OF_FUNDS: Final = RequestedEnd("FAILURE", "out_of_funds", "there are no funds for it any more")
LONGEST_SECONDS: Final = 1e10
"""How much time a job has in all, at most: the end is a time that plugins may return, too."""
_KEY_BYTES: Final = 16
_TOGETHER: Final = 100
_ANYTHING: Final = Catalogue()


def asked_by(whom: str | None) -> RequestedEnd:
    """Return how a job is ended that somebody asked to end, whom the caller may have named."""
    return replace(ASKED, details={"cause": ASKED.reason, "by": whom}) if whom else ASKED


@dataclass(frozen=True, slots=True)
class Extended:
    """How much time a job has since it was extended; ``added`` is False for a repeated call."""

    record: JobRecord
    added: bool


@dataclass(frozen=True, slots=True)
class OwnerFilter:
    """Whose jobs are meant: a project's; or a user's that are in no project."""

    user: str | None
    project: str | None


class JobCommands:
    """Takes wishes.

    Args:
        clock: Unix seconds.
        enqueue: Is told the id of a job that the reconciler should look at.
        catalogue: Says whose jobs may be extended.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float],
        random: Callable[[int], bytes],
        enqueue: Callable[[str], None],
        catalogue: Catalogue = _ANYTHING,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._clock = clock
        self._random = random
        self._enqueue = enqueue

    async def end(self, job_id: str, how: RequestedEnd = ASKED) -> JobRecord | None:
        """Note that the job is to end and return it; None where there is none.

        Asking again changes nothing. After its end, what is still kept of it in the cluster goes.

        Raises:
            StoreUnavailable: If it could not be kept.
        """
        async with self._held(job_id) as (transaction, record):
            if record is None:
                return None
            return await request_end(transaction, record, now=self._clock(), how=how)

    async def end_all(
        self,
        job_ids: Collection[str],
        how: RequestedEnd = ASKED,
        *,
        which: Callable[[JobRecord], bool] = lambda _: True,
    ) -> dict[str, JobRecord]:
        """Do what :meth:`end` does for each that *which* says; return these as they are now.

        A hundred wait for one commit together, not each for its own.

        Raises:
            StoreUnavailable: If some could not be kept; asking again is safe.
        """
        ids, ended, turn = sorted(set(job_ids)), dict[str, JobRecord](), LoopTurn()
        for first in range(0, len(ids), _TOGETHER):
            async with self._store.write() as transaction:
                held = await lock_jobs(transaction, ids[first : first + _TOGETHER])
                some, now = [one for one in held.values() if which(one)], self._clock()
                for record in some:
                    ended[record.id] = await request_end(transaction, record, now=now, how=how)
                    await turn.rest()
            for record in some:
                self._enqueue(record.id)
        return ended

    async def end_batch(self, batch_id: str) -> dict[str, JobRecord]:
        """End the jobs of the batch that are not over; return them as they are now.

        A hundred at a time, as :meth:`end_all`: again ends what was left.

        Raises:
            StoreUnavailable: If some could not be kept; asking again is safe.
        """
        async with self._store.read() as transaction:
            job_ids = await live_jobs_of_batch(transaction, batch_id)
        return await self.end_all(job_ids, which=_goes_on)

    async def suspend(self, job_id: str) -> JobRecord | None:
        """Note that the job is to be stopped and kept; again changes nothing.

        Raises:
            CommandRefused: If it is over, or about to be.
        """
        return await self._want(job_id, "suspended")

    async def resume(self, job_id: str) -> JobRecord | None:
        """Note that a suspended job is to go on; again changes nothing.

        Raises:
            CommandRefused: If it is over, or about to be.
        """
        return await self._want(job_id, "run")

    async def _want(self, job_id: str, desired: str) -> JobRecord | None:
        async with self._held(job_id) as (transaction, record):
            if record is None:
                return None
            refuse_ending(record)
            if record.desired == desired:
                return record
            return await update_and_notify(transaction, record, now=self._clock(), desired=desired)

    async def extend(
        self, job_id: str, *, seconds: float, key: str | None = None
    ) -> Extended | None:
        """Add *seconds* to the job's time; None where there is no such job.

        Args:
            job_id: The job.
            seconds: How much is added.
            key: Names the call: the same again adds nothing. Without one, every call adds.

        Raises:
            CommandRefused: If it is over or about to be, has no end, its product offers no more
                time, *key* was another addition's, or nobody's time lasts that long.
        """
        async with self._held(job_id) as (transaction, record):
            if record is None:
                return None
            before = await find_extension(transaction, job_id, key) if key is not None else None
            if before is not None:
                if before != seconds:
                    raise CommandRefused(
                        "key_reused", "this key has added another number of seconds"
                    )
                return Extended(record, added=False)
            refuse_ending(record)
            if not self._catalogue.offers(record.product, "extend"):
                raise CommandRefused("not_offered", "the job's product offers no more time")
            if record.allocated_seconds is None:
                raise CommandRefused("no_end", "the job was given no time that could be extended")
            more = record.allocated_seconds + seconds
            if more > LONGEST_SECONDS:
                raise CommandRefused("too_long", "the job would have more than 300 years")
            now, name = self._clock(), key or self._random(_KEY_BYTES).hex()
            await add_extension(transaction, job_id, name, seconds=seconds, now=now)
            return Extended(
                await update_and_notify(transaction, record, now=now, allocated_seconds=more),
                added=True,
            )

    async def end_if_over(self, job_ids: Collection[str]) -> dict[str, float | None]:
        """End the jobs whose time is over; return of each when it will be, None where never.

        All in one transaction: of many that are due together none waits for the others' commits.

        Raises:
            StoreUnavailable: If it could not be kept; none was ended.
        """
        again, over = dict[str, float | None].fromkeys(job_ids), list[JobRecord]()
        async with self._store.write() as transaction:
            held, now = await lock_jobs(transaction, job_ids), self._clock()
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
            self._enqueue(record.id)
        return again

    async def acknowledge(
        self, through: int, *, owners: Collection[OwnerFilter], job_ids: Collection[str]
    ) -> tuple[int, list[str]] | None:
        """End what is out of funds, then note that usage up to *through* was taken.

        Returns up to which it has been, and the jobs that end for it; None, with nothing done,
        where the ledger does not reach that far.

        Not in one transaction: an owner may have thousands of jobs, and nobody else could write
        meanwhile. What was ended without being noted is ended already when the caller asks again.

        Raises:
            StoreUnavailable: If not all could be kept; asking again is safe.
        """
        ids = set(job_ids)
        async with self._store.read() as transaction:
            if through > await read_counter(transaction, "usage"):
                return None
            for owner in owners:
                ids |= set(await unfinished_of(transaction, user=owner.user, project=owner.project))
        ended = await self.end_all(ids, OUT_OF_FUNDS, which=_goes_on)
        async with self._store.write() as transaction:
            reached = await raise_counter(transaction, "usage_acknowledged", through)
        return reached, list(ended)

    @asynccontextmanager
    async def _held(self, job_id: str) -> AsyncIterator[tuple[Transaction, JobRecord | None]]:
        async with self._store.write() as transaction:
            yield transaction, await lock_job(transaction, job_id)
        self._enqueue(job_id)


def _goes_on(record: JobRecord) -> bool:
    return not record.is_final and record.desired != "ended"
