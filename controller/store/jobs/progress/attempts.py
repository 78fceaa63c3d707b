"""Queries on attempts of jobs, what was made and seen of them, and what is timed in them.

Pods go with their VolcanoJob; what they did is asked for later, and paid for. Timed are
policies with a timeout that something has triggered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction, insert_if_absent, insert_or_change

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
    restarts: int | None = None
    """How often its pods were started over; None where only ``retries`` is known."""
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


# Put together once, here and below: that takes longer than to carry a statement out.
_MOVE_ATTEMPT: Final = sa.update(tables.attempts).where(
    tables.attempts.c.job_id == sa.bindparam("of"),
    tables.attempts.c.attempt == sa.bindparam("number"),
)
_START_ATTEMPT: Final = _MOVE_ATTEMPT.where(tables.attempts.c.started_at.is_(None))


async def move_attempt(transaction: Transaction, job_id: str, attempt: int, **values: Any) -> None:
    """Set *values* of the attempt."""
    await transaction.execute(_MOVE_ATTEMPT, {"of": job_id, "number": attempt, **values})


async def retries_within(transaction: Transaction, job_id: str, attempt: int) -> int:
    """Return how often Volcano itself has started the attempt over, as was seen last."""
    table = tables.attempts.c
    counted = sa.func.coalesce(table.restarts, table.retries)
    query = sa.select(counted).where(table.job_id == job_id, table.attempt == attempt)
    return int(await transaction.scalar(query) or 0)


async def start_attempt(transaction: Transaction, job_id: str, attempt: int, *, at: float) -> None:
    """Remember when the attempt first ran; the first time counts."""
    await transaction.execute(_START_ATTEMPT, {"of": job_id, "number": attempt, "started_at": at})


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


def all_settled(companions: Iterable[CompanionRecord], uid: str | None, basis: str) -> bool:
    """Say whether each of *companions* is as it should be."""
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


_DROP_COMPANION: Final = sa.delete(tables.companions).where(
    tables.companions.c.job_id == sa.bindparam("of"),
    tables.companions.c.kind == sa.bindparam("its_kind"),
    tables.companions.c.namespace == sa.bindparam("its_namespace"),
    tables.companions.c.name == sa.bindparam("its_name"),
)


async def drop_companions(
    transaction: Transaction, job_id: str, companions: Sequence[CompanionRecord]
) -> None:
    """Forget companions that are gone."""
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
    """One pod's life. ``ended_at`` is None while its program may still run."""

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
    """Return the job's runs, or those of one attempt, by rank and in the order of their starts."""
    query, given = _RUNS_OF_JOB, dict[str, Any](job_id=job_id)
    if attempt is not None:
        query, given = _RUNS_OF_ATTEMPT, given | {"attempt": attempt}
    return [PodRecord(**row._mapping) for row in await transaction.execute(query, given)]


async def upsert_pod_records(transaction: Transaction, runs: Collection[PodRecord]) -> None:
    """Remember *runs* as they are now; when each was first seen stays."""
    rows = [{name: getattr(run, name) for name in PodRecord.__slots__} for run in runs]
    await insert_or_change(transaction, _runs, rows, keep=("seen_at",))


# Timers, and time added


_timers = tables.policy_timers


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A policy that is carried out at ``due_at``, unless its trigger is no longer so by then.

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
    """Return the job's timers by their triggers."""
    rows = await transaction.execute(_OF_JOB, {"job_id": job_id})
    return {row.trigger: Timer(**row._mapping) for row in rows}


async def replace_timers(
    transaction: Transaction, job_id: str, *, timers: Collection[Timer]
) -> None:
    """Have exactly *timers* run; one that runs already keeps its due time."""
    stored = await timers_of(transaction, job_id)
    wanted = {timer.trigger: timer for timer in timers}
    # One of an earlier attempt, or from before a restart, has nothing to do with the new one.
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


_extensions = tables.extensions


async def find_extension(transaction: Transaction, job_id: str, key: str) -> float | None:
    """Return how many seconds were added to the job under *key*, None where none were."""
    same = (_extensions.c.job_id == job_id, _extensions.c.key == key)
    seconds: float | None = await transaction.scalar(sa.select(_extensions.c.seconds).where(*same))
    return seconds


async def add_extension(
    transaction: Transaction, job_id: str, key: str, *, seconds: float, now: float
) -> None:
    """Remember that so many seconds were added under *key*, which is new."""
    values = {"job_id": job_id, "key": key, "seconds": seconds, "at": now}
    await transaction.execute(sa.insert(_extensions).values(values))
