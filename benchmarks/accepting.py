"""How worker processes share a port: one inherited socket, or one each with SO_REUSEPORT.

Run: ``python -m benchmarks.accepting``. For each way, connections come in a burst and at a steady
rate; told are the share of the busiest and of the idlest worker, the processor time per connection
of all workers together, and how many of the connections that are made while one worker is stopped
(SIGSTOP) are still waiting after a second.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import struct
import time
from collections.abc import Sequence
from typing import Final, cast

import uvloop

WORKERS: Final = 4
CONNECTIONS: Final = 1000
_BACKLOG: Final = 2048
_ANSWER: Final = struct.Struct("=Id")


class _Counting(asyncio.Protocol):
    accepted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        _Counting.accepted += 1
        cast(asyncio.Transport, transport).write(b"+")


def _listener(*, reuse: bool, port: int = 0) -> socket.socket:
    sock = socket.socket()
    if reuse:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen(_BACKLOG)
    return sock


async def _work(sock: socket.socket, told: int) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(_Counting, sock=sock, backlog=_BACKLOG)
    before = resource.getrusage(resource.RUSAGE_SELF)
    await stop.wait()
    server.close()
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    os.write(told, _ANSWER.pack(_Counting.accepted, spent))


class Workers:
    """Forked workers on *sockets*; ended, and asked for their counts, by :meth:`end`."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self.pids: list[int] = []
        self._pipes: list[int] = []
        for sock in sockets:
            readable, writable = os.pipe()
            pid = os.fork()
            if not pid:
                try:
                    uvloop.run(_work(sock, writable))
                finally:
                    os._exit(0)
            self.pids.append(pid)
            self._pipes.append(readable)
            os.close(writable)
        time.sleep(0.5)

    def end(self) -> list[tuple[int, float]]:
        """Return how many connections each has accepted, and in which processor time."""
        for pid in self.pids:
            os.kill(pid, signal.SIGTERM)
        found = [_ANSWER.unpack(os.read(pipe, _ANSWER.size)) for pipe in self._pipes]
        for pid in self.pids:
            os.waitpid(pid, 0)
        return found


def _sockets(reuse: bool) -> tuple[list[socket.socket], int]:
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
    """Return how many of *made* nobody has accepted after so long."""
    time.sleep(seconds)
    waiting = 0
    for sock in made:
        sock.setblocking(False)
        try:
            sock.recv(1)
        except BlockingIOError:
            waiting += 1
    return waiting


def measure(*, reuse: bool, pause: float, stopped: bool = False) -> str:
    """Return a line of the table."""
    sockets, port = _sockets(reuse)
    workers = Workers(sockets)
    if reuse or not stopped:
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
    for sock in (*made, *sockets):
        sock.close()
    counts = [count for count, _ in found]
    spent = sum(seconds for _, seconds in found) / max(sum(counts), 1)
    way = "SO_REUSEPORT" if reuse else "one socket"
    how = "burst" if not pause else f"every {pause * 1e3:.0f} ms"
    shares = " ".join(f"{count / CONNECTIONS:.0%}" for count in sorted(counts, reverse=True))
    held = f"{waiting}" if stopped else "–"
    return f"| {way} | {how} | {shares} | {spent * 1e6:.0f} | {held} |"


def main() -> None:
    """Print the table."""
    print("| way | connections come | share of each worker | µs each | waiting after 1 s |")
    print("|---|---|---|---|---|")
    for reuse in (False, True):
        for pause in (0.0, 0.002):
            print(measure(reuse=reuse, pause=pause))
        print(measure(reuse=reuse, pause=0.0, stopped=True))


if __name__ == "__main__":
    main()
