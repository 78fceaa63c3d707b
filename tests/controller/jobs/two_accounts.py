"""Provides an embedded cluster through two accounts, and objects of jobs in it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.jobs.cluster.prerequisites import Prerequisites
from controller.jobs.pipeline.builder import Companion
from controller.kube.client import Kube
from controller.kube.kinds import VCJOBS
from controller.volcano.names import INSTANCE_LABEL, JOB_LABEL
from controller.volcano.observed import ObservedJob
from controller.volcano.parsing import read_job
from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import eventually

SPEC = {
    "minAvailable": 1,
    "queue": "default",
    "tasks": [
        {
            "name": "job",
            "replicas": 1,
            "template": {
                "spec": {"containers": [{"name": "job", "image": "busybox", "command": ["true"]}]}
            },
        }
    ],
}


class TwoAccounts:
    """The cluster through the controller's account, and through an administrator's."""

    def __init__(self, kube: Kube, admin: Kube) -> None:
        self.kube = kube
        self.admin = admin


@asynccontextmanager
async def open_two_accounts() -> AsyncIterator[TwoAccounts]:
    """Yield a cluster in which jobs can be submitted to the default queue."""
    async with (
        EmbeddedCluster() as cluster,
        Kube.connect(cluster.kubeconfig("controller")) as kube,
        Kube.connect(cluster.kubeconfig("admin")) as admin,
    ):
        prerequisites = Prerequisites(kube, instance="test", clock=time.monotonic)

        async def ready() -> bool:
            return await prerequisites.why_not_ready("jobs", "default") is None

        await eventually(ready)
        yield TwoAccounts(kube, admin)


async def make_vcjob(admin: Kube, job_id: str, instance: str, **annotations: str) -> ObservedJob:
    labels = {INSTANCE_LABEL: instance, JOB_LABEL: job_id}
    metadata = {"name": f"j-{job_id}", "labels": labels, "annotations": annotations}
    return read_job(await admin.create(VCJOBS, {"metadata": metadata, "spec": SPEC}, "jobs"))


def secret(name: str, value: str = "b25l") -> Companion:
    manifest = {"type": "Opaque", "data": {"a": value}}
    return Companion(kind="Secret", name=name, manifest=manifest, when="before")
