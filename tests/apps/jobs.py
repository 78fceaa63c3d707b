"""Runs jobs of these apps in a running system, and makes links that open them."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp

from deploy.local.orchestrator.controller import Controller
from deploy.local.orchestrator.keys import ensure_key
from deploy.local.orchestrator.sessions import make_link
from deploy.local.orchestrator.tokens import Tokens
from deploy.local.system import LocalSystem
from tests.apps.table import RealApp

USER = "ada"


class Jobs:
    """Starts apps and opens them for one user; made by :func:`orchestrating`."""

    def __init__(self, controller: Controller, tokens: Tokens, gateway: str) -> None:
        self._controller = controller
        self._tokens = tokens
        self._gateway = urlsplit(gateway)

    @asynccontextmanager
    async def running(self, app: RealApp) -> AsyncIterator[str]:
        """Run *app* for the block; yield its job."""
        job = f"{app.name}-{secrets.token_hex(4)}"
        write = 'printf %s "$SOURCE" > app.py\n'
        await self._controller.submit(
            {
                "id": job,
                "owner": {"user": USER},
                "name": app.title,
                "image": app.image or app.name,
                "resources": {"cpu": 1, "memory": "2Gi"},
                "invocation": {
                    "command": ["bash", "-c", write + app.command],
                    "environment": {"SOURCE": app.source},
                },
                "interactive": {"app": {"kind": "web", "port": app.port}},
            }
        )
        try:
            yield job
        finally:
            await self._controller.delete(job)

    async def link(self, job: str, app: RealApp) -> str:
        """Return a one-time link that opens *app*."""
        item = {"job": job, "rank": 0, "endpoint": "app"}
        session = await self._controller.open_session(item)
        claims = {"sid": session["sid"], "job": job, "rank": 0, "kind": "web"}
        token = self._tokens.for_session(claims, user=USER, now=time.time())
        return make_link(self._gateway, session["hosts"][0], token, start_path=app.start)

    async def log(self, job: str) -> str:
        """Return the end of the output of *job*."""
        return await self._controller.log(job)


@asynccontextmanager
async def orchestrating(system: LocalSystem) -> AsyncIterator[Jobs]:
    """Provide an orchestrator that signs with the reference orchestrator's key."""
    tokens = Tokens(ensure_key(system.layout.folder / "orchestrator"), system.layout.page_url)
    async with aiohttp.ClientSession(system.layout.api_url) as http:
        controller = Controller(http, lambda: tokens.for_controller(time.time()))
        yield Jobs(controller, tokens, system.layout.gateway_url)
