"""Tests where signature checks run: on the loop, in the thread, or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from gateway.core.access.opening import OpeningRefused
from gateway.credentials.session_tokens import SignatureChecks
from tests.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def checks(clock: Clock) -> Iterator[SignatureChecks]:
    one = SignatureChecks(of_address=2, of_all=5, queued=3, clock=clock)
    yield one
    one.close()


def where() -> str:
    return threading.current_thread().name


HERE = threading.main_thread().name


async def test_few_verifications_run_inline_and_others_in_a_thread(checks: SignatureChecks) -> None:
    names = [await checks.run(where, address="192.0.2.1") for _ in range(4)]
    assert names[:2] == [HERE] * 2
    assert all(name.startswith("checks") for name in names[2:])
    assert checks.queued == 2


async def test_verifications_of_another_address_are_not_delayed(checks: SignatureChecks) -> None:
    for _ in range(5):
        await checks.run(where, address="2001:db8::1")
    assert await checks.run(where, address="2001:db8::2") != HERE, "the same /64"
    assert await checks.run(where, address="2001:db8:1::1") == HERE


async def test_verifications_of_many_addresses_do_not_block_the_loop(
    checks: SignatureChecks,
) -> None:
    names = [await checks.run(where, address=f"192.0.2.{n}") for n in range(8)]
    assert names.count(HERE) == 5


async def test_the_inline_rate_recovers(checks: SignatureChecks, clock: Clock) -> None:
    for _ in range(5):
        await checks.run(where, address="192.0.2.1")
    clock.now += 1.0
    assert await checks.run(where, address="192.0.2.1") == HERE


async def test_the_queue_is_bounded_and_the_loop_is_not_blocked(checks: SignatureChecks) -> None:
    gate = threading.Event()
    turns = 0
    for _ in range(2):
        await checks.run(where, address="a")
    waiting = [
        asyncio.create_task(checks.run(lambda: gate.wait(10), address="a")) for _ in range(3)
    ]
    for _ in range(20):
        await asyncio.sleep(0)
        turns += 1
    assert checks.waiting == 3
    with pytest.raises(OpeningRefused, match="too_many_checks"):
        await checks.run(where, address="a")
    assert checks.refused == 1
    gate.set()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert checks.waiting == 0
    assert turns == 20


async def test_a_cancelled_verification_frees_its_slot_and_a_failure_is_reported(
    checks: SignatureChecks,
) -> None:
    for _ in range(2):
        await checks.run(where, address="a")
    gate = threading.Event()
    first = asyncio.create_task(checks.run(lambda: gate.wait(10), address="a"))
    second = asyncio.create_task(checks.run(where, address="a"))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert checks.waiting == 1
    gate.set()
    await first

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await checks.run(fails, address="a")
