"""Tests that long work yields to other tasks, and short work does not."""

from __future__ import annotations

import asyncio

import pytest

from controller.loop_turn import LoopTurn


async def test_short_work_does_not_yield() -> None:
    ran = asyncio.create_task(asyncio.sleep(0))
    turn = LoopTurn()
    await turn.rest()
    assert not ran.done()
    await ran


async def test_long_work_yields_once_for_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("controller.loop_turn.perf_counter", lambda: clock[0])
    ran: list[float] = []

    async def other() -> None:
        while True:
            ran.append(clock[0])
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    turn = LoopTurn()
    for clock[0] in (0.004, 0.006, 0.007, 0.012):
        await turn.rest()
    beside.cancel()
    assert ran == [0.006, 0.012]
