"""Tests what a terminal's and a desktop's page show and send over networks with faults."""

from __future__ import annotations

import asyncio
import json

import pytest
from playwright.async_api import expect
from websockets.asyncio.server import ServerConnection

from tests.gateway.conftest import World
from tests.gateway.pages.test_terminal_in_browser import Shells, arrive, shells
from tests.gateway.pages.users import Person
from tests.gateway.relay.bridge.test_terminal import hub_of

pytestmark = pytest.mark.needs("chromium")

__all__ = ["shells"]  # a fixture

SCREEN = ".xterm-helper-textarea"


async def test_keys_typed_during_a_short_loss_reach_the_same_shell_once(
    world: World, person: Person, shells: Shells
) -> None:
    await arrive(world, person, shells)
    await person.page.locator(SCREEN).focus()
    await person.page.keyboard.type("rm ./b")
    await shells.until_typed(b"rm ./b")
    shells.sockets[-1].transport.abort()
    await expect(person.page.locator("#notice h2")).to_have_text("The connection was lost")
    await person.page.keyboard.type("ui")
    await expect(person.page.get_by_role("status")).to_have_text("Connected")
    await person.page.keyboard.type("ld")
    await shells.until_typed(b"rm ./build")
    assert bytes(shells.typed).count(b"ui") == 1


async def swallow(person: Person, shells: Shells, keys: bytes) -> None:
    """Type *keys* into a connection that is dead without notice."""
    shells.swallows = True
    await person.page.keyboard.type(keys.decode())
    async with asyncio.timeout(20):
        while not shells.swallowed.endswith(keys):
            await asyncio.sleep(0.01)
    shells.swallows = False


async def test_keys_that_a_dead_connection_swallowed_are_sent_again_once(
    world: World, person: Person, shells: Shells
) -> None:
    await arrive(world, person, shells)
    await person.page.locator(SCREEN).focus()
    await person.page.keyboard.type("rm ./b")
    await shells.until_typed(b"rm ./b")
    await swallow(person, shells, b"ui")
    shells.sockets[-1].transport.abort()
    await expect(person.page.locator("#notice h2")).to_have_text("The connection was lost")
    await expect(person.page.get_by_role("status")).to_have_text("Connected")
    await person.page.keyboard.type("ld")
    await shells.until_typed(b"rm ./build")
    assert shells.typed == b"rm ./build"


async def test_a_large_paste_waits_in_the_page_for_a_program_that_reads_nothing(
    world: World, person: Person, shells: Shells
) -> None:
    await arrive(world, person, shells)
    await person.page.evaluate("fumaroleTerminal.paste('x'.repeat(400_000))")
    for arrived in (131_072, 262_144, 393_216, 400_000):
        async with asyncio.timeout(20):
            while len(shells.typed) < arrived:
                await asyncio.sleep(0.01)
        # Whatever the page had sent would arrive before the answer to this question.
        await shells.write(b"\x1b[5n")
        if arrived < 400_000:
            assert len(shells.typed) == arrived
            await shells.say(type="typed", offset=arrived)
    await shells.until_typed(b"\x1b[0n" * 4)


SOCKETS = """globalThis.sockets = [];
globalThis.WebSocket = class extends WebSocket {
    constructor(...options) {
        super(...options);
        sockets.push(this);
    }
};"""


async def test_keys_typed_while_a_connection_closes_reach_the_same_shell_once(
    world: World, person: Person, shells: Shells
) -> None:
    await person.page.add_init_script(SOCKETS)
    await arrive(world, person, shells)
    # Between the Close of either side and the event, a browser discards silently what is sent.
    await person.page.evaluate("() => { sockets.at(-1).close(); fumaroleTerminal.input('ls'); }")
    await expect(person.page.get_by_role("status")).to_have_text("Connected")
    await shells.until_typed(b"ls")
    assert bytes(shells.typed) == b"ls"


