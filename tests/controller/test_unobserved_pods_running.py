"""Tests usage of pods that end unobserved, while the API server cannot be reached."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from controller.kube.client import Kube
from controller.kube.kinds import PODS, VCJOBS
from controller.volcano.names import volcano_job_name
from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import Controller, eventually, running
from tests.controller.tcp_relay import Link, linked
from tests.programs import RedisServer

pytestmark = pytest.mark.timeout(240)

BLIND_SECONDS = 6.5
"""After the pods have gone: longer than a leader takes to say again that it looks."""
ROUNDING_SECONDS = 1.0
"""The cluster's times are whole seconds."""
GONE = ("asked", "forced")
STAYS = "stays"


@dataclass
class DisconnectableController:
    """A controller whose link to the API server can be cut, with its jobs."""

    controller: Controller
    admin: Kube
    link: Link
    name: str

    async def run_jobs(self) -> None:
        for kind in (*GONE, STAYS):
            await self.controller.submit(f"{self.name}-{kind}")
        for kind in (*GONE, STAYS):
            await self.controller.until(f"{self.name}-{kind}", "RUNNING", seconds=60)

    async def remove_jobs(self) -> None:
        """Delete the VolcanoJobs as another client does, and one pod without grace."""
        for kind in GONE:
            name = volcano_job_name(f"{self.name}-{kind}")
            if kind == "forced":
                # Delete the owner first, or Volcano recreates the pod.
                await self.admin.delete(VCJOBS, name, "jobs", propagation="Orphan")
                await self.admin.delete(PODS, f"{name}-job-0", "jobs", grace_seconds=0)
            else:
                await self.admin.delete(VCJOBS, name, "jobs")

    async def are_gone(self) -> bool:
        pods = await self.admin.list(PODS, "jobs")
        names = {pod["metadata"]["name"] for pod in pods}
        return not any(f"{volcano_job_name(f'{self.name}-{kind}')}-job-0" in names for kind in GONE)

    async def charged(self, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the job's only run and its final ledger entry, once it exists."""
        job = f"{self.name}-{kind}"

        async def final() -> dict[str, Any] | None:
            entries = (await self.controller.call("GET", "/v1/usage?after=0"))["items"]
            return next((one for one in entries if one["job"] == job and one["final"]), None)

        entry = await eventually(final, seconds=90, what=f"nothing final of {job}")
        history = await self.controller.call("GET", f"/v1/jobs/{job}/history")
        (run,) = history["attempts"][0]["runs"]
        return run, entry


@asynccontextmanager
async def blinded(
    cluster: EmbeddedCluster, admin: Kube, redis_url: str, folder: Path, name: str
) -> AsyncIterator[DisconnectableController]:
    kubeconfig = json.loads(cluster.kubeconfig("controller").read_text())
    server = kubeconfig["clusters"][0]["cluster"]
    port = urlsplit(server["server"]).port
    assert port is not None
    async with linked(port) as link:
        server["server"] = f"https://127.0.0.1:{link.port}"
        path = folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(kubeconfig))
        controller = Controller(
            folder / name, kubeconfig=path, redis_url=redis_url, instance=name, name=name,
            FUMAROLE_CONTROLLER_USAGE_PERIOD_SECONDS="60",
        )  # fmt: skip
        async with running(controller):
            yield DisconnectableController(controller, admin, link, name)


async def is_charged_well(one: DisconnectableController, cut_at: float, gone_at: float) -> None:
    """Check that the link works again, and the usage of the pods that ended meanwhile."""
    await eventually(one.controller.is_ready, seconds=90, what="it is not ready again")
    for kind in GONE:
        run, entry = await one.charged(kind)
        assert entry["seconds"] == run["ended_at"] - run["started_at"]
        at = (one.name, kind, run["ended_at"] - cut_at, gone_at - cut_at)
        print(at)
        assert cut_at - ROUNDING_SECONDS <= run["ended_at"] <= gone_at, at
    back_at = time.time()
    await one.controller.call("DELETE", f"/v1/jobs/{one.name}-{STAYS}", expect=202)
    run, _ = await one.charged(STAYS)
    assert run["ended_at"] >= back_at - ROUNDING_SECONDS, "what ran on is not all charged"


async def test_pods_removed_during_an_api_server_outage_are_charged_by_their_status(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """The links are reset, stall, or a new controller starts before the server is back."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(EmbeddedCluster())
        print(f"FUMAROLE_CLUSTER_SEED={cluster.seed}")
        admin = await stack.enter_async_context(Kube.connect(cluster.kubeconfig("admin")))
        worlds = [
            await stack.enter_async_context(
                blinded(cluster, admin, redis_server.url, tmp_path, name)
            )
            for name in ("broken", "silent", "restarted")
        ]
        broken, silent, restarted = worlds
        await asyncio.gather(*(one.run_jobs() for one in worlds))
        cut_at = time.time()
        broken.link.sever()
        restarted.link.sever()
        silent.link.cut()
        await asyncio.gather(*(one.remove_jobs() for one in worlds))
        for one in worlds:
            await eventually(one.are_gone, seconds=60, what="pods stay")
        gone_at = time.time()
        await asyncio.sleep(BLIND_SECONDS)
        await restarted.controller.kill()
        await restarted.controller.start(ready=False)
        for one in worlds:
            one.link.mend()
        await asyncio.gather(*(is_charged_well(one, cut_at, gone_at) for one in worlds))
