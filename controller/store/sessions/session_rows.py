"""Queries on interactive sessions, and pages of them (see ``controller.store.paging``)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, cast

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction
from controller.store.instance import raise_revision
from controller.store.paging import Key, first_keys
from shared.routes.route import Clipboard, Kind

SID_BYTES: Final = 16
_table = tables.sessions
_LIVE_OF: Final = sa.select(_table).where(
    _table.c.job_id.in_(sa.bindparam("job_ids", expanding=True)), _table.c.ended_at.is_(None)
)
_CHANGED: Final = sa.select(_table.c.job_id, _table.c.revision).where(
    _table.c.revision > sa.bindparam("after")
)

_REFUSED: Final = (
    sa.select(tables.jobs.c.namespace)
    .join_from(_table, tables.jobs)
    .where(
        _table.c.revision > sa.bindparam("after"),
        _table.c.shell_refused_at.is_not(None),
        _table.c.ended_at.is_(None),
    )
    .distinct()
    .order_by(tables.jobs.c.namespace)
)


def make_sid(random: Callable[[int], bytes]) -> str:
    """Return a new session id: 128 random bits as a lower-case base32 DNS label."""
    return base64.b32encode(random(SID_BYTES)).decode("ascii").lower().rstrip("=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One opening of one endpoint of one rank of a job.

    - ``endpoint`` is None for a port that the job did not declare; ``port`` is None for terminals.
    - ``hub_id``, ``pod`` and ``pod_uid`` are set once a terminal's shell has a place.
    - ``links`` are the public names of a session that is open to everybody.
    - ``clipboard`` and ``service_workers`` are as in :class:`shared.routes.route.Route`.
    """

    sid: str
    job_id: str
    rank: int
    kind: Kind
    endpoint: str | None
    port: int | None
    base_path: str
    created_at: float
    ended_at: float | None = None
    end_reason: str | None = None
    hub_id: str | None = None
    pod: str | None = None
    pod_uid: str | None = None
    links: tuple[str, ...] = ()
    clipboard: Clipboard = "both"
    service_workers: bool = False


def _session(row: sa.Row[tuple[object, ...]]) -> Session:
    values = dict(row._mapping)
    del values["revision"], values["owner_user"], values["shell_refused_at"]
    values["kind"] = cast(Kind, values["kind"])
    values["links"] = tuple(cast(list[str] | None, values["links"]) or ())
    values["clipboard"] = values["clipboard"] or "both"
    values["service_workers"] = bool(values["service_workers"])
    return Session(**values)


async def insert_session(transaction: Transaction, session: Session) -> None:
    """Add *session*."""
    revision = await raise_revision(transaction)
    values = {name: getattr(session, name) for name in Session.__slots__}
    values["links"] = list(session.links) or None
    owner = sa.select(tables.jobs.c.owner_user).where(tables.jobs.c.id == session.job_id)
    values["owner_user"] = owner.scalar_subquery()
    await transaction.execute(sa.insert(_table).values(revision=revision, **values))


async def find_session(transaction: Transaction, sid: str) -> Session | None:
    """Return the session, even if it has ended."""
    row = (await transaction.execute(sa.select(_table).where(_table.c.sid == sid))).first()
    return None if row is None else _session(row)


async def find_sessions(
    transaction: Transaction, sids: Collection[str], *where: sa.ColumnElement[bool]
) -> list[Session]:
    """Return the sessions that exist and match *where*, even if they have ended."""
    found = sa.select(_table).where(_table.c.sid.in_(sids), *where)
    return [_session(row) for row in await transaction.execute(found)]


def owner_of_session() -> sa.ScalarSelect[str]:
    """Return the owner of a session's job as an SQL expression."""
    jobs = tables.jobs.c
    return sa.select(jobs.owner_user).where(jobs.id == _table.c.job_id).scalar_subquery()


async def sids_made_with(transaction: Transaction, job_id: str, *, at: float) -> dict[str, str]:
    """Return the sessions that were created with the job, by the names of their endpoints.

    Sessions of public links, which were created with it too, are left out.
    """
    query = sa.select(_table.c.endpoint, _table.c.sid, _table.c.links).where(
        _table.c.job_id == job_id, _table.c.created_at == at
    )
    rows = await transaction.execute(query)
    return {row.endpoint: row.sid for row in rows if not row.links}


async def live_sessions(transaction: Transaction, *, until: int | None = None) -> list[Session]:
    """Return every live session, or those whose last change is not after revision *until*."""
    live = sa.select(_table).where(_table.c.ended_at.is_(None))
    if until is not None:
        live = live.where(_table.c.revision <= until)
    return [_session(row) for row in await transaction.execute(live)]


async def live_sessions_of(transaction: Transaction, job_ids: Collection[str]) -> list[Session]:
    """Return the live sessions of these jobs."""
    rows = await transaction.execute(_LIVE_OF, {"job_ids": list(job_ids)})
    return [_session(row) for row in rows]


