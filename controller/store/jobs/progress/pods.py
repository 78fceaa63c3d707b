"""Queries on runs: every pod that was ever seen for a job, and how it ended.

Pods go with their VolcanoJob; what they did is asked for later, and paid for.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, insert_or_change

_table = tables.runs


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """One pod's life. ``ended_at`` is None while its program may still run."""

    job_id: str
    pod_uid: str
    attempt: int
    rank: int
    task: str
    index: int
    pod: str
    node: str
    phase: str
    reason: str
    message: str
    exit_code: int | None
    signal: int | None
    seen_at: float
    started_at: float | None
    ended_at: float | None
    retry: int | None = None
    memory_limit: str | None = None


_OF_JOB: Final = (
    sa.select(*(_table.c[name] for name in PodRecord.__slots__))
    .where(_table.c.job_id == sa.bindparam("job_id"))
    .order_by(_table.c.attempt, _table.c.rank, _table.c.seen_at, _table.c.pod_uid)
)
_OF_ATTEMPT: Final = _OF_JOB.where(_table.c.attempt == sa.bindparam("attempt"))


async def pod_records_of(
    transaction: Transaction, job_id: str, attempt: int | None = None
) -> list[PodRecord]:
    """Return the job's runs, or those of one attempt, by rank and in the order of their starts."""
    query, given = _OF_JOB, dict[str, Any](job_id=job_id)
    if attempt is not None:
        query, given = _OF_ATTEMPT, given | {"attempt": attempt}
    return [PodRecord(**row._mapping) for row in await transaction.execute(query, given)]


async def upsert_pod_records(transaction: Transaction, runs: Collection[PodRecord]) -> None:
    """Remember *runs* as they are now; when each was first seen stays."""
    rows = [{name: getattr(run, name) for name in PodRecord.__slots__} for run in runs]
    await insert_or_change(transaction, _table, rows, keep=("seen_at",))
