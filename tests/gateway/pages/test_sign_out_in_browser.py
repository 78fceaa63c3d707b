"""Tests sign-out in a real Chromium: the button works, and no other site can send its request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import expect

from tests.gateway.conftest import World
from tests.gateway.pages.users import Person
from tests.gateway.upstreams import listening_on, web_app

pytestmark = pytest.mark.needs("chromium")

PATH = "/.fumarole/sign-out"


@asynccontextmanager
async def page_of(html: str) -> AsyncIterator[int]:
    """Return an app that serves this page."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = html.encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        writer.close()

    async with listening_on(handle) as port:
        yield port


async def status(person: Person, sid: str) -> int:
    """Return the status of a request with the browser's own cookie."""
    cookies = await person.context.cookies(person.url(sid))
    (ours,) = [one for one in cookies if one["name"] == "fumarole"]
    sent = {"Cookie": f"fumarole={ours['value']}"}
    return (await person.world.gateway.ask(sid, "GET", "/.fumarole/state", sent)).status


async def test_the_button_signs_out_and_clears_the_browsers_data(
    world: World,
    person: Person,
) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        await person.follow_link(sid, then="&next=/lab")
        await person.page.wait_for_url(person.url(sid, "/lab"))
        await person.page.evaluate("localStorage.setItem('mine', 'secret')")
        cookies = await person.context.cookies()
        (kept,) = [one for one in cookies if one["name"] == "fumarole"]
        # The page alone changes nothing; the button signs out.
        await person.page.goto(person.url(sid, PATH))
        await expect(person.page.get_by_text("You are signed in as ada.")).to_be_visible()
        assert {one["name"] for one in await person.context.cookies()} >= {"fumarole"}
        await person.page.get_by_role("button", name="Sign out").click()
        await expect(person.page.get_by_role("heading")).to_have_text("You are signed out")
        way_home = person.page.get_by_role("link", name="Go to where sessions are started")
        await expect(way_home).to_be_visible()
        assert "fumarole" not in {one["name"] for one in await person.context.cookies()}
        assert await person.page.evaluate("localStorage.getItem('mine')") is None
        refused = await person.page.goto(person.url(sid, "/lab"))
        assert refused is not None
        assert refused.status == 401
        # A kept copy of the cookie is useless.
        await person.context.add_cookies([{
            "name": "fumarole", "value": kept["value"], "url": person.url(sid),
        }])  # fmt: skip
        refused = await person.page.goto(person.url(sid, "/lab"))
        assert refused is not None
        assert refused.status == 401


@pytest.mark.parametrize("target", ["_self", "frame"])
async def test_a_form_of_a_sibling_host_cannot_sign_a_user_out(
    world: World,
    person: Person,
    target: str,
) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        await person.follow_link(sid, then="&next=/lab")
        await person.page.wait_for_url(person.url(sid, "/lab"))
        html = (
            f'<iframe name="frame"></iframe><form method="post" target="{target}" '
            f'action="{person.url(sid, PATH)}"><button>Win a prize</button></form>'
        )
        async with page_of(html) as port:
            evil = await world.publish(port=port)
            await person.follow_link(evil)
            await person.page.wait_for_url(person.url(evil))
            # A request of a script or a form signs nobody out either.
            sent = await person.page.evaluate(
                """async url => {
                    try {
                        await fetch(url, {method: "POST", credentials: "include", mode: "no-cors"});
                        return "sent";
                    } catch (error) {
                        return error.name;
                    }
                }""",
                person.url(sid, PATH),
            )
            assert sent in ("sent", "TypeError")
            async with person.page.expect_response(person.url(sid, PATH)) as waiting:
                await person.page.get_by_role("button").click()
            response = await waiting.value
            assert response.status in (401, 403)
        assert await status(person, sid) == 200
        await person.page.goto(person.url(sid, "/lab"))
        await expect(person.page.get_by_text("hello")).to_be_visible()
    person.complaints.clear()


async def test_the_sign_out_page_needs_a_grant(
    world: World,
    person: Person,
) -> None:
    sid = await world.publish(port=1)
    response = await person.page.goto(person.url(sid, PATH))
    assert response is not None
    assert response.status == 401
    assert await person.page.get_by_role("button", name="Sign out").count() == 0
