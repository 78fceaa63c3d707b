"""Holds sessions of a running system open, and checks that each one is still alive."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from deploy.local.smoke.desktop import VERSION, Bytes
from deploy.local.smoke.gateway import Opened, client, open_link
from deploy.local.smoke.notebook import make_request
from deploy.local.smoke.orchestrator import User

PATIENCE_SECONDS = 400.0 if os.environ.get("KUBECONFIG") else 40.0
WebSocket = aiohttp.ClientWebSocketResponse[bool]


@asynccontextmanager
async def signed_in(address: str) -> AsyncIterator[User]:
    """Yield a user who is signed in at the orchestrator."""
    async with client() as http:
        user = User(http, address)
        await user.sign_in("ada")
        yield user


async def start(user: User, app: str) -> str:
    """Start an app, wait until it runs, and return its job."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        job = await user.start(app)
        await user.until_running(job)
    return job


async def open_session(http: aiohttp.ClientSession, user: User, job: str) -> Opened:
    """Open the app of *job* and wait until it is ready."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (opened := await open_link(http, await user.link(job))) is None:
            await asyncio.sleep(0.1)
        await opened.until_ready()
    return opened


@dataclass
class Kernel:
    """A notebook's kernel over its WebSocket."""

    socket: WebSocket

    async def alive(self) -> bool:
        """Run a computation in the kernel."""
        request = make_request("6*7")
        await self.socket.send_json(request)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                response: dict[str, Any] = await self.socket.receive_json()
                mine = response["parent_header"].get("msg_id") == request["header"]["msg_id"]
                if mine and response["msg_type"] == "execute_result":
                    return bool(response["content"]["data"]["text/plain"] == "42")


@dataclass
class Shell:
    """A terminal over its WebSocket."""

    socket: WebSocket
    count: int = 0

    async def alive(self) -> bool:
        """Run a command in the shell."""
        self.count += 1
        await self.socket.send_bytes(f"echo alive-$((100+{self.count}))\n".encode())
        wanted, screen = f"alive-{100 + self.count}\r".encode(), b""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while wanted not in screen:
                message = await self.socket.receive()
                if message.type is aiohttp.WSMsgType.BINARY:
                    screen += message.data
                assert message.type not in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
        return True


@dataclass
class Desktop:
    """A desktop over its WebSocket, past its handshake."""

    socket: WebSocket
    stream: Bytes

    @classmethod
    async def shake_hands(cls, socket: WebSocket) -> Desktop:
        """Do the RFB handshake, up to the screen's size."""
        stream = Bytes(socket)
        await stream.exactly(len(VERSION))
        await socket.send_bytes(VERSION)
        await stream.exactly((await stream.unpack("B"))[0])
        await socket.send_bytes(b"\x01")
        await stream.exactly(4)
        await socket.send_bytes(b"\x01")
        await stream.exactly(20)
        await stream.exactly((await stream.unpack("I"))[0])
        await socket.send_bytes(b"\x02\x00\x00\x01\x00\x00\x00\x00")
        return cls(socket, stream)

    async def alive(self) -> bool:
        """Ask the desktop for one pixel."""
        await self.socket.send_bytes(b"\x03\x00\x00\x00\x00\x00\x00\x01\x00\x01")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await self.stream.unpack("B"))[0] == 0
            (count,) = await self.stream.unpack("xH")
            for _ in range(count):
                *_, width, height, encoding = await self.stream.unpack("HHHHi")
                assert encoding == 0
                await self.stream.exactly(width * height * 4)
        return True


Held = Kernel | Shell | Desktop


@dataclass
class Session:
    """An open session and its WebSocket."""

    opened: Opened
    held: Held


@asynccontextmanager
async def one_of_each(user: User, jobs: Mapping[str, str]) -> AsyncIterator[dict[str, Session]]:
    """Open a session of each of *jobs* by app, each with an open WebSocket."""
    async with AsyncExitStack() as stack:
        held: dict[str, Session] = {}
        for app, job in jobs.items():
            http = await stack.enter_async_context(client())
            opened = await open_session(http, user, job)
            held[app] = Session(opened, await _connected(stack, app, opened))
        yield held


async def _connected(stack: AsyncExitStack, app: str, opened: Opened) -> Held:
    if app == "shell":
        path, protocol = "/.fumarole/connect", "fumarole.terminal.v1"
        return Shell(await stack.enter_async_context(opened.websocket(path, protocol)))
    if app == "desktop":
        socket = opened.websocket("/.fumarole/connect", "binary")
        return await Desktop.shake_hands(await stack.enter_async_context(socket))
    async with await opened.get(opened.start) as page:
        assert page.status == 200
    token = {"X-XSRFToken": opened.cookie("_xsrf")}
    kernel = await opened.post("/api/kernels", {"name": "python3"}, **token)
    path = f"/api/kernels/{kernel['id']}/channels"
    return Kernel(await stack.enter_async_context(opened.websocket(path)))
