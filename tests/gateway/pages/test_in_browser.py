"""Tests the pages in a real Chromium, with the Content-Security-Policy that is sent."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from playwright.async_api import TimeoutError as PlaywrightTimeout
from playwright.async_api import expect
from websockets.asyncio.server import ServerConnection

from shared.routes.statuses import Status
from tests.gateway.conftest import World
from tests.gateway.pages.users import Person, return_to
from tests.gateway.relay.bridge.test_terminal import PATH, Hub, hub_of
from tests.gateway.upstreams import App, listening_on, web_app

pytestmark = pytest.mark.needs("chromium")


async def test_a_link_opens_the_app_and_leaves_no_token_behind(
    world: World, person: Person
) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        await person.follow_link(sid, then="&next=/lab")
        await person.page.wait_for_url(person.url(sid, "/lab"))
        await expect(person.page.get_by_text("hello")).to_be_visible()
        cookies = await person.context.cookies()
        (ours,) = [cookie for cookie in cookies if cookie["name"] == "fumarole"]
        assert (ours["httpOnly"], ours["sameSite"], ours["path"]) == (True, "Lax", "/")
        await person.page.go_back()
        await expect(person.page.locator("body")).not_to_contain_text("token")
        assert "token" not in person.page.url


WORKER = """
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", event => event.waitUntil(clients.claim()));
self.addEventListener("fetch", event => event.respondWith(new Response("taken")));
"""


@asynccontextmanager
async def app_with_worker(*, cached: bool = False) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Run an app that serves one script under every name, and allows it any scope."""
    heads: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                heads.append(head)
                script = b".js" in head.partition(b"\r\n")[0]
                body = WORKER.encode() if script else b"<p>an app"
                kind = b"text/javascript" if script else b"text/html"
                kept = b"Cache-Control: max-age=3600\r\n" if cached else b""
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nService-Worker-Allowed: /\r\n"
                    b"%bContent-Length: %d\r\n\r\n%b" % (kind, kept, len(body), body)
                )

    async with listening_on(handle) as port:
        yield port, heads


REGISTER = """async ([script, options]) => {
    try {
        const registration = await navigator.serviceWorker.register(script, options);
        return registration.scope;
    } catch (error) {
        return error.name;
    }
}"""


@pytest.mark.parametrize(
    ("script", "options"),
    [("/sw.js", {}), ("/lab/sw.js", {"scope": "/"}), ("/lab/sw.js", {"scope": "/.fumarole/"})],
)
async def test_no_service_worker_of_the_app_sees_the_next_link(
    world: World, person: Person, script: str, options: dict[str, str]
) -> None:
    async with app_with_worker() as (port, _):
        sid = await world.publish(port=port)
        await person.follow_link(sid)
        await person.page.wait_for_url(person.url(sid))
        assert await person.page.evaluate(REGISTER, [script, options]) in (
            "SecurityError",
            "TypeError",
        )
        await person.follow_link(sid, then="&next=/again")
        await person.page.wait_for_url(person.url(sid, "/again"))
        await expect(person.page.locator("p")).to_have_text("an app")


async def test_a_cached_script_is_requested_again_as_service_worker(
    world: World, person: Person
) -> None:
    async with app_with_worker(cached=True) as (port, heads):
        sid = await world.publish(port=port)
        await person.follow_link(sid)
        await person.page.wait_for_url(person.url(sid))
        await person.page.evaluate("fetch('/sw.js').then(response => response.text())")
        await person.page.evaluate("fetch('/sw.js').then(response => response.text())")
        assert sum(b"/sw.js" in head for head in heads) == 1  # the cache holds it
        options = {"updateViaCache": "all"}
        assert await person.page.evaluate(REGISTER, ["/sw.js", options]) == "TypeError"


