"""Queries on which job waits for which others to end, and how those ended.

How a job ended is kept with those that wait for it, so that it outlives the job's record.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, insert_if_absent
from controller.store.jobs.job_rows import ASKED, FINAL_STATES, IS_LIVE

_table: Final = tables.predecessors
_jobs: Final = tables.jobs
_OF: Final = (
    sa.select(
        _table.c.predecessor_id,
        sa.func.coalesce(_table.c.state, _jobs.c.state).label("state"),
        sa.func.coalesce(_table.c.reason, _jobs.c.reason).label("reason"),
    )
    .select_from(_table.outerjoin(_jobs, _jobs.c.id == _table.c.predecessor_id))
    .where(_table.c.job_id == sa.bindparam("job"))
    .order_by(_table.c.predecessor_id)
)


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A job that another one waits for; without a ``state``, nothing is known of it any more."""

    job_id: str
    state: str | None
    reason: str | None

    @property
    def goes_on(self) -> bool:
        """Whether it has not ended."""
        return self.state is not None and self.state not in FINAL_STATES

    @property
    def ended_well(self) -> bool:
        """Whether it came to its own end, and that was a good one."""
        return self.state == "SUCCESS" and self.reason != ASKED.reason


async def record_predecessors(
    transaction: Transaction, job_id: str, predecessors: Collection[str]
) -> None:
    """Remember which jobs, that this transaction holds or has added, the job waits for."""
    rows = [{"job_id": job_id, "predecessor_id": one} for one in predecessors]
    if not rows:
        return
    await insert_if_absent(transaction, _table, rows)
    ended = sa.select(_jobs.c.id, _jobs.c.state, _jobs.c.reason).where(
        _jobs.c.id.in_(predecessors), _jobs.c.state.in_(FINAL_STATES)
    )
    for row in (await transaction.execute(ended)).all():
        await _settle(transaction, row.id, state=row.state, reason=row.reason)


async def predecessors_of(transaction: Transaction, job_id: str) -> tuple[Predecessor, ...]:
    """Return the jobs that the job waits for, or has waited for, in order."""
    rows = await transaction.execute(_OF, {"job": job_id})
    return tuple(Predecessor(row.predecessor_id, row.state, row.reason) for row in rows)


async def settle_followers(
    transaction: Transaction, job_id: str, *, state: str, reason: str | None
) -> Sequence[str]:
    """Keep how the job, which this transaction holds, ended; return which jobs wait for that."""
    await _settle(transaction, job_id, state=state, reason=reason)
    query = sa.select(_table.c.job_id).join_from(_table, _jobs, _jobs.c.id == _table.c.job_id)
    return (
        await transaction.scalars(query.where(_table.c.predecessor_id == job_id, IS_LIVE))
    ).all()


async def _settle(transaction: Transaction, job_id: str, *, state: str, reason: str | None) -> None:
    # Another job of this id may have ended before.
    waits = (_table.c.predecessor_id == job_id, _table.c.state.is_(None))
    await transaction.execute(sa.update(_table).where(*waits).values(state=state, reason=reason))
