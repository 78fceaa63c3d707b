"""Queries on pods' logs: the objects that each consists of, and why a log is incomplete."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction

LogState = Literal["open", "whole", "dropped"]

Lost = Literal["size", "unreadable", "store_away", "controller_away"]
"""Why part of a log is missing: it exceeded the size limit, the cluster refused to return it, the
storage was unavailable, or no controller ran that could read it."""

_table = tables.pod_logs


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One object of a log.

    ``text`` counts the bytes of the log, ``raw`` those of its records. ``at`` and ``count`` are the
    position of its end (see ``LogMark``), 0 if its lines have no time.
    """

    name: str
    text: int
    raw: int
    lines: int
    at: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLog:
    """The stored part of a pod's log: its segments in order."""

    key: str
    job_id: str
    pod_uid: str
    state: LogState
    segments: tuple[Segment, ...] = ()
    lost: frozenset[Lost] = frozenset()

    @property
    def size(self) -> int:
        """The number of stored bytes of the log."""
        return sum(one.text for one in self.segments)


_ALL: Final = sa.select(_table)
_OF_JOB: Final = _ALL.where(_table.c.job_id == sa.bindparam("job_id"), _table.c.state != "dropped")
_OF_POD: Final = _OF_JOB.where(_table.c.pod_uid == sa.bindparam("pod_uid"))
_IN_STATE: Final = _ALL.where(_table.c.state == sa.bindparam("state")).order_by(_table.c.key)
_JOB: Final = sa.select(tables.jobs.c.id).where(tables.jobs.c.id == sa.bindparam("job_id"))


def _log(row: sa.Row[Any]) -> StoredLog:
    return StoredLog(
        key=row.key,
        job_id=row.job_id,
        pod_uid=row.pod_uid,
        state=row.state,
        segments=tuple(Segment(**one) for one in row.segments),
        lost=frozenset(row.lost),
    )


async def logs_of(transaction: Transaction, job_id: str) -> dict[str, StoredLog]:
    """Return the stored logs of the job's pods, by their uids."""
    rows = await transaction.execute(_OF_JOB, {"job_id": job_id})
    return {row.pod_uid: _log(row) for row in rows}


async def find_log(transaction: Transaction, job_id: str, pod_uid: str) -> StoredLog | None:
    """Return the stored log of a pod, if there is one."""
    given = {"job_id": job_id, "pod_uid": pod_uid}
    row = (await transaction.execute(_OF_POD, given)).first()
    return None if row is None else _log(row)


async def open_log(
    transaction: Transaction, job_id: str, pod_uid: str, *, key: str, now: float
) -> StoredLog | None:
    """Return the stored log of a pod, which is created empty if it is new; None without its job.

    Only the leader calls this, so that a pod never has two logs.
    """
    if (known := await find_log(transaction, job_id, pod_uid)) is not None:
        return known
    if await transaction.scalar(_JOB, {"job_id": job_id}) is None:
        return None
    made = StoredLog(key=key, job_id=job_id, pod_uid=pod_uid, state="open")
    row = {"key": key, "job_id": job_id, "pod_uid": pod_uid, "state": "open", "segments": []}
    await transaction.execute(sa.insert(_table).values(**row, lost=[], changed_at=now))
    return made


async def write_log(transaction: Transaction, log: StoredLog, *, now: float) -> None:
    """Store *log*, unless its job was deleted meanwhile."""
    values = {
        "state": log.state,
        "segments": [asdict(one) for one in log.segments],
        "lost": sorted(log.lost),
        "changed_at": now,
    }
    same = (_table.c.key == log.key, _table.c.state != "dropped")
    await transaction.execute(sa.update(_table).where(*same).values(**values))


async def logs_in(transaction: Transaction, state: LogState) -> list[StoredLog]:
    """Return all logs in *state*, of all jobs."""
    return [_log(row) for row in await transaction.execute(_IN_STATE, {"state": state})]


async def dropped_keys(transaction: Transaction, *, limit: int) -> Sequence[str]:
    """Return the keys of the first logs whose objects must be removed."""
    query = sa.select(_table.c.key).where(_table.c.state == "dropped").order_by(_table.c.key)
    return (await transaction.scalars(query.limit(limit))).all()


async def drop_logs(transaction: Transaction, job_ids: Collection[str]) -> None:
    """Mark the jobs' logs as dropped. Their objects are removed later, even after a crash."""
    of_these = _table.c.job_id.in_(job_ids)
    await transaction.execute(sa.update(_table).where(of_these).values(state="dropped"))


async def forget_log(transaction: Transaction, key: str) -> None:
    """Delete a dropped log that has no objects left."""
    gone = (_table.c.key == key, _table.c.state == "dropped")
    await transaction.execute(sa.delete(_table).where(*gone))


def ended(log: StoredLog, *lost: Lost) -> StoredLog:
    """Return *log* as complete, with further reasons for missing parts."""
    return replace(log, state="whole", lost=log.lost | set(lost))
