"""Tests the tools of a terminal's page in a real Chromium."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect
from websockets.asyncio.server import ServerConnection

from shared.routes.statuses import Status
from tests.gateway.conftest import World
from tests.gateway.pages.users import Person, return_to
from tests.gateway.relay.bridge.test_terminal import PATH, Hub, hub_of

pytestmark = pytest.mark.needs("chromium")


# The page would retry after a while; here that never happens.
NEVER_AGAIN = (
    "const later = setTimeout; window.setTimeout = (f, ms) => !(ms >= 300) && later(f, ms)"
)


class Shells:
    """A hub of shells that send what a test asks for, and record their input."""

    def __init__(self, first: bytes = b"$ ") -> None:
        self.stream = "0af"
        self.output = first
        self.texts: list[dict[str, Any]] = []
        self.typed = b""
        self.swallows = False
        """Whether input is lost on its way, as in a connection that is dead without notice."""
        self.swallowed = b""
        self.counts: dict[str, int] = {}
        self.sockets: list[ServerConnection] = []
        self.hub: Hub | None = None

    async def talk(self, socket: ServerConnection) -> None:
        """Attach a client as the current hub does: from the client's position."""
        self.sockets.append(socket)
        assert self.hub is not None
        query = dict(pair.split("=") for pair in self.hub.queries[-1].split("&"))
        ours = query.get("stream") == self.stream
        offset = int(query["after"]) if ours else 0
        name = query.get("client", "")
        message = {
            "type": "attached", "mode": self.hub.attached[-1].mode, "resumed": ours, "cols": 80,
            "rows": 24, "stream": self.stream, "offset": offset, "end": len(self.output),
            "typed": self.counts.setdefault(f"{name} {self.stream}", 0),
        }  # fmt: skip
        await socket.send(json.dumps(message))
        await socket.send(self.output[offset:])
        async for received in socket:
            if isinstance(received, bytes) and self.swallows:
                self.swallowed += received
            elif isinstance(received, bytes):
                self.typed += received
                self.counts[f"{name} {self.stream}"] += len(received)
            else:
                self.texts.append(json.loads(received))
                if self.texts[-1] == {"type": "ping"}:
                    await socket.send('{"type":"pong"}')

    async def say(self, **message: Any) -> None:
        """Send a message to the latest client."""
        await self.sockets[-1].send(json.dumps(message))

    async def write(self, data: bytes) -> None:
        """Write as the shell."""
        self.output += data
        await self.sockets[-1].send(data)

    async def until_typed(self, data: bytes) -> None:
        """Wait until *data* has been typed, and nothing after it."""
        async with asyncio.timeout(20):
            while not self.typed.endswith(data):
                await asyncio.sleep(0.01)


@pytest_asyncio.fixture(loop_scope="module")
async def shells(world: World) -> AsyncIterator[Shells]:
    shells = Shells()
    async with hub_of(world, shells.talk) as hub:
        shells.hub = hub
        yield shells


async def arrive(
    world: World, person: Person, shells: Shells, *, then: str = "", **who: str
) -> str:
    """Open a terminal and wait for its prompt; return its sid."""
    assert shells.hub is not None
    target = {"base_path": PATH}
    sid = await world.publish(kind="terminal", port=shells.hub.port, target=target)
    await person.follow_link(sid, kind="terminal", then=then, **who)
    await expect(person.page.locator(".xterm-rows")).to_contain_text("$")
    return sid


async def lines(page: Page) -> str:
    """Return all lines that the terminal keeps."""
    text: str = await page.evaluate(
        """() => {
          const buffer = fumaroleTerminal.buffer.active, lines = [];
          for (let y = 0; y < buffer.length; y++)
            lines.push(buffer.getLine(y).translateToString(true));
          return lines.join("\\n").trimEnd();
        }"""
    )
    return text


CELLS = [("a", 1), ("\u4e2d", 2), ("e\u0301", 1), ("\u2705", 2), ("\u26a0\ufe0f", 1)]
CELLS += [("\U0001f642", 2), ("\U0001fae0", 2), ("\U0001f1e9\U0001f1ea", 2)]


async def test_characters_take_as_many_cells_as_programs_in_the_shell_count(
    world: World, person: Person, shells: Shells
) -> None:
    await arrive(world, person, shells)
    for text, cells in CELLS:
        await shells.write(f"\r\n{text}\x1b[6n".encode())
        await shells.until_typed(f";{cells + 1}R".encode())


async def test_a_character_that_the_browser_types_in_halves_arrives_whole(
    world: World, person: Person, shells: Shells
) -> None:
    await arrive(world, person, shells)
    await person.page.evaluate("""() => {
        for (const half of [0xd83d, 0xde42])
            document.querySelector(".xterm-helper-textarea").dispatchEvent(
                new KeyboardEvent("keypress", {charCode: half, bubbles: true}));
    }""")
    await shells.until_typed("\U0001f642".encode())


