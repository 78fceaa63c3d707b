"""Big tables: ``python -m benchmarks.routes``.

For each number of routes a follower, in a process of its own, reads the table from a real Redis,
and reads another one when the publisher begins a new epoch. Reported are the time, the longest
stall of the loop, the resident memory per route, and the cost of applying one event.

Times are processor time of this process, so that other load cancels out. Watching for stalls costs
time itself, so a timed pass is not watched. A further process reads a table of 100,000 routes that
the controller has signed, with the events that follow.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from redis.asyncio import Redis

from deploy.local.redis import redis_program
from gateway.bus.follower import Follower
from gateway.bus.head_policy import HeadPolicy
from gateway.core.bus_state import BusClock
from shared.bus import BusReader, Keys, Publisher, connect
from shared.events import Event, RouteUpserted, decode_event
from shared.jose.jws import read_key_set
from shared.jose.signing_keys import public_key_set
from shared.routes.route import RouteReader
from shared.routes.signed_table import TableSigner, TableVerifier
from shared.routes.table import Outcome, RouteTable

SIZES: Final = (1, 1_000, 10_000, 100_000)
KEYS: Final = Keys("bench")
_EVENTS: Final = 2_000
_BATCH: Final = 100
_SIGNED_EVENTS: Final = 500
_GRACE: Final = {"bus_grace_seconds": 300.0, "controller_grace_seconds": 300.0}
_BEGIN, _END = "<!-- written by benchmarks/routes.py -->", "<!-- end -->"


KEY: Final = Ed25519PrivateKey.from_private_bytes(b"benchmark " * 3 + b"..")
"""A key that is public: it signs nothing but a benchmark."""


@dataclass(frozen=True, kw_only=True)
class SignedResult:
    """The line of a signed table; times in the unit of their name."""

    routes: int
    snapshot_s: float
    snapshot_stall_ms: float
    route_bytes: float
    event_us: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of the table; times in the unit of their name."""

    routes: int
    snapshot_s: float
    snapshot_stall_ms: float
    route_bytes: float
    event_us: float


def sid_of(number: int) -> str:
    """Return a session identifier."""
    text = ""
    for _ in range(26):
        number, digit = divmod(number, 32)
        text += "abcdefghijklmnopqrstuvwxyz234567"[digit]
    return text


