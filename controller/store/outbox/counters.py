"""Numbers in the order of commits.

Whoever takes a number keeps its counter locked until the transaction ends. So numbers become
visible in their order: a reader who has seen one has seen all before it. (A database's own
sequences promise no such thing: of two transactions, the later number may be committed first.)
Take numbers last in a transaction, so that others wait shortly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction

Series = Literal["updates", "usage"]
Counter = Literal["updates", "updates_forgotten", "usage", "usage_forgotten", "usage_acknowledged"]
_FORGOTTEN: Final[dict[Series, Counter]] = {
    "updates": "updates_forgotten",
    "usage": "usage_forgotten",
}
MOST_TOLD: Final = 1_000_000_000
"""More numbers than a store gives between a backup and its end."""
_table: Final = tables.counters
_TAKE: Final = (
    sa.update(_table)
    .where(_table.c.name == sa.bindparam("counter"))
    .values(value=_table.c.value + sa.bindparam("count"))
    .returning(_table.c.value)
)


async def take_number(transaction: Transaction, counter: Counter, count: int = 1) -> int:
    """Return the last of *count* numbers, each higher than every one before."""
    taken = await transaction.execute(_TAKE, {"counter": counter, "count": count})
    number: int = taken.scalar_one()
    return number


async def read_counter(transaction: Transaction, counter: Counter) -> int:
    """Return the number that was taken last."""
    query = sa.select(_table.c.value).where(_table.c.name == counter)
    number: int = (await transaction.execute(query)).scalar_one()
    return number


async def lift_counter(transaction: Transaction, counter: Counter, to: int) -> int:
    """Return the counter, raised to *to* if it was lower."""
    lower = sa.update(_table).where(_table.c.name == counter, _table.c.value < to)
    await transaction.execute(lower.values(value=to))
    return await read_counter(transaction, counter)


async def skip_numbers(transaction: Transaction, told: Mapping[Series, int] | None) -> None:
    """Have nothing get a number that a reader was told before this store was restored.

    Readers of updates get :class:`Forgotten` once. Entries of the ledger stay as they are: those
    that were not read are not told by anything else.

    Args:
        transaction: Of the restored store.
        told: The last numbers of the store that it replaces; None where they are not known.
    """
    for series in _FORGOTTEN:
        last = await read_counter(transaction, series)
        told_last = last + MOST_TOLD if told is None else told[series]
        await lift_counter(transaction, series, max(last, told_last) + 1)
    through = await read_counter(transaction, "updates")
    await lift_counter(transaction, "updates_forgotten", through)


class Forgotten(Exception):
    """Not all that came after the number that was named is known; from ``through`` on it is.

    It is no longer kept, or was told by a store that this one was restored from before.
    """

    def __init__(self, through: int) -> None:
        super().__init__(f"what came up to {through} is not known")
        self.through = through


async def refuse_unknown(transaction: Transaction, series: Series, number: int) -> None:
    """Check that all of *series* that came after *number* is known.

    Raises:
        Forgotten: If it is not.
    """
    forgotten = await read_counter(transaction, _FORGOTTEN[series])
    if number < forgotten:
        raise Forgotten(forgotten)
    if number > (last := await read_counter(transaction, series)):
        raise Forgotten(last)