async def test_a_reconnected_page_resumes_its_output_without_replying_to_replayed_queries(
    world: World, person: Person, shells: Shells
) -> None:
    # Queries in old output were answered at that time, and get no second answer.
    shells.output = b"one\r\n\x1b[6n\x1b[c\x1b[?25$p\x1b]11;?\x07$ "
    await arrive(world, person, shells)
    await shells.write(b"two \x1b[6n")
    await shells.until_typed(b"R")
    assert shells.typed == b"\x1b[2;7R", "only what was asked while it was there"
    await expect(person.page.locator(".xterm-rows")).to_contain_text("two")
    # The output is cut within a sequence; the rest comes with the next connection.
    await shells.write(b"\x1b[3")
    shells.sockets[-1].transport.abort()
    shells.output += b"1mthree\x1b[m\x1b[6n\r\n"
    rows = person.page.locator(".xterm-rows")
    await expect(rows).to_contain_text("three")
    assert (await lines(person.page)).splitlines() == ["one", "$ two three"]
    assert (
        await person.page.evaluate(
            "fumaroleTerminal.buffer.active.getLine(1).getCell(6).getFgColor()"
        )
        == 1
    )
    assert shells.typed == b"\x1b[2;7R"
    assert next(text["offset"] for text in shells.texts if text["type"] == "seen") == 0
    # The page reports output that the hub could not keep.
    await shells.say(type="skipped", bytes=12_345_678)
    await shells.write(b"four")
    await expect(rows).to_contain_text("12.3 MB of output was left out here")
    # Another shell resets the terminal, and the page says so.
    shells.stream, shells.output = "1bc", b"another$ "
    shells.sockets[-1].transport.abort()
    await expect(rows).to_contain_text("another$")
    said = "[The earlier shell has ended. This is a new one.]"
    assert (await lines(person.page)).splitlines() == [said, "another$"]


async def test_an_exited_shell_shows_its_last_output_code_and_a_button(
    world: World, person: Person, shells: Shells
) -> None:
    await arrive(world, person, shells)
    await shells.write(b"bye\r\n")
    await shells.say(type="exit", code=3, message="command terminated with exit code 3")
    await shells.sockets[-1].close(4410, "exited")
    await expect(person.page.get_by_text("The shell has exited with code 3")).to_be_visible()
    await expect(person.page.locator(".xterm-rows")).to_contain_text("bye")
    shells.stream, shells.output = "1bc", b"next$ "
    await person.page.get_by_role("button", name="New shell").click()
    await expect(person.page.locator(".xterm-rows")).to_contain_text("next$")
    await expect(person.page.locator("#notice")).to_be_hidden()
    assert shells.hub is not None
    assert shells.hub.queries[-1].startswith("after=-"), "nothing of the old one is asked for"
    await person.page.keyboard.type("on")
    await shells.until_typed(b"on")


async def test_each_shell_has_its_own_url(world: World, person: Person, shells: Shells) -> None:
    sid = await arrive(world, person, shells, then="&next=/?new")
    assert shells.hub is not None
    name = shells.hub.queries[-1].partition("shell=")[2]
    assert len(name) == 16
    assert person.page.url == person.url(sid, f"/?shell={name}")
    await person.page.reload()
    await expect(person.page.locator(".xterm-rows")).to_contain_text("$")
    assert shells.hub.queries[-1].endswith(f"shell={name}")
    choice = person.page.get_by_role("combobox", name="Shell")
    await expect(choice).to_be_hidden()
    await shells.say(type="shells", shells=["", name, "<b>"])
    await expect(choice.locator("option")).to_have_text(["Shell 1", "Shell 2"])
    await choice.select_option("Shell 1")
    await person.page.wait_for_url(person.url(sid))
    await expect(person.page.locator(".xterm-rows")).to_contain_text("$")
    assert "shell=" not in shells.hub.queries[-1]
    async with person.context.expect_page() as opening:
        await person.page.get_by_role("link", name="New shell").click()
    await expect((await opening.value).locator(".xterm-rows")).to_contain_text("$")
    assert "shell=" in shells.hub.queries[-1]
    await shells.say(type="refused", message="This session has 8 shells already.")
    await shells.sockets[-1].close(4410, "no shell")
    await expect((await opening.value).get_by_text("8 shells already")).to_be_visible()


