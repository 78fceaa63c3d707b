"""Queries on jobs: what was requested, and their progress."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import sqlalchemy as sa

from controller.loop_turn import LoopTurn
from controller.store import tables
from controller.store.database import Transaction
from controller.store.errors import AlreadyThere
from controller.store.instance import raise_revision
from controller.store.outbox.update_rows import (
    UpdateRow,
    append_updates,
)
from controller.volcano.names import TOOL_PREFIX

Desired = Literal["run", "suspended", "ended"]

FINAL_STATES: Final = ("SUCCESS", "FAILURE", "EXPIRED")
REMOVED_REASONS: Final = ("stopped", "deleted", "lost")
"""Reasons of jobs whose VolcanoJob Volcano itself never removes."""

_table = tables.jobs
_extensions = tables.extensions


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job in the store. The defaults are those of a new job.

    - ``desired`` is what was requested; ``state`` is what the orchestrator sees.
    - ``outcome`` is set once it is decided how the job ends. It becomes the state when all work is
      done. Until then ``end_state``, ``end_reason``, ``end_message`` and ``end_details`` keep how
      the end will be reported, so that no reader sees the reason of the end of a running job.
    - ``uid`` is that of the VolcanoJob of the current ``attempt``.
    - ``renewal``: why another attempt follows this one.
    - ``stopping``: a command of ours to stop the VolcanoJob is or was on its way.
    - ``removed_uid``: the VolcanoJob whose deletion was accepted last.
    - ``ordered``: the action that a delayed policy had us command; ``ordered_why``: its reason.
    - ``explained``: why the VolcanoJob waits, as ``reason``, ``message`` and ``details``.
    - ``details`` and ``end_details`` belong to their reasons, and change with them.
    - ``parked``: why this version of the leader cannot process the job.
    - ``batch`` and ``batch_index``: its batch, and its item there.
    - ``tool``: for a tool's run, which is stored like a job, the job and tool that it belongs to;
      None for a job. ``tools``: the number of the job's tools.
    """

    id: str
    owner_user: str
    owner_project: str | None
    namespace: str
    spec: Mapping[str, Any]
    sealed: bytes | None = None
    fingerprint: bytes | None = None
    desired: Desired = "run"
    state: str = "IN_QUEUE"
    reason: str | None = "submitting"
    message: str | None = "being submitted"
    attempt: int = 1
    uid: str | None = None
    outcome: str | None = None
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    queue: str | None = None
    allocated_seconds: float | None = None
    end_state: str | None = None
    end_reason: str | None = None
    end_message: str | None = None
    renewal: str | None = None
    stopping: bool = False
    product: str | None = None
    price: Mapping[str, Any] | None = None
    cpu: float = 0.0
    memory: float = 0.0
    gpu: float = 0.0
    evictions: int = 0
    retries_used: int = 0
    removed_uid: str | None = None
    ordered: str | None = None
    ordered_why: str | None = None
    kept: str | None = None
    explained: Mapping[str, Any] | None = None
    parked: str | None = None
    details: Mapping[str, Any] | None = None
    end_details: Mapping[str, Any] | None = None
    priority_value: int | None = None
    batch: str | None = None
    batch_index: int | None = None
    tool: Mapping[str, Any] | None = None
    tools: int = 0

    def __repr__(self) -> str:
        return f"JobRecord(id={self.id!r}, state={self.state!r}, attempt={self.attempt})"

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self.state in FINAL_STATES

    @property
    def expires_at(self) -> float | None:
        """When the time allocation ends; None without one, or before the first start."""
        if self.started_at is None or self.allocated_seconds is None:
            return None
        return self.started_at + self.allocated_seconds


MOST_KIND: Final = 63
"""The most characters of a kind that lists can filter by."""
MOST_VALUES: Final = 10_000
"""The most values of one statement; PostgreSQL's protocol counts them in 16 bits."""

IS_JOB: Final = _table.c.id.not_like(f"{TOOL_PREFIX}%")
"""Excludes tool runs. By the id, which every index for pages and counts contains."""

_ROWS_AT_ONCE: Final = 50
_READ_AT_ONCE: Final = 200
"""Rows written and read per turn of the event loop, in which SQLite's queries run."""

