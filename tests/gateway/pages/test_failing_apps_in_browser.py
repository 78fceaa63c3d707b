"""Tests what a user sees in a real Chromium while an app does not respond."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, expect

from tests.gateway.conftest import World
from tests.gateway.pages.users import Person
from tests.gateway.upstreams import listening_on
from tests.gateway.xvnc import PORTS

pytestmark = pytest.mark.needs("chromium")

FORM = b"<form method=post action=/save><textarea name=t></textarea><button>Save</button></form>"
PAUSE_MS = 3000
"""The page of an app that does not respond tries again after a second, then after two."""


@asynccontextmanager
async def form_app(port: int) -> AsyncIterator[list[bytes]]:
    """Run an app with a form; provide the request lines that it received."""
    lines: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append((await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0])
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(FORM), FORM)
        )
        writer.close()

    async with listening_on(handle, port=port):
        yield lines


async def test_a_form_that_cannot_be_sent_is_not_replaced_by_a_request_without_it(
    world: World, person: Person
) -> None:
    port, page = PORTS.take(), person.page
    sid = await world.publish(port=port)
    async with form_app(port):
        await person.follow_link(sid)
        await page.locator("textarea").fill("three hours of work")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading")).to_have_text("The app does not respond")
    await expect(page.locator(".card")).to_contain_text("Go back, and send it again in a moment.")
    async with form_app(port) as lines:
        await page.wait_for_timeout(PAUSE_MS)
        assert lines == []
        await page.go_back()
        await expect(page.locator("textarea")).to_have_value("three hours of work")
        await page.get_by_role("button", name="Save").click()
        await page.wait_for_url(person.url(sid, "/save"))
        assert lines[-1] == b"POST /save HTTP/1.1"


async def test_a_browser_without_scripts_tries_again_too(
    world: World, person: Person, browser: Browser
) -> None:
    port = PORTS.take()
    sid = await world.publish(port=port)
    await person.follow_link(sid)
    await expect(person.page.get_by_role("heading")).to_have_text("The app does not respond")
    signed_in = await person.context.storage_state()
    context = await browser.new_context(java_script_enabled=False, storage_state=signed_in)
    page = await context.new_page()
    await page.goto(person.url(sid))
    await expect(page.locator(".card")).to_contain_text("This page tries again by itself.")
    async with form_app(port):
        await expect(page.locator("textarea")).to_be_visible()
    await context.close()


async def test_another_failure_is_not_counted_as_the_same_one(world: World, person: Person) -> None:
    port, page = PORTS.take(), person.page
    sid = await world.publish(port=port)
    await person.follow_link(sid)
    status = page.get_by_role("status")
    await expect(status).to_have_text("Trying again in 2 s.")
    async with form_app(port):
        await expect(page.locator("textarea")).to_be_visible()
    # The app worked for an hour.
    await page.evaluate("""() => {
        for (const [key, value] of Object.entries(sessionStorage))
            if (Number(value) > 1e12) sessionStorage.setItem(key, Number(value) - 3600_000);
    }""")
    await page.reload()
    await expect(status).to_have_text("Trying again in 1 s.")
    await expect(page.locator("#stuck")).to_be_hidden()
