"""Provides a controller over an embedded cluster, for jobs with several attempts."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.jobs.cluster.informer import InformerCache
from controller.kube.client import Kube, Objects
from controller.kube.kinds import COMMANDS, CONFIG_MAPS, NETWORK_POLICIES, PODS, SERVICES, VCJOBS
from controller.store.database import Store
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.progress import Attempt, PodRecord, attempts_of, pod_records_of
from deploy.local.cluster import EmbeddedCluster
from tests.controller.jobs.parts import Parts, make_parts, running_informer
from tests.controller.new_stores import leading_store
from tests.controller.samples import make_context, make_defaults, make_job, make_pipeline

SLEEPS = {"command": ["sh", "-c", "trap 'exit 0' TERM; sleep 60 & wait"]}
LABELLED = (VCJOBS, PODS, NETWORK_POLICIES, CONFIG_MAPS, SERVICES, COMMANDS)


@dataclass
class World:
    """A controller over a cluster, and an administrator of the cluster."""

    parts: Parts
    admin: Kube
    folder: Path
    assemble: Callable[[Store, int], Parts]
    cluster: EmbeddedCluster
    kube: Kube
    informer: InformerCache

    def back_up(self) -> str:
        """Copy the current store; return the copy's URL."""
        copy = self.folder / "backup.db"
        with (
            closing(sqlite3.connect(self.folder / "store.db")) as one,
            closing(sqlite3.connect(copy)) as other,
        ):
            one.backup(other)
        return f"sqlite:///{copy}"

    async def submit(self, job_id: str, **fields: Any) -> None:
        values = {"resources": {"cpu": 0.01, "memory": "16Mi"}, "invocation": SLEEPS} | fields
        await self.parts.submit(make_job(id=job_id, **values))

    async def until(self, job_id: str, state: str, attempt: int = 1) -> JobRecord:
        wanted = (state, attempt)
        return await self.parts.drive(
            job_id, lambda r: (r.state, r.attempt) == wanted and self.has_started(r)
        )

    @staticmethod
    def has_started(record: JobRecord) -> bool:
        return record.state != "RUNNING" or record.started_at is not None

    async def end(self, job_id: str) -> JobRecord:
        await self.parts.commands.end(job_id)
        return await self.parts.drive_to_the_end(job_id)

    async def evict(self, job_id: str) -> None:
        """Evict a pod as a kubelet does when its node runs low on a resource."""
        name = f"j-{job_id}-job-0"
        status = {"phase": "Failed", "reason": "Evicted", "message": "the node was low on disk"}
        await self.admin.merge(PODS, name, {"status": status}, "jobs", subresource="status")

    async def nothing_is_left(self, job_id: str) -> bool:
        labels = f"fumarole.dev/job={job_id}"
        return not any([await self.admin.list(kind, labels=labels) for kind in LABELLED])

    async def pods(self, job_id: str) -> Objects:
        return await self.admin.list(PODS, labels=f"fumarole.dev/job={job_id}")

    async def volcano_job(self, job_id: str) -> dict[str, Any]:
        return await self.admin.get(VCJOBS, f"j-{job_id}", "jobs")

    async def history(self, job_id: str) -> tuple[list[Attempt], list[PodRecord]]:
        async with self.parts.store.read() as transaction:
            return await attempts_of(transaction, job_id), await pod_records_of(transaction, job_id)


@asynccontextmanager
async def open_world(
    folder: Path,
    *,
    instance: str,
    seed: int | None = None,
    lags: Mapping[str, float] | None = None,
) -> AsyncIterator[World]:
    """Yield a store, a cluster delayed as *lags* say, and a controller over both."""
    async with (
        leading_store(folder) as (store, term),
        EmbeddedCluster(seed=seed, lags=lags) as cluster,
        Kube.connect(cluster.kubeconfig("controller")) as kube,
        Kube.connect(cluster.kubeconfig("admin")) as admin,
        running_informer(kube, instance) as informer,
    ):
        defaults = make_defaults(FUMAROLE_CONTROLLER_RETENTION_SECONDS="3")
        pipeline = make_pipeline(make_context(defaults=defaults), instance=instance)

        def assemble(store: Store, term: int) -> Parts:
            return make_parts(
                kube=kube, store=store, informer=informer, pipeline=pipeline, term=term,
                instance=instance, evictions_allowed=1,
            )  # fmt: skip

        parts = assemble(store, term)
        yield World(parts, admin, folder, assemble, cluster, kube, informer)