def route_of(number: int, *, rev: int = 1) -> bytes:
    """Return a usual route as a controller writes it."""
    sid = sid_of(number)
    target = {"scheme": "http", "host": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"}
    route: dict[str, Any] = {"sid": sid, "rev": rev, "job": f"job-{number}", "rank": 0}
    route |= {"kind": "web", "owner": f"user-{number % 5000}", "hosts": [f"{sid}.apps.example.com"]}
    route |= {"target": target | {"port": 8888, "base_path": "/", "id": f"uid-{sid}"}}
    route |= {"state": "ready", "message": None, "expires_at": None, "public": False}
    return msgspec.json.encode(route | {"sealed": None})


class Stalls:
    """Watches the loop; ``longest`` is its longest stall, in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        """Run in each turn of the loop, and note the longest turn."""
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest = max(self.longest, now - last)
            last = now


@asynccontextmanager
async def watched() -> AsyncIterator[Stalls]:
    """Watch the loop during the block."""
    stalls = Stalls()
    task = asyncio.create_task(stalls.watch())
    try:
        yield stalls
    finally:
        task.cancel()


async def timed(work: Awaitable[object]) -> float:
    """Return the processor time of *work*."""
    start = time.thread_time()
    await work
    return time.thread_time() - start


async def stalled(work: Awaitable[object]) -> float:
    """Return the longest stall while *work* is done."""
    async with watched() as stalls:
        await work
        return stalls.longest


def resident() -> int:
    """Return this process' memory in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


async def until(holds: Any) -> None:
    """Wait until *holds* returns True."""
    while not holds():
        await asyncio.sleep(0.001)


async def measure(url: str, count: int) -> Result:
    """Return the costs of a table of *count* routes."""
    redis, writer = connect(url), connect(url)
    publisher = Publisher(writer, KEYS, term=1)
    head = await publisher.head()
    assert head is not None
    publisher.follow(head)
    follower = Follower(
        BusReader(redis, KEYS),
        RouteReader(),
        clock=BusClock(**_GRACE),
        monotonic=time.monotonic,
        wall=time.time,
        random=lambda: 0.0,
        on_change=lambda _sids: None,
        on_closed=lambda: None,
    )
    before = resident()
    running = asyncio.create_task(follower.run())
    snapshot = await timed(until(lambda: follower.table is not None))
    route_bytes = (resident() - before) / count
    await asyncio.sleep(0.1)
    stall = await stalled(_another_epoch(publisher, follower))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    table = follower.table
    assert table is not None
    event_us = _apply_events(table, count)
    for client in (redis, writer):
        await client.aclose()
    return Result(
        routes=count,
        snapshot_s=snapshot,
        snapshot_stall_ms=stall * 1e3,
        route_bytes=route_bytes,
        event_us=event_us,
    )


async def measure_signed(url: str, count: int) -> SignedResult:
    """Return the costs of a signed table of *count* routes, and of the events that follow."""
    redis = connect(url)
    before = resident()
    async with _following(redis) as follower:
        snapshot = await timed(until(lambda: follower.table is not None))
        route_bytes = (resident() - before) / count
    async with _following(redis) as follower:
        stall = await stalled(until(lambda: follower.table is not None))
    publisher = await fill_signed(redis, count, epoch="after")
    async with _following(redis) as follower:
        await until(lambda: follower.table is not None)
    for number in range(_SIGNED_EVENTS):
        route = route_of(number % count, rev=2)
        await publisher.upsert(sid_of(number % count), route, now=time.time())
    part = await BusReader(redis, KEYS).log_after(0, most=_SIGNED_EVENTS)
    await redis.aclose()
    return SignedResult(
        routes=count,
        snapshot_s=snapshot,
        snapshot_stall_ms=stall * 1e3,
        route_bytes=route_bytes,
        event_us=_take_signed(follower, [decode_event(raw) for raw in part.events]),
    )


def _take_signed(follower: Follower, events: list[Event]) -> float:
    table = follower.table
    assert table is not None
    start = time.thread_time()
    for event in events:
        assert follower.advance_by(event, table, from_log=True) is Outcome.APPLIED
    return (time.thread_time() - start) / len(events) * 1e6


@asynccontextmanager
async def _following(redis: Redis) -> AsyncIterator[Follower]:
    keys = read_key_set(msgspec.json.encode(public_key_set([KEY])))
    verifier = TableVerifier(keys, instance=KEYS.instance)
    follower = Follower(
        BusReader(redis, KEYS),
        RouteReader(),
        clock=BusClock(**_GRACE),
        monotonic=time.monotonic,
        wall=time.time,
        random=lambda: 0.0,
        on_change=lambda _sids: None,
        on_closed=lambda: None,
        policy=HeadPolicy(
            verifier, wall=time.time, monotonic=time.monotonic, max_age_seconds=300.0
        ),
    )
    running = asyncio.create_task(follower.run())
    try:
        yield follower
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _another_epoch(publisher: Publisher, follower: Follower) -> None:
    """Make the follower read the same routes under another epoch, without a publisher."""
    redis = publisher._redis
    await redis.hset(KEYS.head, mapping={"epoch": "another", "seq": 0})
    await until(lambda: follower.table is not None and follower.table.epoch == "another")


def _apply_events(table: RouteTable, count: int) -> float:
    events = [
        RouteUpserted(
            epoch=table.epoch,
            seq=table.seq + 1 + number,
            sid=sid_of(number % count),
            # Each event has another revision: an event without a change costs less.
            route=msgspec.Raw(route_of(number % count, rev=2 + number // count)),
        )
        for number in range(_EVENTS)
    ]
    batches = []
    for first in range(0, _EVENTS, _BATCH):
        start = time.thread_time()
        for event in events[first : first + _BATCH]:
            table.apply(event)
        batches.append((time.thread_time() - start) / _BATCH * 1e6)
    # Not the mean, which would include garbage collections and other programs.
    return statistics.median(batches)


async def fill_signed(redis: Redis, count: int, *, epoch: str) -> Publisher:
    """Put *count* signed routes into Redis; return the publisher."""
    publisher = Publisher(redis, KEYS, term=2, signer=TableSigner(KEY, instance=KEYS.instance))
    routes = {sid_of(number): route_of(number) for number in range(count)}
    await publisher.rebuild(routes, {}, epoch=epoch, now=time.time())
    return publisher


async def _sign(url: str, count: int) -> None:
    redis = connect(url)
    await fill_signed(redis, count, epoch="signed")
    await redis.aclose()


async def fill(url: str, count: int) -> None:
    """Put *count* routes into Redis."""
    redis = connect(url)
    await redis.flushall()
    routes = {sid_of(number): route_of(number) for number in range(count)}
    await Publisher(redis, KEYS, term=1).rebuild(routes, {}, epoch="one", now=time.time())
    await redis.aclose()


def _one(url: str, count: int) -> None:
    print(json.dumps(asdict(uvloop.run(measure(url, count)))))


def _one_signed(url: str, count: int) -> None:
    print(json.dumps(asdict(uvloop.run(measure_signed(url, count)))))


def table_of(results: list[Result], signed: SignedResult) -> str:
    """Return *results* as Markdown."""
    lines = [
        "| routes | snapshot | longest stall | memory a route | one event |",
        "|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r.routes:,} | {r.snapshot_s:.2f} s | {r.snapshot_stall_ms:.1f} ms | {_bytes(r)} "
        f"| {r.event_us:.1f} µs |"
        for r in results
    ]
    lines.append(
        f"| signed, {signed.routes:,} | {signed.snapshot_s:.2f} s "
        f"| {signed.snapshot_stall_ms:.1f} ms | {signed.route_bytes / 1024:.2f} KiB "
        f"| {signed.event_us:.0f} µs |"
    )
    return "\n".join(lines)


def _bytes(result: Result) -> str:
    # Memory grows in pages and arenas, so below a thousand routes it says nothing.
    return f"{result.route_bytes / 1024:.2f} KiB" if result.routes >= 1000 else "–"


def _child(what: str, url: str, count: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.routes", what, url, str(count)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> None:
    """Measure all sizes and print the table."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "redis.sock"
        command = [redis_program(), "--port", "0", "--unixsocket", str(path), "--save", ""]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder) as server:
            try:
                while not path.exists():
                    time.sleep(0.05)
                url = f"unix://{path}"
                for count in SIZES:
                    asyncio.run(fill(url, count))
                    results.append(Result(**_child("--one", url, count)))
                asyncio.run(_sign(url, SIZES[-1]))
                signed = SignedResult(**_child("--signed", url, SIZES[-1]))
            finally:
                server.terminate()
    print(table_of(results, signed))


if __name__ == "__main__":
    if "--one" in sys.argv:
        _one(sys.argv[2], int(sys.argv[3]))
    elif "--signed" in sys.argv:
        _one_signed(sys.argv[2], int(sys.argv[3]))
    else:
        main()
