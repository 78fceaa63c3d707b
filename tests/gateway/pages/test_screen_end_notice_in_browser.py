"""Tests the end notice in the bar of a desktop or terminal, in a real Chromium."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect
from websockets.asyncio.server import ServerConnection

from deploy.local.apps.painting import Painting
from deploy.local.apps.rfb import RfbServer
from tests.gateway.conftest import World
from tests.gateway.pages.users import Person
from tests.gateway.relay.bridge.test_terminal import PATH, hub_of
from tests.gateway.upstreams import listening_on

pytestmark = pytest.mark.needs("chromium")
# The user comes back to the page.
LOOK = "document.dispatchEvent(new Event('visibilitychange'))"


@asynccontextmanager
async def shell(world: World) -> AsyncIterator[dict[str, Any]]:
    """Run a terminal's hub; return its route fields."""

    async def talk(socket: ServerConnection) -> None:
        await socket.send('{"type":"attached","mode":"control","resumed":false}')
        async for _ in socket:
            pass

    async with hub_of(world, talk) as hub:
        yield {"kind": "terminal", "port": hub.port, "target": {"base_path": PATH}}


@asynccontextmanager
async def painting(_world: World) -> AsyncIterator[dict[str, Any]]:
    """Run a desktop's server; return its route fields."""
    async with listening_on(RfbServer(Painting("A desktop"), "A desktop").handle) as port:
        yield {"kind": "vnc", "port": port}


def asked(page: Page) -> list[str]:
    """Return a list that grows with each request for the session's state."""
    questions: list[str] = []

    def note(request: Any) -> None:
        if request.url.endswith("/.fumarole/state"):
            questions.append(request.url)

    page.on("request", note)
    return questions


def shown(page: Page) -> Locator:
    """Return the text of the notice: the time left, and the links."""
    return page.locator("#ends-more")


@pytest.mark.parametrize("screen", [shell, painting])
async def test_the_end_is_announced_in_time_and_withdrawn_once_extended(
    world: World,
    person: Person,
    screen: Any,
) -> None:
    page, says = person.page, person.page.get_by_role("status")
    # This computer's clock is two hours late.
    await page.add_init_script("const now = Date.now; Date.now = () => now() - 7_200_000")
    async with screen(world) as about:
        about["status"] = {"phase": "ready", "app": "Lab", "since": time.time() - 3600}
        questions = asked(page)
        sid = await world.publish(**about, expires_at=time.time() + 605)
        await person.follow_link(sid, kind=about["kind"])
        await expect(says).to_have_text("Connected")
        await expect(shown(page)).to_be_hidden()
        assert questions == []
        await expect(says).to_have_text(
            re.compile(r"Connected\s*Ends at \d\d:\d\d( [AP]M)?\. Save your work\.")
        )
        assert len(questions) == 1
        await expect(shown(page)).to_contain_text(re.compile(r"\b[89] min left"))
        extend = shown(page).get_by_role("link")
        await expect(extend).to_have_text("Extend the job")
        assert await extend.get_attribute("href") == f"https://cloud.example.org/jobs/j1?from={sid}"
        assert await extend.get_attribute("target") == "_blank"
        await world.change(sid, **about, expires_at=time.time() + 5000)
        await page.evaluate(LOOK)
        await expect(says).to_have_text("Connected")
        await expect(shown(page)).to_be_hidden()
        # The final end is shown by the card alone.
        await world.change(sid, **about, expires_at=time.time() + 604)
        await page.reload()
        await expect(says).to_contain_text("Save your work")
        await world.remove(sid)
        await expect(says).to_have_text("Ended")
        await expect(shown(page)).to_be_hidden()


async def test_a_narrow_bar_keeps_name_and_state_on_one_line_above_the_end(
    world: World,
    person: Person,
) -> None:
    page = person.page
    await page.set_viewport_size({"width": 320, "height": 568})
    async with painting(world) as about:
        about["status"] = {"phase": "ready", "app": "Desktop", "since": time.time() - 3600}
        sid = await world.publish(**about, expires_at=time.time() + 300)
        await person.follow_link(sid, kind="vnc")
        await expect(page.get_by_role("status")).to_contain_text("Save your work")
        name = await page.get_by_role("heading", level=1).bounding_box()
        state = await page.get_by_text("Connected", exact=True).bounding_box()
        end = await page.get_by_text("Save your work").bounding_box()
    assert name
    assert state
    assert end
    assert state["y"] < name["y"] + name["height"] <= end["y"]


async def test_a_viewer_is_not_asked_to_save_work(
    world: World,
    person: Person,
) -> None:
    async with painting(world) as about:
        about["status"] = {"phase": "ready", "app": "Lab", "since": time.time() - 3600}
        sid = await world.publish(**about, expires_at=time.time() + 300)
        await person.follow_link(sid, kind="vnc", mode="view")
        says = person.page.get_by_role("status")
        await expect(says).to_have_text(re.compile(r"Connected\s*Ends at \d\d:\d\d( [AP]M)?\."))
        await expect(says).not_to_contain_text("Save")


async def test_expired_access_leads_to_the_orchestrator(
    world: World,
    person: Person,
) -> None:
    await person.context.set_extra_http_headers({"Accept-Language": "de-CH"})
    page, now = person.page, int(time.time())
    async with shell(world) as about:
        sid = await world.publish(**about, expires_at=now + 5000)
        await person.follow_link(sid, kind="terminal", iat=now - 500, exp=now + 60, max_age=900)
        says = page.get_by_role("status")
        await expect(says).to_contain_text("Ihr Zugang endet um")
        await expect(shown(page)).to_contain_text(re.compile(r"Noch [56] min"))
        await expect(shown(page).get_by_role("link")).to_have_text(
            "Dorthin, wo Sitzungen gestartet werden"
        )
