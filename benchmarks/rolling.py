"""A rolling restart of two gateways: ``python -m benchmarks.rolling [--write]``.

HAProxy is in front. There are 1,000 WebSockets of web apps, desktops and terminals, and 200
requests a second, while each gateway gets SIGTERM, ends, and is started again. Reported are

- failed requests;
- the close codes of WebSockets, and when they arrived;
- how long it took until each WebSocket was back: the first message from its app.

With ``--write`` the table goes into docs/how-to/upgrade.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

import aiohttp
import msgspec
from aiohttp import web
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from benchmarks.install import Programs, bring_of_debian
from benchmarks.peers import free_port
from benchmarks.peers.fumarole import (
    Orchestrator,
    answers,
    make_route,
    new_sid,
    running_redis,
    settings,
)
from benchmarks.programs import cores, running, until_listening
from benchmarks.requests import Visitor
from shared.routes.route import Route, Target

SOCKETS: Final = 1000
SPECIAL: Final = 50
"""Of the WebSockets: so many desktops, and as many terminals."""
REQUESTS: Final = 200
CLIENTS: Final = 20
DRAIN_SECONDS: Final = 10.0
DELAY_SECONDS: Final = 2.0
_BETWEEN_SECONDS: Final = 2.0
_SECONDS: Final = 60.0
_TERMINAL: Final = "fumarole.terminal.v1"
_RFB: Final = b"RFB 003.008\n"
_ROOT: Final = Path(__file__).parents[1]
PAGE: Final = _ROOT / "docs" / "how-to" / "upgrade.md"
BEGIN, END = "<!-- written by benchmarks/rolling.py -->", "<!-- end -->"

Kind = Literal["web", "vnc", "terminal"]
_NAMES: Final[Mapping[Kind, str]] = MappingProxyType(
    {"terminal": "terminals", "vnc": "desktops", "web": "web apps"}
)


@dataclass(slots=True)
class Seen:
    """The observations of the clients, from the first restart on."""

    requests: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    left: list[float] = field(default_factory=list)
    """When sockets received their Close, in seconds after the SIGTERM."""
    back: dict[Kind, list[float]] = field(
        default_factory=lambda: {"web": [], "vnc": [], "terminal": []}
    )
    told_at: float = 0.0
    """When the last SIGTERM was sent."""


# What is behind the gateways


async def _serve(request: web.Request) -> web.StreamResponse:
    """An app: responds with the size of the body, and echoes WebSocket messages."""
    if request.headers.get("Upgrade", "").lower() != "websocket":
        return web.Response(text=str(len(await request.read())))
    socket = web.WebSocketResponse(protocols=[_TERMINAL])
    await socket.prepare(request)
    await socket.send_str("here")
    async for message in socket:
        await socket.send_str(str(message.data))
    return socket


async def _show(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A desktop without a password."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        writer.write(_RFB)
        await reader.readexactly(12)
        writer.write(b"\x01\x01")
        await reader.readexactly(1)
        writer.write(bytes(4))
        await reader.read()
    writer.close()


@asynccontextmanager
async def _apps() -> AsyncIterator[dict[Kind, int]]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _serve)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    desktop = await asyncio.start_server(_show, "127.0.0.1", 0, backlog=4096)
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=4096)
        await site.start()
        port = int(runner.addresses[0][1])
        yield {"web": port, "terminal": port, "vnc": desktop.sockets[0].getsockname()[1]}
    finally:
        desktop.close()
        await runner.cleanup()


def _route(kind: Kind, port: int) -> Route:
    route = make_route(new_sid(), port, kind="web" if kind == "web" else "vnc")
    if kind == "terminal":
        target = Target(scheme="ws", host="127.0.0.1", port=port, id=f"pod-{route.sid}")
        return msgspec.structs.replace(route, kind=kind, target=target)
    return route


# Gateways


class Rolled:
    """A gateway that can be started, terminated, and started again at the same addresses."""

    def __init__(self, folder: Path, name: str, tree: Path) -> None:
        self.port, self.ops = free_port(), free_port()
        self._folder = folder
        self._log = folder / f"{name}.log"
        self._env = os.environ | settings(folder, tree=tree) | {
            "FUMAROLE_GATEWAY_LISTEN": f"127.0.0.1:{self.port}",
            "FUMAROLE_GATEWAY_OPS_LISTEN": f"127.0.0.1:{self.ops}",
            "FUMAROLE_GATEWAY_ADDRESS_FILE": str(folder / f"{name}.json"),
            "FUMAROLE_GATEWAY_DRAIN_SECONDS": str(DRAIN_SECONDS),
            "FUMAROLE_GATEWAY_DRAIN_DELAY_SECONDS": str(DELAY_SECONDS),
        }  # fmt: skip
        self._process: Process | None = None

    async def start(self) -> None:
        """Return once it is ready."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gateway",
                env=self._env, cwd=self._folder, stdout=log, stderr=log,
            )  # fmt: skip
        async with asyncio.timeout(_SECONDS):
            while not await self._is_ready():
                await asyncio.sleep(0.05)

    async def _is_ready(self) -> bool:
        try:
            return await answers(self.ops)
        except (OSError, IndexError):
            return False

    def tell(self) -> None:
        """Send SIGTERM."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    async def ended(self) -> int:
        """Return its exit code."""
        if self._process is None:
            return 0
        async with asyncio.timeout(_SECONDS):
            return await self._process.wait()

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


def haproxy(folder: Path) -> str:
    """Return the path of HAProxy: this machine's, or Debian's in *folder*."""
    programs = Programs()
    folder.mkdir(exist_ok=True)
    bring_of_debian("haproxy", folder, programs)
    if "haproxy" not in programs.found:
        raise OSError(programs.missing["haproxy"])
    return programs.found["haproxy"]


@asynccontextmanager
async def _balanced(program: str, folder: Path, one: Rolled, two: Rolled) -> AsyncIterator[int]:
    port = free_port()
    values = {
        "port": port,
        "one_ops": one.ops,
        "two_ops": two.ops,
        "one": f"127.0.0.1:{one.port}",
        "two": f"127.0.0.1:{two.port}",
    }
    text = (Path(__file__).parent / "peers" / "rolling.cfg").read_text()
    for name, value in values.items():
        text = text.replace(f"%{name}%", str(value))
    config, log = folder / "haproxy.cfg", folder / "haproxy.log"
    config.write_text(text)
    async with running([program, "-db", "-f", str(config)], core=cores()[0], log=log) as process:
        await until_listening(process, port, log)
        yield port


# Clients


async def _ask(port: int, visitors: list[Visitor], seen: Seen, pause: float) -> None:
    """Send requests until cancelled; check each response."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=75)
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(connector=connector, cookie_jar=jar) as http:
        while True:
            await asyncio.sleep(pause * 2 * random.random())
            visitor = random.choice(visitors)
            body = os.urandom(1024) if random.random() < 0.2 else b""
            headers = {"Host": visitor.host, "Cookie": visitor.cookie, "Origin": visitor.origin}
            seen.requests += 1
            try:
                async with http.request(
                    "POST" if body else "GET", f"http://127.0.0.1:{port}/", data=body,
                    headers=headers, timeout=aiohttp.ClientTimeout(total=30),
                ) as answer:  # fmt: skip
                    said = await answer.text()
                    if (answer.status, said) != (200, str(len(body))):
                        seen.failed[f"{answer.status}: {said[:80]!r}"] += 1
            except (aiohttp.ClientError, TimeoutError) as error:
                seen.failed[f"{'POST' if body else 'GET'}: {type(error).__name__}"] += 1


