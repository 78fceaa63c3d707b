"""Queries on what has been done for a job: attempts, hooks, companions, due times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, insert_if_absent, insert_or_change

Hook = Literal["start", "complete", "cleanup"]


# Attempts


async def record_attempt(
    transaction: Transaction, job_id: str, attempt: int, *, uid: str, now: float
) -> None:
    """Remember that this VolcanoJob is the job's attempt; doing so again changes nothing."""
    values = {"job_id": job_id, "attempt": attempt, "uid": uid, "submitted_at": now}
    await insert_if_absent(transaction, tables.attempts, [values])


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One VolcanoJob that was made for a job; ``retries`` are Volcano's own within it."""

    attempt: int
    uid: str
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    outcome: str | None
    reason: str | None
    message: str | None
    retries: int
    used: int | None = None
    """How many of the job's retries it has used, once another attempt has begun."""


async def attempts_of(transaction: Transaction, job_id: str) -> list[Attempt]:
    """Return the job's attempts, in order."""
    table = tables.attempts
    names = [table.c[name] for name in Attempt.__slots__]
    query = sa.select(*names).where(table.c.job_id == job_id).order_by(table.c.attempt)
    return [Attempt(**row._mapping) for row in await transaction.execute(query)]


async def move_attempt(transaction: Transaction, job_id: str, attempt: int, **values: Any) -> None:
    """Set *values* of the attempt."""
    table = tables.attempts
    await transaction.execute(
        sa.update(table)
        .where(table.c.job_id == job_id, table.c.attempt == attempt)
        .values(**values)
    )


async def retries_within(transaction: Transaction, job_id: str, attempt: int) -> int:
    """Return how often Volcano itself has started the attempt over, as was seen last."""
    table = tables.attempts.c
    query = sa.select(table.retries).where(table.job_id == job_id, table.attempt == attempt)
    return int(await transaction.scalar(query) or 0)


async def start_attempt(transaction: Transaction, job_id: str, attempt: int, *, at: float) -> None:
    """Remember when the attempt first ran; the first time counts."""
    table = tables.attempts.c
    first = sa.update(tables.attempts).where(
        table.job_id == job_id, table.attempt == attempt, table.started_at.is_(None)
    )
    await transaction.execute(first.values(started_at=at))


# Hooks

_HOOKS: Final = sa.select(tables.hooks.c.hook, tables.hooks.c.plugin).where(
    tables.hooks.c.job_id == sa.bindparam("job_id"),
    tables.hooks.c.attempt == sa.bindparam("attempt"),
)


async def hooks_done(
    transaction: Transaction, job_id: str, attempt: int
) -> dict[str, frozenset[str]]:
    """Return the plugins of which each hook has run to its end."""
    given = {"job_id": job_id, "attempt": attempt}
    done: dict[str, set[str]] = {}
    for row in await transaction.execute(_HOOKS, given):
        done.setdefault(row.hook, set()).add(row.plugin)
    return {hook: frozenset(plugins) for hook, plugins in done.items()}


async def record_hook(
    transaction: Transaction, job_id: str, attempt: int, *, hook: Hook, plugin: str, now: float
) -> None:
    """Remember that the hook has run to its end."""
    values = {"job_id": job_id, "attempt": attempt, "hook": hook, "plugin": plugin, "at": now}
    await transaction.execute(sa.insert(tables.hooks), values)


# Due times


async def set_due(transaction: Transaction, job_id: str, plugin: str, *, at: float | None) -> None:
    """Have the plugin see the job at that time; None: not again."""
    table = tables.due
    same = (table.c.job_id == job_id, table.c.plugin == plugin)
    if at is None:
        await transaction.execute(sa.delete(table).where(*same))
        return
    await insert_or_change(transaction, table, [{"job_id": job_id, "plugin": plugin, "at": at}])


async def hurry_due(transaction: Transaction, job_id: str, *, now: float) -> None:
    """Have every plugin that waits for the job see it now."""
    table = tables.due
    later = sa.update(table).where(table.c.job_id == job_id, table.c.at > now)
    await transaction.execute(later.values(at=now))


_place: Final = sa.func.row_number().over(
    partition_by=tables.due.c.plugin, order_by=(tables.due.c.at, tables.due.c.job_id)
)
_IN_LINE: Final = (
    sa.select(tables.due, _place.label("place"))
    .where(tables.due.c.at <= sa.bindparam("now"))
    .subquery()
)
_DUE: Final = (
    sa.select(_IN_LINE.c.plugin, _IN_LINE.c.job_id)
    .where(_IN_LINE.c.place <= sa.bindparam("limit"))
    .order_by(_IN_LINE.c.place)
)


async def due_jobs(transaction: Transaction, *, now: float, limit: int) -> dict[str, list[str]]:
    """Return the jobs that are due by plugin, of each the first *limit*: those longest due."""
    due: dict[str, list[str]] = {}
    for row in await transaction.execute(_DUE, {"now": now, "limit": limit}):
        due.setdefault(row.plugin, []).append(row.job_id)
    return due


async def drop_due(transaction: Transaction, job_id: str) -> None:
    """Have no plugin see the job again."""
    await transaction.execute(sa.delete(tables.due).where(tables.due.c.job_id == job_id))


# Companions


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionRecord:
    """A companion that was made, or was about to be (then ``uid`` is empty).

    ``owner_uid`` is the VolcanoJob that owns it; None while none does. One that is ``lasting`` is
    owned by none and removed with the job. ``address`` is a Service's; ``basis`` says of which
    connections to other jobs it was made, None if of none.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    owner_uid: str | None
    address: str | None = None
    basis: str | None = None
    lasting: bool = False

    def is_settled(self, uid: str | None, basis: str) -> bool:
        """Say whether it is as it should be beside the VolcanoJob *uid*, with this *basis* now."""
        owned = self.owner_uid == uid or (self.lasting and bool(self.uid))
        return owned and self.basis in (None, basis)


_COMPANIONS: Final = sa.select(
    *(tables.companions.c[name] for name in CompanionRecord.__slots__)
).where(tables.companions.c.job_id == sa.bindparam("job_id"))


async def companions_of(transaction: Transaction, job_id: str) -> list[CompanionRecord]:
    """Return the job's companions."""
    rows = await transaction.execute(_COMPANIONS, {"job_id": job_id})
    return [CompanionRecord(**row._mapping) for row in rows]


async def intend_companions(
    transaction: Transaction, job_id: str, wanted: Sequence[tuple[str, str, str]]
) -> None:
    """Remember, before they are made, that these (kind, namespace, name) are about to be."""
    rows = [
        {"job_id": job_id, "kind": kind, "namespace": namespace, "name": name, "uid": ""}
        for kind, namespace, name in wanted
    ]
    await insert_if_absent(transaction, tables.companions, rows)


async def record_companions(
    transaction: Transaction, job_id: str, companions: Sequence[CompanionRecord]
) -> None:
    """Remember who the companions are and who owns them."""
    rows = [
        {"job_id": job_id} | {name: getattr(one, name) for name in CompanionRecord.__slots__}
        for one in companions
    ]
    if rows:
        await insert_or_change(transaction, tables.companions, rows)


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
