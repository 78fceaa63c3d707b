"""Queries on the failures of plugins' hooks, which are tried again until they are given up."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, upsert

_table = tables.hook_failures


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFailure:
    """The failures of a plugin's hook; ``next_at`` is None if it is not tried again."""

    hook: str
    plugin: str
    attempt: int
    tries: int
    error: str
    at: float
    next_at: float | None
    blocked: bool = False


_NAMES: Final = tuple(HookFailure.__slots__)


async def record_hook_failure(transaction: Transaction, job_id: str, failure: HookFailure) -> None:
    """Store the last failure of the hook."""
    values = {name: getattr(failure, name) for name in _NAMES}
    await upsert(transaction, _table, [{"job_id": job_id} | values])


async def drop_hook_failure(transaction: Transaction, job_id: str, failure: HookFailure) -> None:
    """Delete the failure of a hook that has succeeded since."""
    await transaction.execute(
        sa.delete(_table).where(
            _table.c.job_id == job_id,
            _table.c.attempt == failure.attempt,
            _table.c.hook == failure.hook,
            _table.c.plugin == failure.plugin,
        )
    )


async def hook_failures_of(transaction: Transaction, job_id: str) -> list[HookFailure]:
    """Return the job's hooks that failed and have not succeeded since, in order."""
    query = sa.select(*(_table.c[name] for name in _NAMES)).where(_table.c.job_id == job_id)
    rows = await transaction.execute(query.order_by(_table.c.attempt, _table.c.at))
    return [HookFailure(**row._mapping) for row in rows]


async def blocked_calls(transaction: Transaction) -> list[tuple[str, str]]:
    """Return (plugin, job) of hooks that blocked a process, which then had to be killed."""
    query = sa.select(_table.c.plugin, _table.c.job_id).where(_table.c.blocked)
    return [(row.plugin, row.job_id) for row in await transaction.execute(query.distinct())]


async def forget_hook_failures(transaction: Transaction, job_ids: Collection[str]) -> None:
    """Delete all failures of these jobs."""
    await transaction.execute(sa.delete(_table).where(_table.c.job_id.in_(job_ids)))


async def forget_lone_hook_failures(transaction: Transaction, *, before: float) -> None:
    """Delete failures before then whose job was never accepted, or is deleted."""
    known = sa.select(tables.jobs.c.id).where(tables.jobs.c.id == _table.c.job_id)
    await transaction.execute(sa.delete(_table).where(_table.c.at < before, ~known.exists()))
