"""Updates of jobs for orchestrators, and how far each webhook receiver has read them.

A transaction writes the update together with the change itself, so that no update is lost and none
is wrong.

Taking a number locks its counter until the transaction ends. So numbers become visible in order: a
reader of one number has seen all earlier ones. (A database's sequences do not guarantee this: of
two transactions, the one with the later number may commit first.) Take numbers last in a
transaction, so that others wait only briefly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, Literal

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, insert_if_absent, notify_of_updates

Series = Literal["updates", "usage"]
Counter = Literal["updates", "updates_forgotten", "usage", "usage_forgotten", "usage_acknowledged"]
_FORGOTTEN: Final[dict[Series, Counter]] = {
    "updates": "updates_forgotten",
    "usage": "usage_forgotten",
}
MOST_TOLD: Final = 1_000_000_000
"""More numbers than any store assigns between a backup and its restore."""
_counters: Final = tables.counters
_TAKE: Final = (
    sa.update(_counters)
    .where(_counters.c.name == sa.bindparam("counter"))
    .values(value=_counters.c.value + sa.bindparam("count"))
    .returning(_counters.c.value)
)


async def take_number(transaction: Transaction, counter: Counter, count: int = 1) -> int:
    """Take *count* numbers, each higher than all before, and return the last one."""
    taken = await transaction.execute(_TAKE, {"counter": counter, "count": count})
    number: int = taken.scalar_one()
    return number


async def read_counter(transaction: Transaction, counter: Counter) -> int:
    """Return the last number that was taken."""
    query = sa.select(_counters.c.value).where(_counters.c.name == counter)
    number: int = (await transaction.execute(query)).scalar_one()
    return number


async def raise_counter(transaction: Transaction, counter: Counter, to: int) -> int:
    """Raise the counter to at least *to*, and return it."""
    lower = sa.update(_counters).where(_counters.c.name == counter, _counters.c.value < to)
    await transaction.execute(lower.values(value=to))
    return await read_counter(transaction, counter)


async def skip_numbers(transaction: Transaction, told: Mapping[Series, int] | None) -> None:
    """Skip the numbers that readers may have seen from a store that this restored one replaces.

    Readers of updates get :class:`Forgotten` once. Entries of the ledger stay readable: nothing
    else reports the unread ones.

    Args:
        transaction: A transaction of the restored store.
        told: The last numbers of the replaced store; None if they are not known.
    """
    for series in _FORGOTTEN:
        last = await read_counter(transaction, series)
        told_last = last + MOST_TOLD if told is None else told[series]
        await raise_counter(transaction, series, max(last, told_last) + 1)
    through = await read_counter(transaction, "updates")
    await raise_counter(transaction, "updates_forgotten", through)


class Forgotten(Exception):
    """Some rows after the requested number are unknown; from ``through`` on all are known.

    They were deleted, or a store that this one was restored from had assigned the number.
    """

    def __init__(self, through: int) -> None:
        super().__init__(f"numbers up to {through} are unknown")
        self.through = through


async def check_known(transaction: Transaction, series: Series, number: int) -> None:
    """Check that every row of *series* after *number* is known.

    Raises:
        Forgotten: If one is not.
    """
    forgotten = await read_counter(transaction, _FORGOTTEN[series])
    if number < forgotten:
        raise Forgotten(forgotten)
    if number > (last := await read_counter(transaction, series)):
        raise Forgotten(last)


_table = tables.transitions
_INSERT: Final = sa.insert(_table)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRow:
    """One update of a job; ``id`` is its number among all updates."""

    id: int = 0
    job_id: str
    attempt: int
    at: float
    state: str
    reason: str | None
    message: str | None
    exits: Sequence[Mapping[str, Any]] | None
    details: Mapping[str, Any] | None = None


async def append_updates(transaction: Transaction, updates: Sequence[UpdateRow]) -> None:
    """Append *updates*, which have no number yet, in this order."""
    last = await take_number(transaction, "updates", len(updates))
    rows = [
        {name: getattr(one, name) for name in UpdateRow.__slots__} | {"id": number}
        for number, one in enumerate(updates, last - len(updates) + 1)
    ]
    await transaction.execute(_INSERT, rows)
    await notify_of_updates(transaction)


async def updates_after(transaction: Transaction, number: int, *, limit: int) -> list[UpdateRow]:
    """Return the first *limit* updates after *number*.

    Raises:
        Forgotten: If some of them are unknown.
    """
    await check_known(transaction, "updates", number)
    columns = [_table.c[name] for name in UpdateRow.__slots__]
    query = sa.select(*columns).where(_table.c.id > number).order_by(_table.c.id).limit(limit)
    return [UpdateRow(**row._mapping) for row in await transaction.execute(query)]


async def updates_of(transaction: Transaction, job_id: str) -> list[UpdateRow]:
    """Return all updates of the job, in order."""
    columns = [_table.c[name] for name in UpdateRow.__slots__]
    query = sa.select(*columns).where(_table.c.job_id == job_id).order_by(_table.c.id)
    return [UpdateRow(**row._mapping) for row in await transaction.execute(query)]


async def forget_updates_of(transaction: Transaction, job_ids: Collection[str]) -> None:
    """Store that the updates of these jobs are deleted with them, for readers that lag behind."""
    newest = sa.select(sa.func.max(_table.c.id)).where(_table.c.job_id.in_(job_ids))
    last = await transaction.scalar(newest)
    if last is not None:
        await raise_counter(transaction, "updates_forgotten", last)


async def forget_old_updates(
    transaction: Transaction, *, before: float, after: int, limit: int
) -> tuple[int, bool]:
    """Delete updates of ended jobs older than *before*, among the first *limit* after a number.

    Returns:
        The last number that was examined, and whether there may be more old updates after it.
    """
    jobs = tables.jobs.c
    query = (
        sa.select(_table.c.id, _table.c.at, jobs.finished_at)
        .join(tables.jobs, jobs.id == _table.c.job_id)
        .where(_table.c.id > after)
        .order_by(_table.c.id)
        .limit(limit)
    )
    rows = (await transaction.execute(query)).all()
    old = list(takewhile(lambda row: row.at < before, rows))
    if gone := [row.id for row in old if row.finished_at is not None]:
        await transaction.execute(sa.delete(_table).where(_table.c.id.in_(gone)))
        await raise_counter(transaction, "updates_forgotten", gone[-1])
    return (old[-1].id if old else after), len(old) == limit


_webhooks: Final = tables.webhooks


@dataclass(frozen=True, slots=True)
class WebhookCursor:
    """How far a webhook receiver has read.

    Attributes:
        position: Every update up to it was delivered, or its job is in ``pending``.
        told: The receiver knows that updates up to this number were deleted.
        pending: Jobs with undelivered updates up to the position, each with the first number at
            which they may be found.
    """

    position: int
    told: int
    pending: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class UpdateHead:
    """The job, time and state of an update, without its content."""

    id: int
    job_id: str
    at: float
    state: str


async def ensure_cursors(transaction: Transaction, receivers: Collection[str]) -> None:
    """Have new receivers begin with the next update."""
    begin = {
        "position": await read_counter(transaction, "updates"),
        "told": await read_counter(transaction, "updates_forgotten"),
        "pending": {},
    }
    await insert_if_absent(
        transaction, _webhooks, [{"receiver": one, **begin} for one in receivers]
    )


async def read_cursor(transaction: Transaction, receiver: str) -> WebhookCursor:
    """Return the receiver's cursor; :func:`ensure_cursors` must have made it."""
    query = sa.select(_webhooks).where(_webhooks.c.receiver == receiver)
    row = (await transaction.execute(query)).one()
    return WebhookCursor(row.position, row.told, row.pending)


