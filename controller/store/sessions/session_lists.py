"""Pages of sessions, newest first; see ``controller.store.paging``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction
from controller.store.paging import Key, first_keys
from controller.store.sessions.session_rows import Session, find_sessions, owner_of_session

_sessions: Final = tables.sessions
_HAS_NOT_ENDED: Final[sa.ColumnElement[bool]] = sa.literal_column(tables.HAS_NOT_ENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which sessions are asked for; ``user`` owns their jobs. None matches all."""

    job: str | None = None
    user: str | None = None
    ended: bool | None = None


async def newest_sessions(
    transaction: Transaction, wanted: SessionFilter, *, after: Key | None, count: int
) -> list[Key]:
    """Return the first *count* sessions after a place that may be asked for, newest first.

    They are found by the first filter there is; :func:`sessions_among` asks for all.
    """
    of = _sessions.c
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
    """Return those of the sessions that are asked for."""
    of, where = _sessions.c, []
    if wanted.job is not None:
        where.append(of.job_id == wanted.job)
    if wanted.user is not None:
        where.append(of.owner_user == wanted.user)
    if wanted.ended is not None:
        where.append(of.ended_at.is_not(None) if wanted.ended else of.ended_at.is_(None))
    return await find_sessions(transaction, sids, *where)


async def fill_in_owners(transaction: Transaction, *, limit: int) -> int:
    """Fill in whose the sessions are that the version before opened; return of how many.

    It does not know the column. *limit* at most.
    """
    sids = sa.select(_sessions.c.sid).where(_sessions.c.owner_user.is_(None)).limit(limit)
    filled = await transaction.execute(
        sa.update(_sessions).where(_sessions.c.sid.in_(sids)).values(owner_user=owner_of_session())
    )
    return filled.rowcount
