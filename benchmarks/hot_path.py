"""The gateway's own part of a request: ``python -m benchmarks.hot_path [--profile WORK]``.

The data path runs with transports that discard everything. So only the gateway's Python is
measured: no kernel, no event loop, little noise. ``same`` and ``varied`` are the GETs of the
benchmark, ``handshake`` is a WebSocket opened and closed.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import msgspec
import uvloop

from benchmarks.peers.fumarole import BASE, make_route, make_site, new_sid
from benchmarks.requests import KEY, MARK, Visitor, get_head, socket_head
from gateway.bus.repairer import load_table
from gateway.core.access.grants import Grant, GrantKeys
from gateway.core.http.upgrade import accept_value
from gateway.live import ConnectionRegistry
from gateway.observers.audit_log import AuditLog
from gateway.observers.reporter import RecentFailures
from gateway.relay.background_tasks import BackgroundTasks
from gateway.relay.gateway import DataPath
from gateway.relay.http.upstream import UpstreamConnection as Upstream
from shared.bus import Snapshot
from shared.events import Head
from shared.routes.route import RouteReader
from shared.routes.table import RouteTable
from shared.runtime.process import tune_collector

ROUNDS: Final = 60
TIMES: Final = 1_000
"""Of one round. Short rounds fit between other work of the machine; the least is reported."""
PROFILED_TIMES: Final = 10_000
ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nServer: backend\r\nDate: Sat, 01 Aug 2026 00:00:00 GMT\r\n"
    b"Content-Type: application/octet-stream\r\nCache-Control: no-cache\r\n"
    b'ETag: "5f3c-1"\r\nContent-Length: 1024\r\n\r\n' + bytes(1024)
)
SWITCH: Final = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: " + accept_value(KEY.encode()) + b"\r\n\r\n"
)


class Nowhere:
    """A transport that discards what is written and never delivers anything."""

    def __init__(self) -> None:
        self.protocol: Any = None

    def write(self, data: bytes) -> None:
        """Discard the bytes."""

    def get_extra_info(self, name: str) -> object:
        """Return the extra information."""
        return ("127.0.0.1", 5) if name == "peername" else None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol."""
        self.protocol = protocol

    def is_closing(self) -> bool:
        """Return False: it never closes."""
        return False

    def get_write_buffer_size(self) -> int:
        """Return 0: the buffer is always empty."""
        return 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Ignore the call, as for all other methods of a transport."""
        return lambda *_arguments, **_named: None


class Bench:
    """A data path with one session, and the last upstream connection that it dialled."""

    serving = dialling = opening = True
    stale = False
    dial_seconds = 5.0

    def __init__(self, table: RouteTable, visitor: Visitor, grants: GrantKeys) -> None:
        loop = asyncio.get_running_loop()
        self.table = self.usable_table = table
        self.visitor = visitor
        self.dialled: asyncio.Queue[Upstream] = asyncio.Queue()
        parts: dict[str, Any] = {"loop": loop, "site": make_site()}
        parts |= {
            "holder": self,
            "grants": grants,
            "bearer": None,
            "dialler": self,
            "make_page": None,
        }
        trail = AuditLog(
            issuer="bench", process="bench", wall=time.time, write=lambda _record: None
        )
        parts |= {"audit": trail, "failures": RecentFailures(wall=time.time)}
        parts |= {"live": ConnectionRegistry(table=lambda: table, wall=time.time, loop=loop)}
        self.path = DataPath(background_tasks=BackgroundTasks(), **parts)

    async def connect(self, _target: object, factory: Callable[[], Upstream]) -> None:
        """Connect to no peer."""
        upstream = factory()
        upstream.connection_made(cast(asyncio.Transport, Nowhere()))
        self.dialled.put_nowait(upstream)

    def browser(self) -> tuple[Any, Nowhere]:
        """Return a downstream connection that was just accepted."""
        front, transport = self.path.accept("127.0.0.1"), Nowhere()
        if front is None:
            raise RuntimeError("the connection was not accepted")
        front.connection_made(cast(asyncio.Transport, transport))
        return front, transport

    async def get(self, *, varied: bool, times: int) -> None:
        """Send *times* requests on one connection."""
        head = get_head(self.visitor, "/bytes/1024", varied=varied)
        heads = [head.replace(MARK.encode(), b"%08x" % number) for number in range(64)]
        front, _ = self.browser()
        front.data_received(heads[0])
        upstream = await self.dialled.get()
        await asyncio.sleep(0)
        for number in range(times):
            upstream.data_received(ANSWER)
            front.data_received(heads[number & 63])
            if not number & 63:  # In a long turn of the loop connections would be paused.
                await asyncio.sleep(0)
        upstream.data_received(ANSWER)
        front.connection_lost(None)
        upstream.connection_lost(None)

    async def handshake(self, times: int) -> None:
        """Open and close *times* WebSockets."""
        head = socket_head(self.visitor, "/echo")
        for _ in range(times):
            front, transport = self.browser()
            front.data_received(head)
            upstream = await self.dialled.get()
            while upstream.exchange is None:
                await asyncio.sleep(0)
            app = cast(Nowhere, upstream.transport)
            upstream.data_received(SWITCH)
            transport.protocol.connection_lost(None)
            app.protocol.connection_lost(None)


async def make_bench() -> Bench:
    """Return a bench whose table has one route."""
    route = make_route(new_sid(), 8000)
    head = Head(epoch="e", seq=1, term=1, routes=1, revoked=0)
    table = await load_table(
        Snapshot(head, {route.sid: msgspec.json.encode(route)}, {}), RouteReader()
    )
    grants, now = GrantKeys([b"k" * 32]), time.time()
    grant = Grant(
        sid=route.sid,
        jti="j" * 22,
        kid="k1",
        sub="ada",
        mode="control",
        issued_at=now - 5,
        ends_at=now + 43200,
    )
    cookie = f"fumarole={grants.sign(grant)}"
    return Bench(table, Visitor(f"{route.sid}.{BASE}", cookie), grants)


Work = Callable[[int], Awaitable[None]]


async def microseconds(work: Work, times: int) -> float:
    """Return the processor time of one unit: the least of several rounds."""
    await work(200)
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        await work(times)
        best = min(best, time.process_time() - began)
    return best / times * 1e6


async def run(profiled: str | None) -> None:
    """Measure all works, and profile one."""
    bench = await make_bench()
    tune_collector()  # as the gateway does
    works: dict[str, Work] = {
        "same": lambda times: bench.get(varied=False, times=times),
        "varied": lambda times: bench.get(varied=True, times=times),
        "handshake": bench.handshake,
    }
    for name, work in works.items():
        times = TIMES if name != "handshake" else TIMES // 10
        print(f"{name}: {await microseconds(work, times):.2f} µs")
    if profiled is not None:
        profile = cProfile.Profile(time.process_time)
        profile.enable()
        await works[profiled](PROFILED_TIMES)
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="hot_path", description=__doc__)
    parser.add_argument("--profile", choices=("same", "varied", "handshake"))
    uvloop.run(run(parser.parse_args().profile))
    return 0


if __name__ == "__main__":
    sys.exit(main())
