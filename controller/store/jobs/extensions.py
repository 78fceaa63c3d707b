"""Queries on time that was added to jobs' allocations."""

from __future__ import annotations

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction

_table = tables.extensions


async def find_extension(transaction: Transaction, job_id: str, key: str) -> float | None:
    """Return how many seconds were added to the job under *key*, None where none were."""
    same = (_table.c.job_id == job_id, _table.c.key == key)
    seconds: float | None = await transaction.scalar(sa.select(_table.c.seconds).where(*same))
    return seconds


async def add_extension(
    transaction: Transaction, job_id: str, key: str, *, seconds: float, now: float
) -> None:
    """Remember that so many seconds were added under *key*, which is new."""
    values = {"job_id": job_id, "key": key, "seconds": seconds, "at": now}
    await transaction.execute(sa.insert(_table).values(values))
