"""Tests a web session's end notice in Chromium: shown once, without disturbing the app."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.gateway.conftest import World
from tests.gateway.pages.users import Person
from tests.gateway.upstreams import listening_on

pytestmark = pytest.mark.needs("chromium")
HOME = b"""<!doctype html><title>App</title><h1>The app</h1>
<a href="/data.csv" download>data</a> <a href="/export">export</a>
<a href="/page" download>page</a>
<form method="post" action="/answered"><button>Ask</button></form>
<form method="post" action="/saved"><button>Save</button></form>"""
FILE = b'Content-Type: text/html\r\nContent-Disposition: attachment; filename="export.html"\r\n'


@asynccontextmanager
async def app_with_downloads() -> AsyncIterator[tuple[int, list[str]]]:
    """Run an app with a page for each path, and files; return its requests too."""
    asked: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, path, _ = head.split(" ", 2)
            asked.append(f"{method} {path}")
            status, fields = b"200 OK", b"Content-Type: text/html\r\n"
            body = HOME if path == "/" else b"<h1>%b %b</h1>" % (method.encode(), path.encode())
            if path == "/data.csv":
                fields = b"Content-Type: text/csv\r\n"
            elif path == "/export":
                fields = FILE
            elif (method, path) == ("POST", "/saved"):
                status, fields = b"303 See Other", b"Location: /saved\r\n"
            writer.write(
                b"HTTP/1.1 %b\r\n%bConnection: close\r\nContent-Length: %d\r\n\r\n%b"
                % (status, fields, len(body), body)
            )
        writer.close()

    async with listening_on(handle) as port:
        yield port, asked


async def notice_is_shown(page: Page) -> None:
    """Wait for the notice, and for the end of its script."""
    await expect(page.get_by_role("heading", level=1)).to_have_text("Lab ends soon")
    await expect(page.get_by_role("status")).to_have_text(
        re.compile(r"It ends at \d\d:\d\d( [AP]M)?, in \d min\.")
    )


async def test_a_user_gets_one_notice_and_the_app_is_not_disturbed(
    world: World,
    person: Person,
) -> None:
    async with app_with_downloads() as (port, asked):
        status = {"phase": "ready", "app": "Lab", "since": time.time() - 3600}
        app_state: dict[str, Any] = {"port": port, "status": status}
        sid = await world.publish(**app_state, expires_at=time.time() + 5000)
        await person.follow_link(sid)
        page, shown = person.page, person.page.get_by_role("heading", level=1)
        await expect(shown).to_have_text("The app")
        await world.change(sid, **app_state, expires_at=time.time() + 500)
        # Responses that are no document of their own stay unchanged.
        for name in ("data", "export", "page"):
            async with page.expect_download() as saved:
                await page.get_by_role("link", name=name).click()
            assert b"GET /" in (await (await saved.value).path()).read_bytes()
        await page.evaluate(
            """async () => {
              for (const [name, set] of [["iframe", "src"], ["link", "href"], ["object", "data"]]) {
                const part = document.createElement(name);
                part.rel = "prefetch";
                const loaded = new Promise((done) => (part.onload = part.onerror = done));
                part[set] = `/${name}`;
                document.body.append(part);
                await loaded;
              }
              await fetch("/fetch", { headers: { Accept: "text/html" } });
            }"""
        )
        await expect(page.frame_locator("iframe").locator("h1")).to_have_text("GET /iframe")
        await page.get_by_role("button", name="Ask").click()
        await expect(shown).to_have_text("POST /answered")
        # The app's own window shows the notice once, and keeps its opener.
        await page.go_back()
        async with page.expect_popup() as opened:
            await page.evaluate("void window.open('/window?x=%3Ca%3E#part')")
        window = await opened.value
        await notice_is_shown(window)
        extend = window.get_by_role("link", name="Extend the job")
        assert await extend.get_attribute("href") == f"https://cloud.example.org/jobs/j1?from={sid}"
        await window.keyboard.press("Tab")
        await window.keyboard.press("Enter")
        await expect(window.get_by_role("heading")).to_have_text("GET /window?x=%3Ca%3E")
        assert window.url == person.url(sid, "/window?x=%3Ca%3E#part")
        assert await window.evaluate("window.opener !== null && history.length === 1")
        await page.goto(person.url(sid, "/lab"))
        await expect(shown).to_have_text("GET /lab")
        # The end has changed: a new notice is shown, and the form is sent once only.
        await page.goto(person.url(sid))
        await world.change(sid, **app_state, expires_at=time.time() + 450)
        await page.get_by_role("button", name="Save").click()
        await notice_is_shown(page)
        await page.get_by_role("link", name="Go on").click()
        await expect(shown).to_have_text("GET /saved")
        assert asked.count("POST /saved") == 1
        await page.reload()
        await expect(shown).to_have_text("GET /saved")


async def test_the_notice_speaks_german(
    world: World,
    person: Person,
) -> None:
    async with app_with_downloads() as (port, _):
        await person.context.set_extra_http_headers({"Accept-Language": "de-CH"})
        status = {"phase": "ready", "app": "Lab", "since": time.time() - 3600}
        app_state: dict[str, Any] = {"port": port, "status": status}
        sid = await world.publish(**app_state, expires_at=time.time() + 300)
        await person.follow_link(sid)
        await expect(person.page.get_by_role("heading")).to_have_text("Lab: bald zu Ende")
        await expect(person.page.get_by_role("link")).to_have_text(["Weiter", "Job verlängern"])
        await person.page.get_by_role("link", name="Weiter").click()
        await expect(person.page.get_by_role("heading")).to_have_text("The app")
