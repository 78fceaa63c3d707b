"""The one row that says who this store is, who leads, and what was last told to Redis."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction

_ONLY = 1
_table = tables.position


@dataclass(frozen=True, slots=True)
class Position:
    """What the row holds. ``epoch`` is None where nothing was ever published."""

    identity: str
    term: int
    revision: int
    epoch: str | None
    seq: int


async def read_position(transaction: Transaction) -> Position:
    """Return the row; :func:`ensure_position` has made it."""
    row = (await transaction.execute(sa.select(_table))).one()
    return Position(row.identity, row.term, row.revision, row.epoch, row.seq)


async def ensure_position(transaction: Transaction, *, new_identity: str) -> Position:
    """Return the row, made with *new_identity* where the store is new."""
    existing = (await transaction.execute(sa.select(_table.c.id))).first()
    if existing is None:
        await transaction.execute(
            sa.insert(_table).values(id=_ONLY, identity=new_identity, term=0, revision=0, seq=0)
        )
    return await read_position(transaction)


async def raise_term(transaction: Transaction) -> int:
    """Return a term higher than every one before; whoever led before leads no more."""
    raised = sa.update(_table).values(term=_table.c.term + 1).returning(_table.c.term)
    term: int = (await transaction.execute(raised)).scalar_one()
    return term


async def raise_revision(transaction: Transaction, by: int = 1) -> int:
    """Return a revision higher than every one before; the last of *by* ones."""
    raised = sa.update(_table).values(revision=_table.c.revision + by)
    revision: int = (await transaction.execute(raised.returning(_table.c.revision))).scalar_one()
    return revision


async def take_identity(transaction: Transaction, identity: str) -> None:
    """Make this store known as *identity* from now on."""
    await transaction.execute(sa.update(_table).values(identity=identity))


async def record_published(transaction: Transaction, *, epoch: str, seq: int) -> None:
    """Remember how far Redis was told."""
    await transaction.execute(sa.update(_table).values(epoch=epoch, seq=seq))