async def test_a_service_worker_in_a_subfolder_keeps_working(world: World, person: Person) -> None:
    async with app_with_worker() as (port, _):
        sid = await world.publish(port=port)
        await person.follow_link(sid)
        await person.page.wait_for_url(person.url(sid))
        scope = await person.page.evaluate(REGISTER, ["/webview/sw.js", {}])
        assert scope == person.url(sid, "/webview/")


async def test_a_link_without_fragment_is_reported(world: World, person: Person) -> None:
    sid = await world.publish()
    await person.page.goto(person.url(sid, "/.fumarole/open"))
    await expect(person.page.get_by_role("heading")).to_have_text("This link is incomplete")
    await expect(person.page).to_have_title("This link is incomplete")
    way_home = person.page.get_by_role("link", name="Go to where sessions are started")
    await expect(way_home).to_be_visible()
    # The whole link also works in the same tab.
    async with web_app() as app:
        await world.change(sid, port=app.port)
        await person.follow_link(sid)
        await person.page.wait_for_url(person.url(sid))


async def test_replacing_another_user_is_confirmed_and_succeeds(
    world: World, person: Person
) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        await person.follow_link(sid, sub="ada")
        await person.page.wait_for_url(person.url(sid))
        await person.follow_link(sid, sub="grace", name="Grace Hopper")
        await expect(person.page.get_by_role("heading")).to_have_text(
            "Someone else is signed in here"
        )
        await person.page.get_by_role("button", name="Go on as Grace Hopper").click()
        await person.page.wait_for_url(person.url(sid))
        assert b"X-Forwarded-User: grace\r\n" in app.heads[-1]


async def test_a_starting_session_is_polled_and_entered_without_a_click(
    world: World, person: Person
) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port, state="starting", message="In the queue")
        await person.follow_link(sid, then="&next=/deep%3Fx=1")
        status = person.page.get_by_role("status")
        await expect(status).to_have_text("In the queue")
        await world.change(sid, port=app.port, state="starting", message="Pulling the image")
        await expect(status).to_have_text("Pulling the image")
        await world.change(sid, port=app.port)
        await expect(person.page.get_by_text("hello")).to_be_visible()
        assert person.page.url == person.url(sid, "/deep?x=1")


async def test_the_start_page_shows_the_steps_and_the_stalled_one(
    world: World, person: Person
) -> None:
    now = time.time()
    queued = {"phase": "queued", "since": now - 62, "app": "Lab <b>", "detail": "no GPU is free"}
    sid = await world.publish(state="starting", message="older pages read this", status=queued)
    await person.follow_link(sid)
    page = person.page
    await expect(page.get_by_role("heading")).to_have_text("Lab <b> is waiting in the queue")
    await expect(page.get_by_role("status")).to_have_text("No GPU is free.")
    step = page.locator("#steps li")
    await expect(step).to_contain_text("In the queue1 min")
    # The start went on; the program has run for long, and does not answer.
    times = [["queued", now - 200], ["preparing", now - 120]]
    silent = {"phase": "starting", "since": now - 90, "app": "Lab <b>", "port": 8888}
    await world.change(sid, state="starting", status=silent | {"times": times})
    await expect(page.get_by_role("heading")).to_have_text("Lab <b> is starting")
    await expect(page).to_have_title("Lab <b> is starting")
    await expect(step).to_have_count(3)
    await expect(step.nth(0)).to_have_text("In the queue1 min 20 s")
    await expect(step.nth(1)).to_have_text("Being prepared30 s")
    await expect(page.locator("#stuck")).to_contain_text("Nothing has responded on port 8888 since")
    await expect(page.get_by_text("session_starting")).to_be_hidden()
    await page.get_by_text("Details").click()
    await expect(page.get_by_text("session_starting")).to_be_visible()
    # An unreadable status counts as none.
    await world.change(sid, state="starting", message="as ever", status={"phase": 7})
    await expect(page.get_by_role("status")).to_have_text("as ever")


