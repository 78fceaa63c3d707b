"""Queries on a job's attempts, companions, pods, timers and hooks.

Pods are deleted with their VolcanoJob, but what they did is read and charged later. Timers belong
to policies with a timeout whose trigger has occurred. For the plugins' hooks, the store has which
have run, which have failed, and which are due when.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, insert_if_absent, upsert
from controller.store.jobs.hook_failures import HookFailure

# Attempts


async def record_attempt(
    transaction: Transaction, job_id: str, attempt: int, *, uid: str, now: float
) -> None:
    """Store the VolcanoJob of the job's attempt. A repeated call changes nothing."""
    values = {"job_id": job_id, "attempt": attempt, "uid": uid, "submitted_at": now}
    await insert_if_absent(transaction, tables.attempts, [values])


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One VolcanoJob of a job; ``retries`` are Volcano's own restarts of it."""

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
    """How many of the job's retries it has used; set once the next attempt begins."""
    restarts: int | None = None
    """How often its pods were restarted; None if only ``retries`` is known."""
    details: Mapping[str, Any] | None = None


_ATTEMPTS: Final = (
    sa.select(*(tables.attempts.c[name] for name in Attempt.__slots__))
    .where(tables.attempts.c.job_id == sa.bindparam("of"))
    .order_by(tables.attempts.c.attempt)
)


async def attempts_of(transaction: Transaction, job_id: str) -> list[Attempt]:
    """Return the job's attempts, in order."""
    rows = await transaction.execute(_ATTEMPTS, {"of": job_id})
    return [Attempt(**row._mapping) for row in rows]


# Built once, here and below: building a statement takes longer than executing it.
_MOVE_ATTEMPT: Final = sa.update(tables.attempts).where(
    tables.attempts.c.job_id == sa.bindparam("of"),
    tables.attempts.c.attempt == sa.bindparam("number"),
)
_START_ATTEMPT: Final = _MOVE_ATTEMPT.where(tables.attempts.c.started_at.is_(None))


async def update_attempt(
    transaction: Transaction, job_id: str, attempt: int, **values: Any
) -> None:
    """Set *values* of the attempt."""
    await transaction.execute(_MOVE_ATTEMPT, {"of": job_id, "number": attempt, **values})


async def retries_within(transaction: Transaction, job_id: str, attempt: int) -> int:
    """Return how often Volcano has restarted the attempt, as last observed."""
    table = tables.attempts.c
    counted = sa.func.coalesce(table.restarts, table.retries)
    query = sa.select(counted).where(table.job_id == job_id, table.attempt == attempt)
    return int(await transaction.scalar(query) or 0)


async def start_attempt(transaction: Transaction, job_id: str, attempt: int, *, at: float) -> None:
    """Store when the attempt first ran; later calls change nothing."""
    await transaction.execute(_START_ATTEMPT, {"of": job_id, "number": attempt, "started_at": at})


# Companions


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionRecord:
    """A companion that exists, or is about to be created (then ``uid`` is empty).

    - ``owner_uid``: the VolcanoJob that owns it; None while none does.
    - ``lasting``: it is owned by no VolcanoJob and removed with the job.
    - ``address``: that of a Service.
    - ``basis``: a digest of the connections to other jobs that it was made from; None for none.
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
        """Return whether it is up to date for the VolcanoJob *uid* and the current *basis*."""
        owned = self.owner_uid == uid or (self.lasting and bool(self.uid))
        return owned and self.basis in (None, basis)


def all_settled(companions: Iterable[CompanionRecord], uid: str | None, basis: str) -> bool:
    """Return whether each of *companions* is up to date."""
    return all(one.is_settled(uid, basis) for one in companions)


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
    """Store (kind, namespace, name) of companions before they are created."""
    rows = [
        {"job_id": job_id, "kind": kind, "namespace": namespace, "name": name, "uid": ""}
        for kind, namespace, name in wanted
    ]
    await insert_if_absent(transaction, tables.companions, rows)


async def record_companions(
    transaction: Transaction, job_id: str, companions: Sequence[CompanionRecord]
) -> None:
    """Store the uids and owners of companions."""
    rows = [
        {"job_id": job_id} | {name: getattr(one, name) for name in CompanionRecord.__slots__}
        for one in companions
    ]
    if rows:
        await upsert(transaction, tables.companions, rows)


_DROP_COMPANION: Final = sa.delete(tables.companions).where(
    tables.companions.c.job_id == sa.bindparam("of"),
    tables.companions.c.kind == sa.bindparam("its_kind"),
    tables.companions.c.namespace == sa.bindparam("its_namespace"),
    tables.companions.c.name == sa.bindparam("its_name"),
)


async def drop_companions(
    transaction: Transaction, job_id: str, companions: Sequence[CompanionRecord]
) -> None:
    """Delete the records of companions that are gone."""
    rows = [
        {
            "of": job_id,
            "its_kind": one.kind,
            "its_namespace": one.namespace,
            "its_name": one.name,
        }
        for one in companions
    ]
    if rows:
        await transaction.execute(_DROP_COMPANION, rows)


# Pods


_runs = tables.runs


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """The lifetime of one pod. ``ended_at`` is None while its program may still run."""

    job_id: str
    pod_uid: str
    attempt: int
    rank: int
    task: str
    index: int
    pod: str
    node: str
    phase: str
    reason: str
    message: str
    exit_code: int | None
    signal: int | None
    seen_at: float
    started_at: float | None
    ended_at: float | None
    retry: int | None = None
    memory_limit: str | None = None


_RUNS_OF_JOB: Final = (
    sa.select(*(_runs.c[name] for name in PodRecord.__slots__))
    .where(_runs.c.job_id == sa.bindparam("job_id"))
    .order_by(_runs.c.attempt, _runs.c.rank, _runs.c.seen_at, _runs.c.pod_uid)
)
_RUNS_OF_ATTEMPT: Final = _RUNS_OF_JOB.where(_runs.c.attempt == sa.bindparam("attempt"))


async def pod_records_of(
    transaction: Transaction, job_id: str, attempt: int | None = None
) -> list[PodRecord]:
    """Return the pods of the job or of one attempt, by attempt and rank, first seen first."""
    query, given = _RUNS_OF_JOB, dict[str, Any](job_id=job_id)
    if attempt is not None:
        query, given = _RUNS_OF_ATTEMPT, given | {"attempt": attempt}
    return [PodRecord(**row._mapping) for row in await transaction.execute(query, given)]


async def upsert_pod_records(transaction: Transaction, runs: Collection[PodRecord]) -> None:
    """Insert or update *runs*; ``seen_at`` keeps the time of the first observation."""
    rows = [{name: getattr(run, name) for name in PodRecord.__slots__} for run in runs]
    await upsert(transaction, _runs, rows, keep=("seen_at",))


# Timers


_timers = tables.policy_timers


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A policy that takes effect at ``due_at``, unless its trigger no longer holds by then.

    ``retries`` is Volcano's count of restarts within the attempt when it was triggered.
    """

    job_id: str
    trigger: str
    attempt: int
    due_at: float
    action: str
    why: str
    retries: int


