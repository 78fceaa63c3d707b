"""The cost of many jobs for the controller: ``python -m benchmarks.many_jobs [--jobs 10000]``.

Jobs are accepted, submitted to a cluster where they wait, and ended. Before that, while they wait,
and after their end, the controller's CPU is read from /proc twice: while nothing happens, and for
the whole lives of a few more jobs. Neither may grow with the number of unrelated jobs. The embedded
API server shares the machine.
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
from typing import Final

import psutil
import uvloop

from benchmarks.sites import SECONDS, Site, cpu_seconds_of, running_site, waiting_job
from controller.api.requests import MOST_ITEMS

FEW: Final = 50
REST_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The controller's cost beside a number of other jobs."""

    at_rest_ms: float
    """CPU milliseconds a second while nothing happens."""
    life_ms: float
    """CPU milliseconds beyond that for a job's whole life."""
    memory_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All measured values; rates are jobs a second."""

    jobs: int
    submitted: float
    ended: float
    alone: Cost
    waiting: Cost
    over: Cost


async def submit(site: Site, numbers: range, *, beside: int) -> None:
    """Submit jobs, and wait until the cluster has all of them."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(site.appearance(beside + len(numbers)))
        await site.post(waiting_job(number) for number in numbers)


async def end(site: Site, numbers: range) -> None:
    """End jobs, and wait until they have ended."""
    for first in range(0, len(numbers), MOST_ITEMS):
        body = {"items": [f"job-{number}" for number in numbers[first : first + MOST_ITEMS]]}
        await site.controller.call("POST", "/v1/jobs/terminate", body)
    async with asyncio.timeout(SECONDS):
        while (await site.controller.call("GET", "/v1/jobs?state=CANCELING&limit=1"))["items"]:
            await asyncio.sleep(0.5)


async def rest(process: psutil.Process) -> float:
    """Return the CPU seconds that *process* uses a second, once this no longer falls."""
    least = float("inf")
    while True:
        before, began = cpu_seconds_of(process), time.monotonic()
        await asyncio.sleep(REST_SECONDS)
        used = (cpu_seconds_of(process) - before) / (time.monotonic() - began)
        if used > 0.8 * least:
            return used
        least = used


async def cost(site: Site, first: int, *, beside: int) -> Cost:
    """Return the controller's cost with *beside* other jobs in the cluster."""
    process = psutil.Process(site.controller.pid)
    at_rest = await rest(process)
    numbers = range(first, first + FEW)
    before, began = cpu_seconds_of(process), time.monotonic()
    await submit(site, numbers, beside=beside)
    await end(site, numbers)
    used, lived = cpu_seconds_of(process) - before, time.monotonic() - began
    return Cost(
        at_rest_ms=1e3 * at_rest,
        life_ms=1e3 * (used - at_rest * lived) / FEW,
        memory_mib=process.memory_info().rss / 2**20,
    )


async def measure(count: int, folder: Path) -> Found:
    """Return the costs: alone, beside *count* waiting jobs, and beside them after their end."""
    async with running_site(folder) as site:
        await cost(site, 1_000_000, beside=0)  # everything is loaded
        alone = await cost(site, 2_000_000, beside=0)
        began = time.monotonic()
        await submit(site, range(count), beside=0)
        submitted = time.monotonic()
        waiting = await cost(site, 3_000_000, beside=count)
        ending = time.monotonic()
        await end(site, range(count))
        ended = time.monotonic()
        over = await cost(site, 4_000_000, beside=0)
    return Found(
        jobs=count,
        submitted=count / (submitted - began),
        ended=count / (ended - ending),
        alone=alone,
        waiting=waiting,
        over=over,
    )


def main() -> int:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(prog="many_jobs", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    count: int = parser.parse_args().jobs
    with tempfile.TemporaryDirectory(prefix="fumarole-bench-") as folder:
        found = uvloop.run(measure(count, Path(folder)))
    print(json.dumps(asdict(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
