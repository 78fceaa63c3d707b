"""Queries on what the cluster's Volcano takes: a leader learns it, all replicas refuse by it."""

from __future__ import annotations

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction
from controller.volcano.capabilities import Capabilities

_ONLY = 1
_table = tables.volcano


async def find_capabilities(transaction: Transaction, *, unless: str = "") -> Capabilities | None:
    """Return what is known; None where nothing is, or nothing but what has the digest *unless*."""
    other = sa.select(_table).where(_table.c.digest != unless)
    row = (await transaction.execute(other)).one_or_none()
    return None if row is None else Capabilities(row.schema, row.digest)


async def keep_capabilities(transaction: Transaction, capabilities: Capabilities) -> None:
    """Remember *capabilities*, which were learned, instead of what was known before."""
    values = {"schema": capabilities.schema, "digest": capabilities.digest}
    if (await transaction.execute(sa.update(_table).values(values))).rowcount == 0:
        await transaction.execute(sa.insert(_table).values(id=_ONLY, **values))
