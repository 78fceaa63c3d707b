"""Fixtures of the page tests: one Chromium for each module, a profile for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from tests.conftest import chromium
from tests.gateway.conftest import World, world_of
from tests.gateway.pages.users import FLAGS, Person
from tests.gateway.process import GatewayProcess

NOWHERE: Final[Mapping[str, int]] = MappingProxyType({})

# This is a wait, not a measurement: the machine may be busy.
expect.set_options(timeout=20_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a module's tests in one event loop, because they share a browser."""
    for item in items:
        if item.nodeid.startswith("tests/gateway/pages/") and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@asynccontextmanager
async def launched(
    gateway: GatewayProcess, elsewhere: Mapping[str, int] = NOWHERE
) -> AsyncIterator[Browser]:
    """Run a Chromium that resolves every host of *gateway* to its listener.

    *elsewhere* names hosts that are at other ports of this machine.
    """
    host, port = gateway.public
    rules = [f"MAP {name} 127.0.0.1:{there}" for name, there in elsewhere.items()]
    rules.append(f"MAP *.localhost {host}:{port}")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium(),
            args=[*FLAGS, f"--host-resolver-rules={', '.join(rules)}"],
        )
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(shared_gateway: GatewayProcess) -> AsyncIterator[Browser]:
    """Provide a browser that knows the shared gateway."""
    async with launched(shared_gateway) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def world(shared_gateway: GatewayProcess) -> AsyncIterator[World]:
    """Provide the shared gateway with a publisher of this test's own."""
    async with world_of(shared_gateway) as world:
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def person(world: World, browser: Browser) -> AsyncIterator[Person]:
    """Provide a person with a browser profile; fail if the browser logged an error."""
    context = await browser.new_context()
    person = Person(world, context, await context.new_page())
    yield person
    await context.close()
    assert person.complaints == []
