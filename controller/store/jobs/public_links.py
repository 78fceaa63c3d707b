"""Queries on public links: the owner of a name, and the job that has it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction
from controller.store.instance import raise_revision
from controller.store.jobs.job_rows import FINAL_STATES

PASSES_ON_SECONDS: Final = 30 * 86400.0
"""How long a name is reserved for its owner after its last job. What browsers store for a site,
above all service workers, must not reach another owner's site."""

_table = tables.links


async def link_conflicts(
    transaction: Transaction, names: Sequence[str], *, owner: str, job_id: str, now: float
) -> list[tuple[int, str]]:
    """Return which of *names* the job cannot have, by position, with the reason.

    Nobody else can take a link until the transaction ends.
    """
    # Serialises all changes: after waiting here, this sees what was committed meanwhile.
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
        return "is in use by another job"
    if row.owner == owner:
        return None
    # If a job ended without releasing the name, its end counts as the release.
    released = row.released_at if row.job_id is None else row.finished_at
    if now < (released or now) + PASSES_ON_SECONDS:
        return "is reserved for another owner"
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
    """Give the names to the job; :func:`link_conflicts` must have found no reason against it."""
    await transaction.execute(sa.delete(_table).where(_table.c.name.in_(names)))
    rows = [{"name": name, "owner": owner, "job_id": job_id} for name in names]
    await transaction.execute(sa.insert(_table), rows)


_OF_JOB: Final = sa.select(_table.c.name).where(_table.c.job_id == sa.bindparam("of")).limit(1)


async def job_of_link(transaction: Transaction, name: str) -> str | None:
    """Return the job that has the public name, if any."""
    job_id: str | None = await transaction.scalar(
        sa.select(_table.c.job_id).where(_table.c.name == name)
    )
    return job_id


async def has_links(transaction: Transaction, job_id: str) -> bool:
    """Return whether the job has a public name."""
    return (await transaction.scalar(_OF_JOB, {"of": job_id})) is not None


async def release_links(transaction: Transaction, job_id: str, *, now: float) -> None:
    """Release the job's names; their owner stays."""
    await transaction.execute(
        sa.update(_table).where(_table.c.job_id == job_id).values(job_id=None, released_at=now)
    )


async def forget_links(transaction: Transaction, *, now: float) -> None:
    """Delete names whose reservation is over.

    A name whose job's record is deleted is released first.
    """
    # Not NOT IN: for each name, PostgreSQL would scan all jobs if there are many.
    known = sa.exists().where(tables.jobs.c.id == _table.c.job_id)
    lost = sa.update(_table).where(_table.c.job_id.is_not(None), ~known)
    await transaction.execute(lost.values(job_id=None, released_at=now))
    await transaction.execute(
        sa.delete(_table).where(
            _table.c.job_id.is_(None), _table.c.released_at <= now - PASSES_ON_SECONDS
        )
    )
