"""A controller over a cluster whose pods have networks and mounts of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.jobs.cluster.mount_points import MountPointCleaner
from controller.jobs.pipeline.pipeline import Pipeline
from controller.kube.client import Kube
from controller.kube.kinds import PERSISTENT_VOLUME_CLAIMS, Kind
from controller.store.jobs.job_rows import JobRecord
from deploy.local.cluster import EmbeddedCluster
from tests.clock import Clock
from tests.controller.jobs.parts import Parts
from tests.controller.running import eventually
from tests.controller.samples import make_job

NODES = Kind("v1", "nodes", "Node", namespaced=False)
FAILED: list[Exception] = []
VOLUMES = "home=home-{user}, team=home-ada/shared/{user}, sets=sets:ro"
RANK_REPORT = Path(__file__).with_name("rank_report.py").read_text()


@dataclass
class World:
    """A controller over a cluster, and the files of its users."""

    parts: Parts
    pipeline: Pipeline
    cleaner: Callable[[Clock], MountPointCleaner]
    kube: Kube
    folder: Path
    sets: Path

    async def run(self, job_id: str, **fields: Any) -> JobRecord:
        await self.parts.submit(make_job(id=job_id, **fields))
        return await self.parts.drive_to_the_end(job_id)

    def seen(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())


async def make_claim(cluster: EmbeddedCluster, admin: Kube, name: str) -> Path:
    spec = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    body = {"metadata": {"name": name}, "spec": spec}
    await admin.create(PERSISTENT_VOLUME_CLAIMS, body, "jobs")
    folder = cluster.claim_folder("jobs", name)

    async def made() -> bool:
        return folder.is_dir()

    await eventually(made, what=f"no folder of {name}")
    return folder


def python(*arguments: str) -> dict[str, Any]:
    return {"command": ["python3", "-c", RANK_REPORT, *arguments]}