async def end_session(transaction: Transaction, sid: str, *, reason: str, now: float) -> bool:
    """End the session; return whether it was live."""
    return await _end(transaction, _table.c.sid == sid, reason, now) > 0


async def end_sessions_of(transaction: Transaction, job_id: str, *, reason: str, now: float) -> int:
    """End all sessions of the job; return how many were live."""
    return await _end(transaction, _table.c.job_id == job_id, reason, now)


async def end_sessions_at(
    transaction: Transaction, job_id: str, *, endpoint: str, rank: int, reason: str, now: float
) -> int:
    """End the sessions of an endpoint of one rank of the job; return how many were live."""
    there = (_table.c.job_id == job_id, _table.c.endpoint == endpoint, _table.c.rank == rank)
    return await _end(transaction, sa.and_(*there), reason, now)


async def _end(
    transaction: Transaction, which: sa.ColumnElement[bool], reason: str, now: float
) -> int:
    revision = await raise_revision(transaction)
    ended = await transaction.execute(
        sa.update(_table)
        .where(which, _table.c.ended_at.is_(None))
        .values(ended_at=now, end_reason=reason, revision=revision)
    )
    return ended.rowcount


async def assign_shell(
    transaction: Transaction, sid: str, *, hub_id: str, pod: str, pod_uid: str
) -> bool:
    """Store the hub and the pod of a terminal's shell; False if the session has ended meanwhile."""
    assigned = await transaction.execute(
        sa.update(_table)
        .where(_table.c.sid == sid, _table.c.ended_at.is_(None))
        .values(hub_id=hub_id, pod=pod, pod_uid=pod_uid)
    )
    return assigned.rowcount > 0


async def record_refused_shell(transaction: Transaction, sid: str, *, now: float) -> None:
    """Store that the API server has refused the shell of a terminal."""
    revision = await raise_revision(transaction)
    refused = sa.update(_table).where(_table.c.sid == sid, _table.c.ended_at.is_(None))
    await transaction.execute(refused.values(shell_refused_at=now, revision=revision))


async def namespaces_of_refused_shells(transaction: Transaction, *, after: int) -> Sequence[str]:
    """Return the namespaces where shells of live terminals were refused after revision *after*."""
    return (await transaction.scalars(_REFUSED, {"after": after})).all()


async def jobs_with_changed_sessions(
    transaction: Transaction, *, after: int
) -> tuple[Sequence[str], int]:
    """Return the jobs whose sessions changed after revision *after*, and the highest revision."""
    rows = (await transaction.execute(_CHANGED, {"after": after})).all()
    return sorted({row.job_id for row in rows}), max((row.revision for row in rows), default=after)


_HAS_NOT_ENDED: Final[sa.ColumnElement[bool]] = sa.literal_column(tables.HAS_NOT_ENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Selects sessions; ``user`` owns their jobs. None matches all."""

    job: str | None = None
    user: str | None = None
    ended: bool | None = None


async def newest_sessions(
    transaction: Transaction, wanted: SessionFilter, *, after: Key | None, count: int
) -> list[Key]:
    """Return the first *count* candidates after a position, newest first.

    They match the first filter that is given; :func:`sessions_among` checks all filters.
    """
    of = _table.c
    if wanted.job is not None:
        drive = [of.job_id == wanted.job]
    elif wanted.user is not None:
        drive = [of.owner_user == wanted.user]
    else:
        drive = [_HAS_NOT_ENDED] if wanted.ended is False else []
    keys = sa.select(of.created_at, of.sid.label("id"))
    query = first_keys(keys, (tuple(drive),), (of.created_at, of.sid), after, count)
    return [Key(row.created_at, row.id) for row in await transaction.execute(query)]


async def sessions_among(
    transaction: Transaction, wanted: SessionFilter, sids: Collection[str]
) -> list[Session]:
    """Return the sessions that match the filter."""
    of, where = _table.c, []
    if wanted.job is not None:
        where.append(of.job_id == wanted.job)
    if wanted.user is not None:
        where.append(of.owner_user == wanted.user)
    if wanted.ended is not None:
        where.append(of.ended_at.is_not(None) if wanted.ended else of.ended_at.is_(None))
    return await find_sessions(transaction, sids, *where)


async def fill_in_owners(transaction: Transaction, *, limit: int) -> int:
    """Set the owners of sessions that the previous version opened; return the number of sessions.

    That version does not know the column. At most *limit* sessions are changed.
    """
    sids = sa.select(_table.c.sid).where(_table.c.owner_user.is_(None)).limit(limit)
    filled = await transaction.execute(
        sa.update(_table).where(_table.c.sid.in_(sids)).values(owner_user=owner_of_session())
    )
    return filled.rowcount
