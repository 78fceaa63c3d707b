"""Queries on what jobs take together, and who waits before whom."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction
from controller.store.jobs.job_rows import IS_LIVE, JobRecord

_table = tables.jobs


@dataclass(frozen=True, slots=True)
class Demand:
    """What jobs in one state take together."""

    state: str
    jobs: int
    cpu: float
    memory: float
    gpu: float


async def demand_by_state(
    transaction: Transaction, *, product: str | None = None
) -> dict[str, Demand]:
    """Return what the jobs that are not over take, by state; of one product, if that is named."""
    total = sa.func.sum
    query = (
        sa.select(
            _table.c.state,
            sa.func.count(),
            total(_table.c.cpu),
            total(_table.c.memory),
            total(_table.c.gpu),
        )
        .where(IS_LIVE)
        .group_by(_table.c.state)
    )
    if product is not None:
        query = query.where(_table.c.product == product)
    return {row[0]: Demand(*row) for row in await transaction.execute(query)}


async def queue_position(transaction: Transaction, record: JobRecord) -> int | None:
    """Return how many jobs of its queue wait that came before it, and itself; None if unknown."""
    if record.queue is None or (record.state, record.reason) != ("IN_QUEUE", "queued"):
        return None
    earlier = sa.or_(
        _table.c.created_at < record.created_at,
        sa.and_(_table.c.created_at == record.created_at, _table.c.id <= record.id),
    )
    same = (_table.c.queue == record.queue, _table.c.state == "IN_QUEUE", earlier)
    query = sa.select(sa.func.count()).where(*same, _table.c.reason == "queued")
    return int(await transaction.scalar(query) or 0)
