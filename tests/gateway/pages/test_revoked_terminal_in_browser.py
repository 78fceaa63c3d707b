"""Tests a terminal's page in Chromium after a revoked user has typed into the shell."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from playwright.async_api import expect
from websockets.asyncio.server import ServerConnection

from tests.gateway.conftest import World
from tests.gateway.pages.users import Person
from tests.gateway.relay.bridge.test_terminal import PATH, hub_of

pytestmark = pytest.mark.needs("chromium")

TOLD = "Someone whose access was withdrawn has typed into it"


class Shells:
    """A hub whose first shell is suspect; another shell begins when a client asks for it."""

    def __init__(self, mode: str = "control") -> None:
        self.mode = mode
        self.begun = 0
        self.texts: list[dict[str, Any]] = []
        self.typed = b""

    async def talk(self, socket: ServerConnection) -> None:
        """Attach a client."""
        self.begun += 1
        await socket.send(json.dumps({"type": "attached", "mode": self.mode, "resumed": False}))
        await socket.send(f"shell-{self.begun}$ ".encode())
        if self.begun == 1:
            await socket.send('{"type":"revoked_input"}')
        async for message in socket:
            if isinstance(message, bytes):
                self.typed += message
                continue
            self.texts.append(json.loads(message))
            if self.texts[-1]["type"] == "renew":
                await socket.close(1012, "a new shell begins")

    def asked(self, kind: str) -> int:
        """Return how many messages of *kind* clients have sent."""
        return sum(text["type"] == kind for text in self.texts)


async def test_one_click_starts_a_new_shell(world: World, person: Person) -> None:
    shells = Shells()
    async with hub_of(world, shells.talk) as hub:
        sid = await world.publish(kind="terminal", port=hub.port, target={"base_path": PATH})
        await person.follow_link(sid, kind="terminal")
        notice = person.page.get_by_role("alert")
        await expect(notice).to_contain_text(TOLD)
        # Typing is no click, whatever the keys are.
        await person.page.keyboard.type("make\n")
        async with asyncio.timeout(20):
            while b"make\r" not in shells.typed:
                await asyncio.sleep(0.02)
        assert shells.asked("renew") == 0
        await expect(notice).to_be_visible()
        await person.page.get_by_role("button", name="Start a new shell").click()
        await expect(person.page.locator(".xterm-rows")).to_contain_text("shell-2$")
        await expect(notice).to_be_hidden()
        assert shells.asked("renew") == 1


async def test_the_shell_can_be_kept(world: World, person: Person) -> None:
    shells = Shells()
    async with hub_of(world, shells.talk) as hub:
        sid = await world.publish(kind="terminal", port=hub.port, target={"base_path": PATH})
        await person.follow_link(sid, kind="terminal")
        notice = person.page.get_by_role("alert")
        await expect(notice).to_contain_text(TOLD)
        await person.page.get_by_role("button", name="Keep this one").click()
        await expect(notice).to_be_hidden()
        await person.page.keyboard.type("on")
        async with asyncio.timeout(20):
            while b"on" not in shells.typed:
                await asyncio.sleep(0.02)
        assert (shells.begun, shells.asked("renew")) == (1, 0)


async def test_a_viewer_is_notified_but_cannot_choose(world: World, person: Person) -> None:
    shells = Shells("view")
    async with hub_of(world, shells.talk) as hub:
        sid = await world.publish(kind="terminal", port=hub.port, target={"base_path": PATH})
        await person.follow_link(sid, kind="terminal", mode="view")
        await expect(person.page.get_by_role("alert")).to_contain_text(TOLD)
        await expect(person.page.get_by_role("button", name="Start a new shell")).to_have_count(0)