async def test_the_scrollback_is_searchable(world: World, person: Person, shells: Shells) -> None:
    shells.output = b"needle 1\r\n" + b"hay\r\n" * 200 + b"needle 2\r\n$ "
    await arrive(world, person, shells)
    page = person.page
    await page.keyboard.press("Control+Shift+F")
    await page.get_by_role("searchbox").fill("needle")
    await expect(page.locator("#search-count")).to_have_text("2 of 2")
    await page.keyboard.press("Enter")
    await expect(page.locator("#search-count")).to_have_text("1 of 2")
    await expect(page.locator(".xterm-rows")).to_contain_text("needle 1")
    await page.get_by_role("button", name="Next").click()
    await expect(page.locator("#search-count")).to_have_text("2 of 2")
    await page.get_by_role("searchbox").fill("no such thing")
    await expect(page.locator("#search-count")).to_have_text("Nothing found")
    await page.keyboard.press("Escape")
    await expect(page.locator("#search")).to_be_hidden()
    await page.keyboard.type("typed")
    await shells.until_typed(b"typed")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("https://example.invalid/x", None),
        ("https://example.invalid/x", "a named link"),
        ("https://example.invalid/\u202ex", "a link written backwards"),
    ],
)
async def test_links_in_the_output_open_in_a_new_tab(
    world: World, person: Person, shells: Shells, written: str, shown: str | None
) -> None:
    address, page = written.replace("\u202e", "%E2%80%AE"), person.page
    named = f"\x1b]8;;{written}\x1b\\{shown}\x1b]8;;\x1b\\"
    shells.output = f"{named if shown else written}\r\n$ ".encode()
    await arrive(world, person, shells)
    await person.context.route(address, lambda route: route.fulfill(body="out there"))
    line = page.locator(".xterm-rows > div").filter(has_text=shown or written)
    place = await line.bounding_box()
    assert place is not None
    # The terminal looks for links at the pointer when it moves.
    await page.mouse.move(place["x"] + 10, place["y"] + 5)
    await expect(page.locator(".xterm-screen.xterm-cursor-pointer")).to_be_visible()
    await expect(page.locator(".screen")).to_have_attribute("title", address)
    async with person.context.expect_page() as opening:
        await page.mouse.click(place["x"] + 12, place["y"] + 5)
    await expect((await opening.value).locator("body")).to_have_text("out there")


async def test_the_menu_changes_and_saves_size_colours_and_reader_mode(
    world: World, person: Person, shells: Shells
) -> None:
    await arrive(world, person, shells)
    page = person.page

    async def colours() -> list[str]:
        found: list[str] = await page.evaluate(
            """[".bar", ".screen", ".xterm-scrollable-element"].map(
              (one) => getComputedStyle(document.querySelector(one)).backgroundColor)"""
        )
        return found

    light = await colours()
    await page.emulate_media(color_scheme="dark")
    await expect(page.locator(".screen")).to_have_css("background-color", "rgb(16, 18, 20)")
    dark = await colours()
    assert not set(light) & set(dark), "the bar, too"
    await page.get_by_text("Menu", exact=True).click()
    await page.get_by_label("Colours").select_option("Light")
    assert await colours() == light
    before = await page.evaluate("fumaroleTerminal.cols")
    for _ in range(3):
        await page.get_by_role("button", name="Larger text").click()
    assert await page.evaluate("fumaroleTerminal.cols") < before
    await page.get_by_label("For screen readers").check()
    await expect(page.locator(".xterm-accessibility")).to_be_attached()
    await page.keyboard.press("Escape")
    await expect(page.get_by_label("Colours")).to_be_hidden()
    await page.reload()
    await expect(page.locator(".xterm-accessibility-tree")).to_contain_text("$")
    assert await page.evaluate("fumaroleTerminal.options.fontSize") == 17
    assert await colours() == light
    await page.evaluate('localStorage.setItem("fumarole-terminal-look", "{")')
    await page.reload()
    await expect(page.locator(".xterm-rows")).to_contain_text("$")
    assert await page.evaluate("fumaroleTerminal.options.fontSize") == 14


async def test_a_copy_is_confirmed_for_a_moment(
    world: World, person: Person, shells: Shells
) -> None:
    shells.output = b"to be copied $ "
    sid = await arrive(world, person, shells)
    await person.context.grant_permissions(
        ["clipboard-read", "clipboard-write"], origin=world.gateway.origin(sid)
    )
    page, says = person.page, person.page.get_by_role("status")
    copy = page.get_by_role("button", name="Copy", exact=True)
    await expect(copy).to_be_disabled()
    await page.evaluate("fumaroleTerminal.select(0, 0, 12)")
    await copy.click()
    await expect(says).to_have_text("Copied")
    assert await page.evaluate("navigator.clipboard.readText()") == "to be copied"
    await expect(says).to_have_text("Connected")
    await page.evaluate("void (navigator.clipboard.writeText = () => Promise.reject())")
    await copy.click()
    await expect(says).to_contain_text("did not allow")
    await expect(page.locator(".state")).to_have_attribute("data-state", "open")
    await expect(says).to_have_text("Connected")


