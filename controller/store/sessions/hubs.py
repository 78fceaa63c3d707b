"""Queries on the terminal hubs that are, or were lately, alive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Transaction

ALIVE_SECONDS: Final = 10.0
"""A hub that was not heard of for so long is gone."""

_table = tables.hubs
_ALIVE: Final = (
    sa.select(_table).where(_table.c.seen_at > sa.bindparam("since")).order_by(_table.c.id)
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
    known = sa.update(_table).where(_table.c.id == hub.id).values(where)
    if (await transaction.execute(known)).rowcount == 0:
        new = sa.insert(_table).values(id=hub.id, started_at=now, **where)
        await transaction.execute(new)


async def remove_hub(transaction: Transaction, hub_id: str) -> None:
    """Say that this hub is gone."""
    await transaction.execute(sa.delete(_table).where(_table.c.id == hub_id))


async def alive_hubs(transaction: Transaction, *, now: float) -> dict[str, Hub]:
    """Return the hubs that are alive, by id."""
    rows = await transaction.execute(_ALIVE, {"since": now - ALIVE_SECONDS})
    return {row.id: Hub(id=row.id, host=row.host, port=row.port) for row in rows}


async def forget_dead_hubs(transaction: Transaction, *, now: float) -> None:
    """Drop hubs that have been gone for long."""
    await transaction.execute(sa.delete(_table).where(_table.c.seen_at < now - 100 * ALIVE_SECONDS))
