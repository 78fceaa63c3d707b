"""The cost of a burst for the controller: ``python -m benchmarks.burst [--jobs 300]``.

Jobs that end by themselves after a second are accepted in one call, run, and are cleaned up.
Meanwhile a client lists all of them repeatedly (not with ``--idle``). The controller's CPU is read
from /proc, from the call to the last end. The states of each job are read from its updates; they
must arrive in order, and none may be missing. The embedded cluster shares the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import uvloop

from benchmarks.sites import SECONDS, Site, cpu_seconds_of, running_site

EVERY_SECONDS: Final = 0.5
"""Between two lists, as in a client without updates."""
WHOLE: Final = ("IN_QUEUE", "RUNNING", "SUCCESS")
_WARM: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All measured values."""

    jobs: int
    lists: int
    life_ms: float
    """CPU milliseconds of the controller for a job's whole life, lists included."""
    seconds: float
    whole: int
    """Jobs of which every state arrived, in order."""


def short_job(name: str) -> dict[str, Any]:
    """Return a job that ends by itself after a second."""
    return {
        "id": name,
        "owner": {"user": "ada"},
        "image": "busybox",
        "resources": {"cpu": "1m", "memory": "4Mi"},
        "invocation": {"command": ["sleep", "1"]},
        "parameters": {"token": {"type": "secret", "value": "not-a-secret"}},
    }


async def burst(site: Site, prefix: str, count: int, *, lists: bool) -> Found:
    """Run *count* jobs at once; return the cost."""
    process = psutil.Process(site.controller.pid)
    names = [f"{prefix}-{number}" for number in range(count)]
    before, began = cpu_seconds_of(process), time.monotonic()
    await site.post(short_job(name) for name in names)
    listed = await _until_over(site, prefix, count, lists=lists)
    used, took = cpu_seconds_of(process) - before, time.monotonic() - began
    told = await asyncio.gather(*(_states_of(site, name) for name in names))
    odd = Counter(states for states in told if states != WHOLE)
    for states, number in odd.items():
        print(number, "jobs:", " → ".join(states), file=sys.stderr)
    return Found(
        jobs=count,
        lists=listed,
        life_ms=1e3 * used / count,
        seconds=took,
        whole=sum(states == WHOLE for states in told),
    )


async def _until_over(site: Site, prefix: str, count: int, *, lists: bool) -> int:
    async with asyncio.timeout(SECONDS):
        listed = 0
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            if lists:
                await _list_all(site)
                listed += 1
            if await _is_over(site):
                return listed


async def _list_all(site: Site) -> None:
    path = "/v1/jobs?limit=100"
    page = await site.controller.call("GET", path)
    while page.get("next"):
        page = await site.controller.call("GET", f"{path}&after={page['next']}")


async def _is_over(site: Site) -> bool:
    for state in ("IN_QUEUE", "RUNNING"):
        if (await site.controller.call("GET", f"/v1/jobs?state={state}&limit=1"))["items"]:
            return False
    return True


async def _states_of(site: Site, name: str) -> tuple[str, ...]:
    history = await site.controller.call("GET", f"/v1/jobs/{name}/history")
    states = [one["state"] for one in history["updates"]]
    return tuple(dict.fromkeys(states))


async def measure(count: int, folder: Path, *, lists: bool) -> Found:
    """Return the cost of a burst of *count* jobs, after a first one has loaded everything."""
    async with running_site(folder) as site:
        await burst(site, "warm", _WARM, lists=lists)
        print("warm", file=sys.stderr, flush=True)
        return await burst(site, "job", count, lists=lists)


def main() -> int:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(prog="burst", description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--idle", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fumarole-bench-") as folder:
        found = uvloop.run(measure(given.jobs, Path(folder), lists=not given.idle))
    print(json.dumps(asdict(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