async def test_keys_of_a_short_loss_are_not_sent_by_a_user_who_may_only_view_now(
    world: World, person: Person, shells: Shells
) -> None:
    await person.page.add_init_script(SOCKETS)
    await arrive(world, person, shells)
    attached = json.dumps({"type": "attached", "mode": "view", "resumed": True, "cols": 80,
        "rows": 24, "stream": shells.stream, "offset": 2, "end": 2})  # fmt: skip
    sent = await person.page.evaluate(
        """(attached) => {
            const socket = sockets.at(-1);
            const sent = [];
            socket.close();
            fumaroleTerminal.input("ls");
            Object.defineProperty(socket, "readyState", {value: WebSocket.OPEN});
            socket.send = (data) => typeof data === "string" || sent.push(data);
            socket.dispatchEvent(new MessageEvent("message", {data: attached}));
            return sent.length;
        }""",
        attached,
    )
    assert sent == 0


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
async def test_keys_typed_long_before_the_network_is_back_are_not_sent(
    world: World, person: Person, shells: Shells, known: bool
) -> None:
    hub = shells.hub
    assert hub is not None
    await person.page.clock.install()
    await arrive(world, person, shells)
    await person.page.locator(SCREEN).focus()
    if not known:
        await swallow(person, shells, b"late")
    hub.slow.clear()
    shells.sockets[-1].transport.abort()
    await expect(person.page.locator("#notice h2")).to_have_text("The connection was lost")
    if known:
        await person.page.keyboard.type("late")
    await person.page.clock.fast_forward(4000)
    hub.slow.set()
    await person.page.clock.fast_forward(1000)
    state = person.page.get_by_role("status")
    await expect(state).to_have_text("What you typed was not sent")
    await person.page.clock.fast_forward(5000)
    await expect(state).to_have_text("Connected")
    await person.page.keyboard.type("now")
    await shells.until_typed(b"now")
    assert b"late" not in bytes(shells.typed)


async def test_typing_into_a_silent_connection_soon_shows_that_nothing_answers(
    world: World, person: Person, shells: Shells
) -> None:
    deaf = asyncio.Event()
    talk = shells.talk

    async def talk_until_deaf(socket: ServerConnection) -> None:
        talking = asyncio.ensure_future(talk(socket))
        await deaf.wait()
        talking.cancel()
        await socket.wait_closed()

    async with hub_of(world, talk_until_deaf) as hub:
        shells.hub = hub
        await person.page.clock.install()
        await arrive(world, person, shells)
        deaf.set()
        await person.page.locator(SCREEN).focus()
        await person.page.keyboard.type("ls")
        state = person.page.get_by_role("status")
        for _ in range(5):
            await person.page.clock.fast_forward(1000)
        await expect(state).to_have_text("No response…")
        await expect(person.page.locator("#notice")).to_be_hidden()


async def test_a_proxy_that_holds_back_upgrades_is_named(
    world: World, person: Person, shells: Shells
) -> None:
    await person.page.clock.install()
    await arrive(world, person, shells)
    # The upgrade is delivered when the gateway has given up: the socket opens, and closes at once.
    await person.page.evaluate("""() => {
        globalThis.WebSocket = class extends EventTarget {
            static CONNECTING = 0;
            readyState = 0;
            constructor() {
                super();
                setTimeout(() => {
                    this.dispatchEvent(new Event("open"));
                    this.dispatchEvent(new CloseEvent("close", {code: 1006}));
                }, 40000);
            }
            close() {}
        };
    }""")
    shells.sockets[-1].transport.abort()
    notice = person.page.locator("#notice")
    async with asyncio.timeout(20):
        while "kind WebSocket" not in await notice.inner_text():
            await person.page.clock.fast_forward(5000)
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("mode", [b"", b"\x1b[?2004h"], ids=["plain", "bracketed"])
async def test_an_interrupt_passes_a_large_paste_of_which_the_shell_reads_nothing(
    world: World, person: Person, shells: Shells, mode: bytes
) -> None:
    shells.output = mode + b"ready $ "
    await arrive(world, person, shells)
    await expect(person.page.locator(".xterm-rows")).to_contain_text("ready $")
    await person.page.evaluate("fumaroleTerminal.paste('x'.repeat(400_000))")
    await person.page.locator(SCREEN).focus()
    await person.page.keyboard.press("Control+c")
    await shells.until_typed(b"\x03")
    begin, end = (b"\x1b[200~", b"\x1b[201~") if mode else (b"", b"")
    assert shells.typed == begin.ljust(131_072, b"x") + end + b"\x03", "the rest is discarded"
    await person.page.keyboard.type("ls")
    await shells.say(type="typed", offset=len(shells.typed))
    await shells.until_typed(b"\x03ls")
