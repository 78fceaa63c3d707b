"""A controller with a cluster and a Redis of its own, and jobs for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from controller.api.requests import MOST_ITEMS
from controller.kube.client import Kube
from controller.kube.kinds import VCJOBS
from controller.kube.watch import Changed, Deleted, Listed, watch
from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import Controller, running
from tests.programs import RedisServer, redis_program

INSTANCE: Final = "bench"
NAMESPACE: Final = "jobs"
OURS: Final = f"fumarole.dev/instance={INSTANCE}"
SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Site:
    """Controller, cluster and Redis; ``admin`` is a client with all rights in the cluster."""

    cluster: EmbeddedCluster
    controller: Controller
    admin: Kube

    async def post(self, jobs: Iterable[dict[str, Any]]) -> None:
        """Submit jobs to the controller, in as few calls as possible.

        Raises:
            RuntimeError: If the controller refuses one.
        """
        given = list(jobs)
        for first in range(0, len(given), MOST_ITEMS):
            body = {"mode": "best_effort", "items": given[first : first + MOST_ITEMS]}
            answer = await self.controller.call("POST", "/v1/jobs", body)
            refused = [item for item in answer["items"] if item["result"] != "created"]
            if refused:
                raise RuntimeError(f"{len(refused)} jobs were refused: {refused[0]}")

    async def appearance(self, count: int) -> None:
        """Return once there are *count* VolcanoJobs; uses a watch, which costs the server least."""
        there = set[str]()
        async with (
            asyncio.timeout(SECONDS),
            aclosing(watch(self.admin, VCJOBS, labels=OURS)) as events,
        ):
            async for event in events:
                match event:
                    case Listed(objects):
                        there = set() if event.first else there
                        there |= {one["metadata"]["name"] for one in objects}
                    case Changed(given):
                        there.add(given["metadata"]["name"])
                    case Deleted(gone):
                        there.discard(gone["metadata"]["name"])
                if len(there) >= count:
                    return


@asynccontextmanager
async def running_site(folder: Path, **settings: str) -> AsyncIterator[Site]:
    """Run a site in *folder* during the block."""
    async with EmbeddedCluster() as cluster:
        with RedisServer(redis_program(), folder) as redis:
            controller = Controller(
                folder / "controller",
                kubeconfig=cluster.kubeconfig("controller"),
                redis_url=redis.url,
                instance=INSTANCE,
                FUMAROLE_CONTROLLER_NAMESPACE=NAMESPACE,
                **settings,
            )
            async with (
                running(controller),
                Kube.connect(cluster.kubeconfig("admin")) as admin,
            ):
                yield Site(cluster, controller, admin)


def waiting_job(number: int) -> dict[str, Any]:
    """Return a job for which no node has room: running it is not measured."""
    return {
        "id": f"job-{number}",
        "owner": {"user": "ada"},
        "image": "busybox",
        "resources": {"cpu": 900, "memory": "64Mi"},
        "invocation": {"command": ["sleep", "3600"]},
        "parameters": {"token": {"type": "secret", "value": "not-a-secret"}},
    }


def cpu_seconds_of(process: psutil.Process) -> float:
    """Return the CPU that *process* has used so far, in seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)
