"""How worker processes share a port: ``python -m benchmarks.accepting [--write]``.

There are three ways:

- the loop's own server on one inherited socket;
- the same with a socket for each worker (SO_REUSEPORT);
- one inherited socket from which each worker takes its share, as in the gateway.

For each way, connections arrive in a burst and at a steady rate. The table shows the share of each
worker, and the processor time per connection of all workers together. It also shows how many of the
connections that are made while one worker is stopped (SIGSTOP) still wait after a second. With
``--write`` the table goes into docs/workers.md.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, cast

import uvloop

from gateway.core.limits.values import Limits
from gateway.relay.background_tasks import BackgroundTasks, Cancellable
from gateway.relay.listening import Listener
from gateway.workers.shares import Shares

Way = Literal["one socket", "SO_REUSEPORT", "shares"]

WORKERS: Final = 4
CONNECTIONS: Final = 1000
_BACKLOG: Final = 2048
_ANSWER: Final = struct.Struct("=Id")
_PAGE: Final = Path(__file__).parents[1] / "docs" / "workers.md"
_BEGIN, _END = "<!-- written by benchmarks/accepting.py -->", "<!-- end -->"


class _Counting(asyncio.Protocol):
    """The part of a connection that a listener uses."""

    accepted = 0

    def __init__(self) -> None:
        self.transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        _Counting.accepted += 1
        self.transport = transport
        cast(asyncio.Transport, transport).write(b"+")

    def note_arrival(self, task: Cancellable) -> None:
        """Nobody cancels it."""


class _Path:
    """The part of a data path that a listener uses."""

    def __init__(self) -> None:
        self.site: Any = self
        self.turns: Any = self
        self.loop = asyncio.get_running_loop()
        self.limits = Limits()
        self.arriving = BackgroundTasks()
        self.trusted_proxies = ()

    def accept(self, _client: str) -> _Counting:
        return _Counting()

    def note_descriptor(self, descriptor: int) -> None:
        """Connections here take turns by their share alone."""


def _listener(*, reuse: bool, port: int = 0) -> socket.socket:
    sock = socket.socket()
    if reuse:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen(_BACKLOG)
    return sock


async def _accept(way: Way, sock: socket.socket, shares: Shares, number: int) -> Callable[[], None]:
    if way != "shares":
        loop = asyncio.get_running_loop()
        return (await loop.create_server(_Counting, sock=sock, backlog=_BACKLOG)).close

    def over() -> bool:
        shares.set(number, _Counting.accepted)
        return shares.is_over(number)

    return Listener(cast(Any, _Path()), [sock], at_once=1, over=over).close


async def _work(way: Way, sock: socket.socket, told: int, shares: Shares, number: int) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    shares.set(number, 0)
    close = await _accept(way, sock, shares, number)
    before = resource.getrusage(resource.RUSAGE_SELF)
    await stop.wait()
    close()
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    os.write(told, _ANSWER.pack(_Counting.accepted, spent))


class Workers:
    """Forked workers on *sockets*; :meth:`end` ends them and returns their counts."""

    def __init__(self, way: Way, sockets: Sequence[socket.socket]) -> None:
        self.pids: list[int] = []
        self._pipes: list[int] = []
        shares = Shares(len(sockets))
        for number, sock in enumerate(sockets):
            readable, writable = os.pipe()
            pid = os.fork()
            if not pid:
                try:
                    uvloop.run(_work(way, sock, writable, shares, number))
                finally:
                    os._exit(0)
            self.pids.append(pid)
            self._pipes.append(readable)
            os.close(writable)
        time.sleep(0.5)

    def end(self) -> list[tuple[int, float]]:
        """Return how many connections each worker has accepted, and its processor time."""
        for pid in self.pids:
            os.kill(pid, signal.SIGTERM)
        found = [_ANSWER.unpack(os.read(pipe, _ANSWER.size)) for pipe in self._pipes]
        for pid in self.pids:
            os.waitpid(pid, 0)
        return found


def _sockets(*, reuse: bool) -> tuple[list[socket.socket], int]:
    first = _listener(reuse=reuse)
    port = first.getsockname()[1]
    if not reuse:
        return [first] * WORKERS, port
    return [first, *(_listener(reuse=True, port=port) for _ in range(WORKERS - 1))], port


def _connect(port: int, pause: float) -> list[socket.socket]:
    made = []
    for _ in range(CONNECTIONS):
        made.append(socket.create_connection(("127.0.0.1", port)))
        if pause:
            time.sleep(pause)
    return made


def _waiting(made: Sequence[socket.socket], seconds: float) -> int:
    """Return how many of *made* no worker has accepted after a while."""
    time.sleep(seconds)
    waiting = 0
    for sock in made:
        sock.setblocking(False)
        try:
            sock.recv(1)
        except BlockingIOError:
            waiting += 1
    return waiting


def measure(way: Way, *, pause: float, stopped: bool = False) -> str:
    """Return a line of the table."""
    sockets, port = _sockets(reuse=way == "SO_REUSEPORT")
    workers = Workers(way, sockets)
    for sock in set(sockets):
        sock.close()
    if stopped:
        os.kill(workers.pids[0], signal.SIGSTOP)
    made = _connect(port, pause)
    waiting = _waiting(made, 1.0)
    if stopped:
        os.kill(workers.pids[0], signal.SIGCONT)
        time.sleep(0.2)
    found = workers.end()
    for sock in made:
        sock.close()
    counts = [count for count, _ in found]
    spent = sum(seconds for _, seconds in found) / max(sum(counts), 1)
    how = "burst" if not pause else f"every {pause * 1e3:.0f} ms"
    how += ", one stopped" if stopped else ""
    shares = " ".join(f"{count / CONNECTIONS:.0%}" for count in sorted(counts, reverse=True))
    held = f"{waiting}" if stopped else "–"
    return f"| {way} | {how} | {shares} | {spent * 1e6:.0f} | {held} |"


def main() -> None:
    """Print the table."""
    lines = [
        "| way | connections come | share of each worker | µs each | waiting after 1 s |",
        "|---|---|---|---:|---:|",
    ]
    ways: tuple[Way, ...] = ("one socket", "SO_REUSEPORT", "shares")
    for way in ways:
        lines += [measure(way, pause=pause) for pause in (0.0, 0.002)]
        lines.append(measure(way, pause=0.0, stopped=True))
    print("\n".join(lines))
    if "--write" in sys.argv:
        head, _, rest = _PAGE.read_text().partition(_BEGIN)
        told = "\n".join((_BEGIN, "", *lines, "", _END))
        _PAGE.write_text(head + told + rest.partition(_END)[2])


if __name__ == "__main__":
    main()
