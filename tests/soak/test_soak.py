"""Tests the gateway's memory under long-lived and under short-lived sockets.

Load and app are the benchmarks' own programs: a test in Python could not hold so many sockets.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.growth import MOST_SOCKETS, socket_bound
from benchmarks.measure import descriptors, private_bytes
from benchmarks.native_programs import build, loading, running_backend
from benchmarks.peers import Proxy
from benchmarks.peers.fumarole import make_route, new_sid, running_gateway
from benchmarks.requests import socket_head
from benchmarks.works import write_heads

SESSIONS = 20
SETTLE_SECONDS = 30.0
# The allowed growth of a heap once every path has been used.
SLACK_BYTES = 2 << 20
LOOKS = 30


@dataclass
class Soak:
    """A running gateway, and its load."""

    proxy: Proxy
    load: Path
    heads: Path

    def arguments(self, work: str, count: int, *more: object) -> list[str]:
        """Return the load's arguments."""
        warm, seconds, *rest = (*more, 0, 0)[: max(2, len(more))]
        fixed = [work, self.proxy.port, count, warm, seconds, self.heads, *rest]
        return [str(one) for one in fixed]

    async def churn(self, *, rate: int, seconds: float) -> None:
        """Open and close *rate* sockets a second; each must be a WebSocket."""
        arguments = self.arguments("handshake", 64, 0.0, seconds, 0, rate)
        async with loading(self.load, arguments) as load:
            await load.until("ready")
            await load.until("begin")
            result = await load.result(within=seconds + SETTLE_SECONDS)
        assert result.errors == 0, result.first_error
        # A busy machine may be late, but not by half.
        assert result.units >= 0.5 * rate * seconds, result.units

    async def settles(self, most: int) -> None:
        """Wait until the gateway has no more than *most* descriptors open."""
        async with asyncio.timeout(SETTLE_SECONDS):
            while descriptors(self.proxy.group) > most:
                await asyncio.sleep(0.05)

    def note(self, name: str, **figures: float) -> None:
        """Print a result, and append it to the file FUMAROLE_SOAK_LOG."""
        line = json.dumps({"soak": name} | figures)
        print(line)
        if path := os.environ.get("FUMAROLE_SOAK_LOG"):
            with Path(path).open("a") as log:
                log.write(line + "\n")


@asynccontextmanager
async def soaking(folder: Path, *, workers: int = 1) -> AsyncIterator[Soak]:
    """Provide a gateway with a few sessions, warm: each path has been used."""
    native = build(folder)
    async with running_backend(native["backend"]) as backend:
        routes = [make_route(new_sid(), backend.port) for _ in range(SESSIONS)]
        async with running_gateway(folder, routes, workers=workers) as (proxy, orchestrator):
            visitors = [orchestrator.visitor(route.sid, "ada") for route in routes]
            heads = [socket_head(visitor, "/echo") for visitor in visitors]
            soak = Soak(proxy, native["load"], write_heads(folder / "heads", heads))
            await soak.churn(rate=100, seconds=1.0)
            yield soak


async def hold_idle(soak: Soak, *, count: int, seconds: float) -> None:
    """Assert that *count* idle sockets stay open, at constant memory, and leave nothing."""
    fewest = descriptors(soak.proxy.group)
    bare = private_bytes(soak.proxy.group)
    async with loading(soak.load, soak.arguments("idle", count)) as load:
        await load.until("ready")
        await asyncio.sleep(min(5.0, seconds / 4))
        early = private_bytes(soak.proxy.group)
        assert descriptors(soak.proxy.group) >= 2 * count
        await asyncio.sleep(seconds)
        late = private_bytes(soak.proxy.group)
        result = await load.result()
    assert result.opened == count
    assert result.closed_at == [], f"{len(result.closed_at)} sockets were closed"
    assert late - early < SLACK_BYTES, (early, late)
    # Unused connections to apps may stay for a while: upgrades never take them from the pool.
    await soak.settles(fewest)
    soak.note(
        "idle", sockets=count, seconds=seconds, bytes_each=(late - bare) / count, grown=late - early
    )


async def watched(group: int, seconds: float) -> list[int]:
    """Return the memory of *group*, measured repeatedly for the given seconds."""
    sizes = []
    for _ in range(LOOKS):
        await asyncio.sleep(seconds / LOOKS)
        sizes.append(private_bytes(group))
    return sizes


async def come_and_go(soak: Soak, *, rate: int, seconds: float) -> None:
    """Assert that *rate* sockets opened and closed each second leave nothing.

    Garbage waits for Python's collector. So the test compares the minimum of the first third with
    the
    minimum of the last third.
    """
    await soak.churn(rate=rate, seconds=seconds / 5)
    await asyncio.sleep(0.5)
    fewest = descriptors(soak.proxy.group)
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(watched(soak.proxy.group, seconds))
        tasks.create_task(soak.churn(rate=rate, seconds=seconds))
    await soak.settles(fewest)
    sizes = looking.result()
    early, late = min(sizes[: LOOKS // 3]), min(sizes[-LOOKS // 3 :])
    soak.note("churn", rate=rate, seconds=seconds, grown=late - early, most=max(sizes))
    assert late - early < SLACK_BYTES, sizes


@pytest.mark.needs("cc")
async def test_idle_sockets_stay_and_leave_nothing(tmp_path: Path) -> None:
    async with soaking(tmp_path) as soak:
        await hold_idle(soak, count=500, seconds=1.0)


@pytest.mark.needs("cc")
async def test_sockets_that_come_and_go_leave_nothing(tmp_path: Path) -> None:
    async with soaking(tmp_path) as soak:
        await come_and_go(soak, rate=200, seconds=2.0)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.needs("cc")
async def test_ten_thousand_idle_sockets_for_ten_minutes(tmp_path: Path) -> None:
    # If the system gives one process too few descriptors, two workers share the sockets.
    workers = 1 if socket_bound() == MOST_SOCKETS else 2
    async with soaking(tmp_path, workers=workers) as soak:
        await hold_idle(soak, count=MOST_SOCKETS, seconds=600.0)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.needs("cc")
async def test_two_hundred_sockets_a_second_for_five_minutes(tmp_path: Path) -> None:
    async with soaking(tmp_path) as soak:
        await come_and_go(soak, rate=200, seconds=300.0)
