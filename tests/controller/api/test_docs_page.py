"""Tests the API's documentation page: public access, and its rendering in a browser."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from playwright.async_api import ConsoleMessage, async_playwright, expect
from pytest_aiohttp import AiohttpClient

from controller.api.docs_page import PUBLIC, DocsPage
from tests.conftest import chromium
from tests.controller.api.conftest import Api, service_token

# A wait, not a measurement: the machine may be busy.
PATIENCE_MS = 60_000


@pytest.fixture
async def unauthenticated(api: Api) -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client without a token."""
    async with aiohttp.ClientSession(api.client.make_url("/")) as session:
        yield session


async def test_the_openapi_document_needs_no_token(
    api: Api, unauthenticated: aiohttp.ClientSession
) -> None:
    async with unauthenticated.get("/docs/openapi.json") as response:
        assert response.status == 200
        assert await response.json() == api.described.document
    assert {route.path for route in DocsPage(bytes).routes()} == PUBLIC


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/docs", 401),
        ("GET", "/docs/a/b", 401),
        ("GET", "/docs/nothing.js", 404),
        ("GET", "/docs/.stamp", 404),
        ("GET", "/docs/manifest.json", 404),
        ("GET", "/docs/..%2f..%2f__init__.py", 404),
        ("GET", "/v1/openapi.json", 401),
        ("GET", "/docs/%00", 400),
    ],
)
async def test_every_other_path_needs_a_token(
    unauthenticated: aiohttp.ClientSession, method: str, path: str, status: int
) -> None:
    async with unauthenticated.request(method, path) as response:
        assert response.status == status


async def test_the_openapi_document_is_built_once_on_demand(
    aiohttp_client: AiohttpClient,
) -> None:
    threads: list[int] = []

    def describe() -> bytes:
        threads.append(threading.get_ident())
        return b"{}"

    app = web.Application()
    app.add_routes(DocsPage(describe).routes())
    client = await aiohttp_client(app)
    assert threads == []
    answers = await asyncio.gather(*(client.get("/docs/openapi.json") for _ in range(3)))
    assert [await response.text() for response in answers] == ["{}"] * 3
    # The description is built in a thread, so that it does not block the event loop.
    (thread,) = threads
    assert thread != threading.get_ident()


async def test_an_unbuilt_page_explains_how_to_build_it(
    tmp_path: Path, aiohttp_client: AiohttpClient
) -> None:
    for manifest in (None, "[]", "{", '{"docs.js": 1}', '{"docs.js": "docs.1.js"}'):
        if manifest is not None:
            (tmp_path / "manifest.json").write_text(manifest)
        app = web.Application()
        app.add_routes(DocsPage(lambda: b"{}", tmp_path).routes())
        client = await aiohttp_client(app)
        page = await client.get("/docs")
        assert page.status == 503
        assert "python gateway/web/build.py controller/web" in await page.text()
        assert (await client.get("/docs/openapi.json")).status == 200


@pytest.mark.needs("node")
async def test_the_page_references_immutable_assets(
    unauthenticated: aiohttp.ClientSession,
) -> None:
    async with unauthenticated.get("/docs") as response:
        page = await response.text()
        policy = response.headers["Content-Security-Policy"]
        assert (response.status, response.headers["X-Content-Type-Options"]) == (200, "nosniff")
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    named = re.findall(r'(?:src|href)="(/docs/[^"]+\.(?:js|css))"', page)
    assert len(named) == 3
    for path in named:
        async with unauthenticated.get(path) as response:
            assert response.status == 200
            assert response.content_type == (
                "text/css" if path.endswith("css") else "text/javascript"
            )
            assert response.headers["Content-Encoding"] == "gzip"
            assert "immutable" in response.headers["Cache-Control"]


@pytest.mark.timeout(300)
@pytest.mark.needs("chromium", "node")
async def test_the_page_renders_in_a_browser_and_calls_the_api_with_a_token(api: Api) -> None:
    complaints: list[str] = []
    asked: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text or message.type == "error":
            complaints.append(message.text)

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox"]
        )
        page = await browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", hear)
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(str(api.client.make_url("/docs")))
        operation = page.locator("#operations-maintenance-getMaintenance")
        await expect(operation).to_be_visible(timeout=PATIENCE_MS)
        await page.locator("button.authorize").first.click()
        await page.locator(".auth-container input").fill(service_token())
        await page.locator(".auth-btn-wrapper button.authorize").click()
        await page.locator(".auth-btn-wrapper button.btn-done").click()
        await operation.click()
        await operation.get_by_role("button", name="Try it out").click()
        await operation.get_by_role("button", name="Execute").click()
        response = operation.locator(".live-responses-table")
        await expect(response).to_contain_text('"mode": "running"', timeout=PATIENCE_MS)
        await browser.close()
    assert complaints == []
    origin = str(api.client.make_url("/"))
    assert [url for url in asked if not url.startswith((origin, "data:"))] == []
