"""Tests that one client's slow connections do not use up the memory that others need."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from tests.contract.conftest import Serve
from tests.contract.frames import HANDSHAKE, accept_value
from tests.contract.messages import request
from tests.contract.process import Process
from tests.contract.rig import Rig, Session, running_rig
from tests.contract.streams import Stream
from tests.contract.upstream import App

BOUND = 160 << 20
"""Of it, a gateway that serves nobody has 75 MiB resident, and a forked one 115 MiB."""
CONNECTIONS = 300
"""Each keeps 384 KiB, so that all of them exceed the bound."""


async def pour(app: App, stream: Stream) -> None:
    """Accept a WebSocket and send 6 MiB, more than the kernel takes."""
    asked = await app.head(stream)
    key = asked.get("Sec-WebSocket-Key") or ""
    stream.send(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Accept: " + accept_value(key).encode() + b"\r\n\r\n"
    )
    for _ in range(96):
        stream.send(b"\x82\x7e\xff\xff" + bytes(65535))
    await asyncio.sleep(60.0)


async def slow_reader(rig: Rig, session: Session, cookie: str) -> socket.socket:
    """Return a WebSocket of *session* that is not read, with a small window."""
    loop = asyncio.get_running_loop()
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.setblocking(False)
    await loop.sock_connect(one, rig.process.public)
    fields = [*HANDSHAKE, ("Origin", session.origin), ("Cookie", cookie)]
    await loop.sock_sendall(one, request("GET", "/", host=session.host, fields=fields))
    return one


async def trickle(readers: list[socket.socket]) -> None:
    """Take a few bytes from each reader again and again, so that none counts as stalled."""
    loop = asyncio.get_running_loop()
    while True:
        for one in list(readers):
            try:
                async with asyncio.timeout(0.5):
                    await loop.sock_recv(one, 2048)
            except (OSError, TimeoutError):
                pass
        await asyncio.sleep(0.5)


@asynccontextmanager
async def attack(rig: Rig, session: Session, cookie: str) -> AsyncIterator[list[socket.socket]]:
    """Hold slow readers of *session*, which take a little now and then."""
    readers: list[socket.socket] = []
    task = asyncio.create_task(trickle(readers))
    try:
        yield readers
    finally:
        task.cancel()
        for one in readers:
            one.close()


async def test_slow_readers_of_one_user_do_not_close_a_gateway_to_others(
    tmp_path: Path, serve: Serve
) -> None:
    settings = {"WORKER_MEMORY_BYTES": str(BOUND)}
    alone = partial(Process, fork=False)
    async with running_rig(tmp_path, settings, make_process=alone) as rig:
        friend = await serve()
        session, own = await rig.entered(friend)
        app = await serve(pour)
        theirs = await rig.session(app)
        cookie = await rig.opened(theirs, sub="mallory")
        async with attack(rig, theirs, cookie) as readers:
            for _ in range(CONNECTIONS):
                readers.append(await slow_reader(rig, theirs, cookie))
                await asyncio.sleep(0.01)  # half a gigabit a second
            visits: list[int] = []
            until = time.monotonic() + 12.0
            while time.monotonic() < until:
                assert (await rig.get(session, fields=own)).status == 200
                visits.append((await rig.get(theirs)).status)
                await asyncio.sleep(0.2)
            # Memory is measured four times a second, so a visitor may be refused in between.
            assert visits.count(401) > 0.8 * len(visits), "visitors get the page, and not a 503"
            assert visits[-1] == 401
            ready = await rig.process.ops_response("/readyz")
            assert ready.status == 200
