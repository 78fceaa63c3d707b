"""Fixtures: gateways that this folder's tests share, in one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests.pressure.gateway_under_test import DEADLINES, PressureRig, running_ground

WIRES = ("plain", "TLS")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run this folder's tests in one event loop.

    Tests that time the cost to others need a quiet machine and run in `make test-long`.
    """
    for item in items:
        if item.nodeid.startswith("tests/pressure/"):
            if pytest_asyncio.is_async_test(item):
                item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
            if item.path.name.startswith("test_attacks_"):
                item.add_marker(pytest.mark.long)


class PressureRigs:
    """Gateways by wire, started on demand: with a cable, or with the product's own deadlines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._grounds: dict[str, PressureRig] = {}
        self.stack = AsyncExitStack()

    async def on(self, wire: str, *, cable: bool = False, patient: bool = False) -> PressureRig:
        """Return the gateway on *wire*; a patient one has no short deadlines."""
        name = f"{wire}-{cable}-{patient}"
        if name not in self._grounds:
            (self._folder / name).mkdir()
            made = running_ground(
                self._folder / name,
                deadlines={} if patient else DEADLINES,
                tls=wire == "TLS",
                cable=cable,
            )
            self._grounds[name] = await self.stack.enter_async_context(made)
        return self._grounds[name]


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def grounds(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PressureRigs]:
    """Provide the gateways; their honest sessions never rest, so they end with this folder."""
    made = PressureRigs(tmp_path_factory.mktemp("grounds"))
    async with made.stack:
        yield made


@pytest_asyncio.fixture(loop_scope="session", params=WIRES)
async def ground(
    grounds: PressureRigs, request: pytest.FixtureRequest
) -> AsyncIterator[PressureRig]:
    """Provide a gateway; the test's connections end with the test."""
    ground = await grounds.on(request.param)
    yield ground
    ground.close()


@pytest_asyncio.fixture(loop_scope="session")
async def plain(grounds: PressureRigs) -> AsyncIterator[PressureRig]:
    """Provide a gateway without TLS, for tests where TLS makes no difference."""
    ground = await grounds.on("plain")
    yield ground
    ground.close()


@pytest_asyncio.fixture(loop_scope="session")
async def secure(grounds: PressureRigs) -> AsyncIterator[PressureRig]:
    """Provide a gateway with TLS."""
    ground = await grounds.on("TLS")
    yield ground
    ground.close()
