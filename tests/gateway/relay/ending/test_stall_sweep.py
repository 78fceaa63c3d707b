"""Connections are checked in turns, and the kernel's unacknowledged bytes count too."""

from __future__ import annotations

import asyncio

from gateway.core.limits.values import Limits
from gateway.relay.ending.stalls import StallSweep
from tests.gateway.relay.harness import READ_SECONDS, request, rig


class CountingPeer:
    """Counts its checks."""

    def __init__(self) -> None:
        self.times = 0

    def check_stalls(self) -> None:
        self.times += 1


async def test_a_sweep_checks_every_peer_and_yields_between_steps() -> None:
    connections = [CountingPeer() for _ in range(1300)]
    sweep = StallSweep(asyncio.get_running_loop(), seconds=0.02, connections=lambda: connections)
    async with asyncio.timeout(READ_SECONDS):
        while not connections[0].times:
            await asyncio.sleep(0.001)
        assert not connections[-1].times
        while connections[-1].times < 2:
            await asyncio.sleep(0.01)
    sweep.close()
    times = [one.times for one in connections]
    await asyncio.sleep(0.1)
    assert times == [one.times for one in connections]


async def test_a_browser_with_stalled_kernel_data_is_reset() -> None:
    async with rig(limits=Limits(write_stall_seconds=0.6)) as r:
        browser, app, _ = await r.joined(request())
        browser.stall()
        # A stream that says little and seldom: what waits stays far below what the gateway holds.
        app.send(b"HTTP/1.1 200 OK\r\n\r\n")
        (connection,) = r.connections
        transport = connection.transport
        assert transport is not None
        sent = 0
        async with asyncio.timeout(READ_SECONDS):
            while r.connections and sent < 8 << 20:
                app.send(b"x" * 32768)
                sent += 32768
                await asyncio.sleep(0.001)
                if transport in r.path.closer.stalls.watched and not connection.write_full:
                    break
            while r.connections:
                await asyncio.sleep(0.01)
        assert r.path.closer.stalls.found == 1