async def test_a_public_link_is_entered_without_a_click(world: World, person: Person) -> None:
    async with web_app() as app:
        public: dict[str, Any] = {"public": True, "links": ["a-demo.apps.localhost"]}
        sid = await world.publish(port=app.port, state="starting", message="In the queue", **public)
        await person.page.goto(person.url(sid, "/deep").replace(sid, "a-demo"))
        await expect(person.page.get_by_role("status")).to_have_text("In the queue")
        # That host serves none of our files, so the page has to contain what it needs.
        await expect(person.page.locator(".card")).not_to_have_css("border-top-left-radius", "0px")
        await world.change(sid, port=app.port, **public)
        await expect(person.page.get_by_text("hello")).to_be_visible()
        assert any(head.startswith(b"GET /deep ") for head in app.heads)


async def test_an_app_that_does_not_listen_yet_is_entered_without_a_click(
    world: World, person: Person
) -> None:
    # JupyterLab does so while it starts: its port is taken, and nothing listens.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        sid = await world.publish(port=port)
        await person.follow_link(sid, then="&next=/lab")
        await expect(person.page.get_by_role("heading")).to_have_text("The app does not respond")
    app = App()
    async with listening_on(app.handle, port=port):
        await expect(person.page.get_by_text("hello")).to_be_visible(timeout=30_000)
        assert person.page.url == person.url(sid, "/lab")


async def test_a_used_link_leads_on_where_its_user_is_signed_in(
    world: World, person: Person
) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        token = world.gateway.signer.token(sid)
        link = person.url(sid, f"/.fumarole/open#token={token}&next=/lab")
        for _ in range(2):
            await person.page.goto(link)
            await person.page.wait_for_url(person.url(sid, "/lab"))
        cookie = (await person.context.cookies())[0]["value"]
        await person.page.goto(link)
        await person.page.wait_for_url(person.url(sid, "/lab"))
        assert (await person.context.cookies())[0]["value"] == cookie
        # Without the cookie, or with that of another user, the link is worth nothing.
        await person.context.clear_cookies()
        await person.page.goto(link)
        await expect(person.page.get_by_role("heading")).to_have_text("This link was already used")
        await person.follow_link(sid, sub="bob")
        await person.page.wait_for_url(person.url(sid))
        await person.page.goto(link)
        await expect(person.page.get_by_role("heading")).to_have_text(
            "Someone else is signed in here"
        )


async def test_an_expired_link_shows_the_way_into_an_open_session(
    world: World, person: Person
) -> None:
    async with web_app() as app:
        sid, old = await world.publish(port=app.port), int(time.time()) - 500
        await person.follow_link(sid)
        await person.page.wait_for_url(person.url(sid))
        # A portal's page that was loaded some minutes ago.
        await person.follow_link(sid, then="&next=/lab%3Fa=%22b", iat=old, exp=old + 60)
        await expect(person.page.get_by_role("heading")).to_have_text("This link does not work")
        told = person.page.get_by_role("status")
        await expect(told).to_have_text("You are signed in to this session already.")
        await person.page.get_by_role("link", name="Go to the session").click()
        await person.page.wait_for_url(person.url(sid, "/lab?a=%22b"))
        # A link that has lost its secret part shows it, too.
        await person.page.goto(person.url(sid, "/.fumarole/open"))
        await expect(person.page.get_by_role("heading")).to_have_text("This link is incomplete")
        await person.page.get_by_role("link", name="Go to the session").click()
        await person.page.wait_for_url(person.url(sid))
        # Another browser gets no such link.
        await person.context.clear_cookies()
        await person.page.goto(person.url(sid, "/.fumarole/open"))
        await expect(person.page.get_by_role("heading")).to_have_text("This link is incomplete")
        await expect(person.page.get_by_role("link", name="Go to the session")).to_have_count(0)
        await person.follow_link(sid, iat=old, exp=old + 60)
        await expect(person.page.get_by_role("heading")).to_have_text("This link does not work")
        await expect(person.page.get_by_role("link", name="Go to the session")).to_be_hidden()


