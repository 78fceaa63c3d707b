"""Tests that a table is loaded completely or not at all, without blocking the loop."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.bus.repairer import load_table
from shared.bus import Snapshot
from shared.errors import SnapshotRefused, Unsigned
from shared.events import Head
from shared.routes.route import RouteReader
from shared.routes.signed_table import BUCKETS
from tests.gateway.bus.following import ONE, encode, make_route, sid_of
from tests.gateway.bus.leading import KEY, NOW, Leader

DAY = 86400.0


def snapshot(routes: int, revoked: int, *, claimed: int | None = None) -> Snapshot:
    head = Head(
        epoch="e", seq=5, term=1, routes=routes if claimed is None else claimed, revoked=revoked
    )
    sids = [sid_of(number) for number in range(routes)]
    return Snapshot(
        head,
        {sid: encode(make_route(sid)) for sid in sids},
        {f"jti:{number}": 1e9 for number in range(revoked)},
    )


async def test_a_complete_snapshot_becomes_a_table_at_its_heads_sequence() -> None:
    table = await load_table(snapshot(3, 2), RouteReader())
    assert (table.epoch, table.seq, len(table), len(table.revocations)) == ("e", 5, 3, 2)


@pytest.mark.parametrize("claimed", [2, 4])
async def test_a_snapshot_that_differs_from_its_head_is_refused(claimed: int) -> None:
    with pytest.raises(SnapshotRefused):
        await load_table(snapshot(3, 0, claimed=claimed), RouteReader())


async def test_a_signed_table_proves_its_revocations_too() -> None:
    leader = await Leader(KEY).begin(ONE, revoked={"jti:a": NOW + DAY})
    table = await load_table(leader.snapshot, RouteReader(), leader.said)
    assert table.proof is not None
    assert table.proof.root.hex() == leader.said.root
    forged = replace(leader.snapshot, revoked={"jti:a": NOW + 2 * DAY})
    with pytest.raises(Unsigned, match=r"1 routes, 1 revocations"):
        await load_table(forged, RouteReader(), leader.said)


async def test_revocations_below_the_signed_floor_are_left_out() -> None:
    old = {"jti:old": NOW + 10}
    leader = await Leader(KEY).begin(ONE, revoked=old)
    leader.beat(at=NOW + 20 * DAY)
    edge = leader.said.floor
    assert edge > NOW + 10
    leader = await Leader(KEY).begin(ONE, revoked=old | {"jti:edge": edge})
    leader.beat(at=NOW + 20 * DAY)
    assert leader.said.floor == edge
    # Redis may still hold what the heartbeat has dropped.
    snapshot = replace(leader.snapshot, revoked=leader.revoked | old)
    table = await load_table(snapshot, RouteReader(), leader.said)
    assert set(table.revocations) == {"jti:edge"}
    assert table.proof is not None
    assert table.proof.floor == edge


@pytest.mark.parametrize("signed", [False, True])
async def test_the_event_loop_is_not_blocked_by_a_table_load(signed: bool) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    whole, said = snapshot(1000, 5000), None
    if signed:
        sids = [sid_of(number) for number in range(1000)]
        revoked = {f"jti:{number}": NOW + DAY for number in range(5000)}
        leader = await Leader(KEY).begin(*sids, revoked=revoked)
        whole, said = leader.snapshot, leader.said
    counting = asyncio.create_task(count())
    await load_table(whole, RouteReader(), said)
    counting.cancel()
    # Once for 50 routes, for 1000 revocations, and for 256 buckets of the proof.
    expected = 20 + 5 + (BUCKETS // 256 if signed else 0)
    assert expected - 2 <= turns <= expected
