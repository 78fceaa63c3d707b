"""Loading a whole table while the process goes on serving."""

from __future__ import annotations

import asyncio
from typing import Final

from shared.bus import Snapshot
from shared.errors import Unsigned
from shared.route_table.signed_table import BUCKETS, SignedHead, TableDigest
from shared.routes import RouteReader, RouteTable

_ROUTES_AT_ONCE: Final = 50
"""Loaded before the loop turns: half a millisecond, and some six when all are signed one by one."""
_REVOCATIONS_AT_ONCE: Final = 1000
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
    proof = TableDigest() if said is not None else None
    # A heartbeat drops revocations that are over without an event: pages may still hold some.
    floor = said.floor if said is not None else 0.0
    for number, (sid, raw) in enumerate(snapshot.routes.items(), 1):
        table.load_route(sid, raw)
        if proof is not None:
            proof.put_route(table.name_of(sid), raw)
        if number % _ROUTES_AT_ONCE == 0:
            await asyncio.sleep(0)
    for number, (member, score) in enumerate(snapshot.revoked.items(), 1):
        if score >= floor:
            table.load_revocation(member, score)
            if proof is not None:
                proof.put_revocation(member, score)
        if number % _REVOCATIONS_AT_ONCE == 0:
            await asyncio.sleep(0)
    if proof is not None and said is not None:
        await _check(proof, said)
        table.proof = proof
    table.complete()
    return table


async def _check(proof: TableDigest, said: SignedHead) -> None:
    """Return only if *proof* is that of what was signed."""
    proof.floor = said.floor
    for _ in range(BUCKETS // _BUCKETS_AT_ONCE):
        proof.settle(_BUCKETS_AT_ONCE)
        await asyncio.sleep(0)
    if proof.root.hex() != said.root:
        raise Unsigned(
            f"what Redis holds, {proof.routes} routes and {len(proof.scores)} revocations, is not "
            "what the controller has signed"
        )
