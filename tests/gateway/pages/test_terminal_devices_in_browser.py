"""Tests the touch and the keyboards of devices in a terminal's page in a real Chromium."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Browser, expect

from tests.gateway.conftest import World
from tests.gateway.pages.test_terminal_in_browser import Shells, arrive, shells
from tests.gateway.pages.users import Person

pytestmark = pytest.mark.needs("chromium")

__all__ = ["shells"]  # a fixture


async def test_touch_devices_show_a_row_of_keys(
    world: World, browser: Browser, person: Person, shells: Shells
) -> None:
    await arrive(world, person, shells)
    await expect(person.page.get_by_role("toolbar", name="Keys")).to_be_hidden()
    context = await browser.new_context(
        viewport={"width": 320, "height": 640}, has_touch=True, is_mobile=True
    )
    touched = Person(world, context, await context.new_page())
    await arrive(world, touched, shells)
    page = touched.page
    row = page.get_by_role("toolbar", name="Keys")
    ctrl = row.get_by_role("button", name="Ctrl")
    await page.locator(".xterm-screen").tap()
    for key, sent in (("Esc", b"\x1b"), ("Tab", b"\t"), ("Left", b"\x1b[D"), ("Up", b"\x1b[A")):
        await row.get_by_role("button", name=key).tap()
        await shells.until_typed(sent)
    await ctrl.tap()
    await page.keyboard.type("c")
    await shells.until_typed(b"\x03")
    await expect(ctrl).to_have_attribute("aria-pressed", "false")
    await page.keyboard.type("c")
    await shells.until_typed(b"c")
    await ctrl.tap()
    await row.get_by_role("button", name="Right").tap()
    await shells.until_typed(b"\x1b[1;5C")
    await shells.write(b"\x1b[?1h.")
    await expect(page.locator(".xterm-rows")).to_contain_text(".")
    await row.get_by_role("button", name="Down").tap()
    await shells.until_typed(b"\x1bOB")
    # Nothing is cut off at this width.
    assert await page.evaluate("document.documentElement.scrollWidth") == 320
    assert touched.complaints == []
    await context.close()
    # A viewer has no buttons.
    await person.context.clear_cookies()
    await arrive(world, person, shells, mode="view")
    await expect(person.page.locator("#key-row")).to_have_count(0)


async def test_a_finger_and_the_wheel_scroll(
    world: World, browser: Browser, person: Person, shells: Shells
) -> None:
    shells.output = b"line\r\n" * 200 + b"$ "
    context = await browser.new_context(
        viewport={"width": 320, "height": 640}, has_touch=True, is_mobile=True
    )
    touched = Person(world, context, await context.new_page())
    await arrive(world, touched, shells)
    page, devtools = touched.page, await context.new_cdp_session(touched.page)

    async def swipe(distance: int) -> None:
        for kind, y in (("touchStart", 300), ("touchMove", 300 + distance), ("touchEnd", None)):
            points = [] if y is None else [{"x": 100, "y": y}]
            await devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    top = "fumaroleTerminal.buffer.active.viewportY"
    end = await page.evaluate(top)
    await swipe(200)
    async with asyncio.timeout(20):
        while await page.evaluate(top) > end - 8:
            await asyncio.sleep(0.02)
    # Programs on the alternate screen scroll by arrow keys, or by the mouse if they take it.
    await shells.write(b"\x1b[?1049h\x1b[?1h\x1b[6n")
    await shells.until_typed(b"R")
    await swipe(-200)
    await shells.until_typed(b"\x1bOB" * 8)
    await page.mouse.move(100, 300)
    await page.mouse.wheel(0, -100)
    await shells.until_typed(b"\x1bOA" * 4)
    await shells.write(b"\x1b[?1000h\x1b[?1006h\x1b[6n")
    await shells.until_typed(b"R")
    shells.typed = b""
    await swipe(200)
    async with asyncio.timeout(20):
        while shells.typed.count(b"\x1b[<64;") < 8:
            await asyncio.sleep(0.02)
    await context.close()


OPTION_L = """() => {
  const field = document.querySelector(".xterm-helper-textarea");
  const key = { key: "@", code: "KeyL", altKey: true, bubbles: true, cancelable: true };
  if (field.dispatchEvent(new KeyboardEvent("keydown", { ...key, keyCode: 76 })))
    field.dispatchEvent(new KeyboardEvent("keypress", { ...key, keyCode: 64, charCode: 64 }));
}"""


async def test_option_on_a_mac_types_characters_unless_it_is_meta_by_choice(
    world: World, person: Person, shells: Shells
) -> None:
    await person.page.add_init_script(
        "Object.defineProperty(navigator, 'platform', { get: () => 'MacIntel' })"
    )
    await arrive(world, person, shells)
    await person.page.evaluate(OPTION_L)
    await shells.until_typed(b"@")
    await person.page.get_by_text("Menu", exact=True).click()
    await person.page.get_by_label("Option key as Meta").check()
    await person.page.evaluate(OPTION_L)
    await shells.until_typed(b"\x1bl")
