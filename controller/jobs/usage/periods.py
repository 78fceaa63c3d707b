"""What has been used, from what is written down of a job's pods. No I/O.

A unit is a replica-second: a second in which one replica's program ran, by the cluster's own
record of when it was started and when it ended. An entry of the ledger is absolute: all that a
rank has used in one attempt until a moment. So an entry that is read twice, or late, or made after
a long absence, charges nobody twice and nobody too little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.store.jobs.progress.attempts import Attempt
from controller.store.jobs.progress.pods import PodRecord
from controller.store.outbox.usage_entries import LastEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """How long a rank ran until a moment."""

    rank: int
    period: int
    until: float
    seconds: float
    final: bool


def used_seconds(runs: Sequence[PodRecord], until: float) -> float:
    """Return for how long the programs of *runs* ran until then."""
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
) -> tuple[list[Used], float | None]:
    """Return what is to be entered for the attempt, and when there will be more.

    One entry for each period that has passed since the attempt's first program began, also for
    those in which nobody looked; and the final one when the attempt is over and all its programs
    have ended.

    Args:
        attempt: The attempt.
        runs: Its runs.
        written: The last entry of each rank.
        now: The time.
        period_seconds: How long a period is.
    """
    begun = [run.started_at for run in runs if run.started_at is not None and run.rank >= 0]
    if not begun:
        return [], None
    begin, due = min(begun), list[Used]()
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
) -> list[Used]:
    end = max((run.ended_at for run in runs if run.ended_at is not None), default=begin)
    entries = []
    while (boundary := begin + (period + 1) * period_seconds) <= (min(now, end) if over else now):
        seconds = used_seconds(runs, boundary)
        entries.append(Used(rank=rank, period=period, until=boundary, seconds=seconds, final=False))
        period += 1
    if over:
        seconds = used_seconds(runs, end)
        entries.append(Used(rank=rank, period=period, until=end, seconds=seconds, final=True))
    return entries
