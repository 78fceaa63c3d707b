"""Carries out the steps of an app's row in a page of Chromium, as a person would."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Final

from playwright.async_api import Error, Page, Request, expect

from tests.apps.table import RealApp, Step
from tests.e2e.users import INK, click_on_desktop, pixel

LOAD_SECONDS: Final = 300.0
"""What an app may take to start in its job, on a machine that does something else, too."""
COMPUTE_SECONDS: Final = 240.0
TRY_SECONDS: Final = 30.0
"""After this a person tries again: a click while there is no connection may be lost."""
QUIET_SECONDS: Final = 1.0
SETTLED_SECONDS: Final = 60.0
_SPOT: Final = (60, 300)
_STEP: Final = 40


class Responses:
    """The responses that a page still waits for, among requests from now on."""

    def __init__(self, page: Page) -> None:
        self._open: set[Request] = set()
        # Lambdas instead of bound methods: Playwright cannot mark built-in methods.
        page.on("request", lambda one: self._open.add(one))
        page.on("requestfinished", lambda one: self._open.discard(one))
        page.on("requestfailed", lambda one: self._open.discard(one))

    async def settled(self) -> None:
        """Return once no response has been pending for a second, or after a minute.

        Gradio's last event comes after its result. If a button's stream breaks off in between, the
        button waits for that event for ever, and the gateway cannot repair that.
        """
        now = time.monotonic()
        quiet_since, deadline = now, now + SETTLED_SECONDS
        while now - quiet_since < QUIET_SECONDS:
            if now > deadline:
                print("still under way:", *(one.url for one in self._open))
                return
            await asyncio.sleep(0.1)
            now = time.monotonic()
            if self._open:
                quiet_since = now


async def load(page: Page, app: RealApp) -> float:
    """Carry out the steps for *app* after its opening; return the seconds that they took."""
    began = time.monotonic()
    for step in app.loads:
        await _do(page, step, 0, seconds=LOAD_SECONDS)
    return time.monotonic() - began


async def compute(page: Page, app: RealApp, number: int) -> None:
    """Let *app* compute with *number*, and check the result.

    Raises:
        AssertionError, TimeoutError, playwright.async_api.Error: If every attempt fails.
    """
    deadline = time.monotonic() + COMPUTE_SECONDS
    while True:
        try:
            for step in app.computes:
                await _do(page, step, number, seconds=TRY_SECONDS)
        except (AssertionError, TimeoutError, Error):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)
        else:
            return


async def _do(page: Page, step: Step, number: int, *, seconds: float) -> None:
    what, css, *rest = step
    text = "".join(rest).replace("{n}", str(number)).replace("{square}", str(number**2))
    there, most = page.locator(css).first, seconds * 1000
    match what:
        case "click":
            await there.click(timeout=most)
        case "fill":
            await there.fill(text, timeout=most)
        case "press":
            await there.press(text, timeout=most)
        case "type":
            await there.focus(timeout=most)
            await page.keyboard.type(text)
        case "see":
            seen = page.locator(css).filter(has_text=text)
            await expect(seen.first).to_be_visible(timeout=most)
        case "read":
            script = f"(text) => ({css}).includes(text)"
            await page.wait_for_function(script, arg=text, timeout=most)
        case "fetch":
            wanted = re.compile(re.escape(text))
            async with page.expect_response(wanted, timeout=most) as fetched:
                await there.click(timeout=most)
            assert (await fetched.value).ok
        case "paint":
            await _paint(page, number, seconds=seconds)
        case _:
            raise ValueError(f"there is no step {what!r}")


async def _paint(page: Page, number: int, *, seconds: float) -> None:
    x, y = _SPOT[0] + _STEP * number, _SPOT[1]
    async with asyncio.timeout(seconds):
        await click_on_desktop(page, x, y)
        while await pixel(page, x, y) != INK:
            await asyncio.sleep(0.1)
