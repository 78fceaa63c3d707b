"""A peer must acknowledge bytes before its deadline, with TLS and plain TCP alike."""

from __future__ import annotations

import asyncio

import pytest

from gateway.relay.ending.stalls import StallWatch
from gateway.relay.transports import progress, unacknowledged
from tests.gateway.relay.ending.test_deferred_aborts import connected
from tests.gateway.relay.harness import READ_SECONDS

MANY = b"x" * (32 << 20)
"""More than the kernel takes for a peer that does not read."""


async def test_a_stalled_peer_is_found_and_a_reading_one_is_not() -> None:
    watch = StallWatch(asyncio.get_running_loop())
    async with connected(2) as (sides, (still, reads)):
        stalled: list[int] = []
        found = asyncio.Event()
        still.stall()

        async def read() -> None:
            while await reads.reader.read(1 << 20):
                await asyncio.sleep(0.02)

        reading = asyncio.create_task(read())
        for at, side in enumerate(sides):
            side.transport.write(MANY)

            def note(at: int = at) -> None:
                stalled.append(at)
                found.set()

            watch.watch(side.transport, seconds=0.4, stalled=note)
        await asyncio.wait_for(found.wait(), READ_SECONDS)
        reading.cancel()
        assert stalled == [0]
        assert watch.found == 1
        assert sides[0].transport not in watch.watched
    watch.close()


@pytest.mark.parametrize("bound", ["_CHECKS_AT_ONCE", "_FOUND_AT_ONCE"])
async def test_stalled_peers_are_found_some_per_turn(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise thousands of peers that stall together would block the loop when given up."""
    monkeypatch.setattr(f"gateway.relay.ending.stalls.{bound}", 1)
    loop = asyncio.get_running_loop()
    watch, reported = StallWatch(loop), [""]
    async with connected(3) as (sides, peers):

        def note() -> None:
            reported.append("found")
            loop.call_soon(reported.append, "turned")

        for side, peer in zip(sides, peers, strict=True):
            peer.stall()
            side.transport.write(MANY)
            watch.watch(side.transport, seconds=0.2, stalled=note)
        async with asyncio.timeout(READ_SECONDS):
            while reported.count("turned") < 3 or watch.timer is not None:
                await asyncio.sleep(0.01)
        assert reported == ["", *("found", "turned") * 3]
        assert (len(watch.watched), watch.found, watch.timer) == (0, 3, None)
    watch.close()


async def test_a_short_stall_deadline_is_not_delayed_by_a_long_one() -> None:
    loop = asyncio.get_running_loop()
    watch = StallWatch(loop)
    async with connected(3) as (sides, _):
        looks: list[float] = []
        for side, seconds in zip(sides, (300.0, 8.0, 60.0), strict=True):
            watch.watch(side.transport, seconds=seconds, stalled=lambda: None)
            assert watch.timer is not None
            looks.append(watch.timer.when() - loop.time())
        assert 4.0 < looks[0] < 5.001
        assert looks[1] < 1.001
        assert looks[2] <= looks[1]
    watch.close()


async def test_a_forgotten_or_closed_peer_is_not_watched() -> None:
    watch = StallWatch(asyncio.get_running_loop())
    async with connected(2) as ((forgotten, closed), peers):
        stalled: list[str] = []
        for side, peer in zip((forgotten, closed), peers, strict=True):
            peer.stall()
            side.transport.write(MANY)
            watch.watch(side.transport, seconds=0.1, stalled=lambda: stalled.append("stalled"))
        watch.forget(forgotten.transport)
        closed.transport.abort()
        await closed.gone()
        await asyncio.sleep(0.4)
        assert (stalled, len(watch.watched)) == ([], 0)
    watch.close()


async def test_progress_is_measured_by_bytes_the_peer_acknowledged() -> None:
    async with connected(1) as ((side,), (peer,)):
        before = progress(side.transport)
        side.transport.write(b"x" * 1000)
        assert len(await peer.exactly(1000)) == 1000
        async with asyncio.timeout(READ_SECONDS):
            while unacknowledged(side.transport):
                await asyncio.sleep(0.01)
        assert progress(side.transport) > before
        side.transport.abort()
        await side.gone()
        await asyncio.sleep(0.02)
        assert progress(side.transport) == unacknowledged(side.transport) == -1
