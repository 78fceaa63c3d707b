"""Tests the bar above a web app in a real Chromium: its content, and that it leaks nothing."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from playwright.async_api import expect

from shared.routes.statuses import Status
from tests.gateway.conftest import World
from tests.gateway.pages.states import app_of
from tests.gateway.pages.users import Person, return_to
from tests.gateway.upstreams import listening_on, web_app

pytestmark = pytest.mark.needs("chromium")
FRAME = "/.fumarole/frame"
HOSTILE = [
    *("//evil.example/x", "/\\evil.example", "javascript:alert(1)", "/.fumarole/sign-out", "%"),
    # These paths begin with two slashes: as an address, each would name another host.
    *("/.//evil.example/x", "/x/..//evil.example/x"),
]
# The page polls every ten seconds, and as soon as the browser has a network again.
ASK_NOW = "dispatchEvent(new Event('online'))"


async def test_the_bar_shows_the_remaining_time_and_the_reason_of_the_end(
    world: World,
    person: Person,
) -> None:
    async with web_app() as app:
        status = {"phase": "ready", "app": "Lab <b>"}
        asked: dict[str, Any] = {"port": app.port, "frame": True, "status": status}
        sid = await world.publish(**asked, expires_at=time.time() + 7230)
        await person.follow_link(sid, then="&next=/lab%3Fx=1")
        page, says = person.page, person.page.get_by_role("status")
        inside = page.frame_locator("iframe")
        await expect(inside.get_by_text("hello")).to_be_visible()
        assert page.url == person.url(sid, f"{FRAME}#/lab?x=1")
        await expect(page.get_by_role("heading")).to_have_text("Lab <b>")
        await expect(says).to_have_text(re.compile(r"(2 h 0|1 h \d\d) min left"))
        assert [head.split()[1] for head in app.heads] == [b"/lab?x=1"]
        # A reload keeps the app's place, and the address keeps it too.
        await inside.locator("body").evaluate("history.pushState(null, '', '/lab/deep#there')")
        await page.wait_for_url(person.url(sid, f"{FRAME}#/lab/deep#there"))
        await world.change(sid, **asked, expires_at=time.time() + 300)
        await page.reload()
        await expect(inside.get_by_text("hello")).to_be_visible()
        await expect(says).to_contain_text("min left. Save your work.")
        # The app starts anew; the page below still belongs to the old one.
        await world.change(sid, **asked | {"state": "starting", "status": {"phase": "starting"}})
        await page.evaluate(ASK_NOW)
        await expect(says).to_contain_text("is starting")
        await world.change(sid, **asked)
        await page.evaluate(ASK_NOW)
        await expect(says).to_have_text("The app has started again.")
        await page.get_by_role("button", name="Reload").click()
        await expect(page.get_by_role("button", name="Reload")).to_be_hidden()
        await person.context.set_offline(True)
        await expect(says).to_contain_text("No connection to the gateway")
        await person.context.set_offline(False)
        await world.remove(sid, Status(phase="evicted", app="Lab <b>"))
        await page.evaluate(ASK_NOW)
        await expect(says).to_contain_text("Lab <b> was ended by the cluster. This session has")
        # The last content is still readable.
        await expect(inside.get_by_text("hello")).to_be_visible()
        link = page.get_by_role("link", name="View or stop the job")
        assert await link.get_attribute("href") == f"https://cloud.example.org/jobs/j1?from={sid}"


async def test_the_bar_goes_on_after_its_user_has_signed_in_again_in_another_tab(
    world: World, person: Person
) -> None:
    async with web_app() as app:
        until = time.time() + 7230
        sid = await world.publish(port=app.port, frame=True, expires_at=until)
        await person.follow_link(sid)
        says = person.page.get_by_role("status")
        await expect(says).to_contain_text("min left")
        await world.revoke(sid=sid, sub="ada")
        await person.page.evaluate(ASK_NOW)
        await expect(says).to_contain_text("Your access has ended.")
        token = world.gateway.signer.token(sid, iat=int(time.time()) + 2)
        other = await person.context.new_page()
        await other.goto(person.url(sid, f"/.fumarole/open#token={token}"))
        await expect(other.get_by_role("status")).to_contain_text("min left")
        # The user returns to the first tab, whose app has what was not saved.
        await return_to(person.page)
        await expect(says).to_contain_text("min left")


async def test_the_framed_page_shows_only_the_app_below_the_bar(
    world: World,
    person: Person,
) -> None:
    async with app_of() as port:
        sid = await world.publish(port=port, frame=True)
        await person.follow_link(sid)
        await person.page.wait_for_url(person.url(sid, f"{FRAME}#/"))
        asked: list[str] = []
        person.page.on("request", lambda request: asked.append(request.url))
        for fragment in HOSTILE:
            await person.page.goto("about:blank")
            await person.page.goto(person.url(sid, f"{FRAME}#{fragment}"))
            frame = person.page.frame_locator("iframe")
            await expect(frame.get_by_text("This is the app.")).to_be_visible()
            link = person.page.get_by_role("link", name="Open without this bar")
            alone = await link.evaluate("link => link.href")
            assert alone.startswith(person.url(sid, "/"))
        assert all(url.startswith(person.url(sid)) for url in asked if url != "about:blank")
        assert not any("sign-out" in url for url in asked)


async def test_an_app_that_forbids_frames_is_shown_without_bar(
    world: World,
    person: Person,
) -> None:
    async def refuses(reader: Any, writer: Any) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
            b"Content-Security-Policy: frame-ancestors 'none'\r\n"
            b"Connection: close\r\nContent-Length: 5\r\n\r\nalone"
        )
        writer.close()

    async with listening_on(refuses) as port:
        sid = await world.publish(port=port, frame=True)
        await person.follow_link(sid, then="&next=/lab")
        await expect(person.page.get_by_role("status")).to_contain_text("cannot be shown")
        await person.page.get_by_role("link", name="Open without this bar").click()
        await expect(person.page.get_by_text("alone")).to_be_visible()
        assert person.page.url == person.url(sid, "/lab")
        assert all("frame-ancestors" in one for one in person.complaints)
        person.complaints.clear()


async def test_a_page_of_another_session_cannot_frame_the_bar(
    world: World,
    person: Person,
) -> None:
    async with app_of() as port:
        victim = await world.publish(port=port, frame=True)
        await person.follow_link(victim)
        await person.page.wait_for_url(person.url(victim, f"{FRAME}#/"))
        attacker = await world.publish(port=port)
        await person.follow_link(attacker)
        await person.page.wait_for_url(person.url(attacker))
        shown = await person.page.evaluate(
            """async (url) => {
              const frame = document.createElement("iframe");
              const loaded = new Promise((done) => (frame.onload = done));
              frame.src = url;
              document.body.append(frame);
              await loaded;
              return frame.contentDocument === null;
            }""",
            person.url(victim, FRAME),
        )
        assert shown
        bodies = [await frame.content() for frame in person.page.frames[1:]]
        assert not any("Open without this bar" in body for body in bodies)
        # The only error is the browser's own report of the refusal.
        assert all("frame-ancestors" in one for one in person.complaints)
        person.complaints.clear()


async def test_only_browser_navigations_of_framed_routes_redirect_to_the_bar(world: World) -> None:
    gateway = world.gateway
    async with web_app() as app:
        framed = await world.publish(port=app.port, frame=True)
        plain = await world.publish(port=app.port)
        places = {}
        for sid, destination in ((framed, "document"), (framed, ""), (plain, "document")):
            fields = {"Sec-Fetch-Dest": destination} if destination else {}
            token = gateway.signer.token(sid)
            opened = await gateway.post_token(sid, token, headers=fields, next="/lab")
            places[sid, destination] = opened.headers["location"]
            cookie = opened.headers["set-cookie"].partition(";")[0]
            page = await gateway.ask(sid, "GET", FRAME, {"Cookie": cookie, "Accept": "text/html"})
            assert page.status == (200 if sid == framed else 404)
            if sid == framed:
                policy = page.headers["content-security-policy"]
                assert "frame-src 'self'" in policy
                assert policy.endswith("frame-ancestors 'self'")
                assert page.headers["vary"] == "Accept, Accept-Language"
        assert places[framed, "document"] == f"{FRAME}#/lab"
        assert places[framed, ""] == places[plain, "document"] == "/lab"
        refused = await gateway.ask(framed, "GET", FRAME, {"Accept": "text/html"})
        assert refused.status == 401


async def test_the_way_into_an_open_session_keeps_the_bar(world: World, person: Person) -> None:
    async with web_app() as app:
        sid, old = await world.publish(port=app.port, frame=True), int(time.time()) - 500
        await person.follow_link(sid)
        await person.page.wait_for_url(person.url(sid, f"{FRAME}#/"))
        enter = person.page.get_by_role("link", name="Go to the session")
        await person.follow_link(sid, then="&next=/lab%3Fa=%22b", iat=old, exp=old + 60)
        await enter.click()
        await person.page.wait_for_url(person.url(sid, f"{FRAME}#/lab?a=%22b"))
        await person.page.goto(person.url(sid, "/.fumarole/open"))
        await enter.click()
        await person.page.wait_for_url(person.url(sid, f"{FRAME}#/"))
