"""Provides the rows that a terminal needs in the store."""

from __future__ import annotations

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction


async def insert_job(transaction: Transaction, *, now: float) -> None:
    """Insert a running job."""
    await transaction.execute(
        sa.insert(tables.jobs).values(
            id="j1", owner_user="ada", namespace="jobs", spec={}, desired="run",
            state="RUNNING", attempt=1, created_at=now, revision=1,
        )
    )  # fmt: skip
