"""Queries on what has been done for a job: attempts, hooks, companions, due times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, insert_if_absent

Hook = Literal["start", "complete", "cleanup"]


# Attempts


async def record_attempt(
    transaction: Transaction, job_id: str, attempt: int, *, uid: str, now: float
) -> None:
    """Remember that this VolcanoJob is the job's attempt; doing so again changes nothing."""
    values = {"job_id": job_id, "attempt": attempt, "uid": uid, "submitted_at": now}
    await transaction.execute(insert_if_absent(transaction, tables.attempts, [values]))


async def move_attempt(transaction: Transaction, job_id: str, attempt: int, **values: Any) -> None:
    """Set *values* of the attempt."""
    table = tables.attempts
    await transaction.execute(
        sa.update(table)
        .where(table.c.job_id == job_id, table.c.attempt == attempt)
        .values(**values)
    )


# Hooks


async def hooks_done(
    transaction: Transaction, job_id: str, attempt: int
) -> dict[str, frozenset[str]]:
    """Return the plugins of which each hook has run to its end."""
    table = tables.hooks
    query = sa.select(table.c.hook, table.c.plugin).where(
        table.c.job_id == job_id, table.c.attempt == attempt
    )
    done: dict[str, set[str]] = {}
    for row in await transaction.execute(query):
        done.setdefault(row.hook, set()).add(row.plugin)
    return {hook: frozenset(plugins) for hook, plugins in done.items()}


async def record_hook(
    transaction: Transaction, job_id: str, attempt: int, *, hook: Hook, plugin: str, now: float
) -> None:
    """Remember that the hook has run to its end."""
    values = {"job_id": job_id, "attempt": attempt, "hook": hook, "plugin": plugin, "at": now}
    await transaction.execute(sa.insert(tables.hooks).values(**values))


# Due times


async def set_due(transaction: Transaction, job_id: str, plugin: str, *, at: float | None) -> None:
    """Have the plugin see the job at that time; None: not again."""
    table = tables.due
    same = (table.c.job_id == job_id, table.c.plugin == plugin)
    await transaction.execute(sa.delete(table).where(*same))
    if at is not None:
        await transaction.execute(sa.insert(table).values(job_id=job_id, plugin=plugin, at=at))


async def due_jobs(transaction: Transaction, *, now: float, limit: int) -> dict[str, list[str]]:
    """Return the jobs that are due by plugin, those longest due first."""
    table = tables.due
    query = sa.select(table.c.plugin, table.c.job_id).where(table.c.at <= now)
    due: dict[str, list[str]] = {}
    for row in await transaction.execute(query.order_by(table.c.at).limit(limit)):
        due.setdefault(row.plugin, []).append(row.job_id)
    return due


async def drop_due(transaction: Transaction, job_id: str) -> None:
    """Have no plugin see the job again."""
    await transaction.execute(sa.delete(tables.due).where(tables.due.c.job_id == job_id))


# Companions


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionRecord:
    """A companion that was made, or was about to be (then ``uid`` is empty).

    ``owner_uid`` is the VolcanoJob that owns it; None while none does.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    owner_uid: str | None


async def companions_of(transaction: Transaction, job_id: str) -> list[CompanionRecord]:
    """Return the job's companions."""
    table = tables.companions
    names = [table.c[name] for name in CompanionRecord.__slots__]
    rows = await transaction.execute(sa.select(*names).where(table.c.job_id == job_id))
    return [CompanionRecord(**row._mapping) for row in rows]


async def intend_companions(
    transaction: Transaction, job_id: str, wanted: Sequence[tuple[str, str, str]]
) -> None:
    """Remember, before they are made, that these (kind, namespace, name) are about to be."""
    rows = [
        {"job_id": job_id, "kind": kind, "namespace": namespace, "name": name, "uid": ""}
        for kind, namespace, name in wanted
    ]
    await transaction.execute(insert_if_absent(transaction, tables.companions, rows))


async def record_companions(
    transaction: Transaction, job_id: str, companions: Sequence[CompanionRecord]
) -> None:
    """Remember who the companions are and who owns them."""
    if not companions:
        return
    wanted = [(one.kind, one.namespace, one.name) for one in companions]
    await intend_companions(transaction, job_id, wanted)
    for one in companions:
        await transaction.execute(
            sa.update(tables.companions)
            .where(*_same(job_id, one))
            .values(uid=one.uid, owner_uid=one.owner_uid)
        )


async def drop_companion(transaction: Transaction, job_id: str, companion: CompanionRecord) -> None:
    """Forget a companion that is gone."""
    await transaction.execute(sa.delete(tables.companions).where(*_same(job_id, companion)))


def _same(job_id: str, companion: CompanionRecord) -> tuple[sa.ColumnElement[bool], ...]:
    table = tables.companions.c
    return (
        table.job_id == job_id,
        table.kind == companion.kind,
        table.namespace == companion.namespace,
        table.name == companion.name,
    )
