"""Provides a scripted API server for tests of the client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from controller.kube.client import Kube
from tests.redis_tls import Authority

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Script:
    """Holds scripted responses and received requests; the last response repeats for ever."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self._turn: tuple[Answer, ...] = ()
        self._well: tuple[Answer, Answer] | None = None
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.tokens: list[str] = []
        self.hosts: list[str] = []

    def answer(self, *answers: Answer) -> None:
        """Replace the script with these responses."""
        self._answers = list(answers)

    def repeat(self, *answers: Answer) -> None:
        """Respond to lists with the first, and to watches and second pages with the last."""
        self._turn = answers

    def well(self, a_list: Answer, a_watch: Answer) -> None:
        """Respond to lists and watches with these from now on."""
        self._well = a_list, a_watch

    def _next(self, request: web.Request) -> Answer:
        if self._well is not None:
            return self._well["watch" in request.query]
        if self._turn:
            if "watch" in request.query:
                return self._turn[-1]
            return self._turn[min("continue" in request.query, len(self._turn) - 1)]
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path, dict(request.query)))
        self.tokens.append(request.headers.get("Authorization", ""))
        self.hosts.append(request.host)
        return await self._next(request)(request)


def says(body: Any, status: int = 200, **headers: str) -> Answer:
    """Respond with JSON; a refusal is a Status, as from every API server."""
    if status >= 400 and isinstance(body, dict):
        body = {"kind": "Status", **body}

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return answer


def listing(*objects: dict[str, Any], version: str, **metadata: Any) -> Answer:
    """Respond with a list."""
    return says({"items": list(objects), "metadata": {"resourceVersion": version, **metadata}})


def streams(*events: tuple[str, dict[str, Any]] | bytes, then: str = "end") -> Answer:
    """Respond with a watch that sends *events*; *then* it ends, is cut, or hangs."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            line = (
                event
                if isinstance(event, bytes)
                else json.dumps({"type": event[0], "object": event[1]}).encode() + b"\n"
            )
            await response.write(line)
        if then == "cut" and request.transport is not None:
            request.transport.abort()
        if then == "hang":
            await asyncio.sleep(60)
        return response

    return answer


def thing(name: str, version: str) -> dict[str, Any]:
    """Return an object."""
    return {"metadata": {"name": name, "resourceVersion": version}}


def gone() -> tuple[str, dict[str, Any]]:
    """Return the event of an expired watch, as a real API server sends it in a 200."""
    return "ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}


@cache
def _authority() -> bytes:
    """Return an authority: without one, a client reads all system authorities twice, for 40 ms."""
    with TemporaryDirectory() as folder:
        return Authority(Path(folder) / "authority").file.read_bytes()


def write_kubeconfig(path: Path, url: str, token: str = "first", **cluster: str) -> Path:
    """Write a kubeconfig for the server at *url*, with these fields of the cluster."""
    content = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url} | cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    path.write_text(json.dumps(content))
    return path


@asynccontextmanager
async def serving(script: Script, folder: Path) -> AsyncIterator[Kube]:
    """Yield a client of a server that follows *script*."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.handle)
    async with TestServer(app, shutdown_timeout=0) as server:
        kubeconfig = write_kubeconfig(folder / "kubeconfig", str(server.make_url("")).rstrip("/"))
        async with AsyncExitStack() as stack:
            # Plain HTTP needs no authority; this one avoids loading the system's authorities.
            with pytest.MonkeyPatch.context() as patch:
                (folder / "authority").write_bytes(_authority())
                patch.setenv("SSL_CERT_FILE", str(folder / "authority"))
                kube = await stack.enter_async_context(Kube.connect(kubeconfig))
            yield kube
