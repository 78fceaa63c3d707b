"""Fixtures of the end-to-end tests: one running system, and a browser for each test that asks.

With ``KUBECONFIG``, the system uses that cluster instead of the embedded one. A test that needs a
running app names it by the fixture ``notebooks``, ``shells`` or ``desktops``. These fixtures try
each app once; if it does not run, the tests that need it are skipped with the reason. Tests without
these fixtures need an API server with Volcano, and nothing that runs containers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, async_playwright, expect

from deploy.local.apps.catalogue import APPS
from deploy.local.demo import explanation_of
from deploy.local.smoke import run_smoke
from deploy.local.system import LocalSystem
from tests.conftest import chromium

# Nothing but the page under test: the browser sends no request to its maker's servers.
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
KUBECONFIG = os.environ.get("KUBECONFIG")
TRIAL_SECONDS = float(os.environ.get("TRIAL_SECONDS", "300"))
"""What an app gets to show that it runs; its image may have to be pulled first."""

PATIENCE_MS = 300_000 if KUBECONFIG else 30_000
expect.set_options(timeout=PATIENCE_MS)

_FAILED = pytest.StashKey[bool]()

Visit = Callable[[], Awaitable[BrowserContext]]


@pytest.fixture(scope="session", autouse=True)
def _ended_in_order() -> Iterator[None]:
    """Make SIGTERM end the run as Ctrl-C does, so that all children end and folders are removed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def system() -> AsyncIterator[LocalSystem]:
    """Run the whole system; it creates and removes the objects that it needs in the cluster."""
    async with LocalSystem(
        kubeconfig=Path(KUBECONFIG) if KUBECONFIG else None,
        pod_networks=os.environ.get("POD_NETWORKS"),
    ) as system:
        yield system


async def _try(system: LocalSystem, app: str) -> None:
    """Skip if *app* does not run; an embedded cluster's must run, which its own tests show."""
    if system.cluster is not None:
        return
    if APPS[app].process_only:
        pytest.skip(f"{app} is a program of this machine only: no image of it is published")
    said: list[str] = []
    if not await run_smoke(
        system.address,
        said.append,
        apps={app: APPS[app]},
        seconds=TRIAL_SECONDS,
        explain=explanation_of(system),
    ):
        pytest.skip(f"{app} was tried once and cannot be used here: {' '.join(said).strip()}")


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def notebooks(system: LocalSystem) -> None:
    """Skip if no notebook runs, or this machine cannot reach the pods' network."""
    await _try(system, "jupyterlab")


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def shells(system: LocalSystem) -> None:
    """Skip if no container runs, or exec does not work."""
    await _try(system, "shell")


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def desktops(system: LocalSystem) -> None:
    """Skip where desktops do not run, as in every cluster but the embedded one."""
    await _try(system, "desktop")


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Run a headless Chromium."""
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
    """Store each test's outcome for its fixtures."""
    report = yield
    if report.when == "call":
        item.stash[_FAILED] = report.failed
    return report


async def _tell(context: BrowserContext) -> None:
    """Print the text that the person saw last."""
    for page in context.pages:
        print(f"--- {page.url}\n{(await page.inner_text('body'))[:2000]}")


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser, request: pytest.FixtureRequest) -> AsyncIterator[Visit]:
    """Make separate browser profiles, one per person.

    The text of the pages is printed if the test fails.
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
    """Give the tests more time on a real cluster."""
    for item in items:
        if KUBECONFIG and "tests/e2e" in item.nodeid:
            item.add_marker(pytest.mark.timeout(1800), append=False)
