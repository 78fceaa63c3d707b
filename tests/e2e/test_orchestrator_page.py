"""Tests the reference orchestrator's page: what an owner can do with a job, and what others can."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Error, Page, expect

from deploy.local.system import LocalSystem
from tests.controller.running import eventually
from tests.e2e.conftest import Visit
from tests.e2e.users import Person
from tests.gateway.pages.accessibility import AXE, LOOKS, cut, judge

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.needs("chromium"),
    pytest.mark.timeout(240),
]


async def has_closed(tool: Page) -> bool:
    """Return whether *tool* shows that its session is over, on whichever page it is."""
    try:
        await tool.reload()
        return await tool.get_by_text("This session has ended.").count() > 0
    except Error:
        return False  # the tab was navigating by itself


@pytest.mark.usefixtures("shells")
async def test_a_job_is_followed_extended_shared_and_taken_back(
    system: LocalSystem, visit: Visit
) -> None:
    ada = await Person.arrive(await visit(), system.address, "ada")
    bob = await Person.arrive(await visit(), system.address, "bob")
    await ada.start("Shell")
    job = await ada.start("Shell")
    await ada.running(job)
    # The newest job comes first; each job shows its start and end.
    newest = ada.page.locator("#jobs > li").first
    await expect(newest).to_have_attribute("data-job", job)
    times = newest.locator(".times")
    await expect(times).to_contain_text("until")
    before = await times.inner_text()
    await newest.get_by_role("button", name="1 hour more for Shell").click()
    await expect(times).not_to_have_text(before)
    await newest.get_by_text("History", exact=True).click()
    await expect(newest.locator("tbody tr").last).to_contain_text("Running")
    await newest.get_by_text("Log", exact=True).click()
    await expect(newest.locator("pre")).to_have_text("Nothing was written yet.")
    # Usage is measured every few seconds, and needs two scrapes.
    await newest.get_by_text("Resources", exact=True).click()
    memory = newest.locator('[data-metric="memory_bytes"]')
    await expect(memory).to_contain_text("iB", timeout=90_000)
    await expect(memory.get_by_role("img")).to_be_visible()
    await expect(newest.locator(".lacking")).to_contain_text("GPU: not configured")
    # The keys attach, open and remove a tool. A real cluster would have to pull the image first.
    if system.cluster is not None:
        await newest.locator(".tools summary").press("Enter")
        lab = newest.locator('[data-tool="jupyterlab"]')
        await lab.get_by_role("button", name="Attach JupyterLab to Shell").press("Enter")
        await expect(lab.locator(".word")).to_have_text(re.compile("Waiting|Running"))
        async with ada.context.expect_page() as opening:
            await lab.get_by_role("button", name="Open JupyterLab in Shell").press("Enter")
        tool = await opening.value
    # Another user sees the job once it is shared, and opens it.
    theirs = bob.page.locator(f'[data-job="{job}"]')
    await expect(theirs).to_have_count(0)
    await newest.get_by_text("Share", exact=True).click()
    await newest.get_by_label("bob may open it").check()
    await expect(theirs).to_contain_text("shared by ada")
    await expect(theirs.get_by_role("button")).to_have_count(1)
    terminal = await bob.open(job)
    await expect(terminal.locator(".xterm-rows")).to_contain_text("$")
    for look in LOOKS:
        await look.take(ada.page)
        assert await cut(ada.page) == [], look.name
        if AXE.exists() and look.width == 320:
            assert (await judge(ada.page)).violations == [], look.name
    if system.cluster is not None:
        remove = lab.get_by_role("button", name="Remove JupyterLab from Shell")
        await remove.press("Enter")
        await expect(lab.get_by_role("button", name="Attach JupyterLab to Shell")).to_be_focused()
        await eventually(lambda: has_closed(tool), seconds=60, what="its session goes on")
    await newest.get_by_label("bob may open it").uncheck()
    await expect(theirs).to_have_count(0)
    await expect(terminal.get_by_text("Your access has ended")).to_be_visible()
    # All clicks happen at once: a pressed button is soon disabled, and the other buttons move.
    stops = "#jobs > li .stop:enabled"
    await ada.page.evaluate(
        "(stops) => document.querySelectorAll(stops).forEach((button) => button.click())", stops
    )
    await expect(ada.page.locator(stops)).to_have_count(0)