_OF_JOB: Final = sa.select(*(_timers.c[name] for name in Timer.__slots__)).where(
    _timers.c.job_id == sa.bindparam("job_id")
)


async def timers_of(transaction: Transaction, job_id: str) -> dict[str, Timer]:
    """Return the job's timers by trigger."""
    rows = await transaction.execute(_OF_JOB, {"job_id": job_id})
    return {row.trigger: Timer(**row._mapping) for row in rows}


async def replace_timers(
    transaction: Transaction, job_id: str, *, timers: Collection[Timer]
) -> None:
    """Make *timers* the job's timers; one that runs already keeps its due time."""
    stored = await timers_of(transaction, job_id)
    wanted = {timer.trigger: timer for timer in timers}
    # A timer of an earlier attempt, or from before a restart, does not continue as the new one.
    over = [name for name, timer in stored.items() if not _goes_on(timer, wanted.get(name))]
    if over:
        gone = (_timers.c.job_id == job_id, _timers.c.trigger.in_(over))
        await transaction.execute(sa.delete(_timers).where(*gone))
    new = [asdict(timer) for name, timer in wanted.items() if name not in stored or name in over]
    if new:
        await insert_if_absent(transaction, _timers, new)


def _goes_on(timer: Timer, wanted: Timer | None) -> bool:
    same = (timer.attempt, timer.retries)
    return wanted is not None and (wanted.attempt, wanted.retries) == same


# Hooks of plugins


Hook = Literal["start", "complete", "cleanup"]
_failures = tables.hook_failures


@dataclass(frozen=True, slots=True)
class HookState:
    """The plugins for which one hook has succeeded, and those for which it has failed."""

    done: frozenset[str] = frozenset()
    failed: Mapping[str, HookFailure] = field(default_factory=dict)

    @property
    def settled(self) -> frozenset[str]:
        """The plugins whose hook is not called again: it succeeded, or all tries failed."""
        return self.done | {name for name, one in self.failed.items() if one.next_at is None}

    def next_at(self, plugins: Collection[str]) -> float | None:
        """Return when a hook of *plugins* is to be called next; None: no more calls."""
        left = frozenset(plugins) - self.settled
        return min(
            ((self.failed[name].next_at or 0.0) if name in self.failed else 0.0 for name in left),
            default=None,
        )


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
        sa.select(*(_failures.c[name] for name in HookFailure.__slots__)).where(
            _failures.c.job_id == sa.bindparam("job_id"),
            _failures.c.attempt == sa.bindparam("attempt"),
        )
    )
)


async def hooks_of(transaction: Transaction, job_id: str, attempt: int) -> dict[str, HookState]:
    """Return the state of each hook of the attempt that was called at least once."""
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


async def record_hooks(
    transaction: Transaction,
    job_id: str,
    attempt: int,
    *,
    hook: Hook,
    plugins: Sequence[str],
    now: float,
) -> None:
    """Store that the hook of these plugins has succeeded. A repeated call changes nothing."""
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
    """Set when the plugin monitors the job next; None: not again."""
    if at is None:
        await transaction.execute(_DROP_ONE_DUE, {"of": job_id, "named": plugin})
        return
    row = {"job_id": job_id, "plugin": plugin, "at": at}
    await upsert(transaction, tables.due, [row])


async def make_due_now(transaction: Transaction, job_id: str, *, now: float) -> None:
    """Make the job due now for every plugin that monitors it."""
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
    """Return the due jobs by plugin: for each plugin the *limit* longest overdue."""
    due: dict[str, list[str]] = {}
    for row in await transaction.execute(_DUE, {"now": now, "limit": limit}):
        due.setdefault(row.plugin, []).append(row.job_id)
    return due


async def drop_due(transaction: Transaction, job_id: str) -> None:
    """Have no plugin monitor the job again."""
    await transaction.execute(_DROP_DUE, {"of": job_id})
