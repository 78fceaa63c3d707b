"""One running system for all of these tests, and a browser for each that wants one.

With ``KUBECONFIG`` it uses that cluster instead of the embedded one. A test that needs an app to
run names it, by the fixture ``notebooks``, ``shells`` or ``desktops``: there each app is tried
once, and what needs one that does not run is skipped with the reason. Tests without these need
an API server with Volcano and nothing that runs containers.
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
KUBECONFIG = os.environ.get("KUBECONFIG")
TRIAL_SECONDS = float(os.environ.get("TRIAL_SECONDS", "300"))
"""What an app gets to show that it runs; its image may have to be pulled first."""

PATIENCE_MS = 300_000 if KUBECONFIG else 30_000
expect.set_options(timeout=PATIENCE_MS)

_FAILED = pytest.StashKey[bool]()

Visit = Callable[[], Awaitable[BrowserContext]]


@pytest.fixture(scope="session", autouse=True)
def _ended_in_order() -> Iterator[None]:
    """Have SIGTERM end the run as Ctrl-C does: what was started ends, and its folders go."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def system() -> AsyncIterator[LocalSystem]:
    """The whole system; it makes, and removes, what it needs in the cluster."""
    async with LocalSystem(
        kubeconfig=Path(KUBECONFIG) if KUBECONFIG else None,
        pod_networks=os.environ.get("POD_NETWORKS"),
    ) as system:
        yield system


async def _try(system: LocalSystem, app: str) -> None:
    """Skip where *app* does not run; an embedded cluster's must, and its tests say so."""
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
    """Skip where no notebook runs that this machine reaches in the pods' network."""
    await _try(system, "jupyterlab")


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def shells(system: LocalSystem) -> None:
    """Skip where no container runs, or none can be entered."""
    await _try(system, "shell")


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def desktops(system: LocalSystem) -> None:
    """Skip where desktops do not run, as in every cluster but the embedded one."""
    await _try(system, "desktop")


@pytest_asyncio.fixture(scope="package", loop_scope="session")
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
    """Give a real cluster more time."""
    for item in items:
        if KUBECONFIG and "tests/e2e" in item.nodeid:
            item.add_marker(pytest.mark.timeout(1800), append=False)
