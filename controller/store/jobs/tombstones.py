"""Queries that delete the records of jobs, and queries on the tombstones that remain."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, insert_if_absent
from controller.store.jobs.batches import record_last_states
from controller.store.jobs.hook_failures import forget_hook_failures
from controller.store.jobs.stored_logs import drop_logs
from controller.store.outbox.update_rows import forget_updates_of

_jobs: Final = tables.jobs
_columns: Final = tables.tombstones.c


class Tombstone(NamedTuple):
    """A deleted record of a VolcanoJob, and when it was deleted."""

    at: float
    job_id: str
    uid: str


async def old_tombstones(
    transaction: Transaction, *, before: float, after: Tombstone | None, limit: int
) -> list[Tombstone]:
    """Return the first *limit* tombstones before a time and after another one, oldest first."""
    order = (_columns.at, _columns.job_id, _columns.uid)
    query = sa.select(*order).where(_columns.at < before).order_by(*order).limit(limit)
    if after is not None:
        query = query.where(sa.tuple_(*order) > after)
    return [Tombstone(*row) for row in await transaction.execute(query)]


async def forget_tombstones(transaction: Transaction, gone: Sequence[Tombstone]) -> None:
    """Delete tombstones; if one of their VolcanoJobs reappears, it is then adopted."""
    if gone:
        keys = sa.tuple_(_columns.job_id, _columns.uid)
        given = [(one.job_id, one.uid) for one in gone]
        await transaction.execute(sa.delete(tables.tombstones).where(keys.in_(given)))


async def delete_job_records(
    transaction: Transaction, job_ids: Collection[str], *, at: float
) -> None:
    """Delete the records of ended jobs, and leave tombstones with the time *at*."""
    if not job_ids:
        return
    await _bury(transaction, job_ids, at=at)
    await forget_updates_of(transaction, job_ids)
    await forget_hook_failures(transaction, job_ids)
    await drop_logs(transaction, job_ids)
    await record_last_states(transaction, job_ids)
    await transaction.execute(sa.delete(_jobs).where(_jobs.c.id.in_(job_ids)))


async def _bury(transaction: Transaction, job_ids: Collection[str], *, at: float) -> None:
    attempts = tables.attempts.c
    uids = sa.select(attempts.job_id, attempts.uid).where(attempts.job_id.in_(job_ids))
    current = sa.select(_jobs.c.id, _jobs.c.uid).where(
        _jobs.c.id.in_(job_ids), _jobs.c.uid.is_not(None)
    )
    rows = (await transaction.execute(uids.union(current))).all()
    stones = [{"job_id": job_id, "uid": uid, "at": at} for job_id, uid in rows]
    if stones:
        await insert_if_absent(transaction, tables.tombstones, stones)


async def has_tombstone(transaction: Transaction, job_id: str, uid: str) -> bool:
    """Return whether this VolcanoJob's record was deleted, so that it may be removed."""
    query = sa.select(_columns.uid).where(_columns.job_id == job_id, _columns.uid == uid)
    return (await transaction.scalar(query)) is not None
