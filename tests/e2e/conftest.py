"""One running system for all of these tests, and a browser for each that wants one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, async_playwright, expect

from deploy.local.system import LocalSystem
from tests.conftest import chromium

# Nothing but the page under test: the browser asks no server of its maker's for anything.
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)

_FAILED = pytest.StashKey[bool]()

Visit = Callable[[], Awaitable[BrowserContext]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def system() -> AsyncIterator[LocalSystem]:
    """The whole system; its logs are shown when a test of it fails."""
    async with LocalSystem() as system:
        yield system


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A headless Chromium."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium(), args=CHROMIUM_ARGUMENTS
        )
        yield browser
        await browser.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let fixtures know how their test went."""
    report = yield
    if report.when == "call":
        item.stash[_FAILED] = report.failed
    return report


async def _tell(context: BrowserContext) -> None:
    """Print what the person saw last."""
    for page in context.pages:
        print(f"--- {page.url}\n{(await page.inner_text('body'))[:2000]}")


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser, request: pytest.FixtureRequest) -> AsyncIterator[Visit]:
    """Makes browser profiles of their own, as different people have.

    What the pages show is printed when the test fails.
    """
    contexts: list[BrowserContext] = []
    async with AsyncExitStack() as stack:

        async def make() -> BrowserContext:
            context = await browser.new_context(viewport={"width": 1280, "height": 900})
            context.set_default_timeout(PATIENCE_MS)
            stack.push_async_callback(context.close)
            contexts.append(context)
            return context

        yield make
        if request.node.stash.get(_FAILED, False):
            for context in contexts:
                await _tell(context)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all of these in one process: they share the system."""
    for item in items:
        if "tests/e2e" in str(item.path):
            item.add_marker(pytest.mark.xdist_group("e2e"))
