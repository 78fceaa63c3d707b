from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.relay.background_tasks import BackgroundTasks


async def test_tasks_end_with_their_owner() -> None:
    background_tasks, ended = BackgroundTasks(), []

    async def task() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(True)

    background_tasks.run(task(), failed=lambda: ended.append(False))
    await asyncio.sleep(0)
    assert len(background_tasks) == 1
    await background_tasks.close()
    assert ended == [True]
    assert len(background_tasks) == 0


async def test_what_an_task_raises_is_logged_and_ends_who_waits_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def task() -> None:
        raise RuntimeError("oops")

    background_tasks, ended = BackgroundTasks(), []
    with caplog.at_level(logging.ERROR):
        background_tasks.run(task(), failed=lambda: ended.append(True))
        await asyncio.sleep(0.01)
    assert "a background task failed" in caplog.text
    assert ended == [True]
    assert len(background_tasks) == 0


@pytest.mark.parametrize("raised", [RuntimeError("oops"), None])
async def test_what_ends_a_task_without_a_result_is_told_to_who_began_it(
    raised: Exception | None,
) -> None:
    async def task() -> str:
        if raised is not None:
            raise raised
        return "done"

    background_tasks = BackgroundTasks()
    ended: list[BaseException] = []
    background_tasks.begin(task(), failed=ended.append)
    assert len(background_tasks) == 1
    await asyncio.sleep(0.01)
    assert ended == ([] if raised is None else [raised])
    assert len(background_tasks) == 0


async def test_a_task_that_is_cancelled_is_told_of_as_well() -> None:
    background_tasks = BackgroundTasks()
    ended: list[BaseException] = []
    background_tasks.begin(asyncio.sleep(30), failed=ended.append)
    await asyncio.sleep(0)
    background_tasks.cancel()
    await background_tasks.close()
    assert [type(one) for one in ended] == [asyncio.CancelledError]
