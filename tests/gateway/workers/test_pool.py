"""Tests the worker pool's reaction to messages of the fork server and of workers."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from gateway.workers.channel import (
    Channel,
    Down,
    Family,
    Measured,
    Sample,
    SignOut,
    StatusRequest,
    WorkerStatus,
    decode_down,
)
from gateway.workers.fork_server import ForkServer, WorkerExited, WorkerStarted
from gateway.workers.pool import WorkerPool
from gateway.workers.shares import Shares
from tests.waiting import until


class FakeForkServer:
    """Fails to start the first *refuses* workers; the test plays the other ones."""

    def __init__(self, *, refuses: int = 0) -> None:
        self.sockets: dict[int, socket.socket] = {}
        self.killed: list[int] = []
        self._refuses = refuses
        self._told: list[WorkerStarted | WorkerExited] = []
        self._readable, self._writable = os.pipe()

    def fileno(self) -> int:
        return self._readable

    def start(self, number: int, control: socket.socket, _listen: Sequence[socket.socket]) -> None:
        if self._refuses:
            self._refuses -= 1
            self._tell(WorkerExited(number, 0, 1))
        else:
            self.sockets[number] = control.dup()
            self._tell(WorkerStarted(number, 4711 + number))

    def kill(self, number: int) -> None:
        self.killed.append(number)
        self.end(number)

    def end(self, number: int) -> None:
        """End the worker."""
        self._tell(WorkerExited(number, 4711 + number, -9))

    def news(self) -> WorkerStarted | WorkerExited | None:
        os.read(self._readable, 1)
        return self._told.pop(0)

    def _tell(self, news: WorkerStarted | WorkerExited) -> None:
        self._told.append(news)
        os.write(self._writable, b"x")

    def close(self) -> None:
        os.close(self._readable)
        os.close(self._writable)
        for sock in self.sockets.values():
            sock.close()


class FakeWorker:
    """A worker that answers as the test says."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.mute = False
        self.late = False
        self._owed: list[StatusRequest] = []
        self.seen: list[Down] = []
        self.channel: Channel[Down] = Channel(decode_down, self._take)

    def _take(self, message: Down) -> None:
        self.seen.append(message)
        if not isinstance(message, StatusRequest) or self.mute:
            return
        self._owed.append(message)
        while len(self._owed) > self.late:
            self.channel.send(self.status(self._owed.pop(0)))

    def status(self, request: StatusRequest) -> WorkerStatus:
        sample = Sample("seq", {}, float(self.seq))
        family = (Family("seq", "", "gauge", (sample,)),)
        return WorkerStatus(
            number=request.number,
            epoch="e",
            seq=self.seq,
            hash=1,
            rank=(2, 1, 0, self.seq),
            lag_seconds=0.0,
            open=0,
            accepting=True,
            reasons=(),
            measured=Measured((), family) if request.measured else None,
            described=json.dumps({"seq": self.seq, "host": request.host})
            if request.described
            else None,
        )

    @property
    def sign_outs(self) -> list[Down]:
        return [message for message in self.seen if isinstance(message, SignOut)]


@asynccontextmanager
async def running(fork_server: FakeForkServer, count: int) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(
        count,
        fork_server=cast(ForkServer, cast(Any, fork_server)),
        listening=(),
        shares=Shares(count),
    )
    task = asyncio.create_task(pool.run())
    try:
        yield pool
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        fork_server.close()


async def working(fork_server: FakeForkServer, number: int, *, seq: int = 1) -> FakeWorker:
    """Return the worker with that number once it was started."""
    await until(lambda: number in fork_server.sockets)
    worker = FakeWorker(seq)
    await worker.channel.open(fork_server.sockets.pop(number))
    return worker


def all_accept(pool: WorkerPool) -> Callable[[], bool]:
    return lambda: all(slot.accepting for slot in pool.slots)


async def test_a_failed_fork_is_retried() -> None:
    fork_server = FakeForkServer(refuses=3)
    async with running(fork_server, 1) as pool:
        await working(fork_server, 0)
        await until(all_accept(pool))
        assert (pool.slots[0].pid, pool.slots[0].restarts, pool.ends["exited"]) == (4711, 3, 3)
        assert pool.reasons() == []


async def test_a_worker_start_without_descriptors_is_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair, tries = socket.socketpair, iter([OSError(24, "Too many open files")] * 2)

    def scarce() -> tuple[socket.socket, socket.socket]:
        for error in tries:
            raise error
        return pair()

    monkeypatch.setattr("gateway.workers.pool.socket.socketpair", scarce)
    fork_server = FakeForkServer()
    async with running(fork_server, 1) as pool:
        await working(fork_server, 0)
        await until(all_accept(pool))
        assert pool.slots[0].restarts == 2


async def test_a_sign_out_reaches_the_other_workers_and_those_started_later() -> None:
    fork_server = FakeForkServer()
    async with running(fork_server, 2) as pool:
        first, second = [await working(fork_server, number) for number in (0, 1)]
        await until(all_accept(pool))
        sign_out = SignOut("s", "j")
        first.channel.send(sign_out)
        await until(lambda: second.sign_outs == [sign_out])
        assert first.sign_outs == []
        fork_server.end(1)
        later = await working(fork_server, 1)
        await until(lambda: later.sign_outs == [sign_out])


async def test_status_comes_from_the_responsive_worker_furthest_behind() -> None:
    fork_server = FakeForkServer()
    async with running(fork_server, 3) as pool:
        workers = [await working(fork_server, number, seq=9 - number) for number in range(3)]
        await until(all_accept(pool))
        await pool.measure()
        assert [family.samples[0].value for family in pool.table] == [7.0]
        assert await pool.describe("a.example") == {"seq": 7, "host": "a.example"}
        # Two concurrent callers get the results for their own hosts.
        description = await asyncio.gather(pool.describe("a.example"), pool.describe("b.example"))
        assert [one["host"] for one in description] == ["a.example", "b.example"]
        workers[2].mute = True
        assert (await pool.describe(None))["seq"] == 8


async def test_an_unresponsive_worker_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.workers.pool.POLL_SECONDS", 0.01)
    fork_server = FakeForkServer()
    async with running(fork_server, 2) as pool:
        first, _ = [await working(fork_server, number) for number in (0, 1)]
        await until(all_accept(pool))
        first.mute = True
        await until(lambda: fork_server.killed == [0])
        await until(lambda: pool.ends["stalled"] == 1)
        await working(fork_server, 0)
        await until(all_accept(pool))
        # The worker is asked once; nothing piles up for a worker that does not read.
        assert len(first.seen) < 100


async def test_a_constantly_late_worker_is_slow_and_not_stalled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.workers.pool.POLL_SECONDS", 0.01)
    monkeypatch.setattr("gateway.workers.pool.RESPONSE_SECONDS", 0.02)
    fork_server = FakeForkServer()
    async with running(fork_server, 1) as pool:
        worker = await working(fork_server, 0)
        await until(all_accept(pool))
        worker.late = True
        # Each scrape finds the answer to the one before it, and none in time.
        for _ in range(50):
            await pool.measure()
        assert fork_server.killed == []