async def test_other_tabs_open_when_their_user_has_signed_in_again(
    world: World, person: Person
) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        await person.page.goto(person.url(sid, "/lab#cell"))
        heading = person.page.get_by_role("heading")
        await expect(heading).to_have_text("You are not signed in to this session")
        await return_to(person.page)
        await expect(heading).to_have_text("You are not signed in to this session")
        other = Person(world, person.context, await person.context.new_page())
        await other.follow_link(sid)
        await expect(other.page.get_by_text("hello")).to_be_visible()
        await return_to(person.page)
        await expect(person.page.get_by_text("hello")).to_be_visible()
        assert person.page.url == person.url(sid, "/lab#cell")


async def test_a_new_link_works_in_the_tab_in_which_another_one_was_refused(
    world: World, person: Person
) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        heading = person.page.get_by_role("heading")
        await person.follow_link(sid, iat=int(time.time()) - 500, exp=int(time.time()) - 400)
        await expect(heading).to_have_text("This link does not work")
        # A reload posts the same link once more.
        await person.page.reload()
        await expect(heading).to_have_text("This link does not work")
        await person.follow_link(sid, then="&next=/lab")
        await person.page.wait_for_url(person.url(sid, "/lab"))
        await person.follow_link(sid, sub="bob")
        await expect(heading).to_have_text("Someone else is signed in here")
        await person.follow_link(sid, then="&next=/again")
        await person.page.wait_for_url(person.url(sid, "/again"))
        assert "token" not in await person.page.evaluate("performance.getEntries()[0].name")


async def test_an_ended_session_shows_its_end_page(world: World, person: Person) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        await person.follow_link(sid)
        await person.page.wait_for_url(person.url(sid))
        await world.remove(sid)
        await person.page.reload()
        await expect(person.page.get_by_role("heading")).to_have_text("This session has ended")
        await world.change(sid, port=app.port)
        failed = Status(phase="failed", detail="job 0 ended with exit code 3", app="My <i>Lab")
        await world.remove(sid, failed)
        await person.page.reload()
        await expect(person.page.get_by_role("heading")).to_have_text("My <i>Lab has failed")
        notice = person.page.get_by_role("status")
        await expect(notice).to_have_text("This session has ended. Job 0 ended with exit code 3.")
        link = person.page.get_by_role("link", name="Go to the job")
        assert await link.get_attribute("href") == f"https://cloud.example.org/jobs/j1?from={sid}"
        card = person.page.locator(".card")
        radius = await card.evaluate("element => getComputedStyle(element).borderRadius")
        assert radius == "12px"


async def test_a_terminal_types_resizes_and_shows_its_end(world: World, person: Person) -> None:
    async with hub_of(world) as hub:
        sid = await world.publish(kind="terminal", port=hub.port, target={"base_path": PATH})
        await person.follow_link(sid, kind="terminal")
        await expect(person.page.get_by_role("status")).to_have_text("Connected")
        assert await person.page.title() == "Terminal"
        await person.page.keyboard.type("h\u00e9llo")
        rows = person.page.locator(".xterm-rows")
        await expect(rows).to_contain_text("$ h\u00e9llo")
        before = _sizes(hub)[-1]
        await person.page.set_viewport_size({"width": 600, "height": 400})
        async with asyncio.timeout(5):
            while _sizes(hub)[-1] == before:
                await asyncio.sleep(0.02)
        await world.remove(sid, Status(phase="expired", app="Shell"))
        await expect(person.page.get_by_text("The time of Shell is over")).to_be_visible()
        await expect(person.page.get_by_text("session has ended")).to_be_visible()
        await expect(person.page.get_by_role("button", name="Try now")).to_be_hidden()


def _sizes(hub: Hub) -> list[str]:
    return [message for message in hub.received if isinstance(message, str)]


