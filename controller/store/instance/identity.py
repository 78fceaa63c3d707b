"""The one row that says who this store is, and what was last told to Redis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import CHANGED, Transaction, insert_if_absent, writer_of

_ONLY = 1
_table = tables.position
_READ: Final = sa.select(_table)
_RAISE: Final = (
    sa.update(_table)
    .values(revision=_table.c.revision + sa.bindparam("by"))
    .returning(_table.c.revision)
)
_RAISE_AND_TELL: Final = _RAISE.returning(
    sa.func.pg_notify(CHANGED, sa.bindparam("writer", type_=sa.String))
)


@dataclass(frozen=True, slots=True)
class StoreMetadata:
    """What the row holds. ``epoch`` is None where nothing was ever published."""

    identity: str
    revision: int
    epoch: str | None
    seq: int


async def read_store_metadata(transaction: Transaction) -> StoreMetadata:
    """Return the row; :func:`ensure_position` has made it."""
    row = (await transaction.execute(_READ)).one()
    return StoreMetadata(row.identity, row.revision, row.epoch, row.seq)


async def ensure_position(transaction: Transaction, *, new_identity: str) -> StoreMetadata:
    """Return the row, made with *new_identity* where the store is new."""
    # If absent: two processes may find a new store at the same time.
    new = {"id": _ONLY, "identity": new_identity, "revision": 0, "seq": 0}
    await insert_if_absent(transaction, _table, [new])
    return await read_store_metadata(transaction)


async def raise_revision(transaction: Transaction, by: int = 1) -> int:
    """Return a revision higher than every one before; the last of *by* ones.

    Those who listen (see ``controller.store.news``) are told once this is committed.
    """
    if transaction.dialect.name == "postgresql":
        told = {"by": by, "writer": writer_of(transaction)}
        raised = await transaction.execute(_RAISE_AND_TELL, told)
    else:
        raised = await transaction.execute(_RAISE, {"by": by})
    revision: int = raised.scalars().one()
    return revision


async def record_published(transaction: Transaction, *, epoch: str, seq: int) -> None:
    """Remember how far Redis was told."""
    await transaction.execute(sa.update(_table).values(epoch=epoch, seq=seq))


async def read_asks(transaction: Transaction) -> str | None:
    """Return the last ask of a gateway that was taken up, None where none was."""
    position: str | None = await transaction.scalar(sa.select(_table.c.asks))
    return position


async def record_asks(transaction: Transaction, position: str) -> None:
    """Remember that the asks of gateways up to *position* were taken up."""
    await transaction.execute(sa.update(_table).values(asks=position))
