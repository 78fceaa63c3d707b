"""Drives a browser as a person does: start, open, work, stop."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

from playwright.async_api import BrowserContext, Page, expect

from tests.e2e.sessions import PATIENCE_SECONDS

INK = (255, 196, 84)
NOTEBOOK_SETTLES_MS = 3000
"""JupyterLab shows a kernel as idle before a new notebook is joined to it."""


class Person:
    """A person with the orchestrator's page open."""

    def __init__(self, context: BrowserContext, page: Page) -> None:
        self.context = context
        self.page = page

    @classmethod
    async def arrive(cls, context: BrowserContext, address: str, user: str) -> Person:
        """Open the orchestrator's page and sign in."""
        page = await context.new_page()
        await page.goto(address)
        await page.get_by_text(user, exact=True).click()
        await expect(page.get_by_role("radio", name=user)).to_be_checked()
        return cls(context, page)

    async def start(self, app: str) -> str:
        """Start an app; return its job as soon as the page shows it."""
        before = await self.jobs()
        await self.page.get_by_role("button", name=f"Start {app}").click()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (new := await self.jobs() - before):
                await asyncio.sleep(0.05)
        (job,) = new
        await expect(self.page.locator(f'[data-job="{job}"]')).to_be_visible()
        return job

    async def jobs(self) -> set[str]:
        """Return this person's jobs."""
        shown = await self.page.evaluate("fetch('/api/jobs').then((answer) => answer.json())")
        return {job["id"] for job in shown["jobs"]}

    async def running(self, job: str) -> None:
        """Wait until the page shows that *job* runs."""
        row = self.page.locator(f'[data-job="{job}"]')
        await expect(row).to_have_attribute(
            "data-state", "RUNNING", timeout=PATIENCE_SECONDS * 1000
        )

    async def open(self, job: str) -> Page:
        """Open the app of *job* in a tab of its own."""
        async with self.context.expect_page() as opening:
            await self.page.locator(f'[data-job="{job}"] .open').click()
        return await opening.value

    async def stop(self, job: str) -> None:
        """Stop *job*."""
        await self.page.locator(f'[data-job="{job}"] .stop').click()


async def compute_in_notebook(lab: Page, source: str, result: str) -> None:
    """Make a notebook in an open JupyterLab, run a cell, and see its output."""
    await lab.locator('.jp-LauncherCard[data-category="Notebook"]').first.click(timeout=60_000)
    idle = lab.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]')
    await expect(idle).to_be_visible(timeout=60_000)
    await lab.wait_for_timeout(NOTEBOOK_SETTLES_MS)
    editor = lab.locator(".jp-Notebook .jp-Cell .cm-content").first
    await editor.fill(source)
    output = lab.locator(".jp-OutputArea-output").first
    # JupyterLab sometimes drops the first run of a new notebook, also without a gateway. People
    # press
    # the keys again, and so does this code.
    for _ in range(6):
        await editor.click()
        await editor.press("Control+Enter")
        with suppress(AssertionError):
            await expect(output).to_have_text(result, timeout=10_000)
            return
    await expect(output).to_have_text(result)


async def type_in_terminal(terminal: Page, command: str, answer: str) -> None:
    """Type a command at the prompt, and see a line that is its output."""
    screen = terminal.locator(".xterm-rows")
    await expect(screen).to_contain_text("$")
    await terminal.locator(".xterm-helper-textarea").focus()
    await terminal.keyboard.type(f"{command}\n")
    # The line holds nothing else, because the prompt itself may contain the text.
    only = re.compile(rf"^\s*{re.escape(answer)}\s*$")
    await expect(screen.locator("> div").filter(has_text=only).last).to_be_visible()


async def pixel(desktop: Page, x: int, y: int) -> tuple[int, ...]:
    """Return the colour at a place of the remote screen, in its own pixels."""
    data: list[int] = await desktop.locator("canvas").evaluate(
        "(c, [x, y]) => Array.from(c.getContext('2d').getImageData(x, y, 1, 1).data)", [x, y]
    )
    return tuple(data[:3])


async def click_on_desktop(desktop: Page, x: int, y: int) -> None:
    """Click at a place of the remote screen, in its own pixels."""
    canvas = desktop.locator("canvas")
    width = await canvas.evaluate("(c) => c.width")
    box = await canvas.bounding_box()
    assert box is not None
    scale = box["width"] / width
    await desktop.mouse.click(box["x"] + x * scale, box["y"] + y * scale)