_COLUMNS: Final = [_table.c[name] for name in JobRecord.__slots__]
_ONE: Final = sa.select(*_COLUMNS).where(_table.c.id == sa.bindparam("job_id"))
# Not the key: rows that refer to the job, such as sessions, need not wait.
_HELD: Final = _ONE.with_for_update(key_share=True)
_SOME: Final = sa.select(*_COLUMNS).where(_table.c.id.in_(sa.bindparam("ids", expanding=True)))
_SOME_HELD: Final = _SOME.order_by(_table.c.id).with_for_update(key_share=True)
# By the index on finished_at, since the state alone has none that fits: the rows to read must not
# grow with ended jobs, of which there may be a hundred times as many.
IS_LIVE: Final = sa.and_(_table.c.finished_at.is_(None), _table.c.state.not_in(FINAL_STATES))
_CHANGED: Final = sa.select(_table.c.id, _table.c.revision).where(
    _table.c.revision > sa.bindparam("after")
)
_KNOWN: Final = sa.select(_table.c.id).where(_table.c.id.in_(sa.bindparam("ids", expanding=True)))
_SETTLED: Final = _KNOWN.where(
    _table.c.state.in_(FINAL_STATES),
    _table.c.desired != "ended",
    sa.not_(_table.c.stopping),
    sa.or_(_table.c.reason.is_(None), _table.c.reason.not_in(REMOVED_REASONS)),
)
_ENDING: Final = _KNOWN.where(sa.or_(_table.c.desired == "ended", _table.c.state.in_(FINAL_STATES)))
_INSERT: Final = sa.insert(_table)
_CHANGE: Final = sa.update(_table).where(_table.c.id == sa.bindparam("which"))


def _record(row: sa.Row[Any]) -> JobRecord:
    # The columns have the order of the fields.
    return JobRecord(**dict(zip(JobRecord.__slots__, row, strict=True)))


async def insert_job(
    transaction: Transaction, record: JobRecord, *, labels: Mapping[str, str]
) -> None:
    """Add a job that does not exist yet.

    Raises:
        AlreadyThere: If it exists.
    """
    await insert_jobs(transaction, [(record, labels)])


async def insert_jobs(
    transaction: Transaction, jobs: Sequence[tuple[JobRecord, Mapping[str, str]]]
) -> None:
    """Add jobs that do not exist yet, with their labels.

    Raises:
        AlreadyThere: If one exists.
    """
    if not jobs:
        return
    # Before the rows: two requests that name the same jobs in different orders wait here for each
    # other, instead of deadlocking on each other's rows.
    revision = await raise_revision(transaction)
    # Only now: on PostgreSQL, after waiting, this sees what was committed meanwhile.
    if known := await known_jobs(transaction, [record.id for record, _ in jobs]):
        raise AlreadyThere(f"job {min(known)} exists")
    turn = LoopTurn()
    for first in range(0, len(jobs), _ROWS_AT_ONCE):
        await _insert_some(transaction, jobs[first : first + _ROWS_AT_ONCE], revision)
        await turn.rest()


async def _insert_some(
    transaction: Transaction, jobs: Sequence[tuple[JobRecord, Mapping[str, str]]], revision: int
) -> None:
    rows = [
        {"revision": revision, "kind": kind_of(record.spec)}
        | {name: getattr(record, name) for name in JobRecord.__slots__}
        for record, _ in jobs
    ]
    await transaction.execute(_INSERT, rows)
    labelled = [
        {"job_id": record.id, "name": name, "value": value}
        for record, labels in jobs
        for name, value in labels.items()
    ]
    if labelled:
        await transaction.execute(sa.insert(tables.job_labels), labelled)
    # Tools have no updates: their state is read from their job.
    visible = [record for record, _ in jobs if record.tool is None]
    if visible:
        await append_updates(transaction, [_update_of(one, one.created_at) for one in visible])


def kind_of(spec: object) -> str:
    """Return the kind of an accepted job as lists filter by it; empty if it has none."""
    kind = spec.get("kind") if isinstance(spec, Mapping) else None
    return kind[:MOST_KIND] if isinstance(kind, str) else ""


async def find_job(transaction: Transaction, job_id: str) -> JobRecord | None:
    """Return the job, if there is one."""
    row = (await transaction.execute(_ONE, {"job_id": job_id})).first()
    return None if row is None else _record(row)


