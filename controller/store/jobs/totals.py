"""Queries on the total demand of jobs, and on queue positions."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction
from controller.store.jobs.job_rows import IS_JOB, IS_LIVE, JobRecord

_table = tables.jobs


@dataclass(frozen=True, slots=True)
class Demand:
    """The resources of all jobs in one state and of their tools."""

    state: str
    jobs: int
    cpu: float
    memory: float
    gpu: float


async def demand_by_state(
    transaction: Transaction, *, product: str | None = None
) -> dict[str, Demand]:
    """Return the demand of jobs that have not ended, by state; optionally of one product."""
    total = sa.func.sum
    query = (
        sa.select(
            _table.c.state,
            total(sa.case((IS_JOB, 1), else_=0)),
            total(_table.c.cpu),
            total(_table.c.memory),
            total(_table.c.gpu),
        )
        .where(IS_LIVE)
        .group_by(_table.c.state)
    )
    if product is not None:
        query = query.where(_table.c.product == product)
    rows = await transaction.execute(query)
    return {row[0]: Demand(row[0], int(row[1]), *row[2:]) for row in rows}


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """The position of a waiting job: 1 is next among ``waiting`` jobs of its queue.

    It is an estimate by what Volcano orders by first: PriorityClass, then age. Shares, the jobs'
    sizes, and jobs of others matter as well.
    """

    position: int
    waiting: int
    of_higher_priority: int


async def queue_place(transaction: Transaction, record: JobRecord) -> QueuePlace | None:
    """Return the job's position in its queue; None if it is not known."""
    if record.queue is None or (record.state, record.reason) != ("IN_QUEUE", "queued"):
        return None
    priority = sa.func.coalesce(_table.c.priority_value, 0)
    own = record.priority_value or 0
    place = sa.tuple_(_table.c.created_at, _table.c.id)
    earlier = place <= sa.tuple_(sa.literal(record.created_at), sa.literal(record.id))
    higher = priority > own
    before = sa.or_(higher, sa.and_(priority == own, earlier))

    def counted(which: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
        return sa.func.coalesce(sa.func.sum(sa.case((which, 1), else_=0)), 0)

    query = sa.select(counted(before), sa.func.count(), counted(higher)).where(
        _table.c.queue == record.queue,
        _table.c.state == "IN_QUEUE",
        _table.c.reason == "queued",
        IS_JOB,
    )
    position, waiting, of_higher = (await transaction.execute(query)).one()
    return QueuePlace(int(position), int(waiting), int(of_higher))
