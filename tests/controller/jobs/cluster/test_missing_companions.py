"""Tests that companions of running jobs are restored after another client has deleted them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from controller.jobs.cluster.companion_sweep import EVERY_SECONDS, CompanionSweep
from controller.jobs.cluster.job_objects import JobObjects
from controller.kube.kinds import NETWORK_POLICIES
from tests.clock import Clock
from tests.controller.jobs.reconcile.attempts_world import World, open_world
from tests.controller.running import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with open_world(tmp_path_factory.mktemp("missing"), instance="missing") as one:
        yield one


async def policies(world: World) -> list[str]:
    found = await world.admin.list(NETWORK_POLICIES, labels="fumarole.dev/job=guarded")
    return sorted(one["metadata"]["name"] for one in found)


async def test_a_deleted_network_policy_of_a_running_job_is_restored(world: World) -> None:
    clock, enqueued, failures = Clock(1000.0), list[str](), list[Exception]()
    sweep = CompanionSweep(
        world.parts.store.fenced(world.parts.term),
        kube=world.kube,
        cluster=JobObjects(world.kube, instance="missing"),
        informer=world.informer,
        instance="missing",
        clock=clock,
        enqueue=enqueued.append,
        failed=failures.append,
    )
    await world.submit("guarded")
    await world.until("guarded", "RUNNING")
    names = await policies(world)
    assert names
    assert (await sweep.sweep()).restored == 0

    async def delete_and_restore() -> None:
        await world.admin.delete(NETWORK_POLICIES, names[0], "jobs")
        assert (await sweep.sweep()).restored == 1
        assert enqueued.pop() == "guarded"

        async def is_restored() -> bool:
            await world.parts.look("guarded", tools=False)
            return await policies(world) == names

        await eventually(is_restored, seconds=60, what="the policy is not restored")

    await delete_and_restore()
    # Another client that deletes it again and again is not followed at once.
    await world.admin.delete(NETWORK_POLICIES, names[0], "jobs")
    assert (await sweep.sweep()).restored == 0
    clock.now += EVERY_SECONDS
    assert (await sweep.sweep()).restored == 1
    clock.now += EVERY_SECONDS
    assert (await sweep.sweep()).restored == 0
    # A job that ends needs none.
    await world.end("guarded")
    clock.now += 9999
    assert (await sweep.sweep()).restored == 0
