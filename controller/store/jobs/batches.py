"""Queries on batches and their items."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import sqlalchemy as sa

from controller.loop_turn import LoopTurn
from controller.store import tables
from controller.store.database import Transaction
from controller.store.errors import AlreadyThere
from controller.store.instance import raise_revision
from controller.store.paging import Key, first_keys

_table: Final = tables.batches
_items: Final = tables.batch_items
_jobs: Final = tables.jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """A batch: ``items`` counts its items, ``jobs`` those of them that are jobs."""

    id: str
    owner_user: str
    owner_project: str | None
    mode: str
    fingerprint: bytes
    created_at: float
    items: int
    jobs: int


async def find_batch(transaction: Transaction, batch_id: str) -> BatchRecord | None:
    """Return the batch, if there is one."""
    return (await _find(transaction, [batch_id])).get(batch_id)


async def insert_batch(
    transaction: Transaction, record: BatchRecord, items: Sequence[BatchItem]
) -> None:
    """Add a batch that does not exist yet; its jobs are added separately.

    Raises:
        AlreadyThere: If the batch exists.
    """
    # After waiting here, the transaction sees what was committed meanwhile: see ``insert_jobs``.
    await raise_revision(transaction)
    if await find_batch(transaction, record.id) is not None:
        raise AlreadyThere(f"batch {record.id} exists")
    await transaction.execute(sa.insert(_table).values(**asdict(record)))
    await insert_items(transaction, record.id, items)


async def add_to_batch(transaction: Transaction, batch_id: str, places: Mapping[str, int]) -> None:
    """Assign jobs, which this transaction holds, to the batch; *places* maps each to its item."""
    rows = [{"which": job_id, "of": batch_id, "place": n} for job_id, n in places.items()]
    if rows:
        change = sa.update(_jobs).where(_jobs.c.id == sa.bindparam("which"))
        values: dict[str, sa.BindParameter[Any]] = {
            "batch": sa.bindparam("of"),
            "batch_index": sa.bindparam("place"),
        }
        await transaction.execute(change.values(**values), rows)


async def newest_batches(
    transaction: Transaction,
    *,
    user: str | None = None,
    project: str | None = None,
    after: Key | None,
    limit: int,
) -> tuple[list[BatchRecord], Key | None]:
    """Return a page of batches, newest first, and its last key; None if it is the last page.

    *user* and *project* select batches; None matches all.
    """
    of, where = _table.c, []
    if project is not None:
        where.append(of.owner_project == project)
    if user is not None:
        where.append(of.owner_user == user)
    keys = sa.select(of.created_at, of.id)
    query = first_keys(keys, (tuple(where),), (of.created_at, of.id), after, limit + 1)
    found = [Key(row.created_at, row.id) for row in await transaction.execute(query)]
    page = found[:limit]
    records = await _find(transaction, [key.id for key in page])
    following = page[-1] if len(found) > limit else None
    return [records[key.id] for key in page if key.id in records], following


async def batch_counts(
    transaction: Transaction, batch_ids: Collection[str]
) -> dict[str, dict[str, int]]:
    """Return the number of jobs by state for each batch; deleted jobs count by their last state."""
    counts: dict[str, dict[str, int]] = {batch_id: {} for batch_id in batch_ids}
    known = sa.select(_jobs.c.batch, _jobs.c.state, sa.func.count()).where(
        _jobs.c.batch.in_(batch_ids)
    )
    forgotten = sa.select(_items.c.batch_id, _items.c.ended_as, sa.func.count()).where(
        _items.c.batch_id.in_(batch_ids), _items.c.ended_as.is_not(None)
    )
    for query in (
        known.group_by(_jobs.c.batch, _jobs.c.state),
        forgotten.group_by(_items.c.batch_id, _items.c.ended_as),
    ):
        for batch_id, state, count in await transaction.execute(query):
            counts[batch_id][state] = counts[batch_id].get(state, 0) + count
    return counts


async def forget_batches(transaction: Transaction, *, before: float, limit: int) -> int:
    """Delete batches that were created before then and have no jobs left; return their number.

    A batch with jobs stays, so that a repeated request cannot create them again.
    """
    has_jobs = sa.exists().where(_jobs.c.batch == _table.c.id)
    old = sa.select(_table.c.id).where(_table.c.created_at < before, ~has_jobs).limit(limit)
    gone = list((await transaction.scalars(old)).all())
    if gone:
        await transaction.execute(sa.delete(_table).where(_table.c.id.in_(gone)))
    return len(gone)


async def _find(transaction: Transaction, batch_ids: Iterable[str]) -> dict[str, BatchRecord]:
    columns = [_table.c[name] for name in BatchRecord.__slots__]
    query = sa.select(*columns).where(_table.c.id.in_(list(batch_ids)))
    return {row.id: BatchRecord(**row._mapping) for row in await transaction.execute(query)}


_ROWS_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """One item: the ``parameters`` of its job, and its result.

    ``result`` is the result of the request that created the batch. ``state`` is the job's, or its
    last one if the record is deleted; None if the item is not a job.
    """

    index: int
    job_id: str | None
    result: str
    parameters: Mapping[str, Any]
    problems: Sequence[Mapping[str, str]] | None
    state: str | None = None


async def insert_items(transaction: Transaction, batch_id: str, items: Sequence[BatchItem]) -> None:
    """Add the items of a new batch."""
    turn = LoopTurn()
    for first in range(0, len(items), _ROWS_AT_ONCE):
        rows = [_item_row(batch_id, one) for one in items[first : first + _ROWS_AT_ONCE]]
        await transaction.execute(sa.insert(_items), rows)
        await turn.rest()


async def batch_items(
    transaction: Transaction, batch_id: str, *, after: int, limit: int
) -> list[BatchItem]:
    """Return the first *limit* items of the batch after an index, in order."""
    of = _items.c
    # The id may have been reused; only the batch's own job belongs to the item.
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
    """Return the batch's item at *index*, if there is one."""
    found = await batch_items(transaction, batch_id, after=index - 1, limit=1)
    return found[0] if found and found[0].index == index else None


async def record_last_states(transaction: Transaction, job_ids: Collection[str]) -> None:
    """Store the final states of jobs with their batches, before the jobs' records are deleted."""
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
