"""``python -m benchmarks.revocations``: how soon who is shut out is out, and a Redis lost by many.

Two gateways with 5,000 open WebSockets: everybody's grants are revoked (a signing key), one user's,
one session's, as the controller's API does it: into the store, then told. The time is from that
call's answer until a socket is closed. And 80 followers lose their Redis at once. Prints a table;
--write puts it into docs/revocations.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from redis.asyncio import Redis

from benchmarks.measure import percentile
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
from controller.sessions.notices import Notices
from controller.store.database import Store
from controller.store.leadership import read_leadership
from controller.store.position import ensure_position
from controller.store.revocations import StoredRevocation, add_revocation
from gateway.core.bus_state import BusClock
from gateway.follower import Follower
from shared.bus import BusReader, Keys, connect
from shared.events import GrantRevoked, event_time, revoked_at
from shared.routes import Route, RouteReader

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "revocations.md"
SOCKETS: Final = 5000
SESSIONS: Final = 20
SETTLE_SECONDS: Final = 3.0
FOLLOWERS: Final = 80
ROUTES: Final = 1000


@asynccontextmanager
async def two_gateways(folder: Path, routes: list[Route]) -> AsyncIterator[Site]:
    """Run two gateways on one Redis, that know *routes*."""
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(running_redis(folder))
        orchestrator = Orchestrator(redis, folder)
        await orchestrator.rebuild(routes)
        ports = []
        for number, name in enumerate(("one", "two")):
            addresses = folder / f"{name}.json"
            env = settings(folder) | {"FUMAROLE_GATEWAY_ADDRESS_FILE": str(addresses)}
            command = [sys.executable, "-m", "gateway"]
            log = folder / f"{name}.log"
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

    async def revoke(self, *, sid: str | None, sub: str | None, kid: str | None) -> float:
        """Revoke as the API does; return when it would have answered."""
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
        # What the leader does from the store.
        await self.orchestrator.publisher.revoke(
            at=revoked_at(entry.score), sid=sid, sub=sub, kid=kid
        )
        return answered


async def revocation(what: str, folder: Path, native: dict[str, Path]) -> str:
    """Return a row: how soon the sockets of *what* were closed."""
    async with running_backend(native["backend"]) as backend:
        routes = [make_route(new_sid(), backend.port) for _ in range(SESSIONS)]
        async with two_gateways(folder, routes) as site:
            visitors = [
                site.orchestrator.visitor(route.sid, f"ada-{n % 2}")
                for route in routes
                for n in range(2)
            ]
            closed = await _closed(what, site, routes, visitors, native["load"], folder)
    milliseconds = [at * 1e3 for at in closed]
    p50, p99 = percentile(milliseconds, 0.5), percentile(milliseconds, 0.99)
    return f"| {what} | {len(closed)} | {p50:.0f} | {p99:.0f} | {max(milliseconds):.0f} |"


async def _closed(
    what: str, site: Site, routes: list[Route], visitors: list[Visitor], load: Path, folder: Path
) -> list[float]:
    heads = [socket_head(visitor, "/echo") for visitor in visitors]
    each = SOCKETS // len(site.ports)
    async with AsyncExitStack() as stack:
        loads = []
        for number, port in enumerate(site.ports):
            path = write_heads(folder / f"{number}.heads", heads)
            arguments = ["idle", str(port), str(each), "0", "0", str(path)]
            loads.append(await stack.enter_async_context(loading(load, arguments)))
        for one in loads:
            await one.until("ready")
        sid = None if what == "everybody" else routes[0].sid
        sub = "ada-0" if what == "one user" else None
        kid = "k1" if what == "everybody" else None
        answered = await site.revoke(sid=sid, sub=sub, kid=kid)
        await asyncio.sleep(SETTLE_SECONDS)
        results = [await one.result() for one in loads]
    return [at / 1e9 - answered for one in results for at in one.closed_at]


async def lost_by_many(folder: Path) -> str:
    """Return a line: 80 followers whose Redis loses everything at the same moment."""
    async with running_redis(folder) as redis:
        orchestrator = Orchestrator(redis, folder)
        routes = [make_route(new_sid(), 1) for _ in range(ROUTES)]
        await orchestrator.rebuild(routes)
        url = f"unix://{folder / 'redis.sock'}"
        clients = [connect(url) for _ in range(FOLLOWERS)]
        followers = [_follower(client) for client in clients]
        tasks = [asyncio.create_task(one.run()) for one in followers]
        await _until_equal(followers, orchestrator)
        await redis.flushall()
        began = time.monotonic()
        slowest = asyncio.create_task(_slowest_answer(url))
        await orchestrator.rebuild(routes)
        await _until_equal(followers, orchestrator)
        took = time.monotonic() - began
        slowest.cancel()
        worst = (await asyncio.gather(slowest, return_exceptions=True))[0]
        snapshots = sum(one.noted["snapshot"] for one in followers) - FOLLOWERS
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients:
            await client.aclose()
    return (
        f"{FOLLOWERS} followers of {ROUTES:,} routes, all in one process on one core, whose Redis "
        f"was flushed and filled again: all equal after {took:.2f} s, {snapshots} snapshots, the "
        f"slowest answer to somebody else in that time {worst} ms."
    )


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
    async with asyncio.timeout(120):
        while any(
            one.table is None or (one.table.epoch, one.table.seq) != wanted for one in followers
        ):
            await asyncio.sleep(0.05)


async def _slowest_answer(url: str) -> str:
    """Ask Redis from a process of its own, until cancelled; return the longest wait."""
    program = (
        "import asyncio,sys,time\nfrom shared.bus import connect\n"
        "async def main():\n c=connect(sys.argv[1]); worst=0.0\n"
        " while True:\n  b=time.perf_counter(); await c.ping()\n"
        "  worst=max(worst,time.perf_counter()-b)\n"
        "  print(round(worst*1e3), flush=True); await asyncio.sleep(0.01)\nasyncio.run(main())"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, url, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    worst = "0"
    try:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            worst = line.decode().strip()
    except asyncio.CancelledError:
        return worst
    finally:
        process.kill()
        await process.wait()
    return worst


async def measure() -> str:
    """Return the page."""
    native = build(ROOT / ".bench")
    rows = []
    for what in ("everybody", "one user", "one session"):
        with tempfile.TemporaryDirectory(prefix="fumarole-bench-") as folder:
            rows.append(await revocation(what, Path(folder), native))
            print(rows[-1], flush=True)
    with tempfile.TemporaryDirectory(prefix="fumarole-bench-") as folder:
        many = await lost_by_many(Path(folder))
        print(many, flush=True)
    return "\n".join(
        [
            "# How soon who is shut out is out",
            "",
            "Written by `python -m benchmarks.revocations --write`. Two gateways of one process",
            f"each, with {SOCKETS:,} open WebSockets of {SESSIONS} sessions and two users each;",
            "everything on one machine. Milliseconds from the answer of the call that revokes (the",
            "revocation is in the store, on disk, by then) until a socket was closed. Others used",
            f"the machine, too: {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}.",
            "",
            "| revoked | sockets | p50 | p99 | last |",
            "|---|---|---|---|---|",
            *rows,
            "",
            many,
            "",
            "The budget is 250 ms at the 99th percentile. Where it is missed, the time goes into",
            "ending the sockets one after the other on the gateway's one core, in batches between",
            "which it goes on serving.",
            "",
        ]
    )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(prog="benchmarks.revocations", description=__doc__)
    parser.add_argument("--write", action="store_true", help="into docs/revocations.md")
    write: bool = parser.parse_args().write
    logging.disable(logging.CRITICAL)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    page = asyncio.run(measure())
    if write:
        PAGE.write_text(page)


if __name__ == "__main__":
    main()
