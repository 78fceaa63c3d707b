"""The controller's pace: ``python -m benchmarks.submission [--jobs 150] [--untried]``.

Jobs are posted to a controller in one call, and counted in the cluster as they appear. Then a bare
loop of the same client creates the same objects, job by job, in the same cluster. Both are bounded
by the API server here, which is the embedded one: only their ratio says something. Before a job is
accepted the API server is asked for a dry run; ``--untried`` leaves that out, to see what it costs.
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

import uvloop

from controller.kube.client import Kube
from controller.kube.kinds import (
    CONFIG_MAPS,
    NETWORK_POLICIES,
    SECRETS,
    SERVICES,
    VCJOBS,
    Kind,
)
from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import Controller, running
from tests.programs import RedisServer, redis_program

INSTANCE: Final = "bench"
# Companions first, as the controller does it.
KINDS: Final = (NETWORK_POLICIES, SECRETS, CONFIG_MAPS, SERVICES, VCJOBS)
SECONDS: Final = 300.0
_OURS: Final = f"fumarole.dev/instance={INSTANCE}"
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
class Pace:
    """Jobs a second, and how many objects each of them is."""

    jobs: int
    objects_per_job: float
    controller: float
    bare: float

    @property
    def ratio(self) -> float:
        """The controller's pace as part of the bare loop's."""
        return self.controller / self.bare


def job_of(number: int) -> dict[str, Any]:
    """Return a job that no node has room for: what it would run is not what is measured."""
    return {
        "id": f"job-{number}",
        "owner": {"user": "ada"},
        "image": "busybox",
        "resources": {"cpu": 900, "memory": "64Mi"},
        "invocation": {"command": ["sleep", "3600"]},
        "parameters": {"token": {"type": "secret", "value": "not-a-secret"}},
    }


async def submit(controller: Controller, admin: Kube, count: int) -> float:
    """Return how many jobs a second became VolcanoJobs."""
    began = time.monotonic()
    items = [job_of(number) for number in range(count)]
    answer = await controller.call("POST", "/v1/jobs", {"mode": "best_effort", "items": items})
    refused = [item for item in answer["items"] if item["result"] != "created"]
    if refused:
        raise RuntimeError(f"{len(refused)} jobs were refused: {refused[0]}")
    async with asyncio.timeout(SECONDS):
        while len(await admin.list(VCJOBS, labels=_OURS)) < count:
            await asyncio.sleep(0.1)
    return count / (time.monotonic() - began)


async def objects_of(admin: Kube) -> list[tuple[Kind, dict[str, Any]]]:
    """Return what the controller has made, as it would be made anew under other names."""
    found: list[tuple[Kind, dict[str, Any]]] = []
    for kind in KINDS:
        found += [(kind, renamed(one)) for one in await admin.list(kind, labels=_OURS)]
    return found


def renamed(one: Any) -> dict[str, Any]:
    """Return *one* as a new object: with another name, and nothing that servers write."""
    text = json.dumps(one).replace("job-", "bare-").replace(_OURS.partition("=")[2], "bare")
    copy: dict[str, Any] = json.loads(text)
    metadata = copy["metadata"]
    copy["metadata"] = {k: v for k, v in metadata.items() if k not in _SERVERS_OWN}
    copy["metadata"]["namespace"] = one["metadata"]["namespace"]
    if not copy["metadata"]["name"].count("bare"):
        copy["metadata"]["name"] += "-bare"
    copy.pop("status", None)
    return copy


async def create_all(admin: Kube, objects: list[tuple[Kind, dict[str, Any]]], jobs: int) -> float:
    """Return how many jobs a second a loop makes that does nothing else."""
    began = time.monotonic()
    for kind, one in objects:
        await admin.create(kind, one, one["metadata"]["namespace"])
    return jobs / (time.monotonic() - began)


async def measure(count: int, folder: Path, *, untried: bool = False) -> Pace:
    """Return the pace of both."""
    async with EmbeddedCluster() as cluster:
        with RedisServer(redis_program(), folder) as redis:
            controller = Controller(
                folder / "controller",
                kubeconfig=cluster.kubeconfig("controller"),
                redis_url=redis.url,
                instance=INSTANCE,
                **({"FUMAROLE_CONTROLLER_DRY_RUN_SECONDS": "0"} if untried else {}),
            )
            async with running(controller), Kube.connect(cluster.kubeconfig("admin")) as admin:
                ours = await submit(controller, admin, count)
                objects = await objects_of(admin)
                await controller.stop()
                bare = await create_all(admin, objects, count)
    return Pace(jobs=count, objects_per_job=len(objects) / count, controller=ours, bare=bare)


def main() -> int:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(prog="submission", description=__doc__)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--untried", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fumarole-bench-") as folder:
        pace = uvloop.run(measure(asked.jobs, Path(folder), untried=asked.untried))
    print(json.dumps(asdict(pace) | {"ratio": pace.ratio}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
