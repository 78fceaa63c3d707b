"""Tests that a job's end actions are done exactly once, in each way to end, and leave nothing.

The controller has exactly the rights of the manifests; the rights within an owner's namespace are
deleted with it. All jobs run and end at once; their outcomes are checked afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from redis.asyncio import Redis

from controller.jobs.pipeline.plugin import JobPlugin
from controller.kube.client import Kube
from controller.kube.kinds import (
    COMMANDS,
    CONFIG_MAPS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    SECRETS,
    SERVICES,
    VCJOBS,
)
from controller.plugins import PLUGINS
from controller.store import tables
from controller.store.database import Store
from deploy.local.cluster import EmbeddedCluster
from shared.bus import connect
from tests.controller.running import Controller, Routes, eventually, running
from tests.deploy.kubernetes.manifests import apply_rights, settings_of_controller
from tests.programs import RedisServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

SERVER = "trap 'exit 0' TERM; python3 -m http.server 8000 & "
WEB: dict[str, Any] = {
    "image": "python",
    "invocation": {"command": ["sh", "-c", SERVER + "wait"]},
    "interactive": {"site": {"kind": "web", "port": 8000}},
    "parameters": {"token": {"type": "secret", "value": "x"}},
}
HOOKS = {"start": "on_job_start", "complete": "on_job_complete", "cleanup": "on_cleanup"}
STARTS = {plugin.name for plugin in PLUGINS if plugin.on_job_start is not JobPlugin.on_job_start}
LABELLED = (VCJOBS, PODS, SECRETS, NETWORK_POLICIES, SERVICES, CONFIG_MAPS, COMMANDS)


@dataclass
class World:
    """A controller, its store, and an administrator of the cluster."""

    controller: Controller
    admin: Kube
    store: Store
    sids: dict[str, str]

    async def place_of(self, job: str) -> str:
        (made,) = await self.admin.list(VCJOBS, labels=f"fumarole.dev/job={job}")
        place: str = made["metadata"]["namespace"]
        return place

    async def cancel(self, job: str) -> None:
        await self.controller.call("DELETE", f"/v1/jobs/{job}", expect=202)

    async def run_out_of_funds(self, job: str) -> None:
        body = {"through": 0, "exhausted": [{"job": job}]}
        await self.controller.call("POST", "/v1/usage/ack", body)

    async def delete_by_hand(self, job: str) -> None:
        await self.admin.delete(VCJOBS, f"j-{job}", await self.place_of(job))

    async def delete_namespace(self, job: str) -> None:
        await self.admin.delete(NAMESPACES, await self.place_of(job))

    async def wait(self, job: str) -> None:
        """Do nothing: the job ends by itself."""

    async def rows(self, table: sa.Table, job: str) -> list[Any]:
        async with self.store.read() as transaction:
            query = sa.select(table).where(table.c.job_id == job)
            return list(await transaction.execute(query))


@dataclass(frozen=True)
class EndCase:
    """A way to end a job, and the expected report of it."""

    bring: Callable[[World, str], Awaitable[None]]
    state: str
    reasons: tuple[str, ...]
    fields: dict[str, Any]


WAYS: dict[str, EndCase] = {
    "finished": EndCase(World.wait, "SUCCESS", ("completed",),
                    {"invocation": {"command": ["sh", "-c", SERVER + "sleep 3; kill $!"]}}),
    "cancelled": EndCase(World.cancel, "SUCCESS", ("asked",), {}),
    "expired": EndCase(World.wait, "EXPIRED", ("expired",), {"time_allocation_seconds": 3}),
    "unfunded": EndCase(World.run_out_of_funds, "FAILURE", ("out_of_funds",), {}),
    "deleted": EndCase(World.delete_by_hand, "FAILURE", ("deleted", "lost"), {}),
    "homeless": EndCase(World.delete_namespace, "FAILURE", ("deleted", "lost"), {}),
}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(
    redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    folder: Path = tmp_path_factory.mktemp("ways")
    url = f"sqlite:///{folder}/store.db"
    store = Store(url)
    async with (
        EmbeddedCluster() as cluster,
        Kube.connect(cluster.kubeconfig("admin")) as admin,
    ):
        await apply_rights(admin)
        settings = settings_of_controller() | {
            "FUMAROLE_CONTROLLER_OPS_LISTEN": "127.0.0.1:0",
            "FUMAROLE_CONTROLLER_STORE_URL": url,
            "FUMAROLE_CONTROLLER_RETENTION_SECONDS": "1",
        }
        controller = Controller(
            folder / "controller", kubeconfig=cluster.kubeconfig("account-controller"),
            redis_url=redis_server.url, instance="default", **settings,
        )  # fmt: skip
        async with running(controller):
            made = World(controller, admin, store, {})
            await asyncio.gather(*(live(made, job, way) for job, way in WAYS.items()))
            yield made
    await store.close()


async def live(world: World, job: str, way: EndCase) -> None:
    """Run a job to its end, with a session and a public link."""
    fields = WEB | {"owner": {"user": job}, "links": [f"link-{job}"]} | way.fields
    await world.controller.submit(job, **fields)
    world.sids[job] = await world.controller.open(job, endpoint="site")
    await world.controller.until(job, "RUNNING", way.state, seconds=60)

    async def started() -> bool:
        rows = await world.rows(tables.hooks, job)
        return {one.plugin for one in rows if one.hook == "start"} == STARTS

    # A job that ends earlier counts as never started, so its start hooks do not run.
    await eventually(started, seconds=60, what="not every plugin was told of the start")
    await way.bring(world, job)
    await world.controller.until(job, "SUCCESS", "FAILURE", "EXPIRED", seconds=90)


@pytest_asyncio.fixture(loop_scope="module")
async def routes(redis_server: RedisServer) -> AsyncIterator[Routes]:
    client: Redis = connect(redis_server.url)
    yield Routes(client, "default")
    await client.aclose()


@pytest.mark.parametrize("job", WAYS)
async def test_every_end_of_a_job_is_reported_charged_and_cleaned_up_once(
    world: World, routes: Routes, job: str
) -> None:
    way, (run,) = WAYS[job], await world.rows(tables.runs, job)
    *before, last = await world.rows(tables.transitions, job)
    assert last.state == way.state, last
    assert last.reason in way.reasons
    assert not {one.state for one in before} & {"SUCCESS", "FAILURE", "EXPIRED"}
    # Charged once, exactly to the end of its program.
    assert run.ended_at is not None
    usage = await world.rows(tables.usage, job)
    assert [one.seconds for one in usage if one.final] == [run.ended_at - run.started_at]
    # Each plugin's hooks have run, and none waits to see the job again.
    parts = sorted(
        (hook, plugin.name)
        for hook, method in HOOKS.items()
        for plugin in PLUGINS
        if getattr(plugin, method) is not getattr(JobPlugin, method)
    )
    assert {hook for hook, _ in parts} >= {"start", "complete"}

    async def done() -> bool:
        rows = await world.rows(tables.hooks, job)
        return sorted((one.hook, one.plugin) for one in rows) == parts

    await eventually(done, seconds=60, what="not every plugin has done its part")
    assert await world.rows(tables.due, job) == []
    # Clients are notified, new ones are refused, and the public link's name is free for its owner.
    sessions = await world.rows(tables.sessions, job)
    assert {one.sid for one in sessions} >= {world.sids[job]}
    assert all(one.ended_at is not None for one in sessions)
    assert await world.rows(tables.links, job) == []
    await routes.until_gone(world.sids[job])
    assert [one for one in await routes.all() if one["job"] == job] == []
    # Nothing is left.
    assert await world.rows(tables.companions, job) == []

    async def nothing() -> bool:
        labels = f"fumarole.dev/job={job}"
        return not any([await world.admin.list(kind, labels=labels) for kind in LABELLED])

    await eventually(nothing, what=f"something is left of {job}")
