"""How late due times are while a burst is submitted: ``python -m benchmarks.due_times``.

A few jobs run in the embedded cluster, and their deadlines pass one after the other. When all of
them run, a thousand other jobs are posted in one call. For each of the few jobs, the controller's
records say how long after its deadline the controller decided to end it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.sites import OURS, running_site, waiting_job
from controller.kube.kinds import VCJOBS
from tests.controller.running import Controller

FEW: Final = 10
FIRST_SECONDS: Final = 20
APART_SECONDS: Final = 2


def short_job(number: int) -> dict[str, Any]:
    """Return a job that runs until its deadline."""
    return {
        "id": f"short-{number}",
        "owner": {"user": "ada"},
        "image": "busybox",
        "resources": {"cpu": 0.01, "memory": "16Mi"},
        "invocation": {"command": ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"]},
        "time_allocation_seconds": FIRST_SECONDS + number * APART_SECONDS,
    }


async def lateness(controller: Controller, number: int) -> float:
    """Return how long after its deadline the controller decided to end the job."""
    job = await controller.until(f"short-{number}", "CANCELING", "EXPIRED", seconds=600)
    history = await controller.call("GET", f"/v1/jobs/short-{number}/history")
    (asked,) = [one for one in history["updates"] if one["state"] == "CANCELING"]
    late: float = asked["at"] - job["expires_at"]
    return late


async def measure(burst: int, folder: Path) -> dict[str, float]:
    """Return the delays in seconds, and how many jobs the cluster had at the last decision."""
    async with running_site(folder) as site:
        controller = site.controller
        await site.post(short_job(number) for number in range(FEW))
        for number in range(FEW):
            await controller.until(f"short-{number}", "RUNNING", "EXPIRED")
        await site.post(waiting_job(number) for number in range(burst))
        late = [await lateness(controller, number) for number in range(FEW)]
        made = len(await site.admin.list(VCJOBS, labels=OURS))
    return {"burst": burst, "made": made, "median": statistics.median(late), "longest": max(late)}


def main() -> int:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(prog="due_times", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    burst: int = parser.parse_args().jobs
    with tempfile.TemporaryDirectory(prefix="fumarole-bench-") as folder:
        print(json.dumps(uvloop.run(measure(burst, Path(folder)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
