"""Plays orchestrator and gateway for the smoke run, with apps that a test can break."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aiohttp import WSMsgType, web

from deploy.local.apps.catalogue import APPS

COOKIE = "fumarole"
PAGE = "<script id='jupyter-config-data'></script>"


@dataclass
class Site:
    """Both sites on one port; tests break a site by its fields."""

    url: str = ""
    port: int = 0
    state: str = "RUNNING"
    refuse_opening: list[int] = field(default_factory=list)
    token_in_query: bool = False
    result: str = "42"
    kernel_closes: bool = False
    answer: bytes = b"echo $((6*7))\r\n42\r\n$ "
    security: bytes = b"\x01\x01"
    unpainted: int = 1
    """How many pictures show one colour, since no program has painted yet."""
    pixels: bytes = b"\x00\x00\x00\x00" + b"\xff\xff\xff\x00" * 3
    not_ready: int = 2
    refusal: dict[str, str] | None = None
    jobs: dict[str, str] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    spent: set[str] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=count)

    # The orchestrator

    async def login(self, _request: web.Request) -> web.Response:
        return web.json_response({})

    async def start(self, request: web.Request) -> web.Response:
        app = (await request.json())["app"]
        self.jobs[f"job-{app}"] = self.state
        return web.json_response({"id": f"job-{app}"}, status=201)

    async def list_jobs(self, _request: web.Request) -> web.Response:
        jobs = [{"id": job, "state": state, "message": "why"} for job, state in self.jobs.items()]
        return web.json_response({"jobs": jobs})

    async def open(self, request: web.Request) -> web.Response:
        app = APPS[request.match_info["id"].removeprefix("job-")]
        mark = "?" if self.token_in_query else "#"
        token = f"secret-{app.name}-{next(self.numbers)}"
        link = f"http://{app.kind}.localhost:{self.port}/.fumarole/open"
        return web.json_response({"url": f"{link}{mark}token={token}&next=%2Fstart"})

    async def stop(self, request: web.Request) -> web.Response:
        job = request.match_info["id"]
        self.stopped.append(job)
        self.jobs[job] = "SUCCESS"
        return web.json_response({})

    # The gateway

    async def post_token(self, request: web.Request) -> web.Response:
        if self.refuse_opening:
            return web.json_response({}, status=self.refuse_opening.pop(0))
        form = await request.post()
        token = str(form["token"])
        if token in self.spent:
            return web.json_response({}, status=401)
        self.spent.add(token)
        response = web.Response(status=303, headers={"Location": str(form["next"])})
        response.set_cookie(COOKIE, "grant", path="/")
        return response

    def _guard(self, request: web.Request) -> None:
        if request.cookies.get(COOKIE) != "grant":
            raise web.HTTPUnauthorized
        origin = f"http://{request.host}"
        upgrade = request.headers.get("Upgrade") == "websocket" or request.method == "POST"
        if upgrade and request.headers.get("Origin") != origin:
            raise web.HTTPForbidden

    async def show_state(self, request: web.Request) -> web.Response:
        self._guard(request)
        self.not_ready -= 1
        state = "starting" if self.not_ready > 0 else "ready"
        return web.json_response({"state": state, "message": None})

    async def connect(self, request: web.Request) -> web.StreamResponse:
        self._guard(request)
        socket = web.WebSocketResponse(protocols=("binary", "fumarole.terminal.v1"))
        await socket.prepare(request)
        if request.host.startswith("vnc."):
            await self._desktop(socket)
        else:
            await self._shell(socket)
        return socket

    async def _shell(self, socket: web.WebSocketResponse) -> None:
        await socket.send_json({"type": "attached"})
        await socket.send_bytes(b"$ ")
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                for byte in self.answer:
                    await socket.send_bytes(bytes([byte]))
                if b"42" not in self.answer:
                    await socket.close(code=4410)

    async def _desktop(self, socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"RFB 003.")
        await socket.send_bytes(b"008\n" + self.security)
        await socket.receive_bytes()
        await socket.receive_bytes()
        await socket.send_bytes(struct.pack(">I", 0))
        await socket.receive_bytes()
        await socket.send_bytes(struct.pack(">HH16xI", 2, 2, 4) + b"desk")
        update = b"\x02\x03\x00\x00\x00" + struct.pack(">I", 3) + b"cut" + b"\x00\x00\x00\x01"
        head = update + struct.pack(">HHHHi", 0, 0, 2, 2, 0)
        async for _ in socket:
            await socket.send_bytes(head + (b"\0" * 16 if self.unpainted else self.pixels))
            self.unpainted = max(0, self.unpainted - 1)

    # Jupyter

    async def page(self, request: web.Request) -> web.Response:
        self._guard(request)
        if self.refusal is not None:
            return web.json_response(self.refusal, status=502)
        response = web.Response(text=PAGE, content_type="text/html")
        response.set_cookie("_xsrf", "x")
        return response

    async def kernels(self, request: web.Request) -> web.Response:
        self._guard(request)
        if request.headers.get("X-XSRFToken") != "x":
            raise web.HTTPForbidden
        return web.json_response({"id": "k1"}, status=201)

    async def channels(self, request: web.Request) -> web.StreamResponse:
        self._guard(request)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        asked = await socket.receive_json()
        for parent, kind in ((None, "status"), ("another", "execute_result")):
            await socket.send_json(_message(parent, kind, "0"))
        if self.kernel_closes:
            await socket.close()
        else:
            mine = asked["header"]["msg_id"]
            await socket.send_json(_message(mine, "execute_result", self.result))
            await socket.receive()
        return socket


def _message(parent: str | None, kind: str, text: str) -> dict[str, Any]:
    return {
        "parent_header": {"msg_id": parent} if parent else {},
        "msg_type": kind,
        "content": {"data": {"text/plain": text}},
    }


@asynccontextmanager
async def serving() -> AsyncIterator[Site]:
    """Serve both on a free port."""
    site = Site()
    app = web.Application()
    app.add_routes(
        [
            web.post("/api/login", site.login),
            web.post("/api/jobs", site.start),
            web.get("/api/jobs", site.list_jobs),
            web.post("/api/jobs/{id}/open", site.open),
            web.post("/api/jobs/{id}/stop", site.stop),
            web.post("/.fumarole/open", site.post_token),
            web.get("/.fumarole/state", site.show_state),
            web.get("/.fumarole/connect", site.connect),
            web.get("/start", site.page),
            web.post("/api/kernels", site.kernels),
            web.get("/api/kernels/k1/channels", site.channels),
        ]
    )
    runner = web.AppRunner(app, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    site.port = runner.addresses[0][1]
    site.url = f"http://localhost:{site.port}"
    try:
        yield site
    finally:
        await runner.cleanup()
        await asyncio.sleep(0)
