"""Queries on jobs: what was asked for, and how far each is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import sqlalchemy as sa

from controller.kube.loop_turn import LoopTurn
from controller.store import tables
from controller.store.database import Transaction
from controller.store.errors import AlreadyThere
from controller.store.instance import raise_revision
from controller.store.outbox.update_rows import (
    record_beginnings,
    record_transition,
)
from controller.volcano.names import TOOL_PREFIX

Desired = Literal["run", "suspended", "ended"]

FINAL_STATES: Final = ("SUCCESS", "FAILURE", "EXPIRED")
REMOVED_REASONS: Final = ("stopped", "deleted", "lost")
"""Of jobs whose VolcanoJob Volcano itself would never remove."""

_table = tables.jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job as the store has it, by default as it begins.

    ``desired`` is what was asked for, ``state`` what is told to the orchestrator; ``outcome`` is
    set once it is decided how the job ends, and becomes its state when everything is done. Until
    then ``end_state`` and its like keep how that is to be told, so that nobody hears why a job has
    ended while it is still said to run. ``uid`` is that of the VolcanoJob of the current
    ``attempt``, ``renewal`` says why another attempt follows this one, ``stopping`` that a command
    of ours to stop the VolcanoJob is or was on its way. ``removed_uid`` is that of the VolcanoJob
    whose deletion was accepted last, ``ordered`` the action that a delayed policy had us command.
    ``explained`` is why the VolcanoJob of its ``uid`` waits: a ``reason``, a ``message`` and
    ``details``. ``details`` and ``end_details`` are what is known of the job's own reason, and of
    the reason of its end; they go with the reason to which they belong.
    ``parked`` says why the leader's version cannot go on with it. ``batch`` and ``batch_index`` say
    with which batch it came, and which of its items it is. ``tool`` is None of a job: a tool's run,
    which lives and ends as a job does, says there whose it is. ``tools`` is how many the job has.
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
        """Whether the job is over."""
        return self.state in FINAL_STATES

    @property
    def expires_at(self) -> float | None:
        """When its time is over; None where it has no end, or has not begun."""
        if self.started_at is None or self.allocated_seconds is None:
            return None
        return self.started_at + self.allocated_seconds


MOST_KIND: Final = 63
"""Characters of a kind that it is found by."""
MOST_VALUES: Final = 10_000
"""Of one statement; PostgreSQL's protocol has 16 bits to count them."""

IS_JOB: Final = _table.c.id.not_like(f"{TOOL_PREFIX}%")
"""And no tool's run. By the id, which is in every index that pages and counts are read from."""

_ROWS_AT_ONCE: Final = 50
_READ_AT_ONCE: Final = 200
"""Written, and read, within one turn of the loop: with SQLite that is where it is done."""

_COLUMNS: Final = [_table.c[name] for name in JobRecord.__slots__]
_ONE: Final = sa.select(*_COLUMNS).where(_table.c.id == sa.bindparam("job_id"))
# Not the key: what refers to the job, such as a session, need not wait.
_HELD: Final = _ONE.with_for_update(key_share=True)
_SOME: Final = sa.select(*_COLUMNS).where(_table.c.id.in_(sa.bindparam("ids", expanding=True)))
_SOME_HELD: Final = _SOME.order_by(_table.c.id).with_for_update(key_share=True)
# By an index, which the state alone has not: what is read must not grow with the jobs that are
# over, of which there may be a hundred times as many.
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
_INSERT: Final = sa.insert(_table)
_CHANGE: Final = sa.update(_table).where(_table.c.id == sa.bindparam("which"))


def _record(row: sa.Row[Any]) -> JobRecord:
    # The columns are in the order of the fields.
    return JobRecord(**dict(zip(JobRecord.__slots__, row, strict=True)))


async def insert_job(
    transaction: Transaction, record: JobRecord, *, labels: Mapping[str, str]
) -> None:
    """Add a job that is not there yet.

    Raises:
        AlreadyThere: If it is.
    """
    await insert_jobs(transaction, [(record, labels)])


