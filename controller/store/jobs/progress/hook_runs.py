"""Queries on hooks of plugins: which have run, which have failed, and which are due."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, insert_if_absent, insert_or_change

Hook = Literal["start", "complete", "cleanup"]

_table = tables.hook_failures


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFailure:
    """How a plugin's hook has failed; ``next_at`` is None once it is given up."""

    hook: str
    plugin: str
    attempt: int
    tries: int
    error: str
    at: float
    next_at: float | None
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class HookState:
    """The plugins of which one hook has run to its end, and those of which it has failed."""

    done: frozenset[str] = frozenset()
    failed: Mapping[str, HookFailure] = field(default_factory=dict)

    @property
    def settled(self) -> frozenset[str]:
        """The plugins of which the hook is not called any more: it is done, or given up."""
        return self.done | {name for name, one in self.failed.items() if one.next_at is None}

    def next_at(self, plugins: Collection[str]) -> float | None:
        """Return when the hook of one of *plugins* is to be called next; None: never more."""
        left = frozenset(plugins) - self.settled
        return min(
            ((self.failed[name].next_at or 0.0) if name in self.failed else 0.0 for name in left),
            default=None,
        )


_NAMES: Final = tuple(HookFailure.__slots__)
_OF: Final = (
    sa.select(
        tables.hooks.c.hook,
        tables.hooks.c.plugin,
        tables.hooks.c.attempt,
        sa.literal(0).label("tries"),
        sa.literal("").label("error"),
        tables.hooks.c.at,
        sa.cast(sa.null(), sa.Double).label("next_at"),
        sa.false().label("blocked"),
    )
    .where(
        tables.hooks.c.job_id == sa.bindparam("job_id"),
        tables.hooks.c.attempt == sa.bindparam("attempt"),
    )
    .union_all(
        sa.select(*(_table.c[name] for name in _NAMES)).where(
            _table.c.job_id == sa.bindparam("job_id"),
            _table.c.attempt == sa.bindparam("attempt"),
        )
    )
)


async def hooks_of(transaction: Transaction, job_id: str, attempt: int) -> dict[str, HookState]:
    """Return how each hook of the attempt stands; one that is not there was never called."""
    done: dict[str, set[str]] = {}
    failed: dict[str, dict[str, HookFailure]] = {}
    for row in await transaction.execute(_OF, {"job_id": job_id, "attempt": attempt}):
        if row.tries:
            failed.setdefault(row.hook, {})[row.plugin] = HookFailure(**row._mapping)
        else:
            done.setdefault(row.hook, set()).add(row.plugin)
    return {
        hook: HookState(frozenset(done.get(hook, ())), failed.get(hook, {}))
        for hook in done.keys() | failed.keys()
    }


async def record_hook_failure(transaction: Transaction, job_id: str, failure: HookFailure) -> None:
    """Remember how the hook failed last."""
    values = {name: getattr(failure, name) for name in _NAMES}
    await insert_or_change(transaction, _table, [{"job_id": job_id} | values])


async def drop_hook_failure(transaction: Transaction, job_id: str, failure: HookFailure) -> None:
    """Forget it: the hook has run to its end."""
    await transaction.execute(
        sa.delete(_table).where(
            _table.c.job_id == job_id,
            _table.c.attempt == failure.attempt,
            _table.c.hook == failure.hook,
            _table.c.plugin == failure.plugin,
        )
    )


async def hook_failures_of(transaction: Transaction, job_id: str) -> list[HookFailure]:
    """Return the hooks of the job that have failed and not run since, in order."""
    query = sa.select(*(_table.c[name] for name in _NAMES)).where(_table.c.job_id == job_id)
    rows = await transaction.execute(query.order_by(_table.c.attempt, _table.c.at))
    return [HookFailure(**row._mapping) for row in rows]


async def blocked_calls(transaction: Transaction) -> list[tuple[str, str]]:
    """Return of which plugin and job a hook once blocked a process that had to be ended."""
    query = sa.select(_table.c.plugin, _table.c.job_id).where(_table.c.blocked)
    return [(row.plugin, row.job_id) for row in await transaction.execute(query.distinct())]


async def forget_hook_failures(transaction: Transaction, job_ids: Collection[str]) -> None:
    """Forget all of these jobs."""
    await transaction.execute(sa.delete(_table).where(_table.c.job_id.in_(job_ids)))


async def forget_lone_hook_failures(transaction: Transaction, *, before: float) -> None:
    """Forget those from before then whose job was never accepted, or is forgotten."""
    known = sa.select(tables.jobs.c.id).where(tables.jobs.c.id == _table.c.job_id)
    await transaction.execute(sa.delete(_table).where(_table.c.at < before, ~known.exists()))


async def record_hooks(
    transaction: Transaction,
    job_id: str,
    attempt: int,
    *,
    hook: Hook,
    plugins: Sequence[str],
    now: float,
) -> None:
    """Remember that the hook of these plugins has run to its end; again, it changes nothing."""
    same = {"job_id": job_id, "attempt": attempt, "hook": hook, "at": now}
    await insert_if_absent(
        transaction, tables.hooks, [same | {"plugin": plugin} for plugin in plugins]
    )


async def drop_hooks(transaction: Transaction, job_id: str, attempt: int, *, hook: Hook) -> None:
    """Have the hook of every plugin called once more."""
    await transaction.execute(
        sa.delete(tables.hooks).where(
            tables.hooks.c.job_id == job_id,
            tables.hooks.c.attempt == attempt,
            tables.hooks.c.hook == hook,
        )
    )


# Due times


_DROP_DUE: Final = sa.delete(tables.due).where(tables.due.c.job_id == sa.bindparam("of"))
_DROP_ONE_DUE: Final = _DROP_DUE.where(tables.due.c.plugin == sa.bindparam("named"))
_HURRY: Final = sa.update(tables.due).where(
    tables.due.c.job_id == sa.bindparam("of"), tables.due.c.at > sa.bindparam("now")
)


async def set_due(transaction: Transaction, job_id: str, plugin: str, *, at: float | None) -> None:
    """Have the plugin see the job at that time; None: not again."""
    if at is None:
        await transaction.execute(_DROP_ONE_DUE, {"of": job_id, "named": plugin})
        return
    row = {"job_id": job_id, "plugin": plugin, "at": at}
    await insert_or_change(transaction, tables.due, [row])


async def make_due_now(transaction: Transaction, job_id: str, *, now: float) -> None:
    """Have every plugin that waits for the job see it now."""
    await transaction.execute(_HURRY, {"of": job_id, "now": now, "at": now})


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
    await transaction.execute(_DROP_DUE, {"of": job_id})
