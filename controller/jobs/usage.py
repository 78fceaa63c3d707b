"""The usage of a job: what is charged for it.

The unit is the replica-second: a second in which the program of one replica ran, by the cluster's
record of its start and end. A ledger entry is absolute: the total usage of a rank in one attempt
until a moment. So an entry that is read twice, late, or made after a long outage charges neither
twice nor too little. One entry is made for each period, even if processes stop in between. Source:
docs/plugins/accounting.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

from controller.jobs.history.job_record import read_known
from controller.site.job_defaults import JobDefaults
from controller.store.database import Store, Transaction
from controller.store.jobs.job_rows import JobRecord, lock_job
from controller.store.jobs.progress import Attempt, PodRecord, attempts_of, pod_records_of
from controller.store.outbox.usage_entries import LastEntry, UsageEntry, append_usage, last_entries


@dataclass(frozen=True, slots=True, kw_only=True)
class UsagePeriod:
    """The run time of a rank until a moment."""

    rank: int
    period: int
    until: float
    seconds: float
    final: bool


def used_seconds(runs: Sequence[PodRecord], until: float) -> float:
    """Return how long the programs of *runs* ran until *until*."""
    return sum(
        max(0.0, min(until if run.ended_at is None else run.ended_at, until) - run.started_at)
        for run in runs
        if run.started_at is not None
    )


def usage_due(
    attempt: Attempt,
    runs: Sequence[PodRecord],
    written: Mapping[int, LastEntry],
    *,
    now: float,
    period_seconds: float,
) -> tuple[list[UsagePeriod], float | None]:
    """Return the entries due for the attempt, and when more will be due; None for never.

    There is one entry for each period that has passed since the attempt's first program started,
    also for periods without a leader. The final entry is due when the attempt is over and all its
    programs have ended.

    Args:
        attempt: The attempt.
        runs: The records of its pods.
        written: The last entry of each rank.
        now: The time.
        period_seconds: The length of a period.
    """
    begun = [run.started_at for run in runs if run.started_at is not None and run.rank >= 0]
    if not begun:
        return [], None
    begin, due = min(begun), list[UsagePeriod]()
    over = attempt.ended_at is not None and all(run.ended_at is not None for run in runs)
    for rank in sorted({run.rank for run in runs if run.started_at is not None and run.rank >= 0}):
        last = written.get(rank, LastEntry(-1, False))
        if not last.final:
            own = [run for run in runs if run.rank == rank]
            due += _of_rank(rank, own, last.period + 1, begin, over=over, now=now,
                            period_seconds=period_seconds)  # fmt: skip
    if over:
        return due, None
    passed = int((now - begin) / period_seconds)
    return due, begin + (passed + 1) * period_seconds


def _of_rank(
    rank: int,
    runs: Sequence[PodRecord],
    period: int,
    begin: float,
    *,
    over: bool,
    now: float,
    period_seconds: float,
) -> list[UsagePeriod]:
    end = max((run.ended_at for run in runs if run.ended_at is not None), default=begin)
    entries = []
    while (boundary := begin + (period + 1) * period_seconds) <= (min(now, end) if over else now):
        seconds = used_seconds(runs, boundary)
        entries.append(
            UsagePeriod(rank=rank, period=period, until=boundary, seconds=seconds, final=False)
        )
        period += 1
    if over:
        seconds = used_seconds(runs, end)
        entries.append(
            UsagePeriod(rank=rank, period=period, until=end, seconds=seconds, final=True)
        )
    return entries


@dataclass(slots=True, eq=False, repr=False)
class Ledger:
    """The usage ledger of jobs.

    Entries follow from the records of the pods and from earlier entries. Both are read, and the new
    entries written, in one transaction that locks the job. So a repetition adds no entry, and two
    concurrent calls add each entry once.
    """

    store: Store
    _: KW_ONLY
    defaults: JobDefaults
    """The period, and the resources of jobs that request none."""
    clock: Callable[[], float]
    """Unix seconds."""

    async def write_up(self, job_id: str) -> float | None:
        """Enter the due usage of the job; return when more will be due, None for never.

        Raises:
            StoreUnavailable: If the usage could not be entered; the ledger is unchanged.
        """
        async with self.store.write() as transaction:
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
    ) -> tuple[list[UsagePeriod], float | None]:
        return usage_due(
            attempt,
            await pod_records_of(transaction, job_id, attempt.attempt),
            await last_entries(transaction, attempt.uid),
            now=self.clock(),
            period_seconds=self.defaults.usage_period_seconds,
        )

    def _entry(self, record: JobRecord, attempt: Attempt, used: UsagePeriod) -> UsageEntry:
        job, tool = read_known(record), record.tool or {}
        catalogue = self.defaults.pods.catalogue
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
            resources=self.defaults.replica_resources(job, used.rank, catalogue),
            at=self.clock(),
        )
