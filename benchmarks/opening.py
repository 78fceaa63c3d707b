"""The cost of a WebSocket from accept to close: ``python -m benchmarks.opening [--bare]``.

The data path, with its listener and its dialler, serves real sockets in this process. Browsers and
app are in a process of their own. The result is this process' processor time, the least of several
rounds, so that other work of the machine hardly matters. ``--count N`` opens N WebSockets and
prints nothing: for ``valgrind --tool=callgrind`` and ``strace -c``, where the difference between
two counts is the cost of one. ``--profile`` and ``--calls`` show where the time goes.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import cProfile
import gc
import json
import os
import pstats
import secrets
import socket
import sys
import time
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec
import uvloop

from benchmarks.peers.fumarole import BASE, make_route, make_site, new_sid
from benchmarks.peers.protocol_relay import Side
from benchmarks.requests import KEY, Visitor, socket_head
from gateway.bus.repairer import load_table
from gateway.core.access.grants import Grant, GrantKeys
from gateway.core.http.upgrade import accept_value
from gateway.live import ConnectionRegistry
from gateway.observers.audit_log import AuditLog
from gateway.observers.reporter import Activities, RecentFailures
from gateway.relay.background_tasks import BackgroundTasks
from gateway.relay.dial import Dialler, make_upstream_tls
from gateway.relay.gateway import DataPath
from gateway.relay.listening import Listener
from shared.bus import Snapshot
from shared.events import Head
from shared.routes.route import RouteReader
from shared.routes.table import RouteTable
from shared.runtime.process import tune_collector

AT_ONCE: Final = 16
VISITORS: Final = 64
TIMES: Final = 480
ROUNDS: Final = 40
_KEY_BYTES: Final = 24


# Browsers and app: a process of their own, whose time is not counted


def _receive(sock: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        piece = sock.recv(65536)
        if not piece:
            raise SystemExit(f"closed after {data!r}")
        data += piece
    return data


def _batch(port: int, app: socket.socket, heads: list[bytes]) -> None:
    """Open as many WebSockets at once, each with a key of its own, and close them."""
    browsers = []
    for head in heads:
        key = base64.b64encode(secrets.token_bytes(16))
        browser = socket.create_connection(("127.0.0.1", port))
        browser.sendall(head.replace(KEY.encode(), key))
        browsers.append((browser, accept_value(key)))
    taken = []
    for _ in heads:
        sock, _address = app.accept()
        asked = _receive(sock)
        at = asked.index(b"Sec-WebSocket-Key: ") + 19
        sock.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept_value(asked[at : at + _KEY_BYTES]) + b"\r\n\r\n"
        )
        taken.append(sock)
    for browser, accept in browsers:
        if accept not in _receive(browser):
            raise SystemExit("another key's response")
        browser.close()
    for sock in taken:
        while sock.recv(4096):
            pass
        sock.close()


def visit() -> None:
    """Read the gateway's port and heads from standard input, then counts, and open as many."""
    app = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(app.getsockname()[1], flush=True)
    told = json.loads(sys.stdin.readline())
    heads = [head.encode() for head in told["heads"]]
    at = 0
    for line in sys.stdin:
        for _ in range(int(line) // AT_ONCE):
            _batch(told["port"], app, [heads[(at + n) % len(heads)] for n in range(AT_ONCE)])
            at += AT_ONCE
        print("done", flush=True)


# The gateway


class World:
    """A table that never changes."""

    serving = dialling = True
    stale = False

    def __init__(self, table: RouteTable) -> None:
        self.table = self.usable_table = table

    async def repair(self) -> None:
        """Do nothing: no route is ever missing."""


@dataclass(slots=True)
class Bench:
    """The listener (without a data path for the bare relay) and the process of its visitors."""

    path: DataPath | None
    listener: Listener | asyncio.Server
    visitors: asyncio.subprocess.Process

    async def open(self, times: int) -> None:
        """Open and close *times* WebSockets."""
        assert self.visitors.stdin is not None  # both are pipes
        assert self.visitors.stdout is not None
        self.visitors.stdin.write(b"%d\n" % times)
        if await self.visitors.stdout.readline() != b"done\n":
            raise RuntimeError("the visitors have gone")

    async def close(self) -> None:
        """End the visitors, then the listener."""
        assert self.visitors.stdin is not None
        self.visitors.stdin.close()
        await self.visitors.wait()
        self.listener.close()
        if self.path is not None:
            await self.path.close()


def make_path(table: RouteTable, keys: GrantKeys) -> DataPath:
    """Return a data path as the gateway makes it, with its observers and its dialler."""
    loop = asyncio.get_running_loop()
    trail = AuditLog(issuer="bench", process="bench", wall=time.time, write=lambda _record: None)
    live = ConnectionRegistry(
        table=lambda: table,
        wall=time.time,
        loop=loop,
        observers=(trail.attachments, Activities()),
    )
    parts: dict[str, Any] = {"loop": loop, "site": make_site()}
    parts |= {
        "holder": World(table),
        "grants": keys,
        "bearer": None,
        "make_page": None,
        "live": live,
    }
    parts |= {"audit": trail, "failures": RecentFailures(wall=time.time)}
    parts["dialler"] = Dialler(
        networks=[ip_network("127.0.0.0/8")], loop=loop, trust=make_upstream_tls(None)
    )
    return DataPath(background_tasks=BackgroundTasks(), **parts)


async def make_table(port: int) -> RouteTable:
    """Return a table with a session for each visitor, whose app listens at *port*."""
    routes = [make_route(new_sid(), port) for _ in range(VISITORS)]
    head = Head(epoch="e", seq=1, term=1, routes=len(routes), revoked=0)
    encoded = {route.sid: msgspec.json.encode(route) for route in routes}
    return await load_table(Snapshot(head, encoded, {}), RouteReader())


def make_heads(table: RouteTable, keys: GrantKeys) -> list[str]:
    """Return the upgrade that each visitor sends, with :data:`KEY` for a key."""
    now, heads = time.time(), []
    for number, sid in enumerate(table):
        grant = Grant(sid, secrets.token_urlsafe(16), "k1", f"ada-{number}", "control", now - 5,
                      now + 43200)  # fmt: skip
        visitor = Visitor(f"{sid}.{BASE}", f"fumarole={keys.sign(grant)}")
        heads.append(socket_head(visitor, "/echo").decode())
    return heads


async def make_bench(*, bare: bool) -> Bench:
    """Return a bench; with *bare*, of a relay that parses and decides nothing."""
    visitors = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.opening",
        "--visit",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    )
    assert visitors.stdin is not None
    assert visitors.stdout is not None
    app = int(await visitors.stdout.readline())
    keys = GrantKeys([b"k" * 32])
    table = await make_table(app)
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    path = None if bare else make_path(table, keys)
    told = {"port": listening.getsockname()[1], "heads": make_heads(table, keys)}
    listener: Listener | asyncio.Server
    if path is None:
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(lambda: Side(app), sock=listening)
    else:
        listener = Listener(path, [listening])
    visitors.stdin.write(json.dumps(told).encode() + b"\n")
    return Bench(path, listener, visitors)


