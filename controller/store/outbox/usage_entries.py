"""Queries on the usage ledger: entries are only appended, numbered in the order of commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction
from controller.store.outbox.update_rows import (
    check_known,
    raise_counter,
    read_counter,
    take_number,
)

_table: Final = tables.usage


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageEntry:
    """The usage of one replica in one attempt from its start until a moment: cumulative.

    ``period`` counts the entries of a rank and attempt from 0 without gaps; ``final`` marks the
    last one. ``id`` is 0 until the entry is in the ledger. ``tool`` is the job's tool that used
    the resources; None for the job itself.
    """

    id: int = 0
    job_id: str
    owner_user: str
    owner_project: str | None
    uid: str
    attempt: int
    rank: int
    period: int
    until: float
    seconds: float
    final: bool
    product: str | None
    price: Mapping[str, Any] | None
    resources: Mapping[str, Any]
    at: float
    tool: str | None = None


@dataclass(frozen=True, slots=True)
class LastEntry:
    """The last entry of a rank in an attempt."""

    period: int
    final: bool


_COLUMNS: Final = [_table.c[name] for name in UsageEntry.__slots__]


_LAST: Final = (
    sa.select(
        _table.c.rank,
        sa.func.max(_table.c.period),
        # PostgreSQL has no maximum of booleans.
        sa.func.max(sa.cast(_table.c.final, sa.Integer)),
    )
    .where(_table.c.uid == sa.bindparam("of"))
    .group_by(_table.c.rank)
)


async def last_entries(transaction: Transaction, uid: str) -> dict[int, LastEntry]:
    """Return the last entry of each rank of the VolcanoJob *uid*."""
    rows = await transaction.execute(_LAST, {"of": uid})
    return {rank: LastEntry(period, bool(ended)) for rank, period, ended in rows}


async def append_usage(transaction: Transaction, entries: Sequence[UsageEntry]) -> None:
    """Append *entries*. The caller must hold their job, so that nobody else appends the same."""
    if not entries:
        return
    last = await take_number(transaction, "usage", len(entries))
    rows = [
        {name: getattr(one, name) for name in UsageEntry.__slots__} | {"id": number}
        for number, one in enumerate(entries, last - len(entries) + 1)
    ]
    await transaction.execute(sa.insert(_table), rows)


async def usage_after(transaction: Transaction, number: int, *, limit: int) -> list[UsageEntry]:
    """Return the first *limit* entries after *number*.

    Raises:
        Forgotten: If some of them are unknown.
    """
    await check_known(transaction, "usage", number)
    query = sa.select(*_COLUMNS).where(_table.c.id > number).order_by(_table.c.id).limit(limit)
    return [UsageEntry(**row._mapping) for row in await transaction.execute(query)]


async def forget_usage(transaction: Transaction, *, before: float, limit: int) -> int:
    """Delete acknowledged entries that are older than *before*; return their number."""
    acknowledged = await read_counter(transaction, "usage_acknowledged")
    taken = sa.select(_table.c.id, _table.c.at).where(_table.c.id <= acknowledged)
    oldest = await transaction.execute(taken.order_by(_table.c.id).limit(limit))
    # From the first entry on without gaps, so that one number says which are deleted.
    gone = [row.id for row in takewhile(lambda row: row.at < before, oldest)]
    if gone:
        await transaction.execute(sa.delete(_table).where(_table.c.id <= gone[-1]))
        await raise_counter(transaction, "usage_forgotten", gone[-1])
    return len(gone)
