"""Users with a browser: one profile each, whose console errors are recorded."""

from __future__ import annotations

from typing import Any

from playwright.async_api import BrowserContext, ConsoleMessage, Page

from tests.gateway.conftest import World

FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]


class Person:
    """One browser profile that records every error of the browser's console."""

    def __init__(self, world: World, context: BrowserContext, page: Page) -> None:
        self.world = world
        self.context = context
        self.page = page
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._hear)

    def _hear(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            self.complaints.append(message.text)

    def url(self, sid: str, path: str = "/") -> str:
        """Return an address on the host of *sid*."""
        return self.world.gateway.origin(sid) + path

    async def follow_link(self, sid: str, *, then: str = "", **claims: Any) -> None:
        """Follow a link in the form that the orchestrator gives to users."""
        token = self.world.gateway.signer.token(sid, **claims)
        await self.page.goto(self.url(sid, f"/.fumarole/open#token={token}{then}"))


async def return_to(page: Page) -> None:
    """Leave *page* for another tab, and come back; a headless browser's pages are all visible."""
    for hidden in ("true", "false"):
        await page.evaluate(f"""() => {{
            Object.defineProperty(document, "hidden", {{configurable: true, value: {hidden}}});
            document.dispatchEvent(new Event("visibilitychange"));
        }}""")
