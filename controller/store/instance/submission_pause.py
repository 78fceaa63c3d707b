"""Queries on maintenance: whether jobs are taken, and submitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, cast

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction

Mode = Literal["running", "paused", "draining"]
_table = tables.maintenance
_READ: Final = sa.select(_table)


@dataclass(frozen=True, slots=True)
class SubmissionPause:
    """How it stands: ``paused`` submits nothing, ``draining`` takes nothing either."""

    mode: Mode
    message: str | None
    since: float

    @property
    def why_held(self) -> str | None:
        """Why nothing is submitted; None when it is."""
        if self.mode == "running":
            return None
        return self.message or f"submission is {self.mode}"


async def read_maintenance(transaction: Transaction) -> SubmissionPause:
    """Return how it stands."""
    row = (await transaction.execute(_READ)).one()
    return SubmissionPause(cast(Mode, row.mode), row.message, row.since)


async def set_maintenance(
    transaction: Transaction, mode: Mode, message: str | None, *, now: float
) -> SubmissionPause:
    """Change it; return how it stands then. The same again changes nothing."""
    before = await read_maintenance(transaction)
    if (before.mode, before.message) == (mode, message):
        return before
    await transaction.execute(sa.update(_table).values(mode=mode, message=message, since=now))
    return SubmissionPause(mode, message, now)
