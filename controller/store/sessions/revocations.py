"""Queries on revocations. A revocation is stored before its request is answered."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction
from controller.store.instance import raise_revision
from controller.store.probing import database_clock
from shared.events import REVOCATION_KEPT_SECONDS, GrantRevoked, event_time, revoked_at

_table = tables.revocations


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRevocation:
    """A revocation of one ``jti``, one ``sub`` of a session, a whole session, or one ``kid``."""

    member: str
    at: float
    sid: str | None = None
    jti: str | None = None
    sub: str | None = None
    kid: str | None = None

    @property
    def score(self) -> float:
        """When the revocation may be deleted."""
        return self.at + REVOCATION_KEPT_SECONDS


_MATTERING: Final = (
    sa.select(*(_table.c[name] for name in StoredRevocation.__slots__), _table.c.revision)
    .where(_table.c.at > sa.bindparam("since"), _table.c.revision > sa.bindparam("after"))
    .order_by(_table.c.revision)
)


async def revocation_time(transaction: Transaction, *, now: float) -> float:
    """Return the time of a revocation that is made *now*, by this process' clock.

    It is the later of *now* and the database's clock. By the clock of a replica that is behind
    the others, a revocation would miss grants that were issued before it.
    """
    return max(now, await database_clock(transaction) or now)


async def add_revocation(transaction: Transaction, revocation: StoredRevocation) -> None:
    """Add the revocation; if it exists, the later time is kept."""
    revision = await raise_revision(transaction)
    values = {name: getattr(revocation, name) for name in StoredRevocation.__slots__}
    same = _table.c.member == revocation.member
    later = sa.update(_table).where(same, _table.c.at < revocation.at)
    await transaction.execute(later.values(at=revocation.at, revision=revision))
    if (await transaction.execute(sa.select(_table.c.member).where(same))).first() is None:
        await transaction.execute(sa.insert(_table).values(revision=revision, **values))


async def revoke(
    transaction: Transaction,
    *,
    now: float,
    sid: str | None = None,
    jti: str | None = None,
    sub: str | None = None,
    kid: str | None = None,
) -> GrantRevoked:
    """Add a revocation that is made *now*; return the event for the gateways."""
    # Rounded as in the event. The leader assigns epoch and sequence number.
    at = event_time(await revocation_time(transaction, now=now))
    event = GrantRevoked(epoch="-", seq=0, at=at, sid=sid, jti=jti, sub=sub, kid=kid)
    entry = event.revocation()
    await add_revocation(
        transaction,
        StoredRevocation(
            member=entry.member, at=revoked_at(entry.score), sid=sid, jti=jti, sub=sub, kid=kid
        ),
    )
    return event


async def active_revocations(
    transaction: Transaction, *, now: float, after: int = 0
) -> list[StoredRevocation]:
    """Return the revocations that a grant could outlive, added after revision *after*."""
    found, _ = await revocations_after(transaction, after, now=now)
    return found


async def revoked_at_members(
    transaction: Transaction, members: Collection[str]
) -> dict[str, float]:
    """Return when each of the members was revoked, for those that were."""
    query = sa.select(_table.c.member, _table.c.at).where(_table.c.member.in_(members))
    return {row.member: row.at for row in await transaction.execute(query)}


async def revocations_after(
    transaction: Transaction, after: int, *, now: float
) -> tuple[list[StoredRevocation], int]:
    """Return the same as :func:`active_revocations`, and the last revision among them."""
    since = now - REVOCATION_KEPT_SECONDS
    rows = (await transaction.execute(_MATTERING, {"since": since, "after": after})).all()
    found = [
        StoredRevocation(**{name: getattr(row, name) for name in StoredRevocation.__slots__})
        for row in rows
    ]
    return found, rows[-1].revision if rows else after


async def forget_revocations(transaction: Transaction, *, now: float) -> None:
    """Delete revocations that no grant can outlive."""
    old = _table.c.at < now - REVOCATION_KEPT_SECONDS
    await transaction.execute(sa.delete(_table).where(old))