async def lock_job(transaction: Transaction, job_id: str) -> JobRecord | None:
    """Return the job, if there is one, locked until this transaction ends."""
    row = (await transaction.execute(_HELD, {"job_id": job_id})).first()
    return None if row is None else _record(row)


async def lock_jobs(transaction: Transaction, job_ids: Collection[str]) -> dict[str, JobRecord]:
    """Return the jobs that exist, locked until this transaction ends.

    Call it before the revision is raised: locks are taken in one order.
    """
    return await _records(transaction, _SOME_HELD, sorted(job_ids))


async def find_jobs(transaction: Transaction, job_ids: Collection[str]) -> dict[str, JobRecord]:
    """Return the jobs that exist, by id."""
    return await _records(transaction, _SOME, list(job_ids))


async def _records(
    transaction: Transaction, query: sa.Select[Any], job_ids: Sequence[str]
) -> dict[str, JobRecord]:
    found, turn = dict[str, JobRecord](), LoopTurn()
    for first in range(0, len(job_ids), _READ_AT_ONCE):
        rows = await transaction.execute(query, {"ids": job_ids[first : first + _READ_AT_ONCE]})
        found |= {row.id: _record(row) for row in rows}
        await turn.rest()
    return found


def batched(values: Collection[str]) -> Iterator[list[str]]:
    """Yield *values* in lists that fit into one statement."""
    each = list(values)
    for start in range(0, len(each), MOST_VALUES):
        yield each[start : start + MOST_VALUES]


async def oldest_jobs(
    transaction: Transaction, *, after: tuple[float, str], limit: int
) -> list[JobRecord]:
    """Return jobs in the order of their acceptance, from *after* a time and id on."""
    place = sa.tuple_(_table.c.created_at, _table.c.id)
    query = sa.select(*_COLUMNS).where(place > after).order_by(_table.c.created_at, _table.c.id)
    return [_record(row) for row in await transaction.execute(query.limit(limit))]


async def unfinished_jobs(transaction: Transaction) -> list[str]:
    """Return the ids of all jobs that have not ended."""
    query = sa.select(_table.c.id).where(IS_LIVE)
    return list((await transaction.scalars(query)).all())


async def unfinished_of(
    transaction: Transaction, *, user: str | None, project: str | None
) -> list[str]:
    """Return the live jobs of the project; without one, the user's live jobs outside projects."""
    query = sa.select(_table.c.id).where(IS_LIVE, IS_JOB)
    if project is not None:
        query = query.where(_table.c.owner_project == project)
    else:
        query = query.where(_table.c.owner_user == user, _table.c.owner_project.is_(None))
    return list((await transaction.scalars(query)).all())


async def touch_unsubmitted(transaction: Transaction) -> None:
    """Have the jobs that are not in the cluster yet reconciled, by whichever process leads."""
    waiting = (_table.c.uid.is_(None), IS_LIVE)
    # Locked before the revision is raised, as everywhere: locks are taken in one order.
    held = sa.select(_table.c.id).where(*waiting).order_by(_table.c.id)
    await transaction.execute(held.with_for_update(key_share=True))
    revision = await raise_revision(transaction)
    await transaction.execute(sa.update(_table).where(*waiting).values(revision=revision))


async def known_jobs(transaction: Transaction, job_ids: Collection[str]) -> set[str]:
    """Return which of these jobs exist."""
    known: set[str] = set()
    for some in batched(job_ids):
        known.update(await transaction.scalars(_KNOWN, {"ids": some}))
    return known


async def settled_jobs(transaction: Transaction, job_ids: Collection[str]) -> set[str]:
    """Return which of these jobs have ended and have nothing in the cluster for us to remove."""
    settled: set[str] = set()
    for some in batched(job_ids):
        settled.update(await transaction.scalars(_SETTLED, {"ids": some}))
    return settled


async def ending_jobs(transaction: Transaction, job_ids: Collection[str]) -> set[str]:
    """Return which of these jobs have ended, or are to end as requested: without their sessions."""
    ending: set[str] = set()
    for some in batched(job_ids):
        ending.update(await transaction.scalars(_ENDING, {"ids": some}))
    return ending


async def has_jobs(transaction: Transaction) -> bool:
    """Return whether there is any job."""
    return (await transaction.scalar(sa.select(_table.c.id).limit(1))) is not None


