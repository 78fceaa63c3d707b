"""Tests what fails liveness or ends the process: a stalled reconciler, a later schema."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest
import sqlalchemy as sa

from controller.store.database import Store
from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import Controller, eventually, running
from tests.programs import RedisServer

pytestmark = pytest.mark.timeout(240)

STANDS_STILL = """
import asyncio

from controller.jobs.reconcile import reconciler
from controller.plugin_api import JobPlugin

reconciler.STALL_SECONDS = 2.0
real = reconciler.Reconciler.reconcile


async def never_ends(self, job_id):
    if job_id.startswith("stuck"):
        await asyncio.Event().wait()
    return await real(self, job_id)


reconciler.Reconciler.reconcile = never_ends


class Still(JobPlugin):
    name = "still"
    api_version = "1.0"
"""


def install(folder: Path) -> dict[str, str]:
    """Install a plugin that stalls the reconciler; return the settings it needs."""
    about = folder / "still-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "still.py").write_text(STANDS_STILL)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: still\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[fumarole.plugins]\nstill = still:Still\n")
    return {"PYTHONPATH": str(folder), "FUMAROLE_CONTROLLER_EXTRA_PLUGINS": "still"}


async def health(controller: Controller) -> tuple[int, list[str]]:
    url = f"http://{controller.addresses['ops']}/healthz"
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        return response.status, (await response.json()).get("reasons", [])


async def test_liveness_fails_if_all_workers_stall_and_jobs_wait(
    own_cluster: EmbeddedCluster, redis_server: RedisServer, tmp_path: Path
) -> None:
    controller = Controller(
        tmp_path / "controller", kubeconfig=own_cluster.kubeconfig("controller"),
        redis_url=redis_server.url, **install(tmp_path / "plugin"),
    )  # fmt: skip
    async with running(controller):
        await controller.submit("goes")
        await controller.until("goes", "RUNNING", seconds=90)
        for number in range(7):
            await controller.submit(f"stuck-{number}")
        await controller.submit("goes-too")
        await controller.until("goes-too", "RUNNING", seconds=90)
        assert (await health(controller))[0] == 200  # one worker is left
        await controller.submit("stuck-7")
        await controller.submit("waits")

        async def accused() -> list[str] | None:
            status, reasons = await health(controller)
            return reasons if status == 503 else None

        (reason,) = await eventually(accused, seconds=90, what="it is healthy")
        assert "the reconciler has done nothing" in reason


@pytest.mark.parametrize("ahead", [2, 40])
async def test_a_schema_two_versions_ahead_ends_the_process_with_code_2(
    redis_server: RedisServer, tmp_path: Path, ahead: int
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    store = Store(url)
    await store.open()
    async with store.write() as transaction:
        found = await transaction.scalar(sa.text("SELECT version_num FROM schema_version"))
        later = f"{int(found or 0) + ahead:04}"
        await transaction.execute(
            sa.text("UPDATE alembic_version SET version_num = :later"), {"later": later}
        )
    await store.close()
    controller = Controller(
        tmp_path / "controller", redis_url=redis_server.url,
        FUMAROLE_CONTROLLER_STORE_URL=url,
    )  # fmt: skip
    try:
        with pytest.raises(AssertionError, match="the controller ended"):
            await controller.start(ready=False)
        assert await controller.exit_code(30.0) == 2
    finally:
        await controller.kill()
    last = controller.log.read_text().splitlines()[-1]
    assert (
        last == f"error: the store's schema is {later}, of a later version; this one knows {found}"
    )
    # The failed start changed nothing.
    store = Store(url)
    async with store.read() as transaction:
        assert await transaction.scalar(sa.text("SELECT version_num FROM alembic_version")) == later
    await store.close()
