from __future__ import annotations

import asyncio

from gateway.relay.wheel import TICK_SECONDS, Wheel


class Waiter:
    def __init__(self, again: list[float] | None = None) -> None:
        self.tick = 0
        self.asked: list[float] = []
        self.again = again or []

    def due(self, now: float) -> float:
        self.asked.append(now)
        return now + self.again.pop(0) if self.again else 0.0


async def test_whoever_waits_is_asked_not_before_its_time_and_soon_after() -> None:
    loop = asyncio.get_running_loop()
    wheel, waiter = Wheel(loop), Waiter()
    at = loop.time() + 0.15
    wheel.arm(waiter, at)
    await asyncio.sleep(0.5)
    (asked,) = waiter.asked
    assert at <= asked <= at + 2 * TICK_SECONDS + 1


async def test_an_earlier_time_counts_and_a_later_one_does_not() -> None:
    loop = asyncio.get_running_loop()
    wheel, waiter = Wheel(loop), Waiter()
    wheel.arm(waiter, loop.time() + 60)
    wheel.arm(waiter, loop.time() + 0.05)
    wheel.arm(waiter, loop.time() + 30)
    await asyncio.sleep(0.4)
    assert len(waiter.asked) == 1
    assert waiter.tick == 0


async def test_whoever_says_when_is_asked_again() -> None:
    wheel, waiter = Wheel(asyncio.get_running_loop()), Waiter([0.05, 0.05])
    wheel.arm(waiter, 0)
    await asyncio.sleep(0.9)
    assert len(waiter.asked) == 3


async def test_whoever_is_disarmed_is_forgotten() -> None:
    loop = asyncio.get_running_loop()
    wheel, waiter, other = Wheel(loop), Waiter(), Waiter()
    wheel.arm(waiter, loop.time())
    wheel.arm(other, loop.time())
    wheel.disarm(waiter)
    wheel.disarm(waiter)
    await asyncio.sleep(0.3)
    assert (waiter.asked, len(other.asked)) == ([], 1)


async def test_a_closed_wheel_asks_nobody() -> None:
    loop = asyncio.get_running_loop()
    wheel, waiter = Wheel(loop), Waiter()
    wheel.arm(waiter, loop.time())
    wheel.close()
    await asyncio.sleep(0.3)
    assert waiter.asked == []
