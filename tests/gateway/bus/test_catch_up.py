"""Tests requests that wait for the route table, and their timeouts."""

from __future__ import annotations

import asyncio

import pytest

from gateway.bus.catch_up import CatchUp
from shared.events import Head

BEYOND = Head(epoch="0" * 32, seq=7, routes=0, revoked=0, term=1)


async def gives_up(catch_up: CatchUp) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await catch_up.caught_up()


async def test_a_cancelled_request_no_longer_waits_for_a_repair() -> None:
    catch_up = CatchUp(on_reached=lambda _: None)
    waits = catch_up.caught_up()
    catch_up.aim_at(BEYOND, read_at=1.0, waiting=catch_up.begin_look())
    assert catch_up.is_awaited
    waits.cancel()
    assert not catch_up.is_awaited


async def test_requests_do_not_accumulate_while_the_table_cannot_be_repaired() -> None:
    catch_up = CatchUp(on_reached=lambda _: None)
    waits = catch_up.caught_up()
    for _ in range(100):
        await gives_up(catch_up)
        catch_up.aim_at(BEYOND, read_at=1.0, waiting=catch_up.begin_look())
        assert len(catch_up._waiting) <= 2
    assert catch_up.is_awaited
    assert not waits.done()
