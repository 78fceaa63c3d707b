from __future__ import annotations

import asyncio
from typing import Any

from gateway.wheel import CALLED_AT_ONCE, TICK_SECONDS, TimerWheel
from tests.waiting import until


class Waiter:
    def __init__(self, again: list[float] | None = None) -> None:
        self.tick = 0
        self.asked: list[float] = []
        self.again = again or []

    def due(self, now: float) -> float:
        self.asked.append(now)
        return now + self.again.pop(0) if self.again else 0.0


async def test_a_timer_fires_soon_after_its_time_and_never_before() -> None:
    loop = asyncio.get_running_loop()
    wheel, waiter = TimerWheel(loop), Waiter()
    at = loop.time() + 0.15
    wheel.arm(waiter, at)
    await asyncio.sleep(0.5)
    (asked,) = waiter.asked
    assert at <= asked <= at + 2 * TICK_SECONDS + 1


async def test_a_timer_can_be_moved_earlier_but_not_later() -> None:
    loop = asyncio.get_running_loop()
    wheel, waiter = TimerWheel(loop), Waiter()
    wheel.arm(waiter, loop.time() + 60)
    wheel.arm(waiter, loop.time() + 0.05)
    wheel.arm(waiter, loop.time() + 30)
    await asyncio.sleep(0.4)
    assert len(waiter.asked) == 1
    assert waiter.tick == 0


async def test_a_timer_that_returns_a_time_is_armed_again() -> None:
    wheel, waiter = TimerWheel(asyncio.get_running_loop()), Waiter([0.05, 0.05])
    wheel.arm(waiter, 0)
    await asyncio.sleep(0.9)
    assert len(waiter.asked) == 3


async def test_a_disarmed_timer_does_not_fire() -> None:
    loop = asyncio.get_running_loop()
    wheel, waiter, other = TimerWheel(loop), Waiter(), Waiter()
    wheel.arm(waiter, loop.time())
    wheel.arm(other, loop.time())
    wheel.disarm(waiter)
    wheel.disarm(waiter)
    await asyncio.sleep(0.3)
    assert (waiter.asked, len(other.asked)) == ([], 1)


async def test_a_closed_wheel_fires_no_timer() -> None:
    loop = asyncio.get_running_loop()
    wheel, waiter = TimerWheel(loop), Waiter()
    wheel.arm(waiter, loop.time())
    wheel.close()
    await asyncio.sleep(0.3)
    assert waiter.asked == []


async def test_many_timers_fire_some_per_turn() -> None:
    """Otherwise thousands of connections opened together would block the loop at their deadline."""
    loop = asyncio.get_running_loop()
    wheel = TimerWheel(loop)
    crowd = [Waiter() for _ in range(5 * CALLED_AT_ONCE)]
    for place, waiter in enumerate(crowd):
        wheel.arm(waiter, loop.time() - (place % 3) * TICK_SECONDS)
    late = Waiter()
    wheel.arm(late, loop.time() + 3 * TICK_SECONDS)
    wheel._turn()
    assert sum(len(one.asked) for one in crowd) == CALLED_AT_ONCE
    await until(lambda: late.asked)
    assert all(len(one.asked) == 1 for one in crowd)
    assert not wheel._buckets
    await until(lambda: wheel._timer is None)


async def test_a_failing_timer_does_not_block_others() -> None:
    class Fails(Waiter):
        def due(self, now: float) -> float:
            raise RuntimeError("a bug")

    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: reported.append(context))
    wheel, others = TimerWheel(loop), [Waiter() for _ in range(20)]
    for waiter in (*others[:10], Fails(), *others[10:]):
        wheel.arm(waiter, 0)
    await until(lambda: all(one.asked for one in others))
    assert [str(one["exception"]) for one in reported] == ["a bug"]


async def test_a_timer_disarmed_during_a_turn_does_not_fire() -> None:
    wheel = TimerWheel(asyncio.get_running_loop())
    crowd = [Waiter() for _ in range(2 * CALLED_AT_ONCE)]
    for waiter in crowd:
        wheel.arm(waiter, 0)
    wheel._turn()
    left = [one for one in crowd if not one.asked]
    for one in left[:-1]:
        wheel.disarm(one)
    wheel.arm(left[0], 0)
    await until(lambda: left[-1].asked and left[0].asked)
    assert sum(len(one.asked) for one in crowd) == CALLED_AT_ONCE + 2
    wheel.arm(left[1], 0)
    wheel.close()
    await asyncio.sleep(2 * TICK_SECONDS)
    assert left[1].asked == []
