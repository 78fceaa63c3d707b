"""From a key to its echo: ``python -m benchmarks.keystrokes [--keys 2000]``.

A program in a raw terminal returns each byte that it reads. A client types one byte, waits until it
is back, and types the next. There are three ways to such a terminal:

- through gateway and hub, to a container of a job in the embedded cluster;
- ``pods/exec`` alone, to the same container: the part of API server and kubelet in the first;
- terminado, the terminal of notebooks, which holds the terminal itself.

CPU is that of gateway and hub, or of terminado, from /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
import psutil
import uvloop

from benchmarks.growth import latency_of
from benchmarks.programs import free_port, running, until_listening
from benchmarks.sites import cpu_seconds_of
from controller.kube.client import Kube
from controller.kube.exec import ExecTarget, Exited, PodExec, TerminalStream
from controller.kube.kinds import PODS
from deploy.local.smoke.gateway import client, open_link
from deploy.local.smoke.orchestrator import User
from deploy.local.system import LocalSystem

TERMINALS: Final = 8
"""The limit of shells in a session. The second measurement types into all of them at once."""
WARM_KEYS: Final = 50
SECONDS: Final = 120.0
_PREPARE: Final = "stty raw -echo; echo re''ady; exec cat\n"
_PREPARED: Final = b"ready\n"
_KEYS: Final = b"abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """The result of one way with a number of terminals; in milliseconds."""

    way: str
    terminals: int
    keys: int
    p50: float
    p99: float
    cpu_us: float
    """CPU between browser and API server, for a key and its echo; 0 if nothing is between."""


class Terminal(Protocol):
    """One end of a terminal."""

    async def send(self, data: bytes) -> None:
        """Type *data*."""

    async def receive(self) -> bytes:
        """Return what is shown next."""


class HubTerminal:
    """A terminal behind the gateway."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool]) -> None:
        self._socket = socket

    async def send(self, data: bytes) -> None:
        """Type *data*."""
        await self._socket.send_bytes(data)

    async def receive(self) -> bytes:
        """Return what is shown next."""
        message = await self._socket.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            return bytes(message.data)
        if message.type is aiohttp.WSMsgType.TEXT:
            return b""
        raise RuntimeError(f"the terminal closed with {self._socket.close_code}")


class TerminadoTerminal:
    """A terminal of terminado, whose messages are JSON arrays."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool]) -> None:
        self._socket = socket

    async def send(self, data: bytes) -> None:
        """Type *data*."""
        await self._socket.send_json(["stdin", data.decode()])

    async def receive(self) -> bytes:
        """Return what is shown next."""
        what, *shown = await self._socket.receive_json()
        return shown[0].encode() if what == "stdout" else b""


class ExecTerminal:
    """A terminal of ``pods/exec``."""

    def __init__(self, stream: TerminalStream) -> None:
        self._stream = stream

    async def send(self, data: bytes) -> None:
        """Type *data*."""
        await self._stream.send(data)

    async def receive(self) -> bytes:
        """Return what is shown next."""
        received = await self._stream.receive()
        if isinstance(received, Exited):
            raise RuntimeError(f"the shell has ended: {received}")
        return received


async def prepare(terminal: Terminal) -> None:
    """Make the shell return every key from now on."""
    await terminal.send(_PREPARE.encode())
    shown = b""
    while _PREPARED not in shown:
        shown += await terminal.receive()


async def type_keys(terminal: Terminal, count: int) -> list[float]:
    """Return how long each of *count* keys took to come back, in seconds.

    Raises:
        RuntimeError: If anything else comes back.
    """
    took = []
    for number in range(count):
        key = _KEYS[number % len(_KEYS)].to_bytes()
        began = time.perf_counter()
        await terminal.send(key)
        shown = b""
        while not shown:
            shown = await terminal.receive()
        took.append(time.perf_counter() - began)
        if shown != key:
            raise RuntimeError(f"{key!r} came back as {shown[:40]!r}")
    return took


async def measure(
    way: str, terminals: Sequence[Terminal], keys: int, look: Callable[[], float]
) -> list[Echo]:
    """Return the times with one terminal, and with typing into all terminals at once."""
    async with asyncio.timeout(SECONDS):
        for terminal in terminals:
            await prepare(terminal)
            await type_keys(terminal, WARM_KEYS)
    found = []
    for typed in (terminals[:1], terminals):
        before = look()
        async with asyncio.timeout(SECONDS):
            each = [type_keys(terminal, keys // len(typed)) for terminal in typed]
            took = [seconds for one in await asyncio.gather(*each) for seconds in one]
        used, latency = look() - before, latency_of(way, took)
        found.append(
            Echo(
                way=way,
                terminals=len(typed),
                keys=len(took),
                p50=latency.p50,
                p99=latency.p99,
                cpu_us=used / len(took) * 1e6,
            )
        )
    return found


def _cpu_of(pids: Sequence[int]) -> Callable[[], float]:
    processes = [psutil.Process(pid) for pid in pids]
    return lambda: sum(cpu_seconds_of(process) for process in processes)


async def through_the_hub(system: LocalSystem, user: User, job: str, keys: int) -> list[Echo]:
    """Measure the way through gateway and hub."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(client())
        while (opened := await open_link(http, await user.link(job))) is None:
            await asyncio.sleep(0.1)
        await opened.until_ready()
        terminals = []
        for number in range(TERMINALS):
            path = f"/.fumarole/connect?after=0{f'&shell=bench{number}' if number else ''}"
            socket = opened.websocket(path, "fumarole.terminal.v1")
            terminals.append(HubTerminal(await stack.enter_async_context(socket)))
        look = _cpu_of([system.pid("gateway"), system.pid("hub")])
        return await measure("gateway and hub", terminals, keys, look)


