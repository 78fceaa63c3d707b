"""Tests that bus calls of requests run in a thread: a busy loop delays them by few turns."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot

from gateway.bus.own_thread import MARKS_AT_ONCE, OwnThread, ReaderWithOwnThread
from shared.bus import Keys, connect
from shared.errors import BusUnavailable
from tests.programs import RedisServer
from tests.redis_nodes import Node, cluster_site, free_ports, running

# The allowed number of turns for one call; each step of a Redis call takes one turn.
TURNS = 4
TRIES = 8


@asynccontextmanager
async def reading(url: str) -> AsyncIterator[ReaderWithOwnThread]:
    reader = ReaderWithOwnThread(lambda: connect(url), Keys("test"))
    try:
        yield reader
    finally:
        await reader.aclose()


class LongTurns:
    """Makes every turn of this loop last for a while, and counts the turns."""

    def __init__(self) -> None:
        self.count = 0
        self.going = True
        self.turn()

    def turn(self) -> None:
        self.count += 1
        time.sleep(0.1)  # blocking the loop is the point
        if self.going:
            asyncio.get_running_loop().call_soon(self.turn)

    async def fewest(self, ask: Callable[[], Awaitable[object]]) -> int:
        """Return the number of turns until *ask* returns: the best try, for busy machines."""
        fewest = TRIES * TURNS
        for _ in range(TRIES):
            before = self.count
            await ask()
            fewest = min(fewest, self.count - before)
            if fewest <= TURNS:
                break
        return fewest


async def mark(reader: ReaderWithOwnThread) -> None:
    await reader.mark_used("a", "open", kept_until=time.time() + 99, now=0.0)


async def test_large_responses_are_received_in_few_turns(
    redis: Redis, redis_server: RedisServer
) -> None:
    async with reading(redis_server.url) as reader:
        await reader.head()  # it is connected now
        turns = LongTurns()
        try:
            assert await turns.fewest(reader.head) <= TURNS
            assert await turns.fewest(lambda: mark(reader)) <= TURNS
        finally:
            turns.going = False
    assert await redis.exists(Keys("test").used("a"))


async def test_a_redis_that_never_responds_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.bus.own_thread.CALL_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with reading(f"redis://127.0.0.1:{silent.getsockname()[1]}") as reader:
            # not redis' own timeout, which is longer
            with pytest.raises(BusUnavailable, match=r"answer: it does not respond in time$"):
                await reader.head()


async def test_a_slot_that_migrates_for_longer_than_the_deadline_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.bus.own_thread.CALL_SECONDS", 0.5)
    monkeypatch.setattr("gateway.bus.own_thread.REDIS_SECONDS", 0.5)
    slot = key_slot(Keys("test").head.encode())
    async with cluster_site(tmp_path, slot) as site, reading(site.url) as reader:
        source, target = [
            str(await one.ask("CLUSTER", "MYID")) for one in (site.master, site.other)
        ]
        await site.other.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source)
        await site.master.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target)
        for call in (reader.head, lambda: mark(reader)):
            with pytest.raises(BusUnavailable, match=r"the slot is on its way to another node$"):
                await call()


async def test_an_unreachable_redis_is_reported(tmp_path: object) -> None:
    async with reading(f"unix://{tmp_path}/none.sock") as reader:
        with pytest.raises(BusUnavailable):
            await reader.head()


async def test_a_cancelled_call_leaves_no_pending_request() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with reading(f"redis://127.0.0.1:{silent.getsockname()[1]}") as reader:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await reader.head()


async def test_a_failover_seen_by_the_thread_applies_to_all_calls(tmp_path: Path) -> None:
    """A master that was cut off from its Sentinels answers as if nothing had happened."""
    old, new, watching = free_ports(3)
    masters = [Node(tmp_path / "a", old), Node(tmp_path / "b", new)]
    watch = f"sentinel monitor main 127.0.0.1 {old} 1\n"
    sentinel = Node(tmp_path / "s", watching, sentinel=watch)
    async with running([*masters, sentinel]):
        for node in masters:
            await node.ask("SET", "who", node.port)
        async with reading(f"redis+sentinel://127.0.0.1:{watching}/main") as reader:
            await reader.head()
            assert await reader.redis.get("who") == str(old).encode()
            await sentinel.ask("SENTINEL", "REMOVE", "main")
            await sentinel.ask("SENTINEL", "MONITOR", "main", "127.0.0.1", new, 1)
            async with asyncio.timeout(20):
                while await reader.redis.get("who") != str(new).encode():
                    await asyncio.sleep(0.05)
                    with suppress(BusUnavailable):
                        await reader.head()


async def test_pending_calls_end_with_the_thread() -> None:
    thread, begun, ended = OwnThread(), threading.Event(), threading.Event()

    async def under_way() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)  # a closed connection needs a turn of its loop
            ended.set()

    calling = asyncio.create_task(thread.call(under_way()))
    while not begun.is_set():
        await asyncio.sleep(0.01)
    calling.cancel()
    await asyncio.wait([calling])
    thread.close()
    assert ended.is_set()


async def test_marks_beyond_the_connections_wait_while_redis_pauses(tmp_path: Path) -> None:
    [port] = free_ports(1)
    node = Node(tmp_path, port)
    async with running([node]), reading(f"redis://127.0.0.1:{port}") as reader:
        await reader.head()
        os.kill(node.pid, signal.SIGSTOP)
        asyncio.get_running_loop().call_later(0.5, os.kill, node.pid, signal.SIGCONT)
        marks = await asyncio.gather(
            *(
                reader.mark_used(f"t{number}", "open", kept_until=time.time() + 99, now=time.time())
                for number in range(300)
            )
        )
        assert all(mark.before is None for mark in marks)
        clients = (await node.ask("INFO", "clients"))["connected_clients"]
        assert clients <= MARKS_AT_ONCE + 3
