"""Attacks by numbers: thousands of connections that always have something to read."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

from gateway.core.bus_state import LOST_SECONDS
from tests.contract import frames
from tests.contract.frames import MASK, TEXT, encode
from tests.contract.messages import request
from tests.pressure.ground import Ground

# More than libuv takes from the kernel at once (1,024 events), so that a turn has no end by itself.
CONNECTIONS = 1600
SOME_FRAMES = encode(TEXT, b"x" * 20, mask=MASK) * 4


def switching() -> bytes:
    """Return an app's answer to the upgrade."""
    accept = frames.accept_of(frames.KEY)
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n"
    ).encode()


class Crowd:
    """Tunnels of one session, with both of their ends: blocking until they are there."""

    def __init__(self, gateway: tuple[str, int], stack: ExitStack) -> None:
        self._gateway = gateway
        self._stack = stack
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = self._listener.getsockname()[1]
        self._browsers: list[socket.socket] = []
        self._apps: dict[int, socket.socket] = {}

    def join(self, head: bytes) -> None:
        """Open one more tunnel."""
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

    def keep_busy(self, seconds: float) -> int:
        """Have the gateway always find something to read in all; return how many reads came."""
        taken, deadline = 0, time.monotonic() + seconds
        with closing(select.epoll()) as readable:
            for descriptor in self._apps:
                readable.register(descriptor, select.EPOLLIN)
            while time.monotonic() < deadline:
                for browser in self._browsers:
                    with suppress(BlockingIOError):
                        browser.send(SOME_FRAMES)
                for descriptor, _ in readable.poll(0):
                    self._apps[descriptor].recv(1 << 20)
                    taken += 1
        return taken


@contextmanager
def crowd(ground: Ground) -> Iterator[Crowd]:
    """Tunnels that are closed afterwards."""
    with ExitStack() as stack:
        yield Crowd(ground.process.public, stack)


async def test_websockets_that_are_always_busy_leave_the_bus_and_new_sessions_their_turn(
    plain: Ground,
) -> None:
    with crowd(plain) as busy:
        session = plain.rig.make_session(target={"host": "127.0.0.1", "port": busy.port})
        await plain.rig.bus.upsert(session.sid, session.route)
        await plain.rig.settled()
        own = plain.rig.own(session, await plain.rig.opened(session))
        head = request("GET", "/", host=session.host, fields=[*frames.HANDSHAKE, *own])
        await asyncio.to_thread(lambda: [busy.join(head) for _ in range(CONNECTIONS)])
        # For longer than a gateway that cannot ask Redis still opens sessions.
        work = asyncio.create_task(asyncio.to_thread(busy.keep_busy, 3 * LOST_SECONDS))
        opened = 0
        while not work.done():
            other = plain.rig.make_session(target=session.route["target"])
            await plain.rig.bus.upsert(other.sid, other.route)
            await plain.rig.settled()
            await plain.rig.opened(other)
            opened += 1
        assert await work > 20 * CONNECTIONS
        assert opened > 3
    assert (await plain.metrics())["fumarole_gateway_connections_total"] > CONNECTIONS