async def changed_jobs(transaction: Transaction, *, after: int) -> tuple[Sequence[str], int]:
    """Return the jobs whose revision is higher than *after*, and the highest revision."""
    rows = (await transaction.execute(_CHANGED, {"after": after})).all()
    return [row.id for row in rows], max((row.revision for row in rows), default=after)


@dataclass(frozen=True, slots=True)
class RequestedEnd:
    """How a requested end is reported: state, reason, message and details."""

    state: str
    reason: str
    message: str
    details: Mapping[str, Any] | None = None


ASKED: Final = RequestedEnd("SUCCESS", "asked", "ended as asked")


async def request_end(
    transaction: Transaction, record: JobRecord, *, now: float, how: RequestedEnd = ASKED
) -> JobRecord:
    """Store the request to end the job; return its new record.

    The first request decides how the end is reported. An end that is already decided stays.
    """
    if record.desired == "ended":
        return record
    changes: dict[str, Any] = {"desired": "ended"}
    if not record.is_final:
        changes |= {"state": "CANCELING", "reason": how.reason, "message": how.message}
        changes["details"] = how.details
    if not record.is_final and record.outcome is None:
        changes |= {"end_state": how.state, "end_reason": how.reason, "end_message": how.message}
        changes["end_details"] = how.details
    return await update_and_notify(transaction, record, now=now, **changes)


async def update_and_notify(
    transaction: Transaction, record: JobRecord, *, now: float, **values: Any
) -> JobRecord:
    """Set *values* as :func:`update_job` does, and raise the revision to notify every process."""
    # The revision before the update's number, as everywhere: locks are taken in one order.
    revision = await raise_revision(transaction)
    same = _table.c.id == record.id
    await transaction.execute(sa.update(_table).where(same).values(revision=revision))
    return await update_job(transaction, record, now=now, **values)


async def update_job(
    transaction: Transaction,
    record: JobRecord,
    *,
    now: float,
    exits: Any = None,
    **values: Any,
) -> JobRecord:
    """Set *values* of a job that this transaction holds; return its new record.

    A change of state, reason or message is recorded as an update, with *exits* as the ranks' ends.
    A new reason or message drops the old details unless *values* has new ones.
    """
    if values.keys() & {"reason", "message"}:
        values.setdefault("details", None)
    after = replace(record, **values)
    await transaction.execute(_CHANGE, {"which": record.id, **values})
    if record.tool is None and _told(after) != _told(record):
        await append_updates(transaction, [_update_of(after, now, exits)])
    return after


def _update_of(record: JobRecord, at: float, exits: Any = None) -> UpdateRow:
    return UpdateRow(
        job_id=record.id,
        attempt=record.attempt,
        at=at,
        state=record.state,
        reason=record.reason,
        message=record.message,
        exits=exits,
        details=record.details,
    )


def _told(record: JobRecord) -> tuple[str, str | None, str | None]:
    # Not the attempt: the decision for another attempt has its own update.
    return record.state, record.reason, record.message


async def jobs_ended_before(
    transaction: Transaction, *, finished_before: float, limit: int, after: str = ""
) -> list[str]:
    """Return the first *limit* jobs after an id that ended before then, in order.

    The last run of a tool stays as long as its tool, which shows that run's state.
    """
    last = sa.select(tables.tools.c.run).where(tables.tools.c.run.is_not(None))
    query = sa.select(_table.c.id).where(
        _table.c.state.in_(FINAL_STATES),
        _table.c.finished_at < finished_before,
        _table.c.id > after,
        sa.or_(IS_JOB, _table.c.id.not_in(last)),
    )
    return list((await transaction.scalars(query.order_by(_table.c.id).limit(limit))).all())


# Extensions of the time


async def find_extension(transaction: Transaction, job_id: str, key: str) -> float | None:
    """Return the seconds that were added to the job under *key*; None if none were."""
    same = (_extensions.c.job_id == job_id, _extensions.c.key == key)
    seconds: float | None = await transaction.scalar(sa.select(_extensions.c.seconds).where(*same))
    return seconds


async def add_extension(
    transaction: Transaction, job_id: str, key: str, *, seconds: float, now: float
) -> None:
    """Store the seconds that were added under *key*, which is new."""
    values = {"job_id": job_id, "key": key, "seconds": seconds, "at": now}
    await transaction.execute(sa.insert(_extensions).values(values))
