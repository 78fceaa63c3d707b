from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from gateway.relay.ending.closer import ABORTED_AT_ONCE, DeferredAborts
from gateway.relay.transports import reset
from tests.gateway.relay.harness import READ_SECONDS, App, Peer

NEVER = 3600.0


class Side(asyncio.Protocol):
    """Our side of a connection: the bytes received, and whether it has ended."""

    def __init__(self) -> None:
        self.got = b""
        self.lost = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    async def gone(self) -> None:
        await asyncio.wait_for(self.lost.wait(), READ_SECONDS)


@asynccontextmanager
async def connected(count: int) -> AsyncIterator[tuple[list[Side], list[Peer]]]:
    """Open that many connections to an app; return both ends of each."""
    loop = asyncio.get_running_loop()
    async with App().running() as app:
        sides, peers = [], []
        for _ in range(count):
            _, side = await loop.create_connection(Side, "127.0.0.1", app.port)
            sides.append(side)
            peers.append(await app.connection())
        try:
            yield sides, peers
        finally:
            for side in sides:
                reset(side.transport)
            await asyncio.sleep(0.01)


async def test_a_transport_is_aborted_in_a_later_turn() -> None:
    loop = asyncio.get_running_loop()
    deferred = DeferredAborts(loop=loop, seconds=0.1)
    async with connected(1) as ([side], [peer]):
        began = loop.time()
        deferred.add(side.transport)
        assert not side.transport.is_closing()
        await side.gone()
        assert loop.time() - began > 0.09
        assert await peer.gone() == b""
        assert len(deferred) == 0


async def test_a_transport_due_for_abort_is_not_read() -> None:
    deferred = DeferredAborts(loop=asyncio.get_running_loop(), seconds=0.1)
    async with connected(1) as ([side], [peer]):
        deferred.add(side.transport)
        peer.send(b"late")
        await side.gone()
        assert side.got == b""


async def test_a_transport_due_for_abort_sends_no_buffered_bytes() -> None:
    deferred = DeferredAborts(loop=asyncio.get_running_loop(), seconds=NEVER)
    async with connected(1) as ([side], [peer]):
        peer.stall()
        data = b"x" * (64 << 20)
        side.transport.write(data)
        assert side.transport.get_write_buffer_size()
        deferred.add(side.transport)
        peer.go_on()
        assert len(await peer.gone()) < len(data)
        assert len(deferred) == 0


async def test_many_transports_are_aborted_in_order_some_per_turn() -> None:
    loop = asyncio.get_running_loop()
    deferred = DeferredAborts(loop=loop, seconds=0.05)
    async with connected(3 * ABORTED_AT_ONCE) as (sides, _):
        for side in sides:
            deferred.add(side.transport)
        closing = []
        while len(deferred):
            await asyncio.sleep(0)
            closing.append([side.transport.is_closing() for side in sides])
        counts = [sum(states) for states in closing]
        steps = [after - before for before, after in zip([0, *counts], counts, strict=False)]
        assert sum(steps) == len(sides)
        assert max(steps) <= ABORTED_AT_ONCE
        assert all(states == sorted(states, reverse=True) for states in closing)


class Clock:
    """A loop with a simulated clock; it records the requested delays."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[float] = []
        self.turn: Callable[[], None] = lambda: None

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, turn: Callable[[], None]) -> object:
        self.asked.append(seconds)
        self.turn = turn
        return object()


async def test_no_abort_runs_before_it_is_due() -> None:
    clock = Clock()
    deferred = DeferredAborts(loop=cast(asyncio.AbstractEventLoop, clock), seconds=10.0)
    async with connected(2) as ([first, second], _):
        deferred.add(first.transport)
        clock.now = 4.0
        deferred.add(second.transport)
        clock.now = 10.0
        clock.turn()
        assert (len(deferred), clock.asked) == (1, [10.0, 4.0])
        clock.now = 14.0
        clock.turn()
        assert (len(deferred), clock.asked) == (0, [10.0, 4.0])


async def test_a_transport_that_comes_after_the_last_abort_is_aborted_too() -> None:
    clock = Clock()
    deferred = DeferredAborts(loop=cast(asyncio.AbstractEventLoop, clock), seconds=10.0)
    async with connected(2) as (sides, _):
        for side in sides:
            deferred.add(side.transport)
            clock.now += 10.0
            clock.turn()
            assert len(deferred) == 0
    assert clock.asked == [10.0, 10.0]


async def test_a_crowd_takes_a_tenth_of_the_loops_time() -> None:
    clock = Clock()
    deferred = DeferredAborts(loop=cast(asyncio.AbstractEventLoop, clock), seconds=10.0)
    async with connected(2 * ABORTED_AT_ONCE + 1) as (sides, _):
        for side in sides:
            deferred.add(side.transport)
        clock.now = 10.0
        while len(deferred):
            clock.turn()
    assert clock.asked == [10.0, 0.005, 0.005]


async def test_a_transport_that_closed_meanwhile_is_skipped() -> None:
    deferred = DeferredAborts(loop=asyncio.get_running_loop(), seconds=0.05)
    async with connected(2) as ([first, second], _):
        for side in (first, second):
            deferred.add(side.transport)
        first.transport.abort()
        await first.gone()
        await second.gone()
        assert len(deferred) == 0


async def test_close_aborts_all_waiting_and_later_transports() -> None:
    deferred = DeferredAborts(loop=asyncio.get_running_loop(), seconds=NEVER)
    async with connected(2) as ([waiting, late], _):
        deferred.add(waiting.transport)
        deferred.close()
        deferred.add(late.transport)
        await waiting.gone()
        await late.gone()
        assert len(deferred) == 0