async def through_exec(system: LocalSystem, job: str, keys: int) -> list[Echo]:
    """Measure ``pods/exec`` alone."""
    async with (
        AsyncExitStack() as stack,
        Kube.connect(system.kubeconfig_of("admin")) as kube,
    ):
        executor = PodExec(kube)
        target = await _container_of(kube, job)
        terminals = []
        for _ in range(TERMINALS):
            stream = await executor.open(target, ["bash", "--norc", "-i"])
            stack.push_async_callback(stream.close)
            terminals.append(ExecTerminal(stream))
        return await measure("pods/exec alone", terminals, keys, lambda: 0.0)


async def _container_of(kube: Kube, job: str) -> ExecTarget:
    for pod in await kube.list(PODS, None):
        meta = pod["metadata"]
        if meta["name"].startswith(f"j-{job}-"):
            return ExecTarget(meta["namespace"], meta["name"], pod["spec"]["containers"][0]["name"])
    raise RuntimeError(f"{job} has no pod")


@asynccontextmanager
async def _terminado(folder: Path) -> AsyncIterator[tuple[int, int]]:
    port, log = free_port(), folder / "terminado.log"
    command = [sys.executable, "-m", "benchmarks.peers.terminado_server", str(port)]
    async with running(command, core=None, log=log) as process:
        await until_listening(process, port, log)
        yield port, process.pid


async def through_terminado(folder: Path, keys: int) -> list[Echo]:
    """Measure terminado."""
    async with (
        _terminado(folder) as (port, pid),
        aiohttp.ClientSession() as http,
        AsyncExitStack() as stack,
    ):
        terminals = []
        for _ in range(TERMINALS):
            socket = http.ws_connect(f"http://127.0.0.1:{port}/terminal")
            terminals.append(TerminadoTerminal(await stack.enter_async_context(socket)))
        return await measure("terminado", terminals, keys, _cpu_of([pid]))


async def measure_all(folder: Path, keys: int) -> list[Echo]:
    """Return the results of all three ways."""
    found = await through_terminado(folder, keys)
    async with LocalSystem() as system, client() as http:
        user = User(http, system.address)
        await user.sign_in("ada")
        async with asyncio.timeout(SECONDS):
            job = await user.start("shell")
            await user.until_running(job)
        found += await through_exec(system, job, keys)
        return found + await through_the_hub(system, user, job, keys)


def main() -> int:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(prog="keystrokes", description=__doc__)
    parser.add_argument("--keys", type=int, default=2000)
    keys: int = parser.parse_args().keys
    with tempfile.TemporaryDirectory(prefix="fumarole-bench-") as folder:
        found = uvloop.run(measure_all(Path(folder), keys))
    told: list[dict[str, Any]] = [asdict(echo) for echo in found]
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
