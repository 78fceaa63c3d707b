"""Tests that bytes cross each kind of connection unchanged, with stalls on both sides."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.contract.rig import Rig, running_rig
from tests.pump.flow import QUIET_SECONDS, Sum, pour, swallow
from tests.pump.kinds import KINDS, Ends, Kind

SHORT_BYTES = 4_000_000
LONG_BYTES = 1_000_000_000
LINE_LIMIT = 1 << 20


@asynccontextmanager
async def serving(kind: Kind, size: int) -> AsyncIterator[tuple[int, asyncio.Future[list[Sum]]]]:
    """Run an app that reads *size* bytes and sends as many; return its port and its sums."""
    seen: asyncio.Future[list[Sum]] = asyncio.get_running_loop().create_future()
    playing: set[asyncio.Task[None]] = set()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        playing.add(task)
        try:
            seen.set_result(await app_side(kind, Ends(reader, writer), size))
            # The app waits until the gateway closes: its bytes must not be cut off.
            await reader.read(1)
        except Exception as error:
            if not seen.done():
                seen.set_exception(error)
        finally:
            writer.transport.abort()
            playing.discard(task)

    server = await asyncio.start_server(play, "127.0.0.1", 0, limit=LINE_LIMIT)
    try:
        yield server.sockets[0].getsockname()[1], seen
    finally:
        server.close()
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)


async def app_side(kind: Kind, ends: Ends, size: int) -> list[Sum]:
    """Return the sums of the bytes received and sent by the app."""
    up_dice, down_dice = random.Random(3), random.Random(4)
    if kind.at_once:
        await kind.greet(ends, size)
        async with asyncio.TaskGroup() as tasks:
            up = tasks.create_task(swallow(ends.reader, size, kind.came_up(), up_dice))
            down = tasks.create_task(pour(ends.writer, size, kind.down, down_dice))
        return [up.result(), down.result()]
    await ends.head()
    came = await swallow(ends.reader, size, kind.came_up(), up_dice)
    await kind.greet(ends, size)
    sent = await pour(ends.writer, size, kind.down, down_dice)
    ends.writer.write(kind.last)
    return [came, sent]


async def browser_side(kind: Kind, ends: Ends, size: int) -> list[Sum]:
    """Return the sums of the bytes sent and received by the browser."""
    up_dice, down_dice = random.Random(5), random.Random(6)
    wrap = kind.up(random.Random(7))
    if kind.at_once:
        assert (await ends.head()).startswith(b"HTTP/1.1 101 ")
        async with asyncio.TaskGroup() as tasks:
            up = tasks.create_task(pour(ends.writer, size, wrap, up_dice))
            down = tasks.create_task(swallow(ends.reader, size, kind.came_down(), down_dice))
        return [up.result(), down.result()]
    sent = await pour(ends.writer, size, wrap, up_dice)
    ends.writer.write(kind.last)
    assert (await ends.head()).startswith(b"HTTP/1.1 200 ")
    came = await swallow(ends.reader, size, kind.came_down(), down_dice)
    return [sent, came]


async def pumped(rig: Rig, kind: Kind, size: int) -> None:
    """Assert that *size* bytes cross unchanged each way."""
    async with serving(kind, size) as (port, seen):
        fields = dict(kind.route)
        target = {"port": port, **fields.pop("target", {})}
        session = await rig.session(target=target, **fields)
        cookie = await rig.opened(session)
        reader, writer = await asyncio.open_connection(*rig.process.public, limit=LINE_LIMIT)
        try:
            writer.write(kind.ask(rig, session, cookie, size))
            sent, came = await browser_side(kind, Ends(reader, writer), size)
            async with asyncio.timeout(QUIET_SECONDS):
                up, down = await seen
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    assert sent.size == down.size == size
    assert up == sent
    assert came == down


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_bytes_are_relayed_unchanged_despite_stalls(kind: Kind, tmp_path: Path) -> None:
    async with running_rig(tmp_path) as rig:
        await pumped(rig, kind, SHORT_BYTES)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_gigabyte_is_relayed_unchanged_despite_stalls(kind: Kind, tmp_path: Path) -> None:
    async with running_rig(tmp_path) as rig:
        await pumped(rig, kind, LONG_BYTES)