async def write_cursor(transaction: Transaction, receiver: str, cursor: WebhookCursor) -> None:
    """Store the receiver's cursor."""
    values = {"position": cursor.position, "told": cursor.told, "pending": dict(cursor.pending)}
    await transaction.execute(
        sa.update(_webhooks).where(_webhooks.c.receiver == receiver).values(values)
    )


async def heads_after(transaction: Transaction, number: int, *, limit: int) -> list[UpdateHead]:
    """Return the heads of the first *limit* updates after *number*."""
    columns = [_table.c[name] for name in UpdateHead.__slots__]
    query = sa.select(*columns).where(_table.c.id > number).order_by(_table.c.id).limit(limit)
    return [UpdateHead(**row._mapping) for row in await transaction.execute(query)]


async def next_update_of(
    transaction: Transaction,
    job_id: str,
    *,
    first: int,
    last: int,
    states: Sequence[str] | None = None,
) -> UpdateRow | None:
    """Return the job's first update in a range of numbers, optionally in one of *states*."""
    columns = [_table.c[name] for name in UpdateRow.__slots__]
    query = sa.select(*columns).where(
        _table.c.job_id == job_id, _table.c.id >= first, _table.c.id <= last
    )
    if states is not None:
        query = query.where(_table.c.state.in_(states))
    row = (await transaction.execute(query.order_by(_table.c.id).limit(1))).one_or_none()
    return None if row is None else UpdateRow(**row._mapping)


async def time_from(transaction: Transaction, number: int) -> float | None:
    """Return the time of the first update from *number* on, if there is one."""
    query = sa.select(_table.c.at).where(_table.c.id >= number).order_by(_table.c.id).limit(1)
    at: float | None = await transaction.scalar(query)
    return at
