"""Tests a desktop with a password of its own: a real Xvnc in a real Chromium."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import expect

from gateway.core.rfb.handshake import answer_challenge
from shared.link import Seal
from tests.gateway.conftest import World
from tests.gateway.pages.users import Person
from tests.gateway.xvnc import xvnc

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.needs("xvnc")]

PASSWORD = "hunter22"
# The key that encrypts VNC password files; it is the same everywhere.
FILE_KEY = bytes((23, 82, 107, 6, 35, 78, 88, 7)).decode("latin-1")

# Every place where our page could leave data behind.
LEFT_BEHIND = """() => JSON.stringify([
    {...localStorage}, {...sessionStorage}, document.cookie, location.href, history.state,
    [...document.querySelectorAll("input")].map((field) => field.value),
])"""


@asynccontextmanager
async def desktop(folder: Path, *options: str) -> AsyncIterator[int]:
    """Run an Xvnc that requires the password; return its port."""
    file = folder / "password"
    file.write_bytes(answer_challenge(FILE_KEY, PASSWORD.encode()))
    file.chmod(0o600)
    secured = ("-SecurityTypes", "VncAuth", "-PasswordFile", str(file))
    async with xvnc(*secured, *options) as server:
        yield server.port


@pytest.mark.parametrize("mode", ["control", "view"])
async def test_a_desktop_asks_for_its_password_and_reports_a_wrong_one(
    world: World,
    person: Person,
    tmp_path: Path,
    mode: str,
) -> None:
    async with desktop(tmp_path) as port:
        sid = await world.publish(kind="vnc", port=port)
        await person.follow_link(sid, kind="vnc", mode=mode)
        field = person.page.get_by_label("Password")
        connect = person.page.get_by_role("button", name="Connect")
        await expect(field).to_be_focused()
        for wrong in ("first", "second"):
            await field.fill(wrong)
            # A click fails if anything covers the button.
            await connect.click()
            await expect(person.page.get_by_role("alert")).to_contain_text("did not accept")
            await expect(field).to_be_focused()
            await expect(field).to_have_value("")
            assert "connection was lost" not in await person.page.inner_text("body")
        await person.page.keyboard.type(PASSWORD)
        await person.page.keyboard.press("Enter")
        await expect(person.page.get_by_role("status")).to_have_text("Connected")
        await expect(person.page.locator("canvas")).to_be_visible()
        await expect(field).to_be_hidden()
        await expect(person.page.locator("#notice")).to_be_hidden()
        left = await person.page.evaluate(LEFT_BEHIND)
        assert PASSWORD not in left
        assert "second" not in left
        # Nothing was remembered: the next visit asks again.
        await person.page.reload()
        await expect(field).to_be_focused()
        await expect(field).to_have_value("")
        await world.remove(sid)
        await expect(person.page.get_by_text("The session has ended")).to_be_visible()
        await expect(field).to_be_hidden()


async def test_a_desktop_that_refuses_all_clients_shows_its_reason(
    world: World,
    person: Person,
    tmp_path: Path,
) -> None:
    seal = Seal(world.gateway.link_key)
    async with desktop(
        tmp_path, "-UseBlacklist=1", "-BlacklistThreshold=1", "-BlacklistTimeout=600"
    ) as port:
        sid = await world.publish(kind="vnc", port=port)
        sealed = seal.seal({"vnc_password": "not this"}, sid=sid, rev=1, random=os.urandom)
        await world.change(sid, kind="vnc", port=port, sealed=sealed)
        await person.follow_link(sid, kind="vnc")
        notice = person.page.locator("#notice")
        await expect(notice).to_contain_text("The desktop refused the connection")
        # The first refusals are for the job's password, the later ones for too many attempts.
        await expect(notice).to_contain_text("Too many security failures", timeout=60_000)
        await expect(person.page.get_by_label("Password")).to_be_hidden()