async def insert_jobs(
    transaction: Transaction, jobs: Sequence[tuple[JobRecord, Mapping[str, str]]]
) -> None:
    """Add jobs that are not there yet, with their labels.

    Raises:
        AlreadyThere: If one is.
    """
    if not jobs:
        return
    # Before the job itself: two calls that name the same jobs in another order wait here for each
    # other, and not each for the other's job.
    revision = await raise_revision(transaction)
    # Only now: on PostgreSQL, who had to wait sees what was committed meanwhile.
    if known := await known_jobs(transaction, [record.id for record, _ in jobs]):
        raise AlreadyThere(f"there is a job {min(known)}")
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
    # Nobody is told of tools: they are asked after within their job.
    told = [record for record, _ in jobs if record.tool is None]
    if told:
        await record_beginnings(transaction, told)


def kind_of(spec: object) -> str:
    """Return the kind that an accepted job names, as lists find it; empty without one."""
    kind = spec.get("kind") if isinstance(spec, Mapping) else None
    return kind[:MOST_KIND] if isinstance(kind, str) else ""


async def find_job(transaction: Transaction, job_id: str) -> JobRecord | None:
    """Return the job, if there is one."""
    row = (await transaction.execute(_ONE, {"job_id": job_id})).first()
    return None if row is None else _record(row)


async def lock_job(transaction: Transaction, job_id: str) -> JobRecord | None:
    """Return the job, if there is one, which nobody else changes until this transaction ends."""
    row = (await transaction.execute(_HELD, {"job_id": job_id})).first()
    return None if row is None else _record(row)


async def lock_jobs(transaction: Transaction, job_ids: Collection[str]) -> dict[str, JobRecord]:
    """Return those of the jobs that there are, which nobody else changes until this ends.

    Call it before anything raises the revision: locks are taken in one order.
    """
    return await _records(transaction, _SOME_HELD, sorted(job_ids))


async def find_jobs(transaction: Transaction, job_ids: Collection[str]) -> dict[str, JobRecord]:
    """Return those of the jobs that there are, by id."""
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
    """Yield *values* in lists of as many as one statement may be given."""
    each = list(values)
    for start in range(0, len(each), MOST_VALUES):
        yield each[start : start + MOST_VALUES]


async def oldest_jobs(
    transaction: Transaction, *, after: tuple[float, str], limit: int
) -> list[JobRecord]:
    """Return jobs in the order in which they were accepted, those *after* a time and id."""
    place = sa.tuple_(_table.c.created_at, _table.c.id)
    query = sa.select(*_COLUMNS).where(place > after).order_by(_table.c.created_at, _table.c.id)
    return [_record(row) for row in await transaction.execute(query.limit(limit))]


async def unfinished_jobs(transaction: Transaction) -> list[str]:
    """Return the ids of the jobs that are not over."""
    query = sa.select(_table.c.id).where(IS_LIVE)
    return list((await transaction.scalars(query)).all())


async def unfinished_of(
    transaction: Transaction, *, user: str | None, project: str | None
) -> list[str]:
    """Return the project's jobs that are not over; without one, the user's outside of projects."""
    query = sa.select(_table.c.id).where(IS_LIVE, IS_JOB)
    if project is not None:
        query = query.where(_table.c.owner_project == project)
    else:
        query = query.where(_table.c.owner_user == user, _table.c.owner_project.is_(None))
    return list((await transaction.scalars(query)).all())


async def touch_unsubmitted(transaction: Transaction) -> None:
    """Have every process look again at the jobs that are not in the cluster yet."""
    waiting = (_table.c.uid.is_(None), IS_LIVE)
    # Held before the revision is raised, as everywhere: locks are taken in one order.
    held = sa.select(_table.c.id).where(*waiting).order_by(_table.c.id)
    await transaction.execute(held.with_for_update(key_share=True))
    revision = await raise_revision(transaction)
    await transaction.execute(sa.update(_table).where(*waiting).values(revision=revision))


