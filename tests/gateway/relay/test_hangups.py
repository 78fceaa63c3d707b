"""A peer that leaves is noticed although it is not read."""

from __future__ import annotations

import asyncio
import resource
import select
from functools import partial

import pytest

from gateway.relay.epolls import Hangups
from tests.gateway.relay.ending.test_deferred_aborts import connected
from tests.gateway.relay.harness import READ_SECONDS


async def told(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), READ_SECONDS)


@pytest.mark.parametrize("unread", [0, 100_000], ids=["nothing unread", "much unread"])
@pytest.mark.parametrize("how", ["ends", "resets"])
async def test_a_hangup_of_an_unread_peer_is_reported_once(how: str, unread: int) -> None:
    hangups = Hangups(asyncio.get_running_loop())
    async with connected(1) as ((side,), (peer,)):
        side.transport.pause_reading()
        left, calls = asyncio.Event(), 0

        def leave() -> None:
            nonlocal calls
            calls += 1
            left.set()

        hangups.watch(side.transport, leave)
        peer.send(b"x" * unread)
        await asyncio.sleep(0.05)
        assert not left.is_set()
        peer.close() if how == "ends" else peer.reset()
        await told(left)
        await asyncio.sleep(0.05)
        assert calls == 1
        hangups.forget(side.transport)
        assert len(hangups.callbacks) == 0
    hangups.close()


async def test_an_earlier_hangup_is_reported() -> None:
    hangups = Hangups(asyncio.get_running_loop())
    async with connected(1) as ((side,), (peer,)):
        side.transport.pause_reading()
        peer.close()
        await asyncio.sleep(0.05)
        left = asyncio.Event()
        hangups.watch(side.transport, left.set)
        await told(left)
        again = asyncio.Event()
        hangups.watch(side.transport, again.set)
        await told(again)
    hangups.close()


@pytest.mark.parametrize("watched", [0.0, 0.15], ids=["at once", "later"])
async def test_a_forgotten_peer_is_not_reported(watched: float) -> None:
    hangups = Hangups(asyncio.get_running_loop())
    async with connected(2) as ((one, other), peers):
        calls, left = list[int](), asyncio.Event()
        one.transport.pause_reading()
        other.transport.pause_reading()
        hangups.watch(one.transport, lambda: calls.append(1))
        hangups.watch(other.transport, left.set)
        await asyncio.sleep(watched)
        hangups.forget(one.transport)
        for peer in peers:
            peer.close()
        await told(left)
        await asyncio.sleep(0.05)
        assert not calls
        hangups.close()
        hangups.watch(one.transport, lambda: calls.append(3))
        assert len(hangups.callbacks) == 0


async def test_a_closed_transport_is_not_watched() -> None:
    hangups = Hangups(asyncio.get_running_loop())
    async with connected(1) as ((side,), _):
        hangups.watch(side.transport, lambda: None)
        side.transport.abort()
        await side.gone()
        await asyncio.sleep(0.02)
        hangups.forget(side.transport)
        hangups.watch(side.transport, lambda: None)
        assert len(hangups.callbacks) == 0
    hangups.close()


async def test_many_peers_are_polled_some_per_turn() -> None:
    hangups, left = Hangups(asyncio.get_running_loop()), asyncio.Event()
    async with connected(300) as (sides, peers):
        gone: set[int] = set()

        def leave(number: int) -> None:
            gone.add(number)
            if len(gone) == len(sides):
                left.set()

        for number, side in enumerate(sides):
            side.transport.pause_reading()
            hangups.watch(side.transport, partial(leave, number))
        for peer in peers:
            peer.close()
        await told(left)
    hangups.close()


async def test_a_failed_epoll_is_created_again_once_descriptors_are_free() -> None:
    hangups, left = Hangups(asyncio.get_running_loop()), asyncio.Event()
    async with connected(1) as ((side,), (peer,)):
        side.transport.pause_reading()
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        with select.epoll() as lowest:
            free = lowest.fileno()
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
        try:
            hangups.watch(side.transport, left.set)
            await asyncio.sleep(0.2)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        peer.close()
        await told(left)
    hangups.close()
