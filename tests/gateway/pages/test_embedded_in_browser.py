"""Tests sessions in a frame of the orchestrator's portal, in a real Chromium."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from html import escape
from urllib.parse import quote, unquote, urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, FrameLocator, expect

from tests.gateway.conftest import World, running_gateway
from tests.gateway.pages.conftest import launched
from tests.gateway.pages.users import Person
from tests.gateway.process import GatewayProcess
from tests.gateway.relay.bridge.test_terminal import hub_of, publish
from tests.gateway.upstreams import listening_on

pytestmark = pytest.mark.needs("chromium")

OTHER_SITE = "http://portal.localhost:18080"
SAME_SITE = "http://portal.apps.localhost:18080"


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Run a gateway whose sessions two portals may frame."""
    portals = f"{OTHER_SITE},{SAME_SITE}"
    folder = tmp_path_factory.mktemp("embedding")
    with running_gateway(folder, FUMAROLE_GATEWAY_EMBED_ORIGINS=portals) as gateway:
        yield gateway


async def with_cookies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with the app's cookies that the request carried, and set one as apps do."""
    while True:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        sent = [line for line in head.split("\r\n") if line.lower().startswith("cookie:")]
        body = escape("; ".join(sent) or "no cookie").encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nSet-Cookie: _xsrf=kept; Path=/\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )


@pytest_asyncio.fixture(loop_scope="module")
async def app(world: World) -> AsyncIterator[str]:
    """Run an app that shows its cookies; provide the sid of its session."""
    async with listening_on(with_cookies) as port:
        yield await world.publish(port=port)


async def portal(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with a page that frames the link in the request's query."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    link = unquote(head.split()[1].partition("?")[2])
    allowed, is_sandbox, rest = link.partition("|")
    sandbox = f" sandbox='{escape(allowed)}'" if is_sandbox else ""
    src = escape(rest if is_sandbox else link)
    body = f"<!doctype html><iframe src='{src}'{sandbox}></iframe>".encode()
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    writer.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(shared_gateway: GatewayProcess) -> AsyncIterator[Browser]:
    """Provide a browser that knows the gateway and both portals."""
    async with listening_on(portal) as port:
        there = {urlsplit(one).hostname or "": port for one in (OTHER_SITE, SAME_SITE)}
        async with launched(shared_gateway, there) as browser:
            yield browser


async def embed(
    person: Person, sid: str, site: str, *, sandbox: str = "", **claims: str | int
) -> FrameLocator:
    """Open *sid* in a frame of the portal at *site*, which *sandbox* may restrict."""
    token = person.world.gateway.signer.token(sid, **claims)
    link = person.url(sid, f"/.fumarole/open#token={token}")
    framed = f"{sandbox}|{link}" if sandbox else link
    await person.page.goto(f"{site}/?{quote(framed)}")
    return person.page.frame_locator("iframe")


@pytest.mark.parametrize("site", [OTHER_SITE, SAME_SITE])
async def test_an_app_in_a_frame_gets_its_cookies_back(person: Person, app: str, site: str) -> None:
    inside = await embed(person, app, site)
    await expect(inside.get_by_text("no cookie")).to_be_visible()
    await inside.locator("body").evaluate("location.reload()")
    await expect(inside.get_by_text("_xsrf=kept")).to_be_visible()


@pytest.mark.parametrize("site", [OTHER_SITE, SAME_SITE])
async def test_a_session_is_used_in_a_frame_and_in_a_tab(
    person: Person, app: str, site: str
) -> None:
    for _ in range(2):
        await expect((await embed(person, app, site)).get_by_text("cookie")).to_be_visible()
        await person.follow_link(app)
        await expect(person.page.get_by_text("cookie")).to_be_visible()
        await person.page.reload()
        await expect(person.page.get_by_text("_xsrf=kept")).to_be_visible()


async def test_an_app_keeps_its_cookies_in_a_portal_that_another_site_frames(
    person: Person, app: str
) -> None:
    token = person.world.gateway.signer.token(app)
    link = person.url(app, f"/.fumarole/open#token={token}")
    inner = f"{SAME_SITE}/?{quote(link)}"
    await person.page.goto(f"{OTHER_SITE}/?{quote(inner)}")
    inside = person.page.frame_locator("iframe").frame_locator("iframe")
    await expect(inside.get_by_text("no cookie")).to_be_visible()
    await inside.locator("body").evaluate("location.reload()")
    await expect(inside.get_by_text("_xsrf=kept")).to_be_visible()


async def test_a_sandbox_that_keeps_no_cookies_is_named_and_the_token_is_not_spent(
    person: Person, app: str
) -> None:
    posts: list[str] = []
    person.page.on("request", lambda sent: posts.append(sent.method))
    inside = await embed(person, app, OTHER_SITE, sandbox="allow-scripts allow-forms")
    heading = inside.get_by_role("heading")
    await expect(heading).to_have_text("This frame cannot open the session")
    await expect(inside.get_by_role("status")).to_contain_text("allow-same-origin")
    assert "POST" not in posts


async def test_a_sandbox_that_allows_no_forms_is_named(person: Person, app: str) -> None:
    await person.page.clock.install()
    inside = await embed(person, app, OTHER_SITE, sandbox="allow-scripts allow-same-origin")
    await expect(inside.get_by_role("heading")).to_be_visible()
    await person.page.clock.fast_forward(16_000)
    await expect(inside.get_by_role("status")).to_contain_text("allow-forms")


async def test_a_new_link_in_a_frame_that_refused_one_sets_the_cookie_of_its_site(
    person: Person, app: str
) -> None:
    inside = await embed(person, app, SAME_SITE, exp=1)
    await expect(inside.get_by_role("heading")).to_have_text("This link does not work")
    link = person.url(app, f"/.fumarole/open#token={person.world.gateway.signer.token(app)}")
    await person.page.locator("iframe").evaluate("(frame, link) => (frame.src = link)", link)
    await expect(inside.get_by_text("no cookie")).to_be_visible()
    cookies = {one["name"]: one["sameSite"] for one in await person.context.cookies()}
    assert cookies["fumarole"] == "Lax"


async def test_a_new_shell_opens_in_the_frame_whose_cookie_it_needs(
    world: World, person: Person
) -> None:
    async with hub_of(world) as hub:
        sid = await publish(world, hub)
        inside = await embed(person, sid, OTHER_SITE, kind="terminal")
        await expect(inside.get_by_role("status").first).to_have_text("Connected")
        await inside.get_by_role("link", name="New shell").click()
        async with asyncio.timeout(20):
            while not any("shell=" in query for query in hub.queries):
                await asyncio.sleep(0.05)
        assert len(person.context.pages) == 1


@pytest.mark.parametrize("site", [OTHER_SITE, SAME_SITE])
async def test_a_user_signs_out_of_a_terminal_in_a_frame(
    world: World, person: Person, site: str
) -> None:
    async with hub_of(world) as hub:
        inside = await embed(person, await publish(world, hub), site, kind="terminal")
        await expect(inside.get_by_role("status").first).to_have_text("Connected")
        await inside.get_by_role("link", name="Sign out").click()
        # The portal stays, and the page in its frame has the cookie.
        await expect(inside.get_by_text("You are signed in as ada.")).to_be_visible()
        await inside.get_by_role("button", name="Sign out").click()
        await expect(inside.get_by_role("heading")).to_have_text("You are signed out")
        assert person.page.url.startswith(site)
        assert "fumarole" not in {one["name"] for one in await person.context.cookies()}
