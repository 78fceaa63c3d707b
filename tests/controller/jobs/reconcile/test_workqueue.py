from __future__ import annotations

import asyncio

import pytest

from controller.jobs.reconcile.workqueue import (
    BACKGROUND_TURN,
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    WorkQueue,
)
from tests.clock import Clock


@pytest.fixture
def queue(clock: Clock) -> WorkQueue:
    return WorkQueue(clock=clock, random=lambda: 1.0)


async def nothing_to_take(queue: WorkQueue) -> bool:
    try:
        await asyncio.wait_for(queue.take(), 0.01)
    except TimeoutError:
        return True
    return False


async def test_a_key_added_twice_is_delivered_once(queue: WorkQueue) -> None:
    queue.enqueue("a", "asked")
    queue.enqueue("a", "asked")
    assert await queue.take() == "a"
    assert await nothing_to_take(queue)


async def test_keys_are_delivered_in_order(queue: WorkQueue) -> None:
    for key in "bca":
        queue.enqueue(key, "asked")
    assert [await queue.take() for _ in range(3)] == ["b", "c", "a"]


async def test_a_key_is_never_processed_by_two_workers(queue: WorkQueue) -> None:
    queue.enqueue("a", "asked")
    await queue.take()
    queue.enqueue("a", "asked")
    assert await nothing_to_take(queue)
    queue.done("a")
    assert await queue.take() == "a"


async def test_a_key_added_during_processing_is_delivered_again(queue: WorkQueue) -> None:
    queue.enqueue("a", "asked")
    await queue.take()
    queue.enqueue("a", "asked")
    queue.enqueue("a", "asked")
    queue.done("a")
    await queue.take()
    queue.done("a")
    assert await nothing_to_take(queue)


async def test_a_waiting_worker_is_woken(queue: WorkQueue) -> None:
    taking = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.enqueue("a", "asked")
    assert await taking == "a"


async def test_a_failed_key_is_requeued_with_backoff(queue: WorkQueue, clock: Clock) -> None:
    queue.enqueue("a", "asked")
    pauses = []
    for _ in range(12):
        assert await queue.take() == "a"
        pauses.append(queue.failed("a"))
        assert await nothing_to_take(queue)
        clock.now += pauses[-1]
    assert pauses[0] == FIRST_PAUSE_SECONDS
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_SECONDS


async def test_retry_after_of_the_server_delays_the_requeue(queue: WorkQueue) -> None:
    queue.enqueue("a", "asked")
    await queue.take()
    assert queue.failed("a", at_least=7.0) == 7.0


async def test_a_success_resets_the_backoff(queue: WorkQueue, clock: Clock) -> None:
    queue.enqueue("a", "asked")
    for _ in range(3):
        await queue.take()
        clock.now += queue.failed("a")
    await queue.take()
    queue.done("a")
    queue.enqueue("a", "asked")
    await queue.take()
    assert queue.failed("a") == FIRST_PAUSE_SECONDS


async def test_a_change_of_a_failing_key_does_not_bypass_the_backoff(
    queue: WorkQueue, clock: Clock
) -> None:
    queue.enqueue("a", "asked")
    await queue.take()
    queue.enqueue("a", "asked")  # as the watch does after the job's own failed write
    pause = queue.failed("a")
    assert await nothing_to_take(queue)
    clock.now += pause
    assert await queue.take() == "a"


async def test_a_scheduled_requeue_is_moved_forward_and_not_duplicated(
    queue: WorkQueue, clock: Clock
) -> None:
    queue.enqueue("a", "due", after=10)
    queue.enqueue("a", "due", after=5)
    queue.enqueue("a", "due", after=20)
    clock.now += 5
    assert await queue.take() == "a"
    queue.done("a")
    clock.now += 60
    assert await nothing_to_take(queue)


async def test_a_key_due_during_processing_is_delivered_afterwards(
    queue: WorkQueue, clock: Clock
) -> None:
    queue.enqueue("a", "asked")
    await queue.take()
    queue.enqueue("a", "due", after=1)
    clock.now += 1
    assert await nothing_to_take(queue)
    queue.done("a")
    assert await queue.take() == "a"


async def test_changed_keys_overtake_background_keys(queue: WorkQueue) -> None:
    for key in "abc":
        queue.enqueue(key, "resync")
    queue.enqueue("c", "cluster")
    queue.enqueue("d", "cluster")
    assert len(queue) == 4
    assert [await queue.take() for _ in range(4)] == ["c", "d", "a", "b"]
    assert await nothing_to_take(queue)


async def test_background_keys_are_not_starved(queue: WorkQueue) -> None:
    queue.enqueue("patient", "resync")
    for _ in range(BACKGROUND_TURN):
        queue.enqueue("busy", "cluster")
        key = await queue.take()
        queue.done(key)
        if key == "patient":
            return
    pytest.fail("it was not taken")


async def test_a_background_pass_ends_when_empty_without_duplicates(
    queue: WorkQueue, clock: Clock
) -> None:
    queue.enqueue("a", "cluster")
    assert await queue.take() == "a"
    queue.enqueue("a", "resync")  # a worker has it
    async with asyncio.timeout(5):
        await queue.background_done()
    queue.enqueue("b", "resync")
    clock.now += 3.0
    assert queue.waiting_seconds == 3.0
    waiting = asyncio.create_task(queue.background_done())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.enqueue("b", "cluster")  # changed meanwhile
    async with asyncio.timeout(5):
        await waiting
    assert await queue.take() == "b"


async def test_a_far_scheduled_key_is_kept_once_over_many_changes(
    queue: WorkQueue, clock: Clock
) -> None:
    for _ in range(2000):
        queue.enqueue("a", "cluster")
        assert await queue.take() == "a"
        queue.done("a")
        queue.enqueue("a", "due", after=86400.0)
    assert len(queue._later) < 300
    clock.now += 86400.0
    assert await queue.take() == "a"
    assert await nothing_to_take(queue)
