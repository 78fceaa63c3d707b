"""Tests attacks by number: thousands of connections that always have data to read."""

from __future__ import annotations

import asyncio
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from gateway.core.bus_state import LOST_SECONDS
from tests.contract import frames
from tests.contract.frames import MASK, TEXT, encode
from tests.contract.messages import request
from tests.contract.rig import Rig, Session
from tests.pressure.gateway_under_test import running_ground

# More than libuv takes from the kernel at once (1,024 events), so a turn has no natural end.
CONNECTIONS = 1600
SOME_FRAMES = encode(TEXT, b"x" * 20, mask=MASK) * 4


def switching() -> bytes:
    """Return an app's response to the upgrade."""
    accept = frames.accept_value(frames.KEY)
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n"
    ).encode()


class Crowd:
    """Tunnels of one session with both ends, which are blocking during the setup."""

    def __init__(self, gateway: tuple[str, int], stack: ExitStack) -> None:
        self._gateway = gateway
        self._stack = stack
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = self._listener.getsockname()[1]
        self._browsers: list[socket.socket] = []
        self._apps: dict[int, socket.socket] = {}
        self._stopped = False

    def join(self, head: bytes, count: int) -> None:
        """Open *count* more tunnels."""
        for _ in range(count):
            self._join(head)

    def _join(self, head: bytes) -> None:
        browser = self._stack.enter_context(closing(socket.create_connection(self._gateway)))
        browser.sendall(head)
        app = self._stack.enter_context(closing(self._listener.accept()[0]))
        while not app.recv(65536).endswith(b"\r\n\r\n"):
            pass
        app.sendall(switching())
        assert browser.recv(65536).startswith(b"HTTP/1.1 101 ")
        browser.setblocking(False)
        app.setblocking(False)
        self._browsers.append(browser)
        self._apps[app.fileno()] = app

    def stop(self) -> None:
        """Stop the traffic, a moment from now."""
        self._stopped = True
        time.sleep(1.0)

    def keep_busy(self, seconds: float) -> int:
        """Keep data ready on all tunnels for the gateway to read; return the number of reads."""
        taken, deadline = 0, time.monotonic() + seconds
        with closing(select.epoll()) as readable:
            for descriptor in self._apps:
                readable.register(descriptor, select.EPOLLIN)
            while time.monotonic() < deadline and not self._stopped:
                for browser in self._browsers:
                    with suppress(BlockingIOError):
                        browser.send(SOME_FRAMES)
                for descriptor, _ in readable.poll(0):
                    self._apps[descriptor].recv(1 << 20)
                    taken += 1
        return taken


@contextmanager
def slow_core(core: int) -> Iterator[None]:
    """Leave programs on *core* a quarter of it, so that the crowd can keep them busy."""
    command = ["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"]
    spinning = [subprocess.Popen(command) for _ in range(3)]
    try:
        yield
    finally:
        for one in spinning:
            one.kill()
            one.wait()


async def test_busy_websockets_do_not_delay_the_bus_or_new_sessions(
    tmp_path: Path,
) -> None:
    async with running_ground(tmp_path, core=0) as ground:
        rig = ground.rig
        with ExitStack() as stack:
            busy = Crowd(ground.process.public, stack)
            session = rig.make_session(target={"host": "127.0.0.1", "port": busy.port})
            await rig.bus.upsert(session.sid, session.route)
            await rig.settled()
            own = rig.own(session, await rig.opened(session))
            head = request("GET", "/", host=session.host, fields=[*frames.HANDSHAKE, *own])
            await asyncio.to_thread(busy.join, head, CONNECTIONS)
            stack.enter_context(slow_core(0))
            # Longer than a gateway without Redis still opens sessions.
            work = asyncio.create_task(asyncio.to_thread(busy.keep_busy, 4 * LOST_SECONDS))
            opened = 0
            stack.callback(busy.stop)
            while not work.done():
                other = rig.make_session(target=session.route["target"])
                await rig.bus.upsert(other.sid, other.route)
                opened += await asyncio.wait_for(is_opened(rig, other), 60)
            assert await work > 10 * CONNECTIONS
        assert opened > 3


async def is_opened(rig: Rig, session: Session) -> bool:
    """Return once *session* is open; fail if it is refused for another reason than load."""
    while (response := await rig.post_open(session, rig.token(session))).status == 404:
        await asyncio.sleep(0.05)
    assert response.status == 303, (response.status, response.body)
    return True
