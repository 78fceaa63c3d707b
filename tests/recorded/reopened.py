"""Provides today's product opened on a recording of b9911c7: store, Redis and cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from controller.kube.client import Kube, Objects
from controller.kube.kinds import CONFIG_MAPS, NODES, VCJOBS
from deploy.local.cluster import EmbeddedCluster
from shared.bus import connect
from tests.controller.postgres import Postgres
from tests.controller.running import BASE_DOMAIN, Controller, Routes
from tests.gateway.process import GatewayProcess
from tests.programs import RedisServer
from tests.recorded.controller_client import hooks_noted, plugin_environment, read_page
from tests.recorded.opening import (
    Kubelet,
    restore_cluster,
    restore_postgres,
    restore_redis,
    restore_sqlite,
    start_without_nodes,
)
from tests.recorded.recording import INSTANCE, Object, Recording

POD_BLOCK = "127.60.7"
"""Where pods of the test's own node have their addresses: no other test's cluster has these."""


class Gateway(GatewayProcess):
    """A gateway for the hosts of the recording."""

    def host(self, sid: str) -> str:
        return f"{sid}.{BASE_DOMAIN}"


@dataclass
class Reopened:
    """All running parts; ``facts`` is what the orchestrator knew at the recording."""

    folder: Path
    recording: Recording
    controller: Controller
    gateway: Gateway
    admin: Kube
    redis: Any
    foreign: Objects
    ends: dict[str, int] = field(default_factory=dict)
    kubelet: asyncio.Task[None] | None = None

    @property
    def facts(self) -> dict[str, Any]:
        return self.recording.known

    @property
    def routes(self) -> Routes:
        return Routes(self.redis, INSTANCE)

    def start_kubelet(self) -> None:
        """Start the kubelet: from now on pods start, and end when told to."""
        kubelet = Kubelet(self.admin, address=POD_BLOCK)
        kubelet.ends = self.ends
        self.kubelet = asyncio.create_task(kubelet.run())

    async def stop_kubelet(self) -> None:
        """Stop the kubelet and leave the pods as they are; its errors fail the test."""
        if self.kubelet is not None:
            self.kubelet.cancel()
            with suppress(asyncio.CancelledError):
                await self.kubelet

    async def call(self, method: str, path: str, body: Any = None, expect: int = 200) -> Any:
        return await self.controller.call(method, path, body, expect=expect)

    async def page(self, name: str) -> Any:
        """Return the updates or the ledger, from the oldest kept."""
        return await read_page(self.controller, f"/v1/{name}")

    async def history(self, job_id: str) -> Any:
        return await self.call("GET", f"/v1/jobs/{job_id}/history")

    async def volcano_jobs(self) -> dict[str, Object]:
        """Return the instance's VolcanoJobs by job."""
        made = await self.admin.list(VCJOBS, labels=f"fumarole.dev/instance={INSTANCE}")
        return {one["metadata"]["labels"]["fumarole.dev/job"]: one for one in made}

    def hooks(self) -> list[str]:
        """Return the plugin's hook calls since then."""
        return hooks_noted(self.folder)

    async def make_room(self) -> None:
        """Enlarge the node's capacity."""
        status = {"status": {"allocatable": {"cpu": "256"}, "capacity": {"cpu": "256"}}}
        await self.admin.merge(NODES, "embedded", status, subresource="status")


@asynccontextmanager
async def reopened(
    kind: str, folder: Path, server: RedisServer, postgres: Postgres | None
) -> AsyncIterator[Reopened]:
    """Restore the recording, and start today's controller and gateway on it."""
    cluster, redis = EmbeddedCluster(), connect(server.url)
    recording = Recording.read(kind).at(time.time())
    world: Reopened | None = None
    try:
        await start_without_nodes(cluster)
        async with Kube.connect(cluster.kubeconfig("admin")) as admin:
            recording = await restore_cluster(recording, admin)
            await restore_redis(recording, redis)
            if postgres is None:
                url = await asyncio.to_thread(restore_sqlite, recording, folder / "store.db")
            else:
                url = await asyncio.to_thread(restore_postgres, recording, postgres)
            facts = recording.known
            for name in ("controller", "gateway"):
                (folder / name).mkdir()
            for name in ("controller/link.key", "gateway/link"):
                (folder / name).write_text(facts["link_key"])
            controller = Controller(
                folder / "controller", kubeconfig=cluster.kubeconfig("controller"),
                redis_url=server.url, instance=INSTANCE, roles="api,reconciler,hub",
                **facts["settings"], **plugin_environment(folder),
                FUMAROLE_CONTROLLER_STORE_URL=url, FUMAROLE_CONTROLLER_HUB_LISTEN="127.0.0.1:0",
            )  # fmt: skip
            gateway = Gateway(
                folder / "gateway", server.url, FUMAROLE_INSTANCE=INSTANCE,
                FUMAROLE_GATEWAY_PUBLIC_URL=f"https://{BASE_DOMAIN}",
            )  # fmt: skip
            foreign = await foreign_objects(admin)
            world = Reopened(folder, recording, controller, gateway, admin, redis, foreign)
            await cluster.start_program("volcano")
            try:
                yield world
            finally:
                await world.stop_kubelet()  # before its client is closed
    finally:
        if world is not None:
            world.gateway.kill()
            await world.controller.kill()
        await cluster.stop()
        await redis.aclose()


async def foreign_objects(admin: Kube) -> Objects:
    """Return foreign objects, without the fields that Volcano may write to them.

    Objects that the cluster puts into each namespace, some time after its creation, are left out.
    """
    found = [*await admin.list(VCJOBS, "strangers"), *await admin.list(CONFIG_MAPS, "strangers")]
    found = [one for one in found if one["metadata"]["name"] != "kube-root-ca.crt"]
    for one in found:
        one.pop("status", None)
        for name in ("resourceVersion", "generation"):
            one["metadata"].pop(name, None)
    return found


@asynccontextmanager
async def app_at(host: str, port: int) -> AsyncIterator[None]:
    """Serve the app of a job's program at a recorded address."""

    async def hello(request: web.Request) -> web.Response:
        return web.Response(text=f"the app, at {request.path}")

    app = web.Application()
    app.router.add_get("/{path:.*}", hello)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()
