"""The rig of the tests of the bus: a gateway whose bus a test may break."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.contract.rig import Rig, running_rig


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def fragile_rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with running_rig(tmp_path_factory.mktemp("fragile")) as rig:
        yield rig


@pytest_asyncio.fixture(loop_scope="session")
async def rig(fragile_rig: Rig) -> AsyncIterator[Rig]:
    """Provide a gateway whose bus a test may break; the bus is repaired before the next test."""
    yield fragile_rig
    fragile_rig.close_streams()
    fragile_rig.beating = True
    await fragile_rig.bus.rebuild()
    await fragile_rig.settled()
