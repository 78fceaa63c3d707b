"""Provides what outlives a crashed controller: a cluster, a store, and kinds of job lives."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.pipeline.builder import Companion, JobBuilder, When
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobFromServer, JobPlugin
from controller.jobs.pipeline.plugin_models import CompanionKind
from controller.jobs.spec.model import Job
from controller.jobs.submission.commands import JobCommands
from controller.jobs.usage import Ledger as UsageLedger
from controller.kube.client import Kube
from controller.kube.kinds import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
)
from controller.plugins import PLUGINS
from controller.store.database import Store
from controller.volcano.names import companion_name
from deploy.local.cluster import EmbeddedCluster
from tests.controller.jobs.parts import (
    Parts,
    TrippedKube,
    TrippedStore,
    Tripwire,
    make_parts,
)
from tests.controller.running import eventually
from tests.controller.samples import make_context, make_defaults, make_job, make_plugins

INSTANCE = "crash"
WHEN: Final[tuple[When, ...]] = ("before", "after")
LIVING = ("IN_QUEUE", "RUNNING")
SLEEPS = "trap 'exit 0' TERM; sleep 3600 & wait"
# No session opens it: its port is never used.
SIDE = {
    "image": "busybox",
    "command": ["sh", "-c", SLEEPS],
    "port": 8000,
    "resources": {"cpu": 0.01, "memory": "16Mi"},
}


class Ledger(JobPlugin):
    """A plugin with an idempotent external effect and companions of one kind."""

    name: ClassVar[str] = "ledger"
    companion_kinds: ClassVar[tuple[CompanionKind, ...]] = (
        CompanionKind(api_version="coordination.k8s.io/v1", kind="Lease", plural="leases"),
    )
    entries: ClassVar[Counter[tuple[str, str]]] = Counter()

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        for when in WHEN:
            name, spec = companion_name(job.id, f"ledger-{when}"), {"holderIdentity": job.id}
            companion = Companion(kind="Lease", name=name, manifest={"spec": spec}, when=when)
            builder.add_companion(companion)

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        self.entries[job_id, "start"] += 1
        return None

    async def on_job_complete(self, job_id: str, job_from_server: JobFromServer) -> None:
        self.entries[job_id, "complete"] += 1

    async def on_cleanup(self, job_id: str) -> None:
        self.entries[job_id, "cleanup"] += 1


class World:
    """A cluster and a store that outlive every controller."""

    def __init__(
        self, kube: Kube, informer: InformerCache, url: str, *, tools: Path, home: Path | None
    ) -> None:
        self.defaults = make_defaults(
            FUMAROLE_CONTROLLER_TOOLS_FILE=str(tools), FUMAROLE_CONTROLLER_VOLUMES="home=home"
        )
        self.kube = kube
        self.home = home
        self.informer = informer
        self.url = url
        self.turn = asyncio.Lock()
        self.term = 0
        # The uids of all VolcanoJobs ever created, by name.
        self.made = defaultdict[str, set[str]](set)

    def pipeline(self, store: Store) -> Pipeline:
        """Return the product's plugins, with crash points at their store calls, and one other."""
        context = make_context(
            defaults=self.defaults,
            control=JobCommands(
                store, clock=time.time, random=os.urandom, enqueue=lambda _job: None
            ),
            ledger=UsageLedger(store, defaults=self.defaults, clock=time.time),
        )
        plugins = make_plugins([*PLUGINS, Ledger], context)
        return Pipeline(plugins, instance=INSTANCE, namespace="jobs")

    @asynccontextmanager
    async def controller(self, wire: Tripwire) -> AsyncIterator[Parts]:
        store = TrippedStore(self.url, wire, self.turn)
        parts = make_parts(
            kube=TrippedKube(self.kube, wire, self.made),
            store=store,
            informer=self.informer,
            pipeline=self.pipeline(store),
            term=self.term,
            instance=INSTANCE,
            defaults=self.defaults,
        )
        # A crash also ends the plugins that are being called.
        calls = asyncio.create_task(parts.calls.run())
        try:
            yield parts
        finally:
            calls.cancel()
            await asyncio.wait([calls])
            await store.close()


