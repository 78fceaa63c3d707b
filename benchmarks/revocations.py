"""``python -m benchmarks.revocations``: how soon revoked sockets close; 80 followers lose Redis.

Two gateways have thousands of open WebSockets. Revoked are the grants of one user, of everybody on
one session, and of a signing key, as by the controller's API: into the store, then by a notice. The
time runs from the response to that call until the last byte of a socket. In a second test 80
followers lose their Redis at the same moment. Prints JSON; ``make bench`` makes tables of it.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import logging
import random
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis

from benchmarks.growth import Latency, latency_of
from benchmarks.native_programs import build, loading, running_backend
from benchmarks.peers.fumarole import (
    INSTANCE,
    Orchestrator,
    make_route,
    new_sid,
    running_redis,
    settings,
)
from benchmarks.programs import cores, running
from benchmarks.requests import Visitor, socket_head
from benchmarks.works import write_heads
from controller.sessions.gateways import Notices
from controller.store.database import Store
from controller.store.instance import ensure_position, read_leadership
from controller.store.sessions.revocations import StoredRevocation, add_revocation
from gateway.bus.follower import Follower
from gateway.core.bus_state import BusClock
from shared.bus import BusReader, Keys, connect
from shared.events import GrantRevoked, event_time, revoked_at
from shared.routes.route import Route, RouteReader

ROOT: Final = Path(__file__).parents[1]
SESSIONS: Final = 20
USERS: Final = 2
GATEWAYS: Final = 2
SETTLE_SECONDS: Final = 2.0
"""The deadline after each revocation: nearly ten times the promised time."""
ROUTES: Final = 1000


@asynccontextmanager
async def two_gateways(folder: Path, routes: list[Route]) -> AsyncIterator[Site]:
    """Run two gateways with *routes* on one Redis."""
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(running_redis(folder))
        orchestrator = Orchestrator(redis, folder)
        await orchestrator.rebuild(routes)
        ports = []
        for number in range(GATEWAYS):
            addresses = folder / f"{number}.json"
            env = settings(folder) | {"FUMAROLE_GATEWAY_ADDRESS_FILE": str(addresses)}
            command = [sys.executable, "-m", "gateway"]
            log = folder / f"{number}.log"
            await stack.enter_async_context(
                running(command, core=cores()[number], log=log, env=env, cwd=folder)
            )
            async with asyncio.timeout(30):
                while not addresses.exists():
                    await asyncio.sleep(0.05)
            ports.append(int(json.loads(addresses.read_text())["public"].rpartition(":")[2]))
        store = Store(f"sqlite:///{folder}/store.db")
        await store.open()
        stack.push_async_callback(store.close)
        async with store.write() as transaction:
            await ensure_position(transaction, new_identity="bench")
        beats = asyncio.create_task(orchestrator.beat_for_good())
        stack.callback(beats.cancel)
        await asyncio.sleep(2)
        yield Site(redis, store, orchestrator, ports)


class Site:
    """Two gateways, and a controller's way to revoke."""

    def __init__(
        self, redis: Redis, store: Store, orchestrator: Orchestrator, ports: list[int]
    ) -> None:
        self.redis = redis
        self.orchestrator = orchestrator
        self.ports = ports
        self._store = store
        self._notices = Notices(redis, Keys(INSTANCE))

    async def revoke(
        self, *, sid: str | None = None, sub: str | None = None, kid: str | None = None
    ) -> float:
        """Revoke as the API does; return when it would have responded."""
        event = GrantRevoked(
            epoch="-", seq=0, at=event_time(time.time()), sid=sid, sub=sub, kid=kid
        )
        entry = event.revocation()
        async with self._store.write() as transaction:
            stored = StoredRevocation(
                member=entry.member, at=revoked_at(entry.score), sid=sid, sub=sub, kid=kid
            )
            await add_revocation(transaction, stored)
            term = (await read_leadership(transaction)).term
        await self._notices.tell(event, term=max(term, 1))
        answered = time.monotonic()
        # The leader publishes the same from the store.
        await self.orchestrator.publisher.revoke(
            at=revoked_at(entry.score), sid=sid, sub=sub, kid=kid
        )
        return answered


async def revocations(sockets: int, folder: Path, native: dict[str, Path]) -> list[Latency]:
    """Return how soon the sockets of one user, of one session and all others were closed."""
    async with running_backend(native["backend"]) as backend:
        routes = [make_route(new_sid(), backend.port) for _ in range(SESSIONS)]
        async with two_gateways(folder, routes) as site:
            visitors = [
                site.orchestrator.visitor(route.sid, f"ada-{number}")
                for route in routes
                for number in range(USERS)
            ]
            return await _closed(site, routes, visitors, sockets, native["load"], folder)


