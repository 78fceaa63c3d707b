"""Tests that desktops in Chromium reconnect by themselves after a restart of the gateway."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.gateway.conftest import World, running_gateway, world_of
from tests.gateway.pages.conftest import launched
from tests.gateway.pages.test_desktop_tools_in_browser import PIXEL, arrive, until
from tests.gateway.pages.users import Person
from tests.gateway.xvnc import PORTS, Screen, screen_of, xvnc

pytestmark = [
    pytest.mark.needs("chromium"),
    pytest.mark.needs("xvnc"),
    pytest.mark.timeout(300),  # the gateway is started three times, and the page pauses in between
]


@pytest_asyncio.fixture(loop_scope="module")
async def browser(world: World) -> AsyncIterator[Browser]:
    async with launched(world.gateway) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Provide a gateway that this test may end; its port stays reserved meanwhile."""
    place = {"FUMAROLE_GATEWAY_LISTEN": f"127.0.0.1:{PORTS.take()}"}
    async with AsyncExitStack() as stack:
        gateway = await asyncio.to_thread(stack.enter_context, running_gateway(tmp_path, **place))
        yield await stack.enter_async_context(world_of(gateway))


async def test_a_desktop_reconnects_after_a_gateway_restart(world: World, person: Person) -> None:
    gateway, says = world.gateway, person.page.get_by_role("status")
    async with xvnc("-SecurityTypes", "None") as server, screen_of(server) as screen:
        await arrive(world, person, server.port)
        screen.paint(0x00FF00)
        await until_seen(person, [0, 255, 0])
        # A crash, and then an orderly restart; what is painted meanwhile is shown afterwards.
        for number, colour, typed in ((signal.SIGKILL, 0xFF0000, "a"), (signal.SIGTERM, 0xFF, "b")):
            gateway.signal(number)
            await gateway.wait(30)
            await expect(says).to_have_text("Disconnected")
            screen.paint(colour)
            await gateway.start()
            await expect(says).to_have_text("Connected", timeout=60_000)
            await until_seen(person, list(colour.to_bytes(3, "big")))
            await expect(person.page.locator("#notice")).to_be_hidden()
            # The keyboard focus is kept.
            await person.page.keyboard.type(typed)
            await until_typed(screen, typed)
        assert screen.typed == "ab"


async def until_seen(person: Person, colour: list[int]) -> None:
    """Wait until the page shows *colour*."""
    await until(person.page, PIXEL, lambda pixel: pixel == colour)


async def until_typed(screen: Screen, text: str) -> None:
    """Wait until *text* is the last input of the desktop."""
    await screen.until(lambda: screen.typed.endswith(text))
