"""Enters what jobs have used, once for each period, whatever dies in between."""

from __future__ import annotations

from collections.abc import Callable

from controller.jobs.history.unreadable import read_known
from controller.jobs.usage.demand import replica_resources
from controller.jobs.usage.periods import Used, usage_due
from controller.settings import JobDefaults
from controller.store.database import Store, Transaction
from controller.store.jobs.job_rows import JobRecord, lock_job
from controller.store.jobs.progress.attempts import Attempt, attempts_of
from controller.store.jobs.progress.pods import pod_records_of
from controller.store.outbox.usage_entries import UsageEntry, append_usage, last_entries


class Ledger:
    """The usage of jobs.

    What is entered follows from what is written down of the pods, and from what was entered
    before; both are read, and the entries made, in one transaction that holds the job. So doing it
    again enters nothing, and two who do it at once enter it once.

    Args:
        store: Where it is.
        defaults: How often what runs is entered, and what jobs get that they do not say.
        clock: Unix seconds.
    """

    def __init__(self, store: Store, *, defaults: JobDefaults, clock: Callable[[], float]) -> None:
        self._store = store
        self._defaults = defaults
        self._clock = clock

    async def write_up(self, job_id: str) -> float | None:
        """Enter what is due for the job; return when there will be more, None where never.

        Raises:
            StoreUnavailable: If it could not be entered; nothing was.
        """
        async with self._store.write() as transaction:
            record = await lock_job(transaction, job_id)
            if record is None:
                return None
            entries, following = list[UsageEntry](), list[float]()
            for attempt in await attempts_of(transaction, job_id):
                due, at = await self._due(transaction, job_id, attempt)
                entries += [self._entry(record, attempt, used) for used in due]
                following += [] if at is None else [at]
            await append_usage(transaction, entries)
        return min(following, default=None)

    async def _due(
        self, transaction: Transaction, job_id: str, attempt: Attempt
    ) -> tuple[list[Used], float | None]:
        return usage_due(
            attempt,
            await pod_records_of(transaction, job_id, attempt.attempt),
            await last_entries(transaction, attempt.uid),
            now=self._clock(),
            period_seconds=self._defaults.usage_period_seconds,
        )

    def _entry(self, record: JobRecord, attempt: Attempt, used: Used) -> UsageEntry:
        job = read_known(record)
        tool = record.tool or {}
        return UsageEntry(
            job_id=tool.get("job", record.id),
            tool=tool.get("name"),
            owner_user=record.owner_user,
            owner_project=record.owner_project,
            uid=attempt.uid,
            attempt=attempt.attempt,
            rank=used.rank,
            period=used.period,
            until=used.until,
            seconds=used.seconds,
            final=used.final,
            product=record.product,
            price=record.price,
            resources=replica_resources(job, used.rank, self._defaults),
            at=self._clock(),
        )
