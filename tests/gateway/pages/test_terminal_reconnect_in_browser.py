"""Tests how soon a terminal's page reconnects after a lost connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect
from websockets.asyncio.server import ServerConnection

from tests.gateway.conftest import World
from tests.gateway.pages.test_terminal_in_browser import Shells, arrive, lines, shells
from tests.gateway.pages.users import Person
from tests.gateway.relay.bridge.test_terminal import PATH, Hub, hub_of

pytestmark = pytest.mark.needs("chromium")

__all__ = ["shells"]  # a fixture

COUNT = """
globalThis.made = globalThis.gone = 0;
globalThis.WebSocket = class extends WebSocket {
  constructor(...all) { super(...all); made++; this.addEventListener("close", () => gone++); }
};
"""


@pytest_asyncio.fixture(loop_scope="module")
async def stuck(world: World) -> AsyncIterator[Hub]:
    """Provide a hub that does not answer while ``slow`` is not set."""
    async with hub_of(world) as hub:
        hub.slow.clear()
        yield hub
        hub.slow.set()


async def until(page: Page, condition: str) -> None:
    """Wait for *condition* in *page*, by the test's clock, since tests change the page's clock."""
    async with asyncio.timeout(20):
        while not await page.evaluate(condition):
            await asyncio.sleep(0.02)


async def follow(world: World, person: Person, hub: Hub) -> None:
    """Open a terminal of *hub*."""
    sid = await world.publish(kind="terminal", port=hub.port, target={"base_path": PATH})
    await person.follow_link(sid, kind="terminal")


async def test_an_unresponsive_session_does_not_block_other_tabs(
    world: World, person: Person, shells: Shells, stuck: Hub
) -> None:
    await arrive(world, person, shells)
    other = Person(world, person.context, await person.context.new_page())
    await other.page.add_init_script(COUNT)
    await follow(world, other, stuck)
    await until(other.page, "made > 0")
    # A browser opens one WebSocket to an address at a time.
    shells.sockets[-1].transport.abort()
    async with asyncio.timeout(20):
        while len(shells.sockets) < 2:
            await asyncio.sleep(0.02)
    await expect(person.page.get_by_role("status")).to_have_text("Connected")
    assert await other.page.evaluate("gone") == 0, "it did not have to give up first"
    stuck.slow.set()
    await expect(other.page.locator(".xterm-rows")).to_contain_text("$")


async def test_a_page_whose_upgrades_are_blocked_on_the_way_says_so(
    world: World, person: Person, shells: Shells
) -> None:
    await arrive(world, person, shells)
    # As behind a proxy that does not pass on upgrades.
    await person.page.evaluate("""() => {
        globalThis.Through = WebSocket;
        globalThis.WebSocket = function () { return new Through("/no"); };
    }""")
    shells.sockets[-1].transport.abort()
    notice = person.page.locator("#notice")
    await expect(notice).to_contain_text("no connection of the kind WebSocket gets through")
    await expect(notice).to_contain_text("Trying again in")
    await person.page.evaluate("() => { globalThis.WebSocket = Through; }")
    await expect(notice).to_be_hidden()


@pytest.mark.parametrize("cause", ["starting", "unreachable"])
async def test_no_connections_are_tried_until_the_gateway_says_that_the_session_is_ready(
    world: World, person: Person, shells: Shells, cause: str
) -> None:
    # After each that fails, Firefox delays the next one longer, for all sessions of the gateway.
    await person.page.add_init_script(COUNT)
    sid = await arrive(world, person, shells)
    assert shells.hub is not None
    where: dict[str, Any] = {"kind": "terminal", "port": shells.hub.port}
    where["target"] = {"base_path": PATH}
    asked: list[str] = []
    person.page.on("request", lambda request: asked.append(request.url))
    if cause == "starting":
        await world.change(sid, **where, state="starting", status={"phase": "starting"})
    else:
        await person.context.set_offline(True)
        shells.sockets[-1].transport.abort()
    async with asyncio.timeout(20):
        while len(asked) < 3:
            await asyncio.sleep(0.02)
    assert await person.page.evaluate("made") <= 2, "the first one, and one after its end"
    if cause == "starting":
        await world.change(sid, **where)
    else:
        await person.context.set_offline(False)
    await expect(person.page.get_by_role("status")).to_have_text("Connected")


async def test_a_page_with_a_silent_connection_reconnects(
    world: World, person: Person, shells: Shells
) -> None:
    silent = asyncio.Event()

    async def nothing_at_first(socket: ServerConnection) -> None:
        if silent.is_set():
            await shells.talk(socket)
        else:
            silent.set()
            await socket.wait_closed()

    async with hub_of(world, nothing_at_first) as hub:
        shells.hub = hub
        await person.page.clock.install()
        await follow(world, person, hub)
        await silent.wait()
        await person.page.clock.fast_forward(25_000)
        await expect(person.page.locator(".xterm-rows")).to_contain_text("$")


async def test_returning_to_a_page_replaces_a_pending_connection(
    world: World, person: Person, stuck: Hub
) -> None:
    await person.page.add_init_script(COUNT)
    await follow(world, person, stuck)
    await until(person.page, "made > 0 && performance.now() > 2500")
    given_up = await timeouts(world)
    # As after a change of network: the earlier request gets no answer.
    before, stuck.slow = stuck.slow, asyncio.Event()
    stuck.slow.set()
    await person.page.evaluate("dispatchEvent(new Event('online'))")
    await expect(person.page.locator(".xterm-rows")).to_contain_text("$")
    assert await timeouts(world) == given_up, "it did not wait until the gateway gave it up"
    before.set()


async def timeouts(world: World) -> str:
    """Return how often the gateway timed out on the hub."""
    metrics = (await world.gateway.ask_ops("/metrics")).text
    name = 'fumarole_gateway_upstream_failures_total{reason="app_timeout"} '
    return metrics.partition(name)[2].partition("\n")[0]


async def test_after_an_hour_of_sleep_the_page_shows_all_output(
    world: World, person: Person, shells: Shells
) -> None:
    deaf: list[ServerConnection] = []
    talk = shells.talk

    async def talk_until_deaf(socket: ServerConnection) -> None:
        if deaf:
            await talk(socket)
            return
        talking = asyncio.ensure_future(talk(socket))
        while not deaf:
            await asyncio.sleep(0.02)
        talking.cancel()  # as if the connection were lost without a signal
        await socket.wait_closed()

    async with hub_of(world, talk_until_deaf) as hub:
        shells.hub = hub
        await person.page.clock.install()
        await arrive(world, person, shells)
        deaf.append(shells.sockets[-1])
        shells.output += b"written meanwhile $ "
        await person.page.clock.fast_forward("01:00:00")
        await person.page.evaluate("dispatchEvent(new Event('online'))")
        await person.page.clock.fast_forward(5000)
        # Two polls, and the page's shortest pause.
        for _ in range(3):
            await asyncio.sleep(0.2)
            await person.page.clock.fast_forward(1000)
        await expect(person.page.get_by_role("status")).to_have_text("Connected")
        async with asyncio.timeout(20):
            while "written meanwhile" not in await lines(person.page):
                await asyncio.sleep(0.05)
        assert (await lines(person.page)).count("$") == 2


async def test_a_clock_set_back_does_not_delay_reconnection(
    world: World, person: Person, shells: Shells
) -> None:
    await person.page.add_init_script(
        "const now = Date.now; globalThis.setBack = () => Date.now = () => now() - 36e5;"
    )
    await arrive(world, person, shells)
    shells.sockets[-1].transport.abort()
    await expect(person.page.locator("#notice h2")).to_have_text("The connection was lost")
    await person.page.evaluate("setBack()")
    await expect(person.page.get_by_role("status")).to_have_text("Connected")
