"""Queries on who leads, and since when nobody has looked.

The term is a counter: raised by the transaction that makes a leader, checked in each of a leader's
transactions (see :meth:`controller.store.database.Store.lead`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, close_fence

_table = tables.leadership
_READ: Final = sa.select(_table)


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads, by which term, and until when it saw the cluster as far as is known."""

    term: int
    holder: str
    seen_at: float


async def read_leadership(transaction: Transaction) -> Leadership:
    """Return who leads."""
    row = (await transaction.execute(_READ)).one()
    return Leadership(row.term, row.holder, row.seen_at)


async def raise_term(transaction: Transaction, *, holder: str = "") -> int:
    """Return a term higher than every one before; whoever led before has lost leadership.

    ``seen_at`` stays that of the leader before: what happened since, nobody saw.
    """
    await close_fence(transaction)
    raised = sa.update(_table).values(term=_table.c.term + 1, holder=holder)
    term: int = (await transaction.execute(raised.returning(_table.c.term))).scalar_one()
    return term


async def raise_term_to(transaction: Transaction, term: int) -> None:
    """Let the next leader's term be higher than *term*, too."""
    lower = sa.update(_table).where(_table.c.term < term)
    await transaction.execute(lower.values(term=term))


async def refresh_leadership(transaction: Transaction, *, term: int, now: float) -> bool:
    """Note that the leader of *term* saw the cluster *now*; False where another one leads."""
    alive = sa.update(_table).where(_table.c.term == term).values(seen_at=now)
    return (await transaction.execute(alive)).rowcount > 0
