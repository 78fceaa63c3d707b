"""Queries on the items of batches: how each was made, and what became of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from controller.kube.loop_turn import LoopTurn
from controller.store import tables
from controller.store.database import Transaction

_items: Final = tables.batch_items
_jobs: Final = tables.jobs
_ROWS_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """One item: the ``parameters`` that its job was made with, and what became of it.

    ``result`` is that of the call which made the batch. ``state`` is the job's, the last one where
    its record is forgotten; None where the item is no job.
    """

    index: int
    job_id: str | None
    result: str
    parameters: Mapping[str, Any]
    problems: Sequence[Mapping[str, str]] | None
    state: str | None = None


async def insert_items(transaction: Transaction, batch_id: str, items: Sequence[BatchItem]) -> None:
    """Add the items of a batch that is new."""
    turn = LoopTurn()
    for first in range(0, len(items), _ROWS_AT_ONCE):
        rows = [_item_row(batch_id, one) for one in items[first : first + _ROWS_AT_ONCE]]
        await transaction.execute(sa.insert(_items), rows)
        await turn.rest()


async def batch_items(
    transaction: Transaction, batch_id: str, *, after: int, limit: int
) -> list[BatchItem]:
    """Return the first *limit* items of the batch after a position, in order."""
    of = _items.c
    # Another job may have the id by now; only the batch's own is the item's.
    own = sa.and_(
        _jobs.c.id == of.job_id,
        _jobs.c.batch == of.batch_id,
        _jobs.c.batch_index == of.index,
    )
    state = sa.func.coalesce(_jobs.c.state, of.ended_as).label("state")
    columns = (of.index, of.job_id, of.result, of.parameters, of.problems, state)
    query = (
        sa.select(*columns)
        .select_from(_items.outerjoin(_jobs, own))
        .where(of.batch_id == batch_id, of.index > after)
        .order_by(of.index)
        .limit(limit)
    )
    return [BatchItem(**row._mapping) for row in await transaction.execute(query)]


async def find_item(transaction: Transaction, batch_id: str, index: int) -> BatchItem | None:
    """Return the batch's item at a position, if there is one."""
    found = await batch_items(transaction, batch_id, after=index - 1, limit=1)
    return found[0] if found and found[0].index == index else None


async def record_last_states(transaction: Transaction, job_ids: Collection[str]) -> None:
    """Keep with their batches how these jobs ended, whose records are about to go."""
    change = (
        sa.update(_items)
        .where(_items.c.batch_id == sa.bindparam("of"), _items.c.index == sa.bindparam("place"))
        .values(ended_as=sa.bindparam("last"))
    )
    columns = (_jobs.c.batch, _jobs.c.batch_index, _jobs.c.state)
    query = sa.select(*columns).where(_jobs.c.id.in_(job_ids), _jobs.c.batch.is_not(None))
    rows = await transaction.execute(query)
    ended = [{"of": row[0], "place": row[1], "last": row[2]} for row in rows]
    if ended:
        await transaction.execute(change, ended)


def _item_row(batch_id: str, item: BatchItem) -> dict[str, Any]:
    row = {name: getattr(item, name) for name in BatchItem.__slots__ if name != "state"}
    return {"batch_id": batch_id, **row}
