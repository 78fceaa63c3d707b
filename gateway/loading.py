"""Loading a whole table while the process goes on serving."""

from __future__ import annotations

import asyncio
from typing import Final

from shared.bus import Snapshot
from shared.routes import RouteReader, RouteTable

_ROUTES_AT_ONCE: Final = 50
"""Loaded before the loop turns: half a millisecond, and some six when all are signed."""
_REVOCATIONS_AT_ONCE: Final = 2500


async def load_table(snapshot: Snapshot, reader: RouteReader) -> RouteTable:
    """Return the table in *snapshot*; the loop turns often meanwhile.

    Raises:
        SnapshotRefused: If it does not hold what its head says.
    """
    table = RouteTable(snapshot.head, reader)
    for number, (sid, raw) in enumerate(snapshot.routes.items(), 1):
        table.load_route(sid, raw)
        if number % _ROUTES_AT_ONCE == 0:
            await asyncio.sleep(0)
    for number, (member, score) in enumerate(snapshot.revoked.items(), 1):
        table.load_revocation(member, score)
        if number % _REVOCATIONS_AT_ONCE == 0:
            await asyncio.sleep(0)
    table.complete()
    return table