async def known_jobs(transaction: Transaction, job_ids: Collection[str]) -> set[str]:
    """Return which of these there are."""
    known: set[str] = set()
    for some in batched(job_ids):
        known.update(await transaction.scalars(_KNOWN, {"ids": some}))
    return known


async def settled_jobs(transaction: Transaction, job_ids: Collection[str]) -> set[str]:
    """Return which of these are over and have nothing in the cluster that we are to remove."""
    settled: set[str] = set()
    for some in batched(job_ids):
        settled.update(await transaction.scalars(_SETTLED, {"ids": some}))
    return settled


async def has_jobs(transaction: Transaction) -> bool:
    """Say whether there is any job."""
    return (await transaction.scalar(sa.select(_table.c.id).limit(1))) is not None


async def changed_jobs(transaction: Transaction, *, after: int) -> tuple[Sequence[str], int]:
    """Return the jobs that were asked for or to be ended after revision *after*, and the latest."""
    rows = (await transaction.execute(_CHANGED, {"after": after})).all()
    return [row.id for row in rows], max((row.revision for row in rows), default=after)


@dataclass(frozen=True, slots=True)
class RequestedEnd:
    """How a job that is ended on purpose is to be told: a state, a word, and a text."""

    state: str
    reason: str
    message: str
    details: Mapping[str, Any] | None = None


ASKED: Final = RequestedEnd("SUCCESS", "asked", "ended as asked")


async def ask_to_end(
    transaction: Transaction, record: JobRecord, *, now: float, how: RequestedEnd = ASKED
) -> JobRecord:
    """Note that the job is to end; return how it is now.

    The first who asks decides how; one whose end is decided already ends as was decided.
    """
    if record.desired == "ended":
        return record
    asked: dict[str, Any] = {"desired": "ended"}
    if not record.is_final:
        asked |= {"state": "CANCELING", "reason": how.reason, "message": how.message}
        asked["details"] = how.details
    if not record.is_final and record.outcome is None:
        asked |= {"end_state": how.state, "end_reason": how.reason, "end_message": how.message}
        asked["end_details"] = how.details
    return await tell_job(transaction, record, now=now, **asked)


async def tell_job(
    transaction: Transaction, record: JobRecord, *, now: float, **values: Any
) -> JobRecord:
    """Set *values* as :func:`move_job` does, and have every process notice it."""
    # The revision before the update's number, as everywhere: locks are taken in one order.
    revision = await raise_revision(transaction)
    same = _table.c.id == record.id
    await transaction.execute(sa.update(_table).where(same).values(revision=revision))
    return await move_job(transaction, record, now=now, **values)


async def move_job(
    transaction: Transaction,
    record: JobRecord,
    *,
    now: float,
    exits: Any = None,
    **values: Any,
) -> JobRecord:
    """Set *values* of a job that this transaction holds; return how it is then.

    A transition is remembered, and told, if it is one; with *exits*, how its ranks ended. Details
    belong to a reason: those of the last one go with it.
    """
    if values.keys() & {"reason", "message"}:
        values.setdefault("details", None)
    after = replace(record, **values)
    await transaction.execute(_CHANGE, {"which": record.id, **values})
    if record.tool is None and _told(after) != _told(record):
        await record_transition(transaction, after, at=now, exits=exits)
    return after


def _told(record: JobRecord) -> tuple[str, str | None, str | None]:
    # Not the attempt: that another one follows was told when it was decided.
    return record.state, record.reason, record.message


async def long_over(
    transaction: Transaction, *, finished_before: float, limit: int, after: str = ""
) -> list[str]:
    """Return the first *limit* jobs after an id that were over before then, in order.

    The last run of a tool stays as long as the tool: that is how the tool is.
    """
    last = sa.select(tables.tools.c.run).where(tables.tools.c.run.is_not(None))
    query = sa.select(_table.c.id).where(
        _table.c.state.in_(FINAL_STATES),
        _table.c.finished_at < finished_before,
        _table.c.id > after,
        sa.or_(IS_JOB, _table.c.id.not_in(last)),
    )
    return list((await transaction.scalars(query.order_by(_table.c.id).limit(limit))).all())
