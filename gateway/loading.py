"""Loading a whole table while the process goes on serving."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from shared.bus import Snapshot
from shared.errors import Unsigned
from shared.routes import RouteReader, RouteTable
from shared.signed_table import BUCKETS, SignedHead, TableDigest

_ROUTES_AT_ONCE: Final = 50
"""Loaded before the loop turns: half a millisecond, and some six when all are signed one by one."""
_REVOCATIONS_AT_ONCE: Final = 2500
_HASHED_AT_ONCE: Final = 500
_BUCKETS_AT_ONCE: Final = 256


async def load_table(
    snapshot: Snapshot, reader: RouteReader, said: SignedHead | None = None
) -> RouteTable:
    """Return the table in *snapshot*; the loop turns often meanwhile.

    Args:
        snapshot: As one server held it.
        reader: Reads its routes.
        said: What the controller has signed of its head: the table then has its proof.

    Raises:
        SnapshotRefused: If it does not hold what its head says.
        Unsigned: If that is not what *said* covers.
    """
    table = RouteTable(snapshot.head, reader)
    # A heartbeat drops revocations that are over without an event: pages may still hold some.
    revoked = snapshot.revoked
    if said is not None:
        revoked = {member: score for member, score in revoked.items() if score >= said.floor}
        table.proof = await _prove(snapshot.routes, revoked, said)
    for number, (sid, raw) in enumerate(snapshot.routes.items(), 1):
        table.load_route(sid, raw)
        if number % _ROUTES_AT_ONCE == 0:
            await asyncio.sleep(0)
    for number, (member, score) in enumerate(revoked.items(), 1):
        table.load_revocation(member, score)
        if number % _REVOCATIONS_AT_ONCE == 0:
            await asyncio.sleep(0)
    table.complete()
    return table


async def _prove(
    routes: Mapping[str, bytes], revoked: Mapping[str, float], said: SignedHead
) -> TableDigest:
    """Return the digest of all this, which is the one that was signed."""
    proof = TableDigest()
    proof.floor = said.floor
    for number, (sid, raw) in enumerate(routes.items(), 1):
        proof.put_route(sid, raw)
        if number % _HASHED_AT_ONCE == 0:
            await asyncio.sleep(0)
    for number, (member, score) in enumerate(revoked.items(), 1):
        proof.put_revocation(member, score)
        if number % _HASHED_AT_ONCE == 0:
            await asyncio.sleep(0)
    for _ in range(BUCKETS // _BUCKETS_AT_ONCE):
        proof.settle(_BUCKETS_AT_ONCE)
        await asyncio.sleep(0)
    if proof.root.hex() != said.root:
        raise Unsigned(
            f"what Redis holds, {len(routes)} routes and {len(revoked)} revocations, is not what "
            "the controller has signed"
        )
    return proof
