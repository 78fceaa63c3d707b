"""Provides a ``pods/exec`` server that runs commands on a terminal, as a real API server does.

The commands run on this machine as this user; *root* is a folder that stands for the container's
``/bin``.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer


class ExecServer:
    """Serves execs as the test has set it up."""

    def __init__(self) -> None:
        self.protocols: tuple[str, ...] = ("v5.channel.k8s.io", "v4.channel.k8s.io")
        self.refuse: list[int] = []
        self.tokens = {"good"}
        self.requests: list[web.Request] = []
        self.offered: list[str] = []
        self.sizes: list[dict[str, int]] = []
        self.without: tuple[str, ...] = ()
        self.drop_after: int | None = None
        self.url = ""
        self._transports: list[asyncio.WriteTransport] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one exec."""
        self.requests.append(request)
        self.offered.append(request.headers.get("Sec-WebSocket-Protocol", ""))
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return web.json_response({"kind": "Status", "code": 401}, status=401)
        if self.refuse:
            return web.json_response({"kind": "Status"}, status=self.refuse.pop(0))
        socket = web.WebSocketResponse(protocols=self.protocols)
        await socket.prepare(request)
        assert isinstance(request.transport, asyncio.WriteTransport)
        self._transports.append(request.transport)
        for channel in (1, 2, 3):
            await socket.send_bytes(bytes([channel]))  # as kubelets do
        status = await self._run(socket, request.query.getall("command"))
        with contextlib.suppress(ConnectionError):
            await socket.send_bytes(b"\x03" + json.dumps(status).encode())
            # No close frame: a real API server just closes the connection.
            if request.transport is not None:
                request.transport.close()
        return socket

    async def _run(self, socket: web.WebSocketResponse, command: list[str]) -> dict[str, Any]:
        if command[0] in self.without:
            return {
                "status": "Failure", "reason": "InternalError", "code": 500,
                "message": f'exec: "{command[0]}": stat {command[0]}: no such file or directory',
            }  # fmt: skip
        master, slave = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            *command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PS1": "$ "},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        os.set_blocking(master, False)
        listening = asyncio.create_task(self._listen(socket, master))
        sending = asyncio.create_task(self._send(socket, master))
        ending = asyncio.create_task(process.wait())
        try:
            await asyncio.wait({listening, ending}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                await asyncio.wait({sending}, timeout=1)
                return _status(ending.result())
            return _status(-1)
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
            listening.cancel()
            sending.cancel()
            await asyncio.gather(listening, sending, ending, return_exceptions=True)
            os.close(master)

    async def _listen(self, socket: web.WebSocketResponse, master: int) -> None:
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                continue
            if message.data[0] == 0:
                await _write_all(master, message.data[1:])
            elif message.data[0] == 4:
                size = json.loads(message.data[1:])
                self.sizes.append(size)
                packed = struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
                fcntl.ioctl(master, termios.TIOCSWINSZ, packed)

    async def _send(self, socket: web.WebSocketResponse, master: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await _until_possible(loop.add_reader, loop.remove_reader, master)
            try:
                data = os.read(master, 32768)
            except OSError:
                return  # the terminal's other end is closed
            await socket.send_bytes(b"\x01" + data)

    def stop_answering(self) -> None:
        """Read nothing any more from any connection, as a network does that has failed."""
        for transport in self._transports:
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()

    def cut(self) -> None:
        """Abort every connection without a close frame."""
        for transport in self._transports:
            transport.abort()


async def _write_all(master: int, data: bytes) -> None:
    """Write as fast as the command reads: a terminal buffers 4 KiB."""
    loop = asyncio.get_running_loop()
    while data:
        try:
            data = data[os.write(master, data) :]
        except BlockingIOError:
            await _until_possible(loop.add_writer, loop.remove_writer, master)


async def _until_possible(
    watch: Callable[..., None], ignore: Callable[[int], bool], descriptor: int
) -> None:
    possible = asyncio.get_running_loop().create_future()
    watch(descriptor, _resolve, possible)
    try:
        await possible
    finally:
        ignore(descriptor)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _status(code: int) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: {code}",
        "details": {"causes": causes},
    }  # fmt: skip


@asynccontextmanager
async def serving() -> AsyncIterator[ExecServer]:
    """Serve execs on a free port."""
    server = ExecServer()
    app = web.Application()
    app.add_routes([web.get("/k8s/api/v1/namespaces/{namespace}/pods/{pod}/exec", server.handle)])
    async with TestServer(app) as http:
        server.url = str(http.make_url("/k8s"))
        yield server
        server.cut()
