"""Tests b9911c7 beside today's code: its gateway, its controller, and a rollback to it."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from controller.store.database import Store
from tests.programs import RedisServer
from tests.recorded.reopened import Reopened, reopened
from tests.recorded.test_upgrade import (
    check_nothing_is_lost,
    check_routes,
    check_sessions_at_the_gateway,
)

ROOT = Path(__file__).parents[2]
THEN = "b9911c7"


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """Return the tree of b9911c7."""
    archive, tree = tmp_path / "then.tar", tmp_path / "then"
    known = subprocess.run(
        ["git", "archive", "--output", archive, THEN], cwd=ROOT, capture_output=True, timeout=60
    )
    if known.returncode:
        pytest.skip(f"the repository is a shallow clone, without {THEN}")
    with tarfile.open(archive) as packed:
        packed.extractall(tree, filter="data")
    # No commit contains built pages. Today's serve: no browser opens them here.
    shutil.copytree(ROOT / "gateway/web/build", tree / "gateway/web/build")
    # An empty list of metadata is null, as Go encodes it. It ended that version, on any store.
    sweeping = tree / "controller/jobs/sweeping.py"
    sweeping.write_text(
        sweeping.read_text().replace("for given in page if", "for given in page or () if")
    )
    return tree


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_b9911c7_works_with_the_current_version_and_allows_rollback(
    older: Path, tmp_path: Path, redis_server: RedisServer
) -> None:
    (tmp_path / "world").mkdir()
    async with reopened("sqlite", tmp_path / "world", redis_server, None) as world:
        # The controller is upgraded, but not yet the gateways.
        await run(world, controller=ROOT, gateway=older)
        await check_nothing_is_lost(world)
        await check_routes(world)
        await check_sessions_at_the_gateway(world)
        desk = await accept_what_is_new(world)
        # The controller is rolled back; the gateways were upgraded meanwhile.
        await stop(world)
        await run(world, controller=older, gateway=ROOT)
        await check_nothing_is_lost(world)
        await check_routes(world)
        await check_sessions_at_the_gateway(world)
        await world.controller.submit("then", labels={"cost-centre": "c"})
        await check_leaves_what_is_new(world)
        # Upgraded again: today's version reads what the older one wrote into the newer schema.
        await stop(world)
        await run(world, controller=ROOT, gateway=ROOT)
        await check_nothing_is_lost(world)
        await check_routes(world)
        assert (await world.controller.job("then"))["state"] == "IN_QUEUE"
        await check_what_is_new(world, desk)
        await stop(world)
        store = Store(world.controller.settings["FUMAROLE_CONTROLLER_STORE_URL"])
        await store.open()
        await store.close()


LABELS = {"cost-centre": "c"}
NEW = ("sweep-0", "sweep-1", "chained")


async def accept_what_is_new(world: Reopened) -> str:
    """Make today's controller write rows, columns and words that b9911c7 lacks.

    Returns:
        A desktop whose clipboard is restricted.
    """
    template = {"owner": {"user": "ada"}, "image": "busybox", "labels": LABELS,
                "resources": {"cpu": 0.05, "memory": "64Mi"}}  # fmt: skip
    batch = {"id": "sweep", "template": template, "count": 2}
    await world.call("POST", "/v1/batches", batch, expect=201)
    await world.controller.submit("chained", labels=LABELS, after=["sweep-0"])
    desk = await world.controller.open("web", endpoint="desk", clipboard="out")
    await world.routes.until(desk, "ready")
    return desk


async def check_leaves_what_is_new(world: Reopened) -> None:
    """Check that the older version leaves jobs alone that it cannot read, and runs all others."""
    made = await world.volcano_jobs()
    assert not {*NEW, "then"} & made.keys()
    assert await world.controller.is_ready()


async def check_what_is_new(world: Reopened, desk: str) -> None:
    """Check that everything unknown to the older version is unchanged."""
    batch = await world.call("GET", "/v1/batches/sweep")
    assert (batch["jobs"], batch["counts"]) == (2, {"IN_QUEUE": 2})
    for number, job_id in enumerate(("sweep-0", "sweep-1")):
        job = await world.controller.job(job_id)
        assert (job["batch"], job["batch_item"]["index"]) == ("sweep", number)
    chained = await world.controller.job("chained")
    assert (chained["state"], chained["after"]) == ("IN_QUEUE", ["sweep-0"])
    route = await world.routes.of(desk)
    assert route is not None
    assert route["clipboard"] == "out"


async def run(world: Reopened, *, controller: Path, gateway: Path) -> None:
    """Start controller and gateway, each from its tree."""
    world.controller.place, world.gateway.place = controller, gateway
    await world.gateway.start()
    await world.controller.start()


async def stop(world: Reopened) -> None:
    """Stop controller and gateway."""
    assert await world.controller.stop() == 0, world.controller.tail()
    world.gateway.kill()
