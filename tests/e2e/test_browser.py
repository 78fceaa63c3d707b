"""Tests the everyday use of notebooks, terminals and desktops in a real browser."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from deploy.local.system import LocalSystem
from tests.e2e.conftest import Visit
from tests.e2e.users import (
    INK,
    Person,
    click_on_desktop,
    compute_in_notebook,
    pixel,
    type_in_terminal,
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.needs("chromium"),
    pytest.mark.timeout(240),
]

OUTPUT = Path(__file__).parents[1] / "output"


async def picture(page: Page, name: str) -> None:
    """Save a screenshot for inspection."""
    OUTPUT.mkdir(exist_ok=True)
    await page.screenshot(path=OUTPUT / f"{name}.png")


@pytest.mark.usefixtures("notebooks")
async def test_two_people_compute_in_notebooks_side_by_side(
    system: LocalSystem, visit: Visit
) -> None:
    ada = await Person.arrive(await visit(), system.address, "ada")
    bob = await Person.arrive(await visit(), system.address, "bob")
    jobs = await asyncio.gather(ada.start("JupyterLab"), bob.start("JupyterLab"))
    # The app is still starting: the gateway's page follows the start, and then enters by itself.
    ada_lab, bob_lab = await ada.open(jobs[0]), await bob.open(jobs[1])
    await compute_in_notebook(ada_lab, "print(6*7)", "42")
    await picture(ada_lab, "notebook")
    await compute_in_notebook(bob_lab, "print(6*8)", "48")
    assert ada_lab.url.split("/")[2] != bob_lab.url.split("/")[2]
    assert "token" not in ada_lab.url
    assert (await ada.jobs()).isdisjoint(await bob.jobs())
    await picture(ada.page, "orchestrator")

    await asyncio.gather(ada.stop(jobs[0]), bob.stop(jobs[1]))
    await expect(ada.page.locator(f'[data-job="{jobs[0]}"]')).to_have_attribute(
        "data-state", "SUCCESS"
    )
    await ada_lab.reload()
    await expect(ada_lab.get_by_text("session has ended").first).to_be_visible()
    await picture(ada_lab, "ended")


@pytest.mark.usefixtures("shells")
async def test_a_terminal_responds_and_shows_the_end_of_its_session(
    system: LocalSystem, visit: Visit
) -> None:
    context = await visit()
    await context.set_extra_http_headers({"Accept-Language": "de-CH, en;q=0.5"})
    ada = await Person.arrive(context, system.address, "ada")
    job = await ada.start("Shell")
    await ada.running(job)
    terminal = await ada.open(job)
    await expect(terminal.get_by_role("status")).to_have_text("Verbunden")
    await type_in_terminal(terminal, "echo $((6*7))", "42")
    # A reload shows the same shell with its earlier output.
    await type_in_terminal(terminal, "marker=still-here; echo set", "set")
    await terminal.reload()
    await expect(terminal.locator(".xterm-rows")).to_contain_text("42")
    await type_in_terminal(terminal, "echo $marker", "still-here")
    await picture(terminal, "terminal")
    await ada.stop(job)
    # The open page names the person who ended the job, and so does the page that replaces it.
    await expect(terminal.locator("#notice")).to_contain_text("ada hat den Job beendet.")
    await picture(terminal, "terminal-ended")
    await terminal.reload()
    await expect(terminal.get_by_role("heading", level=1)).to_have_text("Shell wurde beendet")
    await expect(terminal.get_by_role("status")).to_contain_text("ada hat den Job beendet.")
    link = terminal.get_by_role("link", name="Zum Job")
    assert await link.get_attribute("href") == f"{system.address}/#{job}"


@pytest.mark.usefixtures("desktops")
async def test_a_desktop_shows_pixels_and_reacts_to_a_click(
    system: LocalSystem, visit: Visit
) -> None:
    ada = await Person.arrive(await visit(), system.address, "ada")
    job = await ada.start("Desktop")
    await ada.running(job)
    desktop = await ada.open(job)
    await expect(desktop.locator("canvas")).to_be_visible()
    async with asyncio.timeout(60):
        while await pixel(desktop, 500, 700) == (0, 0, 0):
            await asyncio.sleep(0.1)
    assert await pixel(desktop, 200, 200) != INK
    await expect(desktop.get_by_text("Connecting…").first).to_be_hidden()
    await click_on_desktop(desktop, 200, 200)
    async with asyncio.timeout(60):
        while await pixel(desktop, 200, 200) != INK:
            await asyncio.sleep(0.1)
    await picture(desktop, "desktop")
    await ada.stop(job)
    await expect(desktop.locator("#notice")).to_contain_text("ada stopped its job.")
    await desktop.reload()
    await expect(desktop.get_by_role("heading", level=1)).to_have_text("Desktop was stopped")
    await expect(desktop.get_by_role("status")).to_contain_text("ada stopped its job.")


@pytest.mark.usefixtures("shells")
async def test_the_pages_load_no_external_resource_and_violate_no_policy(
    system: LocalSystem, visit: Visit
) -> None:
    context = await visit()
    requested: set[str] = set()
    complaints: list[str] = []
    context.on("request", lambda request: requested.add(request.url))
    context.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    ada = await Person.arrive(context, system.address, "ada")
    # Where desktops never become ready, their page cannot be tested either.
    for app in ("Shell", "Desktop") if system.cluster else ("Shell",):
        job = await ada.start(app)
        page = await ada.open(job)
        await expect(page.locator(".xterm-rows, canvas").first).to_be_visible()
        await ada.stop(job)
        await page.close()
    hosts = {url.split("/")[2].split(":")[0] for url in requested if "//" in url}
    assert all(host == "localhost" or host.endswith(".localhost") for host in hosts), hosts
    assert not [text for text in complaints if "Content Security Policy" in text]
    assert not [url for url in requested if "token=" in url.partition("#")[0]]
