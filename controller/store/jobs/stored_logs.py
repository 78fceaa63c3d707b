"""Queries on pods' logs: which objects of the storage each consists of, and what of it was lost."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction

LogState = Literal["open", "whole", "dropped"]

Lost = Literal["size", "unreadable", "store_away", "controller_away"]
"""Why something of a log is not there: it was longer than is kept, the cluster did not give it, the
storage did not take it, or no controller was there to read it."""

_table = tables.pod_logs


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """An object, and what is in it.

    ``text`` counts the bytes of the log, ``raw`` those of its records; ``at`` and ``count`` are
    where it ends (see ``LogMark``), 0 where its lines have no time.
    """

    name: str
    text: int
    raw: int
    lines: int
    at: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLog:
    """A pod's log as far as it is stored: its segments in their order."""

    key: str
    job_id: str
    pod_uid: str
    state: LogState
    segments: tuple[Segment, ...] = ()
    lost: frozenset[Lost] = frozenset()

    @property
    def size(self) -> int:
        """How many bytes of the log there are."""
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
    """Return what is stored of the job's pods, by their uids."""
    rows = await transaction.execute(_OF_JOB, {"job_id": job_id})
    return {row.pod_uid: _log(row) for row in rows}


async def find_log(transaction: Transaction, job_id: str, pod_uid: str) -> StoredLog | None:
    """Return what is stored of a pod's log."""
    given = {"job_id": job_id, "pod_uid": pod_uid}
    row = (await transaction.execute(_OF_POD, given)).first()
    return None if row is None else _log(row)


async def open_log(
    transaction: Transaction, job_id: str, pod_uid: str, *, key: str, now: float
) -> StoredLog | None:
    """Return what is stored of a pod's log, which is empty if that is new; None without its job.

    It is called by the leader alone, so that a pod never has two.
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
    """Have *log* be what is stored, unless its job was forgotten meanwhile."""
    values = {
        "state": log.state,
        "segments": [asdict(one) for one in log.segments],
        "lost": sorted(log.lost),
        "changed_at": now,
    }
    same = (_table.c.key == log.key, _table.c.state != "dropped")
    await transaction.execute(sa.update(_table).where(*same).values(**values))


async def logs_in(transaction: Transaction, state: LogState) -> list[StoredLog]:
    """Return all logs in *state*, of whichever jobs."""
    return [_log(row) for row in await transaction.execute(_IN_STATE, {"state": state})]


async def dropped_keys(transaction: Transaction, *, limit: int) -> Sequence[str]:
    """Return the keys of some logs whose objects are to be removed."""
    query = sa.select(_table.c.key).where(_table.c.state == "dropped").order_by(_table.c.key)
    return (await transaction.scalars(query.limit(limit))).all()


async def drop_logs(transaction: Transaction, job_ids: Collection[str]) -> None:
    """Give up the jobs' logs: their objects are removed later, whatever dies meanwhile."""
    of_these = _table.c.job_id.in_(job_ids)
    await transaction.execute(sa.update(_table).where(of_these).values(state="dropped"))


async def forget_log(transaction: Transaction, key: str) -> None:
    """Forget a log that was given up, and of which no object is left."""
    gone = (_table.c.key == key, _table.c.state == "dropped")
    await transaction.execute(sa.delete(_table).where(*gone))


def ended(log: StoredLog, *lost: Lost) -> StoredLog:
    """Return *log* as it is when nothing more comes."""
    return replace(log, state="whole", lost=log.lost | set(lost))
