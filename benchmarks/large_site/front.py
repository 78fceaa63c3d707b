"""A proxy before the embedded API server that adds many copies of one job and its pods.

It forwards everything, and adds the copies to lists and watches of VolcanoJobs and pods. A
resourceVersion of these is ``<the server's>.<number of earlier changes of copies>``. It serves them
as a real server does: with ``limit`` and ``continue``, JSON of 12 KB a pod, events one by one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from aiohttp import web

from benchmarks.large_site.copies import Copies
from deploy.local.cluster.kubeconfig import read_kubeconfig

_PASSED: Final = ("Authorization", "Content-Type", "Accept")
CLIENT: Final = web.AppKey("client", aiohttp.ClientSession)


@dataclass(frozen=True, slots=True)
class Change:
    """A changed copy of a pod."""

    plural: str
    line: bytes


@dataclass(slots=True)
class Front:
    """The proxy; ``copies`` is empty until some are added."""

    server: str
    tls: Any
    copies: Copies | None = None
    changes: list[Change] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    version: str = "0"

    def change_pods(self, numbers: Iterable[int]) -> None:
        """Change these copies of pods, and send the events to the watches."""
        assert self.copies is not None
        for number in numbers:
            self.copies.change(number)
            version = f"{self.version}.{len(self.changes) + 1}"
            text = self.copies.text("pods", number, version)
            self.changes.append(Change("pods", b'{"type":"MODIFIED","object":' + text + b"}\n"))
        news, self.news = self.news, asyncio.Event()
        news.set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Respond as the server does, with the copies."""
        plural = request.path.rpartition("/")[2]
        shown = self.copies is not None and self.copies.shows(request.path)
        if not shown:
            return await self._pass(request)
        if "watch" in request.query:
            return await self._watch(request, plural)
        return await self._list(request, plural)

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        async with self._call(request, dict(request.query), await request.read()) as answer:
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response

    def _call(
        self, request: web.Request, query: Mapping[str, str], body: bytes | None = None
    ) -> Any:
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        client = request.app[CLIENT]
        url = f"{self.server}{request.raw_path.partition('?')[0]}"
        return client.request(
            request.method, url, params=query, headers=headers, data=body, ssl=self.tls
        )

    async def _list(self, request: web.Request, plural: str) -> web.StreamResponse:
        assert self.copies is not None
        before, first = len(self.changes), int(request.query.get("continue") or 0)
        query = {k: v for k, v in request.query.items() if k not in ("limit", "continue")}
        async with self._call(request, query) as answer:
            found = await answer.json()
        self.version = found["metadata"]["resourceVersion"]
        own = [] if first else [json.dumps(one).encode() for one in found["items"]]
        count = self.copies.count(plural)
        last = min(count, first + int(request.query.get("limit") or count))
        metadata = {"resourceVersion": f"{self.version}.{before}"}
        if last < count:
            metadata["continue"] = str(last)
        head = {"kind": found["kind"], "apiVersion": found["apiVersion"], "metadata": metadata}
        response = web.StreamResponse()
        response.content_type = "application/json"
        await response.prepare(request)
        await response.write(json.dumps(head).encode()[:-1] + b',"items":[')
        for start in range(first, last, 50):
            texts = [self.copies.text(plural, n) for n in range(start, min(last, start + 50))]
            await response.write(b",".join([*own, *texts]))
            own = []
            if start + 50 < last:
                await response.write(b",")
        await response.write(b",".join(own) + b"]}\n")
        await response.write_eof()
        return response

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        version, _, seen = request.query.get("resourceVersion", "").partition(".")
        query = dict(request.query) | {"resourceVersion": version}
        at = int(seen) if seen else len(self.changes)
        async with self._call(request, query) as answer:
            response = web.StreamResponse(status=answer.status)
            await response.prepare(request)
            telling = asyncio.create_task(self._tell_changes(response, plural, at))
            try:
                async for line in answer.content:
                    await response.write(line)
            except ConnectionError:
                return response  # the watching client has left
            finally:
                telling.cancel()
            return response

    async def _tell_changes(self, response: web.StreamResponse, plural: str, at: int) -> None:
        with suppress(ConnectionError):
            while True:
                news = self.news
                while at < len(self.changes):
                    change, at = self.changes[at], at + 1
                    if change.plural == plural:
                        await response.write(change.line)
                await news.wait()


@asynccontextmanager
async def serving(kubeconfig: Path, folder: Path) -> AsyncIterator[tuple[Front, Path]]:
    """Run a front of the server in *kubeconfig*; yield it, and a kubeconfig that leads to it."""
    access = read_kubeconfig(kubeconfig)
    front = Front(access.server, access.tls)
    app = web.Application(client_max_size=16 << 20)
    app.router.add_route("*", "/{path:.*}", front.handle)
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None),
        connector=aiohttp.TCPConnector(limit=0),
        read_bufsize=1 << 20,
    ) as client:
        app[CLIENT] = client
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            content = yaml.safe_load(kubeconfig.read_text())
            content["clusters"][0]["cluster"] = {"server": f"http://{host}:{port}"}
            path = folder / f"front-{kubeconfig.name}"
            path.write_text(json.dumps(content))
            yield front, path
        finally:
            await runner.cleanup()