async def make_home(cluster: EmbeddedCluster, admin: Kube) -> Path | None:
    """Return the folder of users' files, or None where pods have no mounts of their own."""
    (node,) = await admin.list(NODES)
    if node["metadata"]["labels"].get("embedded-cluster/pod-network", "none") == "none":
        return None
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"metadata": {"name": "home"}, "spec": spec}
    await admin.create(PERSISTENT_VOLUME_CLAIMS, body, "jobs")
    folder = cluster.claim_folder("jobs", "home")

    async def is_made() -> bool:
        return folder.is_dir()

    await eventually(is_made, seconds=60, what="the claim has no folder")
    return folder


LIVES: dict[str, tuple[str, dict[str, Any], str]] = {
    # Command, further fields, and end state.
    "ends": ("exit 0", {}, "SUCCESS"),
    "fails": ("exit 3", {}, "FAILURE"),
    "asked": (SLEEPS, {}, "SUCCESS"),
    "suspended": (SLEEPS, {}, "SUCCESS"),
    # Ended by request once its VolcanoJob exists, or once its first controller crashed.
    "regretted": (SLEEPS, {}, "SUCCESS"),
    # With a tool beside each attempt.
    "tools": (SLEEPS, {"tools": ["side"]}, "SUCCESS"),
    # With a tool, and ended by request once its first controller crashed.
    "dropped": (SLEEPS, {"tools": ["side"]}, "SUCCESS"),
    "expires": (SLEEPS, {"time_allocation_seconds": 1}, "EXPIRED"),
    # Retried once, by a policy that the controller carries out.
    "retried": (
        "exit 3",
        {
            "policies": [{"event": "PodFailed", "action": "RestartJob", "timeout_seconds": 1}],
            "max_retry": 1,
        },
        "FAILURE",
    ),
    # Its predecessor failed.
    "never": ("exit 0", {}, "FAILURE"),
}
CHAIN: Final = ("ends", "ends", "fails", "never")

TWICE = ("suspended", "retried", "tools")
ATTENDED = ("tools", "dropped")
CUT_SHORT = ("regretted", "dropped")


def make(world: World, job_id: str, life: str) -> list[Job]:
    """Return a job, or a chain whose jobs are named *job_id* and a number."""
    if life != "chain":
        return [make_one(job_id, life)]
    made = list[Job]()
    for number, one in enumerate(CHAIN):
        before = made[-1].id if made else None
        made.append(make_follower(world, f"{job_id}-{number}", one, before))
    return made


def make_follower(world: World, job_id: str, life: str, before: str | None) -> Job:
    """Return a job that reads the artefacts of *before*, if pods can have files at all."""
    command, parameters, fields = LIVES[life][0], {}, dict[str, Any]()
    if before is not None:
        fields["after"] = [before]
    if world.home is not None:
        (world.home / job_id).mkdir(exist_ok=True)
        fields["output"] = f"/home/{job_id}"
        # ``mkdir`` fails if the command runs twice.
        command = f"mkdir artefacts && touch artefacts/made && {command}"
    if world.home is not None and before is not None:
        parameters["model"] = {"type": "artefacts", "job": before}
        command = f'test -e "$0/made" && {command}'
    return make_one(job_id, life, command=command, parameters=parameters, **fields)


def make_one(
    job_id: str,
    life: str,
    *,
    command: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    **more: Any,
) -> Job:
    program, fields, _ = LIVES[life]
    return make_job(
        id=job_id,
        resources={"cpu": 0.01, "memory": "16Mi"},
        parameters={"t": {"type": "secret", "value": "survives"}, **(parameters or {})},
        invocation={
            "command": [
                "sh",
                "-c",
                f'test "$T" = survives && {command or program}',
                {"parameter": "model", "optional": True},
            ],
            "environment": {"T": {"parameter": "t"}},
        },
        **fields,
        **more,
    )
