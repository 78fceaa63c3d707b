"""b9911c7 itself beside the code of today: its gateway, its controller, and a way back to it."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from controller.store.database import Store
from tests.programs import RedisServer
from tests.recorded.reopened import Reopened, reopened
from tests.recorded.test_going_on import (
    check_nothing_is_lost,
    check_routes,
    check_sessions_at_the_gateway,
)

ROOT = Path(__file__).parents[2]
THEN = "b9911c7"


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """The tree of b9911c7."""
    archive, tree = tmp_path / "then.tar", tmp_path / "then"
    known = subprocess.run(
        ["git", "archive", "--output", archive, THEN], cwd=ROOT, capture_output=True, timeout=60
    )
    if known.returncode:
        pytest.skip(f"the repository is a shallow clone, without {THEN}")
    with tarfile.open(archive) as packed:
        packed.extractall(tree, filter="data")
    # Built pages are in no commit; today's will do, since nobody looks at them here.
    shutil.copytree(ROOT / "gateway/web/build", tree / "gateway/web/build")
    # An empty list of metadata is null, as Go writes it: that version ended by it, on any store.
    sweeping = tree / "controller/jobs/sweeping.py"
    sweeping.write_text(
        sweeping.read_text().replace("for given in page if", "for given in page or () if")
    )
    return tree


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_b9911c7_works_with_today_and_can_be_gone_back_to(
    older: Path, tmp_path: Path, redis_server: RedisServer
) -> None:
    (tmp_path / "world").mkdir()
    async with reopened("sqlite", tmp_path / "world", redis_server, None) as world:
        # The controller is upgraded, the gateways are not yet.
        await run(world, controller=ROOT, gateway=older)
        await check_nothing_is_lost(world)
        await check_routes(world)
        await check_sessions_at_the_gateway(world)
        # The controller is rolled back; the gateways were upgraded meanwhile.
        await stop(world)
        await run(world, controller=older, gateway=ROOT)
        await check_nothing_is_lost(world)
        await check_routes(world)
        await check_sessions_at_the_gateway(world)
        await world.controller.submit("then", labels={"cost-centre": "c"})
        # And upgraded again: what the older version wrote into the newer schema is read.
        await stop(world)
        await run(world, controller=ROOT, gateway=ROOT)
        await check_nothing_is_lost(world)
        await check_routes(world)
        assert (await world.controller.job("then"))["state"] == "IN_QUEUE"
        await stop(world)
        store = Store(world.controller.settings["FUMAROLE_CONTROLLER_STORE_URL"])
        await store.open()
        await store.close()


async def run(world: Reopened, *, controller: Path, gateway: Path) -> None:
    """Start both, each from its tree."""
    world.controller.place, world.gateway.place = controller, gateway
    await world.gateway.start()
    await world.controller.start()


async def stop(world: Reopened) -> None:
    """End both."""
    assert await world.controller.stop() == 0, world.controller.tail()
    world.gateway.kill()
