"""A Pod's address on this machine: every port on which its processes listen, and no other.

Inside, a Pod has a loopback network of its own. Outside, there is a listener at its address for
each listening socket inside, as long as that exists. So a connection is refused if a real Pod would
refuse it. Connections are made with sockets that belong to the inside, so bytes are copied only
once.
"""

import asyncio
import contextlib
import functools
import logging
import socket
from typing import Final

from deploy.local.cluster.kubelet.sandboxes import Sandbox, SandboxFailed

_LOG: Final = logging.getLogger(__name__)
_CHUNK_BYTES: Final = 256 * 1024
# The pause grows while nothing changes: a program that listens after two seconds is reachable a
# tenth of a second later.
_LEAST_LOOK_SECONDS: Final = 0.05
_MOST_LOOK_SECONDS: Final = 0.2


class Relay:
    """Listens at *address* for the Pod in *sandbox* while `run` runs."""

    def __init__(self, sandbox: Sandbox, address: str) -> None:
        self._sandbox = sandbox
        self._address = address
        self._listeners: dict[int, asyncio.Server] = {}
        self._failed: set[int] = set()
        self._looking = asyncio.Lock()
        self._closed = False
        self._connections: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Follow the Pod's listening sockets until cancelled; then close all listeners."""
        if not self._sandbox.isolated:
            return  # without a network of its own it listens at every loopback address itself
        now = asyncio.get_running_loop().time
        changed, before = now(), set[int]()
        try:
            while True:
                ports = await self.look()
                if ports != before:
                    changed, before = now(), ports
                pause = max(_LEAST_LOOK_SECONDS, (now() - changed) / 20)
                await asyncio.sleep(min(pause, _MOST_LOOK_SECONDS))
        finally:
            async with self._looking:
                self._closed = True
                for listener in self._listeners.values():
                    listener.close()
            for connection in list(self._connections):
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def look(self) -> set[int]:
        """Return the ports on which the Pod listens, once there is a listener for each of them."""
        async with self._looking:
            if self._closed or not self._sandbox.isolated:
                return set()
            ports = self._sandbox.listening_ports(self._address)
            await self._follow(ports)
            return ports

    async def _follow(self, ports: set[int]) -> None:
        for port in self._listeners.keys() - ports:
            self._listeners.pop(port).close()
        self._failed &= ports
        for port in ports - self._listeners.keys() - self._failed:
            try:
                self._listeners[port] = await asyncio.start_server(
                    functools.partial(self._accept, port),
                    self._address,
                    port,
                    limit=_CHUNK_BYTES,
                )
            except OSError as error:
                # Another program listens at 0.0.0.0, or the port is privileged.
                _LOG.warning("cannot listen at %s:%d: %s", self._address, port, error)
                self._failed.add(port)

    def _accept(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.create_task(self._carry(port, reader, writer))
        self._connections.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._connections.discard(task)
            if not writer.is_closing():  # cancelled before its other half was there
                writer.transport.abort()

        task.add_done_callback(ended)

    async def _carry(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            inner = await self._sandbox.connect(self._address, port)
        except (OSError, SandboxFailed):
            writer.transport.abort()
            return
        await carry(reader, writer, inner)


async def carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, inner: socket.socket
) -> None:
    """Join an accepted connection to the one made for it, until both directions have ended."""
    inner_reader, inner_writer = await asyncio.open_connection(sock=inner, limit=_CHUNK_BYTES)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_pump(reader, inner_writer))
            tasks.create_task(_pump(inner_reader, writer))
    except* OSError:
        pass  # a reset, passed on by `_pump`
    finally:
        writer.close()
        inner_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            with contextlib.suppress(OSError):
                writer.write_eof()
    except OSError:
        writer.transport.abort()
        raise
