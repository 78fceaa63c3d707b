"""Tests the tools of a desktop's page in a real Chromium, with a real Xvnc or a recorder."""

from __future__ import annotations

import asyncio
import re
import signal
import struct
from collections.abc import Callable

import pytest
from playwright.async_api import Browser, Page, expect
from Xlib import X

from gateway.pages.texts import LANGUAGES
from tests.gateway.conftest import World
from tests.gateway.pages.test_clipboard import clipboard_of, desktop, put
from tests.gateway.pages.users import Person
from tests.gateway.xvnc import WAIT_SECONDS, Screen, screen_of, xvnc

pytestmark = pytest.mark.needs("chromium")

# The desktop's size, and the room for it on the page.
SIZES = """() => {
  const { width, height } = document.querySelector("canvas");
  const room = document.querySelector(".desktop-screen").getBoundingClientRect();
  return [width, height, Math.floor(room.width), Math.floor(room.height)];
}"""
# Only the page's measurements use this clock.
CLOCK = """
  const now = performance.now.bind(performance);
  globalThis.ahead = 0;
  performance.now = () => now() + ahead;
"""
PIXEL = """() => {
  const canvas = document.querySelector("canvas");
  return canvas ? [...canvas.getContext("2d").getImageData(300, 200, 1, 1).data].slice(0, 3) : [];
}"""


async def arrive(world: World, person: Person, port: int, **route: str) -> str:
    """Open the desktop at *port*; return its sid."""
    sid = await world.publish(kind="vnc", port=port, **route)
    await person.context.grant_permissions(
        ["clipboard-read", "clipboard-write"], origin=world.gateway.origin(sid)
    )
    await person.follow_link(sid, kind="vnc")
    await expect(person.page.get_by_role("status")).to_have_text("Connected")
    return sid


async def until(page: Page, script: str, right: Callable[[list[int]], bool]) -> None:
    """Wait until *script* returns the right value."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not right(await page.evaluate(script)):
            await asyncio.sleep(0.05)


async def until_it_fits(page: Page, screen: Screen) -> None:
    """Wait until the desktop has the size of the room on the page."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            size = await page.evaluate(SIZES)
            if size[:2] == size[2:] == list(screen.size):
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("language", [texts.language for texts in LANGUAGES])
async def test_the_bar_keeps_its_height_when_the_latency_is_shown(
    world: World, person: Person, language: str
) -> None:
    page = person.page
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.set_extra_http_headers({"Accept-Language": language})
    async with desktop(b"") as (port, _):
        sid = await world.publish(kind="vnc", port=port)
        await person.follow_link(sid, kind="vnc")
        await expect(page.locator("html")).to_have_attribute("lang", language)
        await expect(page.locator("canvas")).to_be_visible()
        height = "document.querySelector('.bar').offsetHeight"
        way = "text => document.querySelector('#round-trip').textContent = text"
        heights = []
        for text in ("", "3 ms", "1234 ms"):
            await page.evaluate(way, text)
            heights.append(await page.evaluate(height))
        assert len(set(heights)) == 1
        assert heights[0] < 60


@pytest.mark.needs("xvnc")
async def test_a_desktop_adopts_the_window_size_and_accepts_keys_after_the_first_click(
    world: World, person: Person
) -> None:
    page = person.page
    await page.add_init_script(CLOCK)
    await page.set_viewport_size({"width": 1400, "height": 700})
    async with (
        xvnc("-SecurityTypes", "None") as server,
        screen_of(server) as screen,
    ):
        port, process = server.port, server.process
        await arrive(world, person, port)
        await page.locator("canvas").click(position={"x": 50, "y": 60})
        await page.keyboard.type("straight away")
        await screen.until(lambda: screen.typed == "straight away")
        await expect(page.locator("#round-trip")).to_have_text(re.compile(r"^\d+ ms$"))
        await until_it_fits(page, screen)
        await page.set_viewport_size({"width": 1300, "height": 600})
        await until(page, SIZES, lambda size: size[2] == 1300)
        await until_it_fits(page, screen)
        assert screen.size[0] == 1300
        # In its own size, the desktop keeps its current size.
        await page.get_by_role("button", name="Fit to window").click()
        await page.set_viewport_size({"width": 1500, "height": 800})
        await until(page, SIZES, lambda size: size[2] == 1500)
        assert screen.size[0] == 1300
        # Drags are the desktop's, in its own size too.
        screen.seen.clear()
        await page.mouse.move(300, 300)
        await page.mouse.down()
        await page.mouse.move(360, 340)
        await screen.until(lambda: X.ButtonPress in screen.seen)
        await page.mouse.up()
        # A cut network sends no signal, so the page relies on silence. The next connection shows
        # the screen of that time.
        process.send_signal(signal.SIGSTOP)
        try:
            await page.keyboard.press("x")
            state = page.get_by_role("status")
            async with asyncio.timeout(WAIT_SECONDS):
                while await state.inner_text() != "No response\u2026":
                    await page.evaluate("ahead += 1000")
                    await asyncio.sleep(0.3)
            lost = page.locator("#notice h2", has_text="The connection was lost")
            async with asyncio.timeout(WAIT_SECONDS):
                while not await lost.is_visible():
                    await page.evaluate("ahead += 20_000")
                    await asyncio.sleep(1.2)
        finally:
            process.send_signal(signal.SIGCONT)
        screen.paint(0x0000FF)
        await expect(state).to_have_text("Your last keys may not have arrived")
        await expect(state).to_have_text("Connected")
        await until(page, PIXEL, lambda pixel: pixel == [0, 0, 255])
        await expect(page.locator(".desktop-screen canvas")).to_have_count(1)


