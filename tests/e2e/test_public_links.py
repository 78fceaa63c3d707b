"""Tests that a public link opens without a token, and the same job's private host does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from deploy.local.orchestrator.controller import Controller, ControllerError
from deploy.local.orchestrator.keys import ensure_key
from deploy.local.orchestrator.tokens import Tokens
from deploy.local.smoke.gateway import client
from deploy.local.system import LocalSystem
from tests.e2e.sessions import PATIENCE_SECONDS

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

# This app echoes the request: method, path, and the user that the gateway names.
APP = """
import http.server
class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        user = self.headers.get("X-Forwarded-User", "nobody")
        said = f"app {self.path} {user} {self.headers.get('Cookie', '-')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), App).serve_forever()
"""
JOB: dict[str, Any] = {
    "id": "linked-1",
    "owner": {"user": "ada"},
    "image": "python:3.11-slim",
    "resources": {"cpu": 0.1, "memory": "128Mi"},
    "invocation": {"command": ["python3", "-c", APP]},
    "interactive": {"app": {"kind": "web", "port": 8000}},
    "links": ["our-demo"],
}


@asynccontextmanager
async def orchestrator(system: LocalSystem) -> AsyncIterator[Controller]:
    """Provide the controller's API, called as the orchestrator of the running system."""
    tokens = Tokens(ensure_key(system.folder / "orchestrator"), system.address)
    base = f"http://127.0.0.1:{system.layout.ports['api']}"
    async with aiohttp.ClientSession(base) as http:
        yield Controller(http, lambda: tokens.for_controller(time.time()))


async def asked(http: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, str]:
    async with http.get(url, headers=headers, allow_redirects=False) as response:
        return response.status, await response.text()


async def asked_while_ending(http: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    """Send a request to an app that may be killed in the middle of its response."""
    try:
        return await asked(http, url)
    except aiohttp.ClientPayloadError:
        return 200, ""


# The test uses its own app, which needs the same as a notebook: a reachable pods' network.
@pytest.mark.usefixtures("notebooks")
async def test_a_public_link_opens_without_a_token_and_the_private_host_does_not(
    system: LocalSystem,
) -> None:
    gateway = urlsplit(system.layout.gateway_url)
    link = f"http://our-demo.localhost:{gateway.port}"
    async with orchestrator(system) as controller, client() as http:
        await controller.submit(JOB)
        session = await controller.open_session({"job": "linked-1", "rank": 0, "endpoint": "app"})
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (response := await asked(http, f"{link}/a?b=c"))[0] != 200:
                assert response[0] in (404, 502, 503), response
                await asyncio.sleep(0.1)
        assert response[1] == "app /a?b=c nobody -"
        # Forged identity fields do not cross; the app's own cookies do.
        spoofed = {"X-Forwarded-User": "ada", "Cookie": "own=1"}
        assert await asked(http, f"{link}/", **spoofed) == (200, "app / nobody own=1")
        # Public hosts do not serve the gateway's own pages.
        assert (await asked(http, f"{link}/.fumarole/open"))[0] == 404
        private = f"http://{session['hosts'][0]}:{gateway.port}/"
        assert (await asked(http, private))[0] == 401
        with pytest.raises(ControllerError) as taken:
            await controller.submit(JOB | {"id": "linked-2"})
        assert taken.value.status == 409
        await controller.delete("linked-1")
        async with asyncio.timeout(PATIENCE_SECONDS):
            # The gateway answers 410 only while the job is ending.
            while (response := await asked_while_ending(http, f"{link}/"))[0] in (200, 410):
                await asyncio.sleep(0.1)
        assert response[0] == 404
