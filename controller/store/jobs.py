"""Queries on jobs: what was asked for, and how far each is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction
from controller.store.position import raise_revision

Desired = Literal["run", "ended"]

FINAL_STATES: Final = ("SUCCESS", "FAILURE", "EXPIRED")
_table = tables.jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job as the store has it.

    ``desired`` is what was asked for, ``state`` what is told to the orchestrator; ``outcome`` is
    set once it is decided how the job ends, and becomes its state when everything is done. ``uid``
    is that of the VolcanoJob of the current ``attempt``.
    """

    id: str
    owner_user: str
    owner_project: str | None
    namespace: str
    spec: Mapping[str, Any]
    sealed: bytes | None
    fingerprint: bytes | None
    desired: Desired
    state: str
    reason: str | None
    message: str | None
    attempt: int
    uid: str | None
    outcome: str | None
    created_at: float
    started_at: float | None
    finished_at: float | None

    def __repr__(self) -> str:
        return f"JobRecord(id={self.id!r}, state={self.state!r}, attempt={self.attempt})"

    @property
    def is_final(self) -> bool:
        """Whether the job is over."""
        return self.state in FINAL_STATES


_COLUMNS: Final = [_table.c[name] for name in JobRecord.__slots__]


def _record(row: sa.Row[Any]) -> JobRecord:
    return JobRecord(**row._mapping)


async def insert_job(
    transaction: Transaction, record: JobRecord, *, labels: Mapping[str, str]
) -> None:
    """Add a job that is not there yet."""
    revision = await raise_revision(transaction)
    values = {name: getattr(record, name) for name in JobRecord.__slots__}
    await transaction.execute(sa.insert(_table).values(revision=revision, **values))
    rows = [{"job_id": record.id, "name": n, "value": v} for n, v in labels.items()]
    if rows:
        await transaction.execute(sa.insert(tables.job_labels), rows)
    await _note(transaction, record)


async def find_job(transaction: Transaction, job_id: str) -> JobRecord | None:
    """Return the job, if there is one."""
    row = (await transaction.execute(_one(job_id))).first()
    return None if row is None else _record(row)


async def hold_job(transaction: Transaction, job_id: str) -> JobRecord | None:
    """Return the job, if there is one, which nobody else changes until this transaction ends."""
    row = (await transaction.execute(_one(job_id).with_for_update())).first()
    return None if row is None else _record(row)


def _one(job_id: str) -> sa.Select[Any]:
    return sa.select(*_COLUMNS).where(_table.c.id == job_id)


async def find_jobs(transaction: Transaction, job_ids: Collection[str]) -> dict[str, JobRecord]:
    """Return those of the jobs that there are, by id."""
    rows = await transaction.execute(sa.select(*_COLUMNS).where(_table.c.id.in_(job_ids)))
    return {row.id: _record(row) for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs are asked for; what is empty or None matches all."""

    user: str | None = None
    project: str | None = None
    states: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()


async def list_jobs(
    transaction: Transaction, wanted: JobFilter, *, after: str, limit: int
) -> list[JobRecord]:
    """Return the first *limit* jobs whose id comes after *after*, in the order of ids."""
    query = sa.select(*_COLUMNS).where(_table.c.id > after)
    if wanted.user is not None:
        query = query.where(_table.c.owner_user == wanted.user)
    if wanted.project is not None:
        query = query.where(_table.c.owner_project == wanted.project)
    if wanted.states:
        query = query.where(_table.c.state.in_(wanted.states))
    labels = tables.job_labels.c
    for name, value in wanted.labels:
        has = sa.select(labels.job_id).where(labels.name == name, labels.value == value)
        query = query.where(_table.c.id.in_(has))
    rows = await transaction.execute(query.order_by(_table.c.id).limit(limit))
    return [_record(row) for row in rows]


async def unfinished_jobs(transaction: Transaction) -> list[str]:
    """Return the ids of the jobs that are not over."""
    query = sa.select(_table.c.id).where(_table.c.state.not_in(FINAL_STATES))
    return list((await transaction.scalars(query)).all())


async def known_jobs(transaction: Transaction, job_ids: Collection[str]) -> set[str]:
    """Return which of these there are."""
    query = sa.select(_table.c.id).where(_table.c.id.in_(job_ids))
    return set((await transaction.scalars(query)).all())


async def has_jobs(transaction: Transaction) -> bool:
    """Say whether there is any job."""
    return (await transaction.scalar(sa.select(_table.c.id).limit(1))) is not None


async def changed_jobs(transaction: Transaction, *, after: int) -> tuple[Sequence[str], int]:
    """Return the jobs that were asked for or to be ended after revision *after*, and the latest."""
    query = sa.select(_table.c.id, _table.c.revision).where(_table.c.revision > after)
    rows = (await transaction.execute(query)).all()
    return [row.id for row in rows], max((row.revision for row in rows), default=after)


async def ask_to_end(transaction: Transaction, record: JobRecord, *, now: float) -> JobRecord:
    """Note that the job is to end; return how it is now. Doing so again changes nothing."""
    if record.desired == "ended":
        return record
    revision = await raise_revision(transaction)
    asked: dict[str, Any] = {"desired": "ended"}
    if not record.is_final:
        asked |= {"state": "CANCELING", "reason": "asked", "message": None}
    await transaction.execute(
        sa.update(_table).where(_table.c.id == record.id).values(revision=revision)
    )
    return await move_job(transaction, record, now=now, **asked)


async def move_job(
    transaction: Transaction, record: JobRecord, *, now: float, **values: Any
) -> JobRecord:
    """Set *values* of a job that this transaction holds; return how it is then.

    A transition is remembered if it is one.
    """
    after = replace(record, **values)
    await transaction.execute(sa.update(_table).where(_table.c.id == record.id).values(**values))
    if _told(after) != _told(record):
        await _note(transaction, after, now=now)
    return after


def _told(record: JobRecord) -> tuple[str, str | None, str | None]:
    return record.state, record.reason, record.message


async def _note(transaction: Transaction, record: JobRecord, now: float | None = None) -> None:
    await transaction.execute(
        sa.insert(tables.transitions).values(
            job_id=record.id,
            attempt=record.attempt,
            at=record.created_at if now is None else now,
            state=record.state,
            reason=record.reason,
            message=record.message,
        )
    )


async def forget_jobs(transaction: Transaction, *, finished_before: float, limit: int) -> int:
    """Drop the records of jobs that were over before then, leaving tombstones; say how many."""
    query = sa.select(_table.c.id, _table.c.uid).where(
        _table.c.state.in_(FINAL_STATES), _table.c.finished_at < finished_before
    )
    rows = (await transaction.execute(query.limit(limit))).all()
    stones = [{"job_id": r.id, "uid": r.uid, "at": finished_before} for r in rows if r.uid]
    if stones:
        await transaction.execute(sa.insert(tables.tombstones), stones)
    if rows:
        gone = sa.delete(_table).where(_table.c.id.in_([row.id for row in rows]))
        await transaction.execute(gone)
    return len(rows)


async def has_tombstone(transaction: Transaction, job_id: str, uid: str) -> bool:
    """Say whether this VolcanoJob's record was dropped, so that it may be removed."""
    stones = tables.tombstones.c
    query = sa.select(stones.uid).where(stones.job_id == job_id, stones.uid == uid)
    return (await transaction.scalar(query)) is not None
