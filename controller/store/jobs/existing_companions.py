"""Queries on the companions of running jobs that are recorded as existing.

Another client may have deleted such a companion: then the record forgets it, and it is made anew.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction


@dataclass(frozen=True, slots=True)
class ExistingCompanion:
    """An existing companion of a job whose outcome is not decided."""

    job_id: str
    kind: str
    namespace: str
    name: str
    uid: str


_ROWS_A_TURN: Final = 1000
_EXISTING: Final = (
    sa.select(*(tables.companions.c[name] for name in ExistingCompanion.__slots__))
    .join(tables.jobs, tables.jobs.c.id == tables.companions.c.job_id)
    .where(
        tables.companions.c.kind == sa.bindparam("its_kind"),
        tables.companions.c.uid != "",
        tables.jobs.c.uid.is_not(None),
        tables.jobs.c.outcome.is_(None),
        tables.jobs.c.renewal.is_(None),
    )
)


async def companions_of_kind(transaction: Transaction, kind: str) -> list[ExistingCompanion]:
    """Return the companions of a kind that exist for submitted jobs, as far as is recorded."""
    rows = await transaction.execute(_EXISTING, {"its_kind": kind})
    found: list[ExistingCompanion] = []
    for part in rows.partitions(_ROWS_A_TURN):
        found += [ExistingCompanion(*row) for row in part]
        await asyncio.sleep(0)  # a large site has tens of thousands
    return found


async def forget_uid(transaction: Transaction, one: ExistingCompanion) -> bool:
    """Record that the companion does not exist any more; False if the record has changed."""
    same = [tables.companions.c[name] == getattr(one, name) for name in ExistingCompanion.__slots__]
    changed = await transaction.execute(
        sa.update(tables.companions).where(*same).values(uid="", owner_uid=None)
    )
    return bool(changed.rowcount)
