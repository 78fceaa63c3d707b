"""The controller's rate of submission: ``python -m benchmarks.submission [--jobs 300]``.

1. Jobs are posted to a controller in one call. The time runs from its response, which says that
   they are accepted, until a watch has shown all of their VolcanoJobs.
2. In a second, equally new cluster a bare client loop creates the same objects: job by job, the
   companions first, each after the response to the one before.

The time of accepting is reported separately. It includes a dry run by the API server, which
``--untried`` leaves out. Of several rounds (``--rounds``) the one with the median ratio counts.

Both share two cores with the embedded API server and Volcano, which limit them. So the CPU for a
job is read from /proc, too: of the controller, of the bare loop, and of the API server for each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import uvloop

from benchmarks.sites import (
    INSTANCE,
    NAMESPACE,
    OURS,
    SECONDS,
    cpu_seconds_of,
    running_site,
    waiting_job,
)
from controller.jobs.cluster.prerequisites import ensure_namespace
from controller.kube.client import Kube, Object
from controller.kube.errors import NotFound
from controller.kube.kinds import (
    CONFIG_MAPS,
    NETWORK_POLICIES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VCJOBS,
    Kind,
)
from deploy.local.cluster import EmbeddedCluster

# Companions first, as in the controller.
KINDS: Final = (NETWORK_POLICIES, SECRETS, CONFIG_MAPS, SERVICES, VCJOBS)
_JOB: Final = "fumarole.dev/job"
_SERVERS_OWN: Final = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "ownerReferences",
    "selfLink",
)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """The rate of one of them, and CPU milliseconds for a job: its own, and the API server's."""

    rate: float
    own_ms: float
    server_ms: float


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Jobs a second, objects of a job, and CPU milliseconds of a job by process."""

    jobs: int
    objects_per_job: float
    accepted: float
    accepted_ms: float
    controller: float
    controller_ms: float
    server_for_controller_ms: float
    bare: float
    bare_ms: float
    server_for_bare_ms: float

    @property
    def ratio(self) -> float:
        """The controller's rate as a part of the bare loop's."""
        return self.controller / self.bare


class Meter:
    """Reads clock and CPU of the worker and of the API server, from its creation on."""

    def __init__(self, worker: int, cluster: EmbeddedCluster) -> None:
        self._worker = psutil.Process(worker)
        self._server = psutil.Process(cluster.pid("apiserver"))
        self._before = self._read()

    def _read(self) -> tuple[float, float, float]:
        return time.monotonic(), cpu_seconds_of(self._worker), cpu_seconds_of(self._server)

    def phase(self, jobs: int) -> Phase:
        """Return rate and CPU for *jobs* jobs."""
        seconds, own, server = (
            now - before for now, before in zip(self._read(), self._before, strict=True)
        )
        return Phase(rate=jobs / seconds, own_ms=1e3 * own / jobs, server_ms=1e3 * server / jobs)


async def objects_of(admin: Kube) -> list[tuple[Kind, Object]]:
    """Return the objects that the controller made, job by job, ready to be created again."""
    found: dict[str, list[tuple[Kind, Object]]] = {}
    for kind in KINDS:
        for one in await admin.list(kind, labels=f"{OURS},{_JOB}"):
            found.setdefault(one["metadata"]["labels"][_JOB], []).append((kind, anew(one)))
    return [pair for of_job in found.values() for pair in of_job]


def anew(one: Mapping[str, Any]) -> Object:
    """Return *one* without the fields that servers write."""
    metadata = {k: v for k, v in one["metadata"].items() if k not in _SERVERS_OWN}
    return {k: v for k, v in one.items() if k != "status"} | {"metadata": metadata}


async def create_all(admin: Kube, objects: list[tuple[Kind, Object]]) -> None:
    """Create the objects one after the other, and do nothing else."""
    for kind, one in objects:
        await admin.create(kind, one, one["metadata"]["namespace"])


async def measure_controller(
    count: int, folder: Path, *, untried: bool
) -> tuple[Phase, Phase, list[tuple[Kind, Object]]]:
    """Return the rates of accepting and of submitting, and the objects."""
    settings = {"FUMAROLE_CONTROLLER_DRY_RUN_SECONDS": "0"} if untried else {}
    async with running_site(folder, **settings) as site, asyncio.TaskGroup() as tasks:
        appeared = tasks.create_task(site.appearance(count))
        meter = Meter(site.controller.pid, site.cluster)
        await site.post(waiting_job(number) for number in range(count))
        accepted, meter = meter.phase(count), Meter(site.controller.pid, site.cluster)
        await appeared
        return accepted, meter.phase(count), await objects_of(site.admin)


async def measure_bare(objects: list[tuple[Kind, Object]], count: int) -> Phase:
    """Return the bare loop's rate; it runs in this process, which does nothing else."""
    async with (
        EmbeddedCluster() as cluster,
        Kube.connect(cluster.kubeconfig("admin")) as admin,
    ):
        await ensure_namespace(admin, NAMESPACE, instance=INSTANCE)
        async with asyncio.timeout(SECONDS):
            while not await _is_there(admin):
                await asyncio.sleep(0.1)
        meter = Meter(psutil.Process().pid, cluster)
        await create_all(admin, objects)
        return meter.phase(count)


async def _is_there(admin: Kube) -> bool:
    try:
        await admin.get(SERVICE_ACCOUNTS, "default", NAMESPACE)
    except NotFound:
        return False
    return True


async def measure(count: int, folder: Path, *, untried: bool = False) -> Pace:
    """Return the rates of both."""
    accepted, ours, objects = await measure_controller(count, folder, untried=untried)
    bare = await measure_bare(objects, count)
    return Pace(
        jobs=count,
        objects_per_job=len(objects) / count,
        accepted=accepted.rate,
        accepted_ms=accepted.own_ms,
        controller=ours.rate,
        controller_ms=ours.own_ms,
        server_for_controller_ms=ours.server_ms,
        bare=bare.rate,
        bare_ms=bare.own_ms,
        server_for_bare_ms=bare.server_ms,
    )


def median_of(paces: Sequence[Pace]) -> Pace:
    """Return the result with the median ratio; of two in the middle, the worse."""
    return sorted(paces, key=lambda pace: pace.ratio)[(len(paces) - 1) // 2]


def main() -> int:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(prog="submission", description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--untried", action="store_true")
    asked = parser.parse_args()
    paces = []
    for _ in range(asked.rounds):
        with tempfile.TemporaryDirectory(prefix="fumarole-bench-") as folder:
            paces.append(uvloop.run(measure(asked.jobs, Path(folder), untried=asked.untried)))
    pace = median_of(paces)
    print(json.dumps(asdict(pace) | {"ratio": pace.ratio}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
