"""Queries on public links: whose a name is, and which job has it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction
from controller.store.instance import raise_revision
from controller.store.jobs.job_rows import FINAL_STATES

PASSES_ON_SECONDS: Final = 30 * 86400.0
"""How long a name stays its owner's after its last job. What browsers keep of a site, a service
worker above all, must not meet another owner's."""

_table = tables.links


async def why_not_links(
    transaction: Transaction, names: Sequence[str], *, owner: str, job_id: str, now: float
) -> list[tuple[int, str]]:
    """Return which of *names* the job cannot have, by position, and why.

    From here to the end of the transaction nobody else takes a link.
    """
    # Every change goes through this row; who waits for it sees what was committed meanwhile.
    await raise_revision(transaction)
    found: list[tuple[int, str]] = []
    for index, name in enumerate(names):
        problem = await _why_not(transaction, name, owner=owner, job_id=job_id, now=now)
        if problem is not None:
            found.append((index, problem))
    return found


async def _why_not(
    transaction: Transaction, name: str, *, owner: str, job_id: str, now: float
) -> str | None:
    row = (await transaction.execute(_with_holder().where(_table.c.name == name))).first()
    if row is None or row.job_id == job_id:
        return None
    if row.state is not None and row.state not in FINAL_STATES:
        return "is another job's"
    if row.owner == owner:
        return None
    # Of a job that ended without releasing it its end counts.
    released = row.released_at if row.job_id is None else row.finished_at
    if now < (released or now) + PASSES_ON_SECONDS:
        return "is another owner's"
    return None


def _with_holder() -> sa.Select[tuple[str, str, str, float, str, float]]:
    jobs = tables.jobs
    return sa.select(
        _table.c.name,
        _table.c.owner,
        _table.c.job_id,
        _table.c.released_at,
        jobs.c.state,
        jobs.c.finished_at,
    ).select_from(_table.outerjoin(jobs, jobs.c.id == _table.c.job_id))


async def take_links(
    transaction: Transaction, names: Collection[str], *, owner: str, job_id: str
) -> None:
    """Give the job the names, which :func:`why_not_links` found nothing against."""
    await transaction.execute(sa.delete(_table).where(_table.c.name.in_(names)))
    rows = [{"name": name, "owner": owner, "job_id": job_id} for name in names]
    await transaction.execute(sa.insert(_table), rows)


_OF_JOB: Final = sa.select(_table.c.name).where(_table.c.job_id == sa.bindparam("of")).limit(1)


async def job_of_link(transaction: Transaction, name: str) -> str | None:
    """Return which job has the public name now."""
    job_id: str | None = await transaction.scalar(
        sa.select(_table.c.job_id).where(_table.c.name == name)
    )
    return job_id


async def has_links(transaction: Transaction, job_id: str) -> bool:
    """Say whether the job has any name."""
    return (await transaction.scalar(_OF_JOB, {"of": job_id})) is not None


async def release_links(transaction: Transaction, job_id: str, *, now: float) -> None:
    """Take the job's names from it; whose they are is remembered."""
    await transaction.execute(
        sa.update(_table).where(_table.c.job_id == job_id).values(job_id=None, released_at=now)
    )


async def forget_links(transaction: Transaction, *, now: float) -> None:
    """Forget names that anybody may have by now.

    A name whose job is no longer known is released: the record went without that.
    """
    # Not NOT IN: PostgreSQL would go through all jobs for each name, where they are many.
    known = sa.exists().where(tables.jobs.c.id == _table.c.job_id)
    lost = sa.update(_table).where(_table.c.job_id.is_not(None), ~known)
    await transaction.execute(lost.values(job_id=None, released_at=now))
    await transaction.execute(
        sa.delete(_table).where(
            _table.c.job_id.is_(None), _table.c.released_at <= now - PASSES_ON_SECONDS
        )
    )
