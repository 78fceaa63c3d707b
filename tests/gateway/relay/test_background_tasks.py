from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from gateway.relay.background_tasks import BackgroundTasks, Cancellable


async def test_tasks_end_with_their_owner() -> None:
    background_tasks, ended = BackgroundTasks(), []

    async def task() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(True)

    background_tasks.spawn_logged(task(), failed=lambda: ended.append(False))
    await asyncio.sleep(0)
    assert len(background_tasks) == 1
    await background_tasks.close()
    assert ended == [True]
    assert len(background_tasks) == 0


async def test_an_exception_of_a_task_is_logged_and_fails_its_waiter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def task() -> None:
        raise RuntimeError("oops")

    background_tasks, ended = BackgroundTasks(), []
    with caplog.at_level(logging.ERROR):
        background_tasks.spawn_logged(task(), failed=lambda: ended.append(True))
        await asyncio.sleep(0.01)
    assert "a background task failed" in caplog.text
    assert ended == [True]
    assert len(background_tasks) == 0


@pytest.mark.parametrize("raised", [RuntimeError("oops"), None])
async def test_a_task_that_fails_notifies_its_creator(
    raised: Exception | None,
) -> None:
    async def task() -> str:
        if raised is not None:
            raise raised
        return "done"

    background_tasks = BackgroundTasks()
    ended: list[BaseException] = []
    background_tasks.spawn(task(), failed=ended.append)
    assert len(background_tasks) == 1
    await asyncio.sleep(0.01)
    assert ended == ([] if raised is None else [raised])
    assert len(background_tasks) == 0


async def test_a_cancelled_task_notifies_its_creator() -> None:
    background_tasks = BackgroundTasks()
    ended: list[BaseException] = []
    background_tasks.spawn(asyncio.sleep(30), failed=ended.append)
    await asyncio.sleep(0)
    background_tasks.cancel()
    await background_tasks.close()
    assert [type(one) for one in ended] == [asyncio.CancelledError]


class Compiled:
    """A coroutine like those of compiled code: it awaits these futures, one after the other."""

    def __init__(self, *waits: asyncio.Future[str], raising: BaseException | None = None) -> None:
        self._waits = iter(waits)
        self._raising = raising
        self._last: asyncio.Future[str] | None = None

    def send(self, _value: object) -> asyncio.Future[str]:
        if self._last is not None:
            self._last.result()
        self._last = next(self._waits, None)
        if self._last is not None:
            return self._last
        raise self._raising or StopIteration

    def throw(self, error: BaseException) -> None:
        raise error

    def close(self) -> None:
        """Release nothing."""


def begin(
    background_tasks: BackgroundTasks, work: Compiled, ended: list[BaseException]
) -> Cancellable:
    return background_tasks.spawn(cast(Any, work), failed=ended.append)


async def test_a_compiled_coroutine_resumes_with_the_awaited_result() -> None:
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    background_tasks, ended = BackgroundTasks(), list[BaseException]()
    begin(background_tasks, Compiled(first, second), ended)
    assert len(background_tasks) == 1
    first.set_result("")
    await asyncio.sleep(0)
    assert len(background_tasks) == 1
    second.set_result("")
    await asyncio.sleep(0)
    assert len(background_tasks) == 0
    assert ended == []
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("waits", [True, False])
async def test_a_failure_is_reported_in_a_later_turn(waits: bool) -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    background_tasks, ended, error = BackgroundTasks(), list[BaseException](), OSError("gone")
    begin(background_tasks, Compiled(*[ready] * waits, raising=error), ended)
    ready.set_result("")
    assert ended == []
    await asyncio.sleep(0)
    assert ended == [error]
    assert len(background_tasks) == 0


async def test_a_task_is_cancelled_alone_or_with_its_owner() -> None:
    background_tasks, ended = BackgroundTasks(), list[BaseException]()
    loop = asyncio.get_running_loop()
    under_way = [begin(background_tasks, Compiled(loop.create_future()), ended) for _ in range(3)]
    under_way[0].cancel()
    await asyncio.sleep(0)
    assert len(background_tasks) == 2
    await background_tasks.close()
    assert [type(one) for one in ended] == [asyncio.CancelledError] * 3
    assert len(background_tasks) == 0
    under_way[1].cancel()