async def microseconds(bench: Bench, *, times: int = TIMES, rounds: int = ROUNDS) -> float:
    """Return the processor time of one WebSocket: the least of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        await bench.open(times)
        best = min(best, time.process_time() - began)
    return best / times * 1e6


class Calls:
    """Counts calls by function, of Python and of C functions."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count one call."""
        if event == "call":
            code = frame.f_code
            name = f"{os.path.basename(code.co_filename)}:{code.co_qualname}"
        elif event == "c_call":
            name = f"{{{getattr(argument, '__qualname__', argument)}}}"
        else:
            return
        self.counts[name] = self.counts.get(name, 0) + 1


async def run(options: argparse.Namespace) -> None:
    """Measure, or do as *options* say."""
    bench = await make_bench(bare=options.bare)
    await bench.open(TIMES)
    tune_collector()
    if options.count is not None:
        await bench.open(options.count)
    elif options.calls:
        calls = Calls()
        sys.setprofile(calls)
        await bench.open(TIMES)
        sys.setprofile(None)
        for name, count in sorted(calls.counts.items(), key=lambda one: -one[1]):
            print(f"{count / TIMES:8.2f} {name}")
        print(f"{sum(calls.counts.values()) / TIMES:8.2f} in all")
    elif options.profile:
        profile = cProfile.Profile(time.process_time)
        profile.enable()
        await bench.open(TIMES * 20)
        profile.disable()
        pstats.Stats(profile).sort_stats(options.profile).print_stats(70)
    else:
        print(f"{await microseconds(bench):.2f} µs")
    await bench.close()
    gc.unfreeze()


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="opening", description=__doc__)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--count", type=int)
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--profile", choices=("tottime", "cumtime", "ncalls"))
    parser.add_argument("--visit", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.visit:
        visit()
    else:
        uvloop.run(run(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
