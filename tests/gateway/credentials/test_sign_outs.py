"""Tests that a sign-out ends the grant at once, whatever Redis does, and reaches the controller."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from gateway.bus.follower import Follower
from gateway.core.access.grants import Grant
from gateway.credentials import sign_outs as module
from gateway.credentials.sign_outs import MOST_PENDING, SignOuts
from shared.bus import SignOutWriter
from shared.errors import BusUnavailable


class FakeSignOutWriter:
    def __init__(self) -> None:
        self.added: list[tuple[str, str]] = []
        self.fails = False
        self.hangs = False
        self.let_go = asyncio.Event()

    async def add(self, sid: str, jti: str) -> None:
        if self.hangs:
            await self.let_go.wait()
        if self.fails:
            raise BusUnavailable("gone")
        self.added.append((sid, jti))


class FakeRegistry:
    def __init__(self) -> None:
        self.ended: list[tuple[str, str]] = []

    def end_grant(self, sid: str, jti: str) -> None:
        self.ended.append((sid, jti))


def grant(jti: str) -> Grant:
    return Grant("s", jti, "k", "ada", "control", 0.0, 9e9)


@pytest.fixture
def made() -> tuple[SignOuts, FakeSignOutWriter, FakeRegistry]:
    asks, feed = FakeSignOutWriter(), FakeRegistry()
    signs = SignOuts(
        follower=cast(Follower, cast(Any, feed)), writer=cast(SignOutWriter, cast(Any, asks))
    )
    return signs, asks, feed


async def test_a_sign_out_ends_the_grant_and_requests_a_revocation(
    made: tuple[SignOuts, FakeSignOutWriter, FakeRegistry],
) -> None:
    signs, asks, feed = made
    assert await signs.end(grant("t"))
    assert feed.ended == asks.added == [("s", "t")]
    assert (signs.ended, signs.pending) == (1, 0)


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_without_redis_a_sign_out_is_local_and_sent_later(
    made: tuple[SignOuts, FakeSignOutWriter, FakeRegistry],
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)
    signs, asks, feed = made
    setattr(asks, how, True)
    async with asyncio.timeout(30):
        for number in range(3):
            assert not await signs.end(grant(f"t{number}"))
    assert len(feed.ended) == signs.pending == 3
    task = asyncio.create_task(signs.run())
    await asyncio.sleep(0.1)
    assert signs.pending == 3
    setattr(asks, how, False)
    async with asyncio.timeout(30):
        while signs.pending:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    assert asks.added == [("s", "t0"), ("s", "t1"), ("s", "t2")]


async def test_a_sign_out_completes_although_the_client_left(
    made: tuple[SignOuts, FakeSignOutWriter, FakeRegistry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)
    signs, asks, feed = made
    asks.hangs = True
    asked = asyncio.create_task(signs.end(grant("t")))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    assert asked.cancelled()
    assert (feed.ended, signs.pending) == ([("s", "t")], 1)
    asks.hangs = False
    running = asyncio.create_task(signs.run())
    async with asyncio.timeout(30):
        while signs.pending:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait([running])
    assert asks.added == [("s", "t")]


async def test_concurrent_flushes_of_sign_outs_succeed(
    made: tuple[SignOuts, FakeSignOutWriter, FakeRegistry],
) -> None:
    signs, asks, _ = made
    asks.fails = True
    await signs.end(grant("t0"))
    await signs.end(grant("t1"))
    asks.fails, asks.hangs = False, True
    background = asyncio.create_task(signs.pass_on())
    await asyncio.sleep(0)  # the first request hangs; the one before the exit is accepted
    asks.hangs = False
    await signs.pass_on()
    assert signs.pending == 0
    asks.let_go.set()
    await background
    assert asks.added == [("s", "t0"), ("s", "t1"), ("s", "t0")]


async def test_the_number_of_unsent_sign_outs_is_bounded(
    made: tuple[SignOuts, FakeSignOutWriter, FakeRegistry],
) -> None:
    signs, asks, feed = made
    asks.fails = True
    for number in range(MOST_PENDING + 5):
        await signs.end(grant(f"t{number}"))
    assert signs.pending == MOST_PENDING
    assert len(feed.ended) == MOST_PENDING + 5
