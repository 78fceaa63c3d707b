"""Tests that a history of many pods is built in turns, so that it does not block the event loop."""

from __future__ import annotations

import asyncio

import pytest

from controller.api.resources.tasks import attempt_views
from controller.store.jobs.progress import Attempt
from tests.controller.api.resources.test_details import run


async def test_a_long_history_does_not_block_other_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("controller.loop_turn.TURN_SECONDS", 0.0)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    attempts = [
        Attempt(
            attempt=number, uid=f"v{number}", submitted_at=1.0, started_at=None, ended_at=None,
            outcome=None, reason=None, message=None, retries=0,
        )
        for number in (1, 2)
    ]  # fmt: skip
    runs = [run(rank, attempt=number) for number in (1, 2) for rank in range(10)]
    running = asyncio.create_task(other())
    views = await attempt_views(attempts, runs, {})
    running.cancel()
    assert [[one.rank for one in view.runs] for view in views] == [list(range(10))] * 2
    assert turns >= len(runs)
