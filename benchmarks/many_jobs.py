"""What many jobs cost the controller: ``python -m benchmarks.many_jobs [--jobs 10000]``.

Jobs are accepted and brought into a cluster where they wait. Before, while they wait, and once
they are over, a few more jobs live their lives, and what the controller's process needs for that
is taken from /proc: it must not cost more because there are others. The API server is the embedded
one, so the seconds say less than how they compare.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import uvloop

from benchmarks.submission import job_of
from controller.kube.client import Kube
from controller.kube.kinds import VCJOBS
from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import Controller, running
from tests.programs import RedisServer, redis_program

INSTANCE: Final = "many"
FEW: Final = 20
AT_ONCE: Final = 500
SECONDS: Final = 3600.0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """With how many jobs beside it, what one job's whole life costs, and what the process holds."""

    beside: int
    waiting: int
    cpu_ms_per_job: float
    memory_mib: float
    submitted_per_second: float


async def submit(controller: Controller, admin: Kube, first: int, count: int) -> float:
    """Submit jobs that wait; return how many a second came into the cluster."""
    began, before = time.monotonic(), await _in_cluster(admin)
    for start in range(first, first + count, AT_ONCE):
        items = [job_of(number) for number in range(start, min(start + AT_ONCE, first + count))]
        await controller.call("POST", "/v1/jobs", {"mode": "best_effort", "items": items})
    # Asked of the cluster: what the controller is asked would be counted as its work.
    async with asyncio.timeout(SECONDS):
        while await _in_cluster(admin) < before + count:
            await asyncio.sleep(0.2)
    return count / (time.monotonic() - began)


async def _in_cluster(admin: Kube) -> int:
    return len(await admin.list(VCJOBS, labels=f"fumarole.dev/instance={INSTANCE}"))


async def end(controller: Controller, first: int, count: int) -> None:
    """End jobs, and wait until they are over."""
    ids = [f"job-{number}" for number in range(first, first + count)]
    for start in range(0, len(ids), AT_ONCE):
        body = {"items": ids[start : start + AT_ONCE]}
        await controller.call("POST", "/v1/jobs/terminate", body)
    async with asyncio.timeout(SECONDS):
        while (await controller.call("GET", "/v1/jobs?state=CANCELING&limit=1"))["items"]:
            await asyncio.sleep(0.5)


async def cost(
    controller: Controller, admin: Kube, first: int, *, beside: int, waiting: int
) -> Cost:
    """Return what a few jobs' lives cost with *beside* others in the store."""
    process = psutil.Process(controller.pid)
    before = process.cpu_times()
    pace = await submit(controller, admin, first, FEW)
    await end(controller, first, FEW)
    after = process.cpu_times()
    used = after.user + after.system - before.user - before.system
    return Cost(
        beside=beside,
        waiting=waiting,
        cpu_ms_per_job=1000 * used / FEW,
        memory_mib=process.memory_info().rss / 2**20,
        submitted_per_second=pace,
    )


async def measure(count: int, folder: Path) -> dict[str, Any]:
    """Return the costs: with nothing beside, with *count* that wait, and with them over."""
    async with EmbeddedCluster() as cluster:
        with RedisServer(redis_program(), folder) as redis:
            controller = Controller(
                folder / "controller",
                kubeconfig=cluster.kubeconfig("controller"),
                redis_url=redis.url,
                instance=INSTANCE,
            )
            async with (
                running(controller),
                Kube.connect(cluster.kubeconfig("admin")) as admin,
            ):
                await cost(
                    controller, admin, 1_000_000, beside=0, waiting=0
                )  # everything is loaded
                empty = await cost(controller, admin, 2_000_000, beside=0, waiting=0)
                pace = await submit(controller, admin, 0, count)
                full = await cost(controller, admin, 3_000_000, beside=count, waiting=count)
                await end(controller, 0, count)
                over = await cost(controller, admin, 4_000_000, beside=count, waiting=0)
    return {
        "jobs": count,
        "submitted_per_second": pace,
        "empty": asdict(empty),
        "waiting": asdict(full),
        "over": asdict(over),
        "ratio_waiting": full.cpu_ms_per_job / empty.cpu_ms_per_job,
        "ratio_over": over.cpu_ms_per_job / empty.cpu_ms_per_job,
    }


def main() -> int:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(prog="many_jobs", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    count: int = parser.parse_args().jobs
    with tempfile.TemporaryDirectory(prefix="fumarole-bench-") as folder:
        found = uvloop.run(measure(count, Path(folder)))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
