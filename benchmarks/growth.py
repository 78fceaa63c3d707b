"""Measures how costs grow with the work, the memory of an idle socket, and the bus' latency."""

from __future__ import annotations

import asyncio
import resource
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.measure import percentile, private_bytes
from benchmarks.native_programs import loading
from benchmarks.peers import Ground, Peer, Proxy
from benchmarks.peers.fumarole import BASE, make_route, new_sid, running_gateway
from benchmarks.works import ECHO, VARIED, Sample, Work, run_work, write_heads

MOST_SOCKETS: Final = 10_000


def socket_bound() -> int:
    """Return how many sockets one process may proxy here: two descriptors each, with a reserve."""
    return min(MOST_SOCKETS, (resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 400) // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a curve: a sample at *count* of what the curve varies."""

    curve: str
    count: int
    sample: Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Milliseconds from a publication until its effect."""

    name: str
    count: int
    p50: float
    p99: float
    most: float


def latency_of(name: str, seconds: list[float]) -> Latency:
    """Return the percentiles of *seconds*, called *name*."""
    milliseconds = [value * 1e3 for value in seconds]
    return Latency(
        name=name,
        count=len(seconds),
        p50=percentile(milliseconds, 0.5),
        p99=percentile(milliseconds, 0.99),
        most=max(milliseconds),
    )


async def grow(
    curve: str, work: Work, proxy: Proxy, count: int, *, load: Path, folder: Path, seconds: float
) -> Point:
    """Measure *work* with *count* connections."""
    # With many connections it takes a while until each has had its first turn.
    warm = 0.3 + count / 5000
    grown = replace(work, connections=count, warm_seconds=warm)
    sample = await run_work(grown, proxy, load=load, folder=folder, seconds=seconds)
    return Point(curve=curve, count=count, sample=sample)


async def grow_routes(ground: Ground, count: int, *, load: Path, seconds: float) -> Point:
    """Measure authorised GETs while the gateway's table holds *count* routes."""
    folder = ground.folder
    routes = [make_route(new_sid(), ground.backend.port) for _ in range(count)]
    async with running_gateway(folder, routes) as (proxy, orchestrator):
        asked = routes[:: max(1, count // 200)]
        visitors = tuple(orchestrator.visitor(r.sid, f"ada-{n}") for n, r in enumerate(asked))
        proxy = replace(proxy, visitors=visitors)
        sample = await run_work(VARIED, proxy, load=load, folder=folder, seconds=seconds)
    return Point(curve="routes", count=count, sample=sample)


def _idle_arguments(proxy: Proxy, count: int, heads: Path) -> list[str]:
    return ["idle", str(proxy.port), str(count), "0", "0", str(heads)]


async def idle_bytes(peer: Peer, ground: Ground, count: int, load: Path) -> float:
    """Return the memory that each of *count* idle WebSockets costs a fresh *peer*."""
    async with peer.start(ground) as proxy:
        heads = [ECHO.head(visitor) for visitor in proxy.visitors]
        path = write_heads(ground.folder / "idle.heads", heads)
        async with loading(load, _idle_arguments(proxy, 1, path)) as one:
            await one.until("ready")
            before = private_bytes(proxy.group)
            async with loading(load, _idle_arguments(proxy, count, path)) as many:
                await many.until("ready")
                await asyncio.sleep(0.5)
                after = private_bytes(proxy.group)
                opened = (await many.result()).opened
    if opened != count:
        raise RuntimeError(f"{opened} of {count} sockets were opened")
    return (after - before) / count


async def publication_latency(ground: Ground, count: int) -> Latency:
    """Return how long a new route takes from its publication until a request finds it.

    A request without a credential gets 404 until the gateway knows the route, then 401.
    """
    seconds: list[float] = []
    async with running_gateway(ground.folder, [make_route(new_sid(), 1)]) as (proxy, orchestrator):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        for _ in range(count):
            route = make_route(new_sid(), ground.backend.port)
            text = f"GET / HTTP/1.1\r\nHost: {route.sid}.{BASE}\r\nAccept: */*\r\n\r\n".encode()
            began = time.monotonic()
            await orchestrator.publish(route)
            while await _status(reader, writer, text) == 404:
                await asyncio.sleep(0.0005)
            seconds.append(time.monotonic() - began)
        writer.close()
    return latency_of("event published → routable", seconds)


async def _status(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes) -> int:
    async with asyncio.timeout(5):
        writer.write(text)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if b"content-length" in line)
        await reader.readexactly(int(length.partition(b":")[2]))
    return int(head.split(b" ", 2)[1])
