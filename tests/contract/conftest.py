"""Fixtures of the contract tests: rigs, and apps that end with their test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.contract.rig import Rig, running_rig
from tests.contract.upstream import App, Script

PORTAL = "https://portal.example.com"
EDGE_URL = "https://apps.example.com"
TRUSTED_PROXIES = "127.15.0.0/16"
Serve = Callable[..., Awaitable[App]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run this folder's tests in one event loop, because they share a rig."""
    for item in items:
        if item.nodeid.startswith("tests/contract/") and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def local_rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with running_rig(tmp_path_factory.mktemp("local")) as rig:
        yield rig


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def edge_rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    settings = {
        "PUBLIC_URL": EDGE_URL,
        "OPEN_ORIGINS": PORTAL,
        "EMBED_ORIGINS": PORTAL,
        "TRUSTED_PROXIES": TRUSTED_PROXIES,
    }
    async with running_rig(tmp_path_factory.mktemp("edge"), settings) as rig:
        yield rig


@pytest_asyncio.fixture(loop_scope="session")
async def rig(local_rig: Rig) -> AsyncIterator[Rig]:
    """Provide a gateway for ``http://localhost``; the test's connections end with the test."""
    yield local_rig
    local_rig.close_streams()


@pytest_asyncio.fixture(loop_scope="session")
async def edge(edge_rig: Rig) -> AsyncIterator[Rig]:
    """Provide a gateway behind an edge that ends TLS; a portal may open and frame its sessions."""
    yield edge_rig
    edge_rig.close_streams()


@pytest_asyncio.fixture(loop_scope="session")
async def serve() -> AsyncIterator[Serve]:
    """Provide a function that starts apps."""
    async with AsyncExitStack() as stack:

        async def start(
            script: Script | None = None, host: str = "127.0.0.1", port: int = 0
        ) -> App:
            return await stack.enter_async_context(App(script, host, port))

        yield start
