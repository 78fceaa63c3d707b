"""Queries on the installation itself: of which most tables have one row.

- The identity of the store, its revision, and how far Redis was told.
- The term, which fences writes of an old leader: a counter that is raised by the transaction that
  makes a leader, and checked in each of a leader's (see
  :meth:`controller.store.database.Store.lead`). Since when nobody has looked at the cluster.
- Whether jobs are taken, and submitted. Which terminal hubs are, or were lately, alive.
- What the cluster's Volcano takes: a leader learns it, all replicas refuse by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, cast

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import CHANGED, Transaction, close_fence, insert_if_absent, writer_of
from controller.volcano.preflight import Capabilities

_ONLY: Final = 1
_position: Final = tables.position
_leadership: Final = tables.leadership
_maintenance: Final = tables.maintenance
_volcano: Final = tables.volcano

# The store, and what was told of it

_READ_POSITION: Final = sa.select(_position)
_RAISE: Final = (
    sa.update(_position)
    .values(revision=_position.c.revision + sa.bindparam("by"))
    .returning(_position.c.revision)
)
_RAISE_AND_TELL: Final = _RAISE.returning(
    sa.func.pg_notify(CHANGED, sa.bindparam("writer", type_=sa.String))
)


@dataclass(frozen=True, slots=True)
class StoreMetadata:
    """The row of the store. ``epoch`` is None where nothing was ever published."""

    identity: str
    revision: int
    epoch: str | None
    seq: int


async def read_store_metadata(transaction: Transaction) -> StoreMetadata:
    """Return the row; :func:`ensure_position` has made it."""
    row = (await transaction.execute(_READ_POSITION)).one()
    return StoreMetadata(row.identity, row.revision, row.epoch, row.seq)


async def ensure_position(transaction: Transaction, *, new_identity: str) -> StoreMetadata:
    """Return the row, made with *new_identity* where the store is new."""
    # If absent: two processes may find a new store at the same time.
    new = {"id": _ONLY, "identity": new_identity, "revision": 0, "seq": 0}
    await insert_if_absent(transaction, _position, [new])
    return await read_store_metadata(transaction)


async def raise_revision(transaction: Transaction, by: int = 1) -> int:
    """Return a revision higher than every one before; the last of *by* ones.

    Those who listen (see ``controller.store.news``) are told once this is committed.
    """
    if transaction.dialect.name == "postgresql":
        told = {"by": by, "writer": writer_of(transaction)}
        raised = await transaction.execute(_RAISE_AND_TELL, told)
    else:
        raised = await transaction.execute(_RAISE, {"by": by})
    revision: int = raised.scalars().one()
    return revision


async def record_published(transaction: Transaction, *, epoch: str, seq: int) -> None:
    """Remember how far Redis was told."""
    await transaction.execute(sa.update(_position).values(epoch=epoch, seq=seq))


async def read_asks(transaction: Transaction) -> str | None:
    """Return the last ask of a gateway that was taken up, None where none was."""
    position: str | None = await transaction.scalar(sa.select(_position.c.asks))
    return position


async def record_asks(transaction: Transaction, position: str) -> None:
    """Remember that the asks of gateways up to *position* were taken up."""
    await transaction.execute(sa.update(_position).values(asks=position))


# Who leads

_READ_LEADERSHIP: Final = sa.select(_leadership)


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads, by which term, and until when it saw the cluster as far as is known."""

    term: int
    holder: str
    seen_at: float


async def read_leadership(transaction: Transaction) -> Leadership:
    """Return who leads."""
    row = (await transaction.execute(_READ_LEADERSHIP)).one()
    return Leadership(row.term, row.holder, row.seen_at)


async def raise_term(transaction: Transaction, *, holder: str = "") -> int:
    """Return a term higher than every one before; whoever led before has lost leadership.

    ``seen_at`` stays that of the leader before: what happened since, nobody saw.
    """
    await close_fence(transaction)
    raised = sa.update(_leadership).values(term=_leadership.c.term + 1, holder=holder)
    term: int = (await transaction.execute(raised.returning(_leadership.c.term))).scalar_one()
    return term


