"""Queries on tombstones: what is left of jobs whose record is gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction

_columns: Final = tables.tombstones.c


class Tombstone(NamedTuple):
    """That the record of a VolcanoJob was dropped, and when its job had long been over."""

    at: float
    job_id: str
    uid: str


async def old_tombstones(
    transaction: Transaction, *, before: float, after: Tombstone | None, limit: int
) -> list[Tombstone]:
    """Return the first *limit* from before then that come after another one, the oldest first."""
    order = (_columns.at, _columns.job_id, _columns.uid)
    query = sa.select(*order).where(_columns.at < before).order_by(*order).limit(limit)
    if after is not None:
        query = query.where(sa.tuple_(*order) > after)
    return [Tombstone(*row) for row in await transaction.execute(query)]


async def forget_tombstones(transaction: Transaction, gone: Sequence[Tombstone]) -> None:
    """Drop these: a VolcanoJob of theirs that turns up is adopted from then on."""
    if gone:
        keys = sa.tuple_(_columns.job_id, _columns.uid)
        given = [(one.job_id, one.uid) for one in gone]
        await transaction.execute(sa.delete(tables.tombstones).where(keys.in_(given)))