async def _stay(
    port: int, visitor: Visitor, kind: Kind, seen: Seen, opened: asyncio.Semaphore
) -> None:
    """Keep a WebSocket open, as a page does: after a Close it reconnects at once."""
    left: float | None = None
    while True:
        try:
            async with _socket(port, visitor, kind) as socket:
                await socket.recv()
                if left is not None:
                    seen.back[kind].append(time.monotonic() - left)
                else:
                    opened.release()
                await socket.wait_closed()
                left = time.monotonic()
                seen.codes[socket.close_code or 1006] += 1
                seen.left.append(left - seen.told_at)
        except (OSError, InvalidHandshake, ConnectionClosed, TimeoutError) as error:
            seen.failed[f"{kind} socket: {type(error).__name__}"] += 1
            await asyncio.sleep(0.1)


def _socket(port: int, visitor: Visitor, kind: Kind) -> connect:
    path, protocols = {
        "web": ("/ws", None),
        "terminal": ("/.fumarole/connect", [_TERMINAL]),
        "vnc": ("/.fumarole/connect", ["binary"]),
    }[kind]
    options: dict[str, Any] = {"subprotocols": protocols, "origin": visitor.origin}
    return connect(
        f"ws://{visitor.host}{path}", host="127.0.0.1", port=port, compression=None, proxy=None,
        additional_headers={"Cookie": visitor.cookie}, ping_interval=None, open_timeout=30,
        **options,
    )  # fmt: skip