async def raise_term_to(transaction: Transaction, term: int) -> None:
    """Let the next leader's term be higher than *term*, too."""
    lower = sa.update(_leadership).where(_leadership.c.term < term)
    await transaction.execute(lower.values(term=term))


async def refresh_leadership(transaction: Transaction, *, term: int, now: float) -> bool:
    """Note that the leader of *term* saw the cluster *now*; False where another one leads."""
    alive = sa.update(_leadership).where(_leadership.c.term == term).values(seen_at=now)
    return (await transaction.execute(alive)).rowcount > 0


# Maintenance

Mode = Literal["running", "paused", "draining"]

_READ_MAINTENANCE: Final = sa.select(_maintenance)


@dataclass(frozen=True, slots=True)
class SubmissionPause:
    """How it stands: ``paused`` submits nothing, ``draining`` takes nothing either."""

    mode: Mode
    message: str | None
    since: float

    @property
    def why_held(self) -> str | None:
        """Why nothing is submitted; None when it is."""
        if self.mode == "running":
            return None
        return self.message or f"submission is {self.mode}"


async def read_maintenance(transaction: Transaction) -> SubmissionPause:
    """Return how it stands."""
    row = (await transaction.execute(_READ_MAINTENANCE)).one()
    return SubmissionPause(cast(Mode, row.mode), row.message, row.since)


async def set_maintenance(
    transaction: Transaction, mode: Mode, message: str | None, *, now: float
) -> SubmissionPause:
    """Change it; return how it stands then. The same again changes nothing."""
    before = await read_maintenance(transaction)
    if (before.mode, before.message) == (mode, message):
        return before
    await transaction.execute(sa.update(_maintenance).values(mode=mode, message=message, since=now))
    return SubmissionPause(mode, message, now)


# Volcano


async def find_capabilities(transaction: Transaction, *, unless: str = "") -> Capabilities | None:
    """Return what is known; None where nothing is, or nothing but what has the digest *unless*."""
    other = sa.select(_volcano).where(_volcano.c.digest != unless)
    row = (await transaction.execute(other)).one_or_none()
    return None if row is None else Capabilities(row.schema, row.digest)


async def keep_capabilities(transaction: Transaction, capabilities: Capabilities) -> None:
    """Remember *capabilities*, which were learned, instead of what was known before."""
    values = {"schema": capabilities.schema, "digest": capabilities.digest}
    if (await transaction.execute(sa.update(_volcano).values(values))).rowcount == 0:
        await transaction.execute(sa.insert(_volcano).values(id=_ONLY, **values))


ALIVE_SECONDS: Final = 10.0
"""A hub that was not heard of for so long is gone."""

_hubs = tables.hubs
_ALIVE_HUBS: Final = (
    sa.select(_hubs).where(_hubs.c.seen_at > sa.bindparam("since")).order_by(_hubs.c.id)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """A hub's process: ``id`` is random for each start, host and port are what gateways dial."""

    id: str
    host: str
    port: int


async def refresh_hub(transaction: Transaction, hub: Hub, *, now: float) -> None:
    """Say that *hub* is alive, and where."""
    where = {"host": hub.host, "port": hub.port, "seen_at": now}
    known = sa.update(_hubs).where(_hubs.c.id == hub.id).values(where)
    if (await transaction.execute(known)).rowcount == 0:
        new = sa.insert(_hubs).values(id=hub.id, started_at=now, **where)
        await transaction.execute(new)


async def remove_hub(transaction: Transaction, hub_id: str) -> None:
    """Say that this hub is gone."""
    await transaction.execute(sa.delete(_hubs).where(_hubs.c.id == hub_id))


async def alive_hubs(transaction: Transaction, *, now: float) -> dict[str, Hub]:
    """Return the hubs that are alive, by id."""
    rows = await transaction.execute(_ALIVE_HUBS, {"since": now - ALIVE_SECONDS})
    return {row.id: Hub(id=row.id, host=row.host, port=row.port) for row in rows}


async def forget_dead_hubs(transaction: Transaction, *, now: float) -> None:
    """Drop hubs that have been gone for long."""
    await transaction.execute(sa.delete(_hubs).where(_hubs.c.seen_at < now - 100 * ALIVE_SECONDS))
