"""Queries on receivers of webhooks: how far each has been told, and what comes next."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, insert_if_absent
from controller.store.outbox.counters import read_counter
from controller.store.outbox.update_rows import UpdateRow

_table: Final = tables.webhooks
_updates: Final = tables.transitions


@dataclass(frozen=True, slots=True)
class WebhookCursor:
    """How far a receiver has been told.

    Attributes:
        position: Every update up to it has been taken up.
        told: Up to which number the receiver knows that updates were forgotten.
        pending: Jobs with updates up to the position that were not accepted, and from which
            number on they may be found.
    """

    position: int
    told: int
    pending: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class UpdateHead:
    """Which job an update is of, without what it says."""

    id: int
    job_id: str
    at: float
    state: str


async def ensure_cursors(transaction: Transaction, receivers: Collection[str]) -> None:
    """Have a receiver that is not known begin with what happens next."""
    begin = {
        "position": await read_counter(transaction, "updates"),
        "told": await read_counter(transaction, "updates_forgotten"),
        "pending": {},
    }
    await insert_if_absent(transaction, _table, [{"receiver": one, **begin} for one in receivers])


async def read_cursor(transaction: Transaction, receiver: str) -> WebhookCursor:
    """Return how far the receiver has been told; :func:`ensure_cursors` has begun it."""
    query = sa.select(_table).where(_table.c.receiver == receiver)
    row = (await transaction.execute(query)).one()
    return WebhookCursor(row.position, row.told, row.pending)


async def write_cursor(transaction: Transaction, receiver: str, cursor: WebhookCursor) -> None:
    """Note how far the receiver has been told."""
    values = {"position": cursor.position, "told": cursor.told, "pending": dict(cursor.pending)}
    await transaction.execute(sa.update(_table).where(_table.c.receiver == receiver).values(values))


async def heads_after(transaction: Transaction, number: int, *, limit: int) -> list[UpdateHead]:
    """Return of which jobs the first *limit* updates after *number* are."""
    columns = [_updates.c[name] for name in UpdateHead.__slots__]
    query = sa.select(*columns).where(_updates.c.id > number).order_by(_updates.c.id).limit(limit)
    return [UpdateHead(**row._mapping) for row in await transaction.execute(query)]


async def next_update_of(
    transaction: Transaction,
    job_id: str,
    *,
    first: int,
    last: int,
    states: Sequence[str] | None = None,
) -> UpdateRow | None:
    """Return the job's first update among these numbers, and of *states* where they are given."""
    columns = [_updates.c[name] for name in UpdateRow.__slots__]
    query = sa.select(*columns).where(
        _updates.c.job_id == job_id, _updates.c.id >= first, _updates.c.id <= last
    )
    if states is not None:
        query = query.where(_updates.c.state.in_(states))
    row = (await transaction.execute(query.order_by(_updates.c.id).limit(1))).one_or_none()
    return None if row is None else UpdateRow(**row._mapping)


async def time_from(transaction: Transaction, number: int) -> float | None:
    """Return the time of the first update from *number* on; None where there is none."""
    query = sa.select(_updates.c.at).where(_updates.c.id >= number).order_by(_updates.c.id).limit(1)
    at: float | None = await transaction.scalar(query)
    return at