# The run


async def measure(
    tree: Path, program: str, *, sockets: int = SOCKETS, special: int = SPECIAL
) -> Seen:
    """Restart both gateways; return the observations of the clients."""
    seen = Seen()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with _apps() as ports, running_redis(folder) as redis:
            orchestrator = Orchestrator(redis, folder)
            kinds = [*_kinds(sockets, special)]
            routes = [_route(kind, ports[kind]) for kind in kinds]
            await orchestrator.rebuild(routes)
            visitors = [orchestrator.visitor(one.sid, f"ada-{n}") for n, one in enumerate(routes)]
            gateways = [Rolled(folder, name, tree) for name in ("one", "two")]
            beats = asyncio.create_task(orchestrator.beat_for_good())
            try:
                await asyncio.gather(*(one.start() for one in gateways))
                async with _balanced(program, folder, *gateways) as port:
                    await asyncio.sleep(1)  # by then HAProxy has checked both
                    await _roll(port, gateways, visitors, kinds, seen)
            finally:
                beats.cancel()
                for one in gateways:
                    one.kill()
                await asyncio.gather(*(one.ended() for one in gateways), return_exceptions=True)
    return seen


def _kinds(sockets: int, special: int) -> Iterator[Kind]:
    for number in range(sockets):
        yield "vnc" if number < special else "terminal" if number < 2 * special else "web"


async def _roll(
    port: int, gateways: list[Rolled], visitors: list[Visitor], kinds: list[Kind], seen: Seen
) -> None:
    opened = asyncio.Semaphore(0)
    sites = [one for one, kind in zip(visitors, kinds, strict=True) if kind == "web"]
    async with asyncio.TaskGroup() as tasks:
        clients = [
            tasks.create_task(_stay(port, visitor, kind, seen, opened))
            for visitor, kind in zip(visitors, kinds, strict=True)
        ]
        async with asyncio.timeout(_SECONDS):
            for _ in visitors:
                await opened.acquire()
        pause = CLIENTS / REQUESTS
        clients += [tasks.create_task(_ask(port, sites, seen, pause)) for _ in range(CLIENTS)]
        await asyncio.sleep(_BETWEEN_SECONDS)
        for gateway in gateways:
            seen.told_at = time.monotonic()
            gateway.tell()
            if code := await gateway.ended():
                seen.failed[f"exit code {code}"] += 1
            await gateway.start()
            await asyncio.sleep(_BETWEEN_SECONDS)  # by then HAProxy has checked it, too
        for client in clients:
            client.cancel()


def table_of(seen: Seen) -> str:
    """Return the table of the page."""
    left = sorted(one - DELAY_SECONDS for one in seen.left)
    tenths = Counter(int(one * 10) for one in left)
    lines = [
        "| | |",
        "|---|---|",
        f"| requests, failed requests | {seen.requests:,}, {sum(seen.failed.values())} |",
        f"| WebSockets that received a Close, by code | {_counted(seen.codes)} |",
        f"| from the start of a drain until half of them, all of them received it "
        f"| {statistics.median(left):.1f} s, {left[-1]:.1f} s |",
        f"| most Closes within 0.1 s | {max(tenths.values())} |",
    ]
    for kind, name in _NAMES.items():
        if back := sorted(seen.back[kind]):
            lines.append(
                f"| {name} reconnected: median, p99, last "
                f"| {statistics.median(back) * 1e3:.0f} ms, "
                f"{back[int(len(back) * 0.99)] * 1e3:.0f} ms, {back[-1] * 1e3:.0f} ms |"
            )
    return "\n".join(lines)


def _counted(codes: Counter[int]) -> str:
    return ", ".join(f"{count:,} × {code}" for code, count in sorted(codes.items()))


def write(text: str) -> None:
    """Put the table into the page."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=_ROOT)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    seen = asyncio.run(measure(arguments.tree, haproxy(_ROOT / ".bench")))
    print(table_of(seen), dict(seen.failed), sep="\n")
    if arguments.write:
        write(table_of(seen))


if __name__ == "__main__":
    main()
