"""Tests that a table is loaded completely or not at all, without blocking the loop."""

from __future__ import annotations

import asyncio

import pytest

from gateway.bus.repairer import load_table
from shared.bus import Snapshot
from shared.errors import SnapshotRefused
from shared.events import Head
from shared.routes.route import RouteReader
from tests.gateway.bus.following import encode, make_route, sid_of


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


async def test_the_event_loop_is_not_blocked_by_a_table_load() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    await load_table(snapshot(1000, 5000), RouteReader())
    counting.cancel()
    assert turns >= 5