async def test_a_page_uses_the_access_that_another_tab_renewed(
    world: World, person: Person, shells: Shells
) -> None:
    assert shells.hub is not None
    where: dict[str, Any] = {"port": shells.hub.port, "target": {"base_path": PATH}}
    sid = await world.publish(kind="terminal", **where)
    await person.follow_link(sid, kind="terminal", iat=int(time.time()) - 54, max_age=60)
    says = person.page.get_by_role("status")
    await expect(says).to_contain_text("Connected")
    other = Person(world, person.context, await person.context.new_page())
    await other.follow_link(sid, kind="terminal")
    await expect(other.page.get_by_role("status")).to_have_text("Connected")
    # The first connection ends with its access; a third one is made with the new access.
    async with asyncio.timeout(20):
        while len(shells.sockets) < 3:
            await asyncio.sleep(0.02)
    await expect(says).to_have_text("Connected")
    await expect(person.page.locator("#notice")).to_be_hidden()
    # A user whose access ended for good sees a notice.
    await world.revoke(sid=sid, sub="ada")
    for page in (person.page, other.page):
        await expect(page.get_by_text("Your access has ended")).to_be_visible()
    # Who opens the session once more, and comes back to this tab, goes on in it.
    await return_to(person.page)
    await other.follow_link(sid, kind="terminal", iat=int(time.time()) + 2)
    await expect(other.page.get_by_role("status")).to_have_text("Connected")
    await expect(says).to_have_text("Ended")
    await return_to(person.page)
    await expect(says).to_have_text("Connected")


async def test_returning_to_a_page_reconnects_at_once(
    world: World, person: Person, shells: Shells
) -> None:
    await person.page.add_init_script(NEVER_AGAIN)
    await arrive(world, person, shells)
    shells.sockets[-1].transport.abort()
    await expect(person.page.locator("#notice h2")).to_have_text("The connection was lost")
    await person.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(person.page.locator("#notice")).to_be_hidden()
    await expect(person.page.get_by_role("status")).to_have_text("Connected")


async def test_a_lost_connection_is_shown_before_the_gateway_is_known_to_be_down(
    world: World, person: Person, shells: Shells
) -> None:
    await arrive(world, person, shells)
    # Nothing answers, as in a network that was cut.
    await person.page.route("**/.fumarole/state", lambda _route: None)
    await shells.sockets[-1].close(1012)
    notice = person.page.get_by_role("heading", name="The connection was lost")
    await expect(notice).to_be_visible(timeout=5000)
    await expect(person.page.locator(".state")).to_have_text("Disconnected")


async def test_a_terminal_without_input_does_not_capture_tab(
    world: World, person: Person, shells: Shells
) -> None:
    page, screen = person.page, person.page.locator(".xterm-helper-textarea")
    await page.add_init_script(NEVER_AGAIN)
    await arrive(world, person, shells)
    await page.keyboard.press("Tab")
    await shells.until_typed(b"\t")
    await expect(screen).to_be_focused()
    # While the connection is lost, the card's button comes next.
    shells.sockets[-1].transport.abort()
    again = page.get_by_role("button", name="Try now")
    await expect(again).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(again).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status")).to_have_text("Connected")
    await expect(screen).to_be_focused()
    # A viewer can leave it too.
    await arrive(world, person, shells, mode="view")
    await expect(page.get_by_text("view only")).to_be_visible()
    await expect(screen).to_be_focused()
    await page.keyboard.press("Shift+Tab")
    await expect(page.get_by_role("link", name="Sign out")).to_be_focused()


async def test_an_ended_terminal_offers_no_action_that_needs_a_shell(
    world: World, person: Person, shells: Shells
) -> None:
    sid = await arrive(world, person, shells)
    page = person.page
    screen = page.locator(".xterm-helper-textarea")
    await expect(screen).to_have_attribute("aria-describedby", "way-out")
    await expect(page.get_by_role("link", name="Go to the job")).to_be_hidden()
    await world.remove(sid, Status(phase="stopped", app="Shell"))
    await expect(page.locator("#notice h2")).to_have_text("Shell was stopped")
    way = page.get_by_role("link", name="Go to the job")
    await expect(way).to_be_visible()
    assert (await way.get_attribute("href") or "").startswith("https://cloud.example.org/jobs/")
    for gone in ("Paste", "New shell", "Try now"):
        await expect(page.get_by_text(gone, exact=True).first).to_be_hidden()
    await expect(screen).not_to_have_attribute("aria-describedby", "way-out")


async def test_a_user_with_revoked_access_is_led_to_the_orchestrator(
    world: World, person: Person, shells: Shells
) -> None:
    sid = await arrive(world, person, shells)
    await world.revoke(sid=sid)
    page = person.page
    await expect(page.locator("#notice")).to_be_visible()
    await expect(page.get_by_role("link", name="Go to where sessions are started")).to_be_visible()
    await expect(page.get_by_role("link", name="Go to the job")).to_be_hidden()
