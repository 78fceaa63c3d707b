"""The cost of workers: ``python -m benchmarks.workers [--tree DIR] [--counts 1 2 4 8] [--write]``.

For each number of workers a gateway with a real Redis reads a table of 100,000 routes. Then it ends
WebSockets of 40 sessions, which are spread over all workers, one session after the other. Reported
are

- the memory of all processes (PSS, in which shared pages count once);
- the connections to Redis;
- the processor time of the snapshot;
- how soon after the publication of a revocation its sockets were closed.

With ``--write`` the table goes into docs/workers.md. With ``--tree`` the gateway is that of another
source tree.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.peers.fumarole import Orchestrator, make_route, new_sid, running_gateway
from benchmarks.requests import Visitor
from shared.bus import connect
from shared.routes.route import Route

COUNTS: Final = (1, 2, 4, 8)
ROUTES: Final = 100_000
SESSIONS: Final = 40
SOCKETS: Final = 4
"""Of each session, for each worker."""
_ROOT: Final = Path(__file__).parents[1]
PAGE: Final = _ROOT / "docs" / "workers.md"
BEGIN, END = "<!-- written by benchmarks/workers.py -->", "<!-- end -->"
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_SECONDS: Final = 120.0

Socket: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of the table."""

    workers: int
    memory_mib: float
    redis_connections: int
    snapshot_s: float
    revoked_p50_ms: float
    revoked_p99_ms: float


def family_of(pid: int) -> Iterator[int]:
    """Yield *pid* and all its descendants."""
    yield pid
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from family_of(int(child))


def processor_seconds(pids: list[int]) -> float:
    """Return the processor time that the processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mib(pids: list[int]) -> float:
    """Return the memory of the processes; shared pages count once."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            total += int(line.split()[1]) if line.startswith("Pss:") else 0
    return total / 1024


async def debug(folder: Path) -> dict[str, Any]:
    """Return the gateway's report of its table."""
    ops = json.loads((folder / "addresses.json").read_text())["ops"]
    reader, writer = await asyncio.open_connection("127.0.0.1", int(ops.rpartition(":")[2]))
    writer.write(b"GET /debug/routes HTTP/1.1\r\nHost: ops\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    told: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return told


async def connections(folder: Path) -> int:
    """Return how many connections Redis has, without this one and the publisher's."""
    redis = connect(f"unix://{folder / 'redis.sock'}")
    try:
        listed = await redis.client_list()
    finally:
        await redis.aclose()
    return len(listed) - 2


async def until_known(folder: Path, orchestrator: Orchestrator) -> None:
    """Return once every worker has the published table."""
    async with asyncio.timeout(_SECONDS):
        while True:
            told = await debug(folder)
            epochs = {one.get("epoch") for one in told.get("workers", (told,))}
            if epochs == {orchestrator.publisher.epoch}:
                return
            await asyncio.sleep(0.2)


async def _accept_socket(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An app: accepts each WebSocket, and reads everything."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
        key = next(v for name, v in fields.items() if name.lower() == b"sec-websocket-key")
        accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        await reader.read()
    writer.close()


async def open_socket(port: int, visitor: Visitor) -> Socket:
    """Return a WebSocket that is open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET / HTTP/1.1\r\nHost: {visitor.host}\r\nCookie: {visitor.cookie}\r\n"
        f"Origin: {visitor.origin}\r\n"
        f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.split()[1] == b"101", head
    return reader, writer


async def until_closed(socket: Socket) -> float:
    """Return when the first byte of a Close, or the end, arrived."""
    await socket[0].read(1)
    return time.monotonic()


async def revoke_each(
    port: int, orchestrator: Orchestrator, routes: list[Route], workers: int
) -> list[float]:
    """Return, for each socket, the time from publishing its revocation to its close."""
    opened: list[tuple[str, list[Socket]]] = []
    for route in routes:
        visitor = orchestrator.visitor(route.sid, "ada")
        sockets = [await open_socket(port, visitor) for _ in range(SOCKETS * workers)]
        opened.append((route.sid, sockets))
    found: list[float] = []
    for sid, sockets in opened:
        waiting = [asyncio.create_task(until_closed(socket)) for socket in sockets]
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await orchestrator.publisher.revoke(at=time.time(), sid=sid)
        async with asyncio.timeout(_SECONDS):
            found += [closed - began for closed in await asyncio.gather(*waiting)]
    return found


async def measure(workers: int, tree: Path) -> Result:
    """Return the cost of a gateway with *workers* workers."""
    app = await asyncio.start_server(_accept_socket, "127.0.0.1", 0)
    port = app.sockets[0].getsockname()[1]
    few = [make_route(new_sid(), port) for _ in range(SESSIONS)]
    many = [*few, *(make_route(new_sid(), port) for _ in range(ROUTES - SESSIONS))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with running_gateway(folder, few, workers=workers, tree=tree) as (
            proxy,
            orchestrator,
        ):
            pids = list(family_of(proxy.group))
            before = processor_seconds(pids)
            await orchestrator.rebuild(many)
            await until_known(folder, orchestrator)
            snapshot = processor_seconds(pids) - before
            clients = await connections(folder)
            revoked = sorted(await revoke_each(proxy.port, orchestrator, few, workers))
            result = Result(
                workers=workers,
                memory_mib=memory_mib(pids),
                redis_connections=clients,
                snapshot_s=snapshot,
                revoked_p50_ms=statistics.median(revoked) * 1e3,
                revoked_p99_ms=revoked[int(len(revoked) * 0.99)] * 1e3,
            )
    app.close()
    return result


def table_of(results: list[Result]) -> str:
    """Return the table of the page."""
    lines = [
        "| workers | memory | connections to Redis | processor time of a snapshot "
        "| revoked → closed, median | p99 |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {one.workers} | {one.memory_mib:.0f} MiB | {one.redis_connections} "
        f"| {one.snapshot_s:.1f} s | {one.revoked_p50_ms:.0f} ms | {one.revoked_p99_ms:.0f} ms |"
        for one in results
    ]
    return "\n".join(lines)


def write(results: list[Result]) -> None:
    """Put the table into the page."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table_of(results)}\n\n{END}{after}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=_ROOT)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    results = []
    for count in arguments.counts:
        results.append(asyncio.run(measure(count, arguments.tree)))
        print(results[-1], flush=True)
    print(table_of(results))
    if arguments.write:
        write(results)


if __name__ == "__main__":
    main()
