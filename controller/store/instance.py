"""Queries on the installation itself. Most of these tables have one row.

- The store: its identity, its revision, and the last event that was published to Redis.
- Leadership: the term fences a former leader's writes. Becoming the leader raises the term, and
  each of a leader's transactions checks it (:class:`controller.store.database.FencedStore`). Also,
  when a leader last saw the cluster.
- Maintenance: whether jobs are accepted and submitted.
- Volcano's capabilities: a leader discovers them, and all replicas validate jobs by them.
- Terminal hubs that are alive, or were recently.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, cast

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import (
    REVISION_CHANNEL,
    Transaction,
    insert_if_absent,
    writer_of,
)
from controller.store.postgresql import close_fence
from controller.volcano.preflight import Capabilities

_ONLY: Final = 1
_position: Final = tables.position
_leadership: Final = tables.leadership
_maintenance: Final = tables.maintenance
_volcano: Final = tables.volcano

# The store, and its published position

_READ_POSITION: Final = sa.select(_position)
_RAISE: Final = (
    sa.update(_position)
    .values(revision=_position.c.revision + sa.bindparam("by"))
    .returning(_position.c.revision)
)
_RAISE_AND_TELL: Final = _RAISE.returning(
    sa.func.pg_notify(REVISION_CHANNEL, sa.bindparam("writer", type_=sa.String))
)


@dataclass(frozen=True, slots=True)
class StoreMetadata:
    """The row of the store. ``epoch`` is None until something was published."""

    identity: str
    revision: int
    epoch: str | None
    seq: int


async def read_store_metadata(transaction: Transaction) -> StoreMetadata:
    """Return the row that :func:`ensure_position` has made."""
    row = (await transaction.execute(_READ_POSITION)).one()
    return StoreMetadata(row.identity, row.revision, row.epoch, row.seq)


async def ensure_position(transaction: Transaction, *, new_identity: str) -> StoreMetadata:
    """Return the row; it is made with *new_identity* if the store is new."""
    # If absent: two processes may initialise the store at the same time.
    new = {"id": _ONLY, "identity": new_identity, "revision": 0, "seq": 0}
    await insert_if_absent(transaction, _position, [new])
    return await read_store_metadata(transaction)


async def raise_revision(transaction: Transaction, by: int = 1) -> int:
    """Raise the revision by *by* and return it. It is higher than every earlier one.

    Listeners are notified once the transaction is committed (``controller.store.notifications``).
    """
    if transaction.dialect.name == "postgresql":
        given = {"by": by, "writer": writer_of(transaction)}
        raised = await transaction.execute(_RAISE_AND_TELL, given)
    else:
        raised = await transaction.execute(_RAISE, {"by": by})
    revision: int = raised.scalars().one()
    return revision


async def record_published(transaction: Transaction, *, epoch: str, seq: int) -> None:
    """Store the position of the last event that was published to Redis."""
    await transaction.execute(sa.update(_position).values(epoch=epoch, seq=seq))


async def read_sign_out_position(transaction: Transaction) -> str | None:
    """Return the position of the last sign-out that was processed; None if there was none."""
    position: str | None = await transaction.scalar(sa.select(_position.c.asks))
    return position


async def record_sign_out_position(transaction: Transaction, position: str) -> None:
    """Store the position of the last sign-out that was processed."""
    await transaction.execute(sa.update(_position).values(asks=position))


# Leadership

_READ_LEADERSHIP: Final = sa.select(_leadership)


@dataclass(frozen=True, slots=True)
class Leadership:
    """The leader and its term. ``seen_at``: when a leader last saw the cluster."""

    term: int
    holder: str
    seen_at: float


async def read_leadership(transaction: Transaction) -> Leadership:
    """Return the current leadership."""
    row = (await transaction.execute(_READ_LEADERSHIP)).one()
    return Leadership(row.term, row.holder, row.seen_at)


async def raise_term(transaction: Transaction, *, holder: str = "") -> int:
    """Raise the term and return it. The previous leader has then lost leadership.

    ``seen_at`` stays the previous leader's: nobody has observed the cluster since.
    """
    await close_fence(transaction)
    raised = sa.update(_leadership).values(term=_leadership.c.term + 1, holder=holder)
    term: int = (await transaction.execute(raised.returning(_leadership.c.term))).scalar_one()
    return term


async def raise_term_to(transaction: Transaction, term: int) -> None:
    """Ensure that the next leader's term is higher than *term*."""
    lower = sa.update(_leadership).where(_leadership.c.term < term)
    await transaction.execute(lower.values(term=term))