async def test_a_terminal_reconnects_after_its_hub_restarted(world: World, person: Person) -> None:
    async with hub_of(world) as first:
        sid = await world.publish(kind="terminal", port=first.port, target={"base_path": PATH})
        await person.follow_link(sid, kind="terminal")
        await expect(person.page.get_by_role("status")).to_have_text("Connected")
    await expect(person.page.get_by_text("The connection was lost")).to_be_visible()
    async with hub_of(world) as second:
        target = {"base_path": PATH, "id": "shell-2"}
        await world.change(sid, kind="terminal", port=second.port, target=target)
        # The page may come back by itself before the click.
        with suppress(PlaywrightTimeout):
            await person.page.get_by_role("button", name="Try now").click(timeout=2000)
        await expect(person.page.get_by_role("status")).to_have_text("Connected", timeout=30_000)
        await expect(person.page.locator(".notice")).to_be_hidden()


async def test_a_revoked_terminal_shows_signed_out_and_does_not_reconnect(
    world: World, person: Person
) -> None:
    async with hub_of(world) as hub:
        sid = await world.publish(kind="terminal", port=hub.port, target={"base_path": PATH})
        await person.follow_link(sid, kind="terminal")
        await expect(person.page.get_by_role("status")).to_have_text("Connected")
        await world.revoke(sid=sid, sub="ada")
        await expect(person.page.get_by_text("Your access has ended")).to_be_visible()
        attached = len(hub.headers)
        await asyncio.sleep(1.5)
        assert len(hub.headers) == attached


async def test_an_exited_shell_shows_its_exit_code(world: World, person: Person) -> None:
    async def talk(socket: ServerConnection) -> None:
        await socket.send('{"type":"attached","mode":"control","resumed":false}')
        await socket.recv()
        await socket.send('{"type":"exit","code":3,"message":""}')
        await socket.close(4410, "exited")

    async with hub_of(world, talk) as hub:
        sid = await world.publish(kind="terminal", port=hub.port, target={"base_path": PATH})
        await person.follow_link(sid, kind="terminal")
        await expect(person.page.get_by_text("The shell has exited")).to_be_visible()
        await expect(person.page.get_by_text("code 3")).to_be_visible()


async def test_a_viewer_sees_view_mode_and_cannot_type(world: World, person: Person) -> None:
    async with hub_of(world) as hub:
        sid = await world.publish(kind="terminal", port=hub.port, target={"base_path": PATH})
        await person.follow_link(sid, kind="terminal", mode="view")
        await expect(person.page.get_by_text("view only")).to_be_visible()
        await expect(person.page.get_by_role("status")).to_have_text("Connected")
        await expect(person.page.get_by_role("button", name="Paste")).to_be_hidden()
        await person.page.keyboard.type("rm -rf /")
        await asyncio.sleep(0.3)
        assert hub.received == []


async def test_a_page_of_another_session_can_neither_read_nor_frame_nor_connect(
    world: World, person: Person
) -> None:
    async with web_app() as app:
        victim = await world.publish(port=app.port)
        await person.follow_link(victim)
        await person.page.wait_for_url(person.url(victim))
        attacker = await world.publish(port=app.port)
        await person.follow_link(attacker)
        await person.page.wait_for_url(person.url(attacker))
        before = len(app.heads)
        outcome = await person.page.evaluate(
            """async (target) => {
              const read = await fetch(target, {credentials: "include"}).then(
                (answer) => answer.status, () => "blocked");
              const sent = await fetch(target, {
                method: "POST", mode: "no-cors", credentials: "include", body: "x"
              }).then(() => "sent", () => "blocked");
              const socket = await new Promise((done) => {
                const one = new WebSocket(target.replace("http", "ws"));
                one.onopen = () => done("open");
                one.onerror = () => done("refused");
              });
              return [read, sent, socket];
            }""",
            person.url(victim),
        )
        assert outcome[0] == "blocked"
        assert outcome[2] == "refused"
        # The request that the browser sent all the same never reached the app.
        host = world.gateway.host(victim).encode()
        assert not [head for head in app.heads[before:] if host in head]