@pytest.mark.needs("xvnc")
@pytest.mark.parametrize("clipboard", ["both", "in", "out"])
async def test_every_character_crosses_the_clipboard_in_allowed_directions(
    world: World, person: Person, clipboard: str
) -> None:
    page = person.page
    text = "Grüße, 5 € für 日本 🎉"
    async with xvnc("-SecurityTypes", "None") as server, screen_of(server) as screen:
        await arrive(world, person, server.port, clipboard=clipboard)
        if clipboard != "out":
            await put(person, text)
            await page.get_by_role("button", name="Paste clipboard").click()
            await screen.until(lambda: not screen.clipboard_is_empty)
            assert await screen.clipboard() == text
        screen.own_clipboard(text[::-1])
        copy = page.get_by_role("button", name="Copy from desktop")
        if clipboard != "in":
            async with asyncio.timeout(WAIT_SECONDS):
                while not await copy.is_enabled():
                    screen.take()
                    await asyncio.sleep(0.02)
            await copy.click()
            await expect(page.get_by_role("status")).to_have_text("Copied")
            assert await clipboard_of(person) == text[::-1]


def keys_of(received: list[bytes]) -> list[int]:
    """Return the keysyms of the pressed keys (RFC 6143, section 7.5.4)."""
    pressed, data = [], b"".join(received)
    while data:
        size = {0: 20, 3: 10, 4: 8, 5: 6, 248: 9}.get(data[0], 0)
        if data[0] == 2:
            size = 4 + 4 * int.from_bytes(data[2:4], "big")
        assert size, data[:20]
        if data[:2] == b"\4\1":
            pressed.append(int.from_bytes(data[4:8], "big"))
        data = data[size:]
    return pressed


async def test_composed_text_and_shortcuts_reach_the_desktop_by_the_keyboard_button(
    world: World, person: Person
) -> None:
    page = person.page
    async with desktop(b"") as (port, received):
        await arrive(world, person, port)
        keyboard = page.get_by_role("button", name="Keyboard")
        await keyboard.click()
        received.clear()
        devtools = await person.context.new_cdp_session(page)
        composed = {"text": "\u306b", "selectionStart": 1, "selectionEnd": 1}
        await devtools.send("Input.imeSetComposition", composed)
        await devtools.send("Input.insertText", {"text": "\u65e5"})
        # Safari reports the Enter that ends a composition after its end, and only so marked.
        await page.evaluate(
            """document.querySelector("#typed").dispatchEvent(
              new KeyboardEvent("keydown", { key: "Enter", code: "Enter", keyCode: 229 }))"""
        )
        # A click is the desktop's, and the field keeps the keys.
        await page.locator("canvas").click(position={"x": 9, "y": 9})
        await page.keyboard.press("Control+c")
        await page.keyboard.press("F5")
        await page.keyboard.press("A")
        await page.keyboard.press("Shift+Home")
        wanted = [0x10065E5, 0xFFE3, 0x63, 0xFFC2, 0x41, 0xFFE1, 0xFF50]
        async with asyncio.timeout(WAIT_SECONDS):
            while len(keys_of(received)) < len(wanted):
                await asyncio.sleep(0.02)
        assert keys_of(received) == wanted
        await expect(keyboard).to_have_attribute("aria-pressed", "true")
        await page.keyboard.press("Control+Alt+Shift")
        await expect(page.locator(".tools :focus")).to_be_visible()


async def test_a_touch_keyboard_types_and_a_slow_network_lowers_the_quality(
    world: World, browser: Browser, person: Person
) -> None:
    async with desktop(b"") as (port, received):
        await arrive(world, person, port)
        received.clear()
        await person.page.get_by_label("Quality of the picture").select_option("Less data")
        announced = struct.pack(">ii", -31, -250)
        async with asyncio.timeout(WAIT_SECONDS):
            while announced not in b"".join(received):
                await asyncio.sleep(0.02)
        context = await browser.new_context(
            viewport={"width": 320, "height": 640}, has_touch=True, is_mobile=True
        )
        touched = Person(world, context, await context.new_page())
        await arrive(world, touched, port)
        received.clear()
        keyboard = touched.page.get_by_role("button", name="Keyboard")
        await keyboard.tap()
        await expect(keyboard).to_have_attribute("aria-pressed", "true")
        # A keyboard with autocorrection writes a word anew.
        await touched.page.keyboard.insert_text("Z\u00fc\u20ac")
        await touched.page.evaluate(
            """() => {
              const field = document.querySelector("#typed");
              field.value = field.value.slice(0, -2) + "o";
              field.dispatchEvent(new InputEvent("input"));
            }"""
        )
        await touched.page.keyboard.press("Enter")
        await touched.page.keyboard.press("Backspace")
        wanted = [0x5A, 0xFC, 0x10020AC, 0xFF08, 0xFF08, 0x6F, 0xFF0D, 0xFF08]
        async with asyncio.timeout(WAIT_SECONDS):
            while len(keys_of(received)) < len(wanted):
                await asyncio.sleep(0.02)
        assert keys_of(received) == wanted
        await keyboard.tap()
        await expect(keyboard).to_have_attribute("aria-pressed", "false")
        await expect(touched.page.locator(".desktop-screen canvas")).to_be_focused()
        assert await touched.page.evaluate("document.documentElement.scrollWidth") == 320
        assert touched.complaints == []
        await context.close()