async def refresh_leadership(transaction: Transaction, *, now: float) -> None:
    """Store in a leader's transaction that it saw the cluster *now*."""
    await transaction.execute(sa.update(_leadership).values(seen_at=now))


# Maintenance

Mode = Literal["running", "paused", "draining"]

_READ_MAINTENANCE: Final = sa.select(_maintenance)


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The maintenance mode: ``paused`` submits no jobs, ``draining`` also accepts none."""

    mode: Mode
    message: str | None
    since: float

    @property
    def hold_reason(self) -> str | None:
        """Why no job is submitted; None if jobs are."""
        if self.mode == "running":
            return None
        return self.message or f"submission is {self.mode}"


async def read_maintenance(transaction: Transaction) -> Maintenance:
    """Return the maintenance mode."""
    row = (await transaction.execute(_READ_MAINTENANCE)).one()
    return Maintenance(cast(Mode, row.mode), row.message, row.since)


async def set_maintenance(
    transaction: Transaction, mode: Mode, message: str | None, *, now: float
) -> Maintenance:
    """Set the mode and return it. A repeated call changes nothing."""
    before = await read_maintenance(transaction)
    if (before.mode, before.message) == (mode, message):
        return before
    await transaction.execute(sa.update(_maintenance).values(mode=mode, message=message, since=now))
    return Maintenance(mode, message, now)


# Volcano


async def find_capabilities(transaction: Transaction, *, unless: str = "") -> Capabilities | None:
    """Return the stored capabilities; None if there are none, or if their digest is *unless*."""
    other = sa.select(_volcano).where(_volcano.c.digest != unless)
    row = (await transaction.execute(other)).one_or_none()
    return None if row is None else Capabilities(row.schema, row.digest)


async def store_capabilities(transaction: Transaction, capabilities: Capabilities) -> None:
    """Replace the stored capabilities."""
    values = {"schema": capabilities.schema, "digest": capabilities.digest}
    if (await transaction.execute(sa.update(_volcano).values(values))).rowcount == 0:
        await transaction.execute(sa.insert(_volcano).values(id=_ONLY, **values))


ALIVE_SECONDS: Final = 10.0
"""A hub without a heartbeat for this time is dead."""

_hubs = tables.hubs
_HEARTBEATS: Final = sa.select(_hubs).order_by(_hubs.c.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """A hub process: ``id`` is random for each start; gateways dial host and port."""

    id: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The last heartbeat of a hub, by the hub's own clock."""

    hub: Hub
    seen_at: float


async def refresh_hub(transaction: Transaction, hub: Hub, *, now: float) -> None:
    """Store a heartbeat of *hub* with its address."""
    where = {"host": hub.host, "port": hub.port, "seen_at": now}
    known = sa.update(_hubs).where(_hubs.c.id == hub.id).values(where)
    if (await transaction.execute(known)).rowcount == 0:
        new = sa.insert(_hubs).values(id=hub.id, started_at=now, **where)
        await transaction.execute(new)


async def remove_hub(transaction: Transaction, hub_id: str) -> None:
    """Remove a hub that shuts down."""
    await transaction.execute(sa.delete(_hubs).where(_hubs.c.id == hub_id))


async def read_heartbeats(transaction: Transaction) -> list[Heartbeat]:
    """Return the last heartbeat of each hub, also of dead ones, in the order of their ids."""
    rows = await transaction.execute(_HEARTBEATS)
    return [
        Heartbeat(hub=Hub(id=row.id, host=row.host, port=row.port), seen_at=row.seen_at)
        for row in rows
    ]


async def forget_dead_hubs(transaction: Transaction, *, now: float, alive: Iterable[str]) -> None:
    """Remove hubs that have been dead for long, but none of *alive*: *now* may be wrong."""
    dead = _hubs.c.seen_at < now - 100 * ALIVE_SECONDS
    await transaction.execute(sa.delete(_hubs).where(dead, _hubs.c.id.not_in(list(alive))))
