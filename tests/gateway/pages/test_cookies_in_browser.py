"""Tests in a real Chromium that cookies of one session's pages keep no user out of another one."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.gateway.conftest import World
from tests.gateway.pages.users import Person
from tests.gateway.upstreams import web_app

pytestmark = pytest.mark.needs("chromium")

BOMB = """path => {
    for (let n = 0; n < 80; n++) {
        document.cookie = `bomb${n}=${"x".repeat(4000)}; Path=${path}; Domain=apps.localhost`;
    }
}"""


@pytest.mark.parametrize("path", ["/", "/.fumarole", "/.fumarole/open"])
async def test_cookies_of_a_sibling_page_keep_no_user_out(
    world: World, person: Person, path: str
) -> None:
    async with web_app() as app:
        theirs = await world.publish(port=app.port)
        await person.follow_link(theirs)
        await person.page.wait_for_url(person.url(theirs))
        await person.page.evaluate(BOMB, path)
        sid = await world.publish(port=app.port)
        await person.follow_link(sid)
        await person.page.wait_for_url(person.url(sid))
        await expect(person.page.get_by_text("hello")).to_be_visible()
        assert b"bomb" in app.heads[-1] or path != "/", "as many reach the app as fit"