async def _closed(
    site: Site, routes: list[Route], visitors: list[Visitor], sockets: int, load: Path, folder: Path
) -> list[Latency]:
    heads = [socket_head(visitor, "/echo") for visitor in visitors]
    # So many that *sockets* are left after a user of one session, and another session, are revoked.
    each = -(-sockets // ((len(heads) - 1 - USERS) * GATEWAYS)) * len(heads)
    async with AsyncExitStack() as stack:
        loads = []
        for number, port in enumerate(site.ports):
            path = write_heads(folder / f"{number}.heads", heads)
            arguments = ["idle", str(port), str(each), "0", "0", str(path)]
            loads.append(await stack.enter_async_context(loading(load, arguments)))
        for one in loads:
            await one.until("ready")
        calls = []
        for name, who in {
            "one user": {"sid": routes[0].sid, "sub": "ada-0"},
            "one session": {"sid": routes[1].sid},
            "everybody": {"kid": "k1"},
        }.items():
            began = time.monotonic()
            calls.append((name, began, await site.revoke(**who)))
            await asyncio.sleep(SETTLE_SECONDS)
        results = [await one.result() for one in loads]
    if sum(one.opened for one in results) != each * GATEWAYS:
        raise RuntimeError(f"of {each * GATEWAYS} sockets only some were opened")
    closed = sorted(at / 1e9 for one in results for at in one.closed_at)
    if len(closed) != each * GATEWAYS:
        raise RuntimeError(f"{len(closed)} of {each * GATEWAYS} sockets were closed")
    ends = [began for _, began, _ in calls[1:]] + [float("inf")]
    return [
        # A socket that closes before the response did not wait.
        latency_of(name, [max(0.0, at - answered) for at in closed if began <= at < end])
        for (name, began, answered), end in zip(calls, ends, strict=True)
    ]


async def lost_by_many(count: int, folder: Path) -> dict[str, float]:
    """Return the recovery of *count* followers whose Redis lost everything at the same moment."""
    async with running_redis(folder) as redis:
        orchestrator = Orchestrator(redis, folder)
        routes = [make_route(new_sid(), 1) for _ in range(ROUTES)]
        await orchestrator.rebuild(routes)
        url = f"unix://{folder / 'redis.sock'}"
        clients = [connect(url) for _ in range(count)]
        followers = [_follower(client) for client in clients]
        tasks = [asyncio.create_task(one.run()) for one in followers]
        await _until_equal(followers, orchestrator)
        await redis.flushall()
        began = time.monotonic()
        async with slowest_answer(url) as slowest:
            await orchestrator.rebuild(routes)
            await _until_equal(followers, orchestrator)
            took = time.monotonic() - began
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients:
            await client.aclose()
    return {
        "followers": count,
        "routes": ROUTES,
        "equal_seconds": took,
        "snapshots": sum(one.noted["snapshot"] for one in followers) - count,
        "slowest_ms": slowest[-1],
    }


def _follower(client: Redis) -> Follower:
    return Follower(
        BusReader(client, Keys(INSTANCE)),
        RouteReader(),
        clock=BusClock(bus_grace_seconds=300, controller_grace_seconds=300),
        monotonic=time.monotonic,
        wall=time.time,
        random=random.random,
        on_change=lambda _sids: None,
        on_closed=lambda: None,
    )


async def _until_equal(followers: list[Follower], orchestrator: Orchestrator) -> None:
    wanted = (orchestrator.publisher.epoch, orchestrator.publisher.seq)
    async with asyncio.timeout(60):
        while any(
            one.table is None or (one.table.epoch, one.table.seq) != wanted for one in followers
        ):
            await asyncio.sleep(0.05)


@asynccontextmanager
async def slowest_answer(url: str) -> AsyncIterator[list[float]]:
    """Ping Redis from another process; yield a list whose last item is the longest wait, in ms."""
    program = (
        "import asyncio,sys,time\nfrom shared.bus import connect\n"
        "async def main():\n c=connect(sys.argv[1]); worst=0.0\n"
        " while True:\n  b=time.perf_counter(); await c.ping()\n"
        "  worst=max(worst,time.perf_counter()-b)\n"
        "  print(worst*1e3, flush=True); await asyncio.sleep(0.01)\nasyncio.run(main())"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, url, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    waits = [float(await process.stdout.readline())]
    try:
        yield waits
    finally:
        process.terminate()
        with suppress(ValueError):
            while line := await process.stdout.readline():
                waits.append(float(line))
        await process.wait()


async def measure(sockets: int, followers: int) -> dict[str, Any]:
    """Return the results of both tests."""
    with tempfile.TemporaryDirectory(prefix="fumarole-bench-") as folder:
        latencies = await revocations(sockets, Path(folder), build(ROOT / ".bench"))
    with tempfile.TemporaryDirectory(prefix="fumarole-bench-") as folder:
        many = await lost_by_many(followers, Path(folder))
    return {"latencies": [dataclasses.asdict(one) for one in latencies], "many": many}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(prog="benchmarks.revocations", description=__doc__)
    parser.add_argument("--sockets", type=int, default=5000, help="sockets of the last revocation")
    parser.add_argument("--followers", type=int, default=80)
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(json.dumps(asyncio.run(measure(chosen.sockets, chosen.followers))))


if __name__ == "__main__":
    main()
