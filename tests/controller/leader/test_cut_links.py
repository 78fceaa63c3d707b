"""Tests two controllers on PostgreSQL with cut links: the one that works leads, no flapping."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from controller.kube.client import Kube
from controller.kube.kinds import VCJOBS
from controller.store.database import Store
from controller.store.instance import read_leadership
from deploy.local.cluster import EmbeddedCluster
from tests.controller.postgres import Postgres
from tests.controller.running import Controller, eventually, running
from tests.controller.tcp_relay import Link, linked
from tests.programs import RedisServer

pytestmark = [pytest.mark.needs("postgres"), pytest.mark.timeout(600)]

INSTANCE = "cut"
LONG = pytest.mark.long


@dataclass
class World:
    """Two controllers, each with its own link, and the test's own view of the cluster."""

    cluster: EmbeddedCluster
    admin: Kube
    store: Store
    controllers: list[Controller]
    links: list[Link]

    async def leader(self) -> int:
        """Return the number of the leading controller."""

        async def one() -> list[int] | None:
            leads = [n for n, one in enumerate(self.controllers) if await _leads(one)]
            return leads if len(leads) == 1 else None

        return (await eventually(one, seconds=60, what="not one leads"))[0]

    async def until_leads(self, number: int, *, seconds: float) -> float:
        """Wait until that controller leads; return how many seconds it took."""
        began = time.monotonic()
        one = self.controllers[number]
        await eventually(lambda: _leads(one), seconds=seconds, what="nobody takes over")
        return time.monotonic() - began

    async def term(self) -> int:
        async with self.store.read() as transaction:
            return (await read_leadership(transaction)).term

    async def check(self, *jobs: str) -> None:
        """Check that each job was created once, and each update reported once."""
        one = self.controllers[await self.leader()]
        made = await self.admin.list(VCJOBS, labels=f"fumarole.dev/instance={INSTANCE}")
        assert sorted(item["metadata"]["name"] for item in made) == sorted(f"j-{j}" for j in jobs)
        updates = (await one.call("GET", "/v1/usage?after=0"))["items"]
        assert len({(u["uid"], u["rank"], u["period"]) for u in updates}) == len(updates)
        for job in jobs:
            history = await one.call("GET", f"/v1/jobs/{job}/history")
            assert len(history["attempts"]) == 1, history
            states = [(update["state"], update["reason"]) for update in history["updates"]]
            assert len(states) == len(set(states)), states


async def _leads(one: Controller) -> bool:
    try:
        async with asyncio.timeout(2):
            return await one.leads()
    except (TimeoutError, aiohttp.ClientError):
        return False


@pytest.fixture
async def world(
    redis_server: RedisServer, postgres: Postgres, tmp_path: Path
) -> AsyncIterator[World]:
    url = postgres.new_database()
    parts = urlsplit(url)
    socket = Path(parse_qs(parts.query)["host"][0]) / ".s.PGSQL.5432"
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(EmbeddedCluster())
        admin = await stack.enter_async_context(Kube.connect(cluster.kubeconfig("admin")))
        links = [await stack.enter_async_context(linked(socket)) for _ in range(2)]
        controllers = [
            Controller(
                tmp_path, kubeconfig=cluster.kubeconfig("controller"), redis_url=redis_server.url,
                instance=INSTANCE, name=f"c{number}", FUMAROLE_CONTROLLER_STORE_URL=(
                    f"postgresql://fumarole@127.0.0.1:{link.port}{parts.path}?ssl=disable"
                ),
            )
            for number, link in enumerate(links)
        ]  # fmt: skip
        for one in controllers:
            await stack.enter_async_context(running(one))
        store = Store(url)
        stack.push_async_callback(store.close)
        yield World(cluster, admin, store, controllers, links)


async def test_a_leader_cut_from_the_database_is_replaced(
    world: World,
) -> None:
    first = await world.leader()
    other = 1 - first
    await world.controllers[first].submit("before")
    await world.controllers[first].until("before", "RUNNING")
    term, pids = await world.term(), [one.pid for one in world.controllers]
    world.links[first].cut()
    took = await world.until_leads(other, seconds=60)
    print(f"taken over after {took:.1f} s")
    # 15 s of silence, the time of a round, and the old leader's transactions that hang on the link.
    assert took < 40
    await world.controllers[other].submit("meanwhile")
    await world.controllers[other].until("meanwhile", "RUNNING")
    world.links[first].mend()

    async def stands_by() -> bool:
        return not await _leads(world.controllers[first])

    await eventually(stands_by, seconds=40, what="two lead")
    assert await world.leader() == other
    assert await world.term() == term + 1
    assert [one.pid for one in world.controllers] == pids
    # The replica that was cut off writes to its store every 5 s to test it.
    for one in world.controllers:
        await eventually(one.is_ready, what="one that stands by is not ready")
    await world.check("before", "meanwhile")


@LONG
async def test_a_leader_stalled_for_thirty_seconds_is_replaced_and_fenced(
    world: World,
) -> None:
    first = await world.leader()
    other = 1 - first
    await world.controllers[first].submit("before")
    await world.controllers[first].until("before", "RUNNING")
    term = await world.term()
    os.kill(world.controllers[first].pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        took = await world.until_leads(other, seconds=30)
        print(f"taken over after {took:.1f} s")
        assert took < 20
        await world.controllers[other].submit("meanwhile")
        await world.controllers[other].until("meanwhile", "RUNNING")
        await asyncio.sleep(max(0.0, began + 30 - time.monotonic()))
    finally:
        os.kill(world.controllers[first].pid, signal.SIGCONT)
    assert await world.leader() == other
    await asyncio.sleep(5)
    assert (await world.leader(), await world.term()) == (other, term + 1)
    await world.check("before", "meanwhile")


@LONG
@pytest.mark.parametrize("gone", ["database", "cluster"])
async def test_a_common_outage_changes_no_leader(world: World, gone: str) -> None:
    first = await world.leader()
    await world.controllers[first].submit("before")
    await world.controllers[first].until("before", "RUNNING")
    term, pids = await world.term(), [one.pid for one in world.controllers]
    if gone == "database":
        for link in world.links:
            link.cut()
    else:
        world.cluster.set_faults({"503": 1.0, "cut": 1.0})
    until = time.monotonic() + 40
    while time.monotonic() < until:
        assert all([await _lives(one) for one in world.controllers])
        await asyncio.sleep(1)
    for link in world.links:
        link.mend()
    world.cluster.set_faults({})
    await asyncio.sleep(10)
    assert await world.leader() == first
    assert await world.term() == term
    await world.controllers[1 - first].submit("after")
    await world.controllers[first].until("after", "RUNNING", seconds=60)
    assert [one.pid for one in world.controllers] == pids
    await world.check("before", "after")


async def _lives(one: Controller) -> bool:
    url = f"http://{one.addresses['ops']}/healthz"
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        return response.status == 200
