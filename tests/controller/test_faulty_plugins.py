"""Tests faulty plugins in every hook at several moments: only the plugin's job is affected."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from controller.kube.client import Kube
from controller.kube.errors import NotFound
from controller.kube.kinds import VCJOBS
from deploy.local.cluster import EmbeddedCluster
from tests.controller.faulty_plugin import install_faulty
from tests.controller.running import Controller, eventually, running
from tests.programs import RedisServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

HOOKS = ("create", "start", "monitor", "complete", "cleanup")
FAULTS = ("raises", "rejects", "exits", "hangs", "wrong", "huge", "slow")
MOMENTS = ("itself", "asked", "expires", "funds")
FINAL = ("SUCCESS", "FAILURE", "EXPIRED")
ENDS = {"itself": "SUCCESS", "asked": "SUCCESS", "expires": "EXPIRED", "funds": "FAILURE"}
SLEEPS = "trap 'exit 0' TERM; sleep 600 & wait"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def controller(
    cluster: EmbeddedCluster, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Controller]:
    folder = tmp_path_factory.mktemp("faulty")
    one = make_controller(cluster, redis_server, folder)
    async with running(one):
        yield one


def make_controller(
    cluster: EmbeddedCluster, redis_server: RedisServer, folder: Path, **settings: str
) -> Controller:
    return Controller(
        folder, kubeconfig=cluster.kubeconfig("controller"), redis_url=redis_server.url,
        instance=folder.name.strip("_").replace("_", "-"),
        **install_faulty(folder / "plugin")
        | {
            "FUMAROLE_CONTROLLER_HOOK_SECONDS": "30,faulty=1.5",
            "FUMAROLE_CONTROLLER_HOOK_TRIES": "2",
            "FUMAROLE_CONTROLLER_DRY_RUN_SECONDS": "0",
        }
        | settings,
    )  # fmt: skip


def _some() -> list[tuple[str, str, str]]:
    """Return every hook with half of most faults, each at one of the moments in turn."""
    pairs = list(itertools.product(HOOKS, ("raises", "rejects", "hangs", "huge", "slow")))
    # Only a rejection before the job exists ends it with this state.
    chosen = [*pairs[::2], ("create", "rejects")]
    return [(*pair, MOMENTS[n % len(MOMENTS)]) for n, pair in enumerate(chosen)]


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(_some(), id="some"),
        pytest.param(
            list(itertools.product(HOOKS, FAULTS, MOMENTS)),
            id="all",
            marks=(pytest.mark.long, pytest.mark.timeout(1800)),
        ),
    ],
)
async def test_a_job_with_a_misbehaving_hook_ends_and_others_are_unaffected(
    controller: Controller, cluster: EmbeddedCluster, cases: Sequence[tuple[str, str, str]]
) -> None:
    pid = controller.pid
    gate = asyncio.Semaphore(12)

    async def one(case: tuple[str, str, str]) -> None:
        async with gate:
            await live(controller, *case, tag="all" if len(cases) > 100 else "some")

    async with asyncio.TaskGroup() as tasks:
        for case in cases:
            tasks.create_task(one(case))
    assert (controller.pid, await controller.is_ready()) == (pid, True)
    async with Kube.connect(cluster.kubeconfig("admin")) as admin:
        for hook, fault, moment in cases:
            name = f"j-{hook}-{fault}-{moment}-{'all' if len(cases) > 100 else 'some'}"
            if moment != "itself":
                await eventually(partial(gone, admin, name), what=f"{name} is left")


async def live(controller: Controller, hook: str, fault: str, moment: str, *, tag: str) -> None:
    """Run one job to its end, and check that the API shows its plugin's failures."""
    job_id = f"{hook}-{fault}-{moment}-{tag}"
    fields: dict[str, Any] = {"owner": {"user": job_id}}
    if moment == "itself":
        fields["invocation"] = {"command": ["sh", "-c", "sleep 1"]}
    elif moment == "expires":
        fields["time_allocation_seconds"] = 2
    await controller.submit(job_id, resources={"cpu": 0.01, "memory": "16Mi"}, **fields)
    if (hook, fault) == ("create", "rejects"):
        job = await controller.until(job_id, "FAILURE", seconds=150)
        assert (job["reason"], "too old" in job["message"]) == ("rejected", True)
        return
    if hook == "create" and fault != "slow":
        job = await until(controller, job_id, lambda job: job["reason"] == "plugin")
        assert "faulty" in job["message"]
        await controller.call("DELETE", f"/v1/jobs/{job_id}", expect=202)
        await controller.until(job_id, "SUCCESS", seconds=120)
        return
    if moment in ("asked", "funds"):
        await controller.until(job_id, "RUNNING", *FINAL, seconds=120)
    if moment == "asked":
        await controller.call("DELETE", f"/v1/jobs/{job_id}", expect=202)
    elif moment == "funds":
        exhausted = [{"owner": {"user": job_id}}]
        body = {"through": 0, "exhausted": exhausted}
        await controller.call("POST", "/v1/usage/ack", body)
    job = await controller.until(job_id, *FINAL, seconds=120)
    assert job["state"] == ENDS[moment], job
    check_failures(hook, fault, job)


def check_failures(hook: str, fault: str, job: dict[str, Any]) -> None:
    found = {(one["hook"], one["plugin"]): one for one in job["plugin_failures"]}
    # The return value of a hook without a result is ignored.
    harmless = fault == "slow" or (fault in ("wrong", "huge") and hook in ("complete", "cleanup"))
    if hook == "monitor" or harmless:
        assert found == {}
    elif hook != "start":  # a job can end before the last try
        (failure,) = found.values()
        assert (failure["hook"], failure["tries"], failure["next_at"]) == (hook, 2, None)
        assert failure["error"]
        assert "xxx" not in str(found)


async def until(controller: Controller, job_id: str, fits: Any) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        job = await controller.job(job_id)
        return job if fits(job) else None

    return await eventually(look, seconds=150, what=f"{job_id}: {await controller.job(job_id)}")


async def gone(admin: Kube, name: str) -> bool:
    try:
        await admin.get(VCJOBS, name, "jobs")
    except NotFound:
        return True
    return False


async def test_eight_hanging_plugins_do_not_slow_down_others(
    cluster: EmbeddedCluster, redis_server: RedisServer, tmp_path: Path
) -> None:
    one = make_controller(
        cluster, redis_server, tmp_path, FUMAROLE_CONTROLLER_HOOK_SECONDS="faulty=300",
        FUMAROLE_INSTANCE="hung",
    )  # fmt: skip
    one.instance = "hung"
    async with running(one), Kube.connect(cluster.kubeconfig("admin")) as admin:
        await one.submit("first")
        before = await made_and_gone(one, admin, "alone")
        for hook in ("complete", "create"):
            for number in range(8):
                await one.submit(f"{hook}-hangs-{number}", resources={"cpu": 0.01})
        await one.submit("start-hangs-0")
        for number in range(8):
            await one.until(f"complete-hangs-{number}", "RUNNING", seconds=150)
            await one.call("DELETE", f"/v1/jobs/complete-hangs-{number}", expect=202)
        beside = await made_and_gone(one, admin, "beside")
        # At most twice as long, plus slack for a busy machine. Without free workers it takes
        # minutes.
        assert all(b < 2 * a + 3.0 for a, b in zip(before, beside, strict=True)), (before, beside)
        # The removal of these jobs did not wait either.
        for number in range(8):
            name = f"j-complete-hangs-{number}"
            await eventually(partial(gone, admin, name), what=f"{name} is left")
        assert (await one.job("complete-hangs-0"))["state"] == "CANCELING"
        # Nor does the removal of a job whose start hook hangs.
        await one.until("start-hangs-0", "RUNNING")
        await one.call("DELETE", "/v1/jobs/start-hangs-0", expect=202)
        await eventually(lambda: gone(admin, "j-start-hangs-0"), what="it waits for its hook")
        assert await one.is_ready()


async def made_and_gone(one: Controller, admin: Kube, job_id: str) -> tuple[float, float]:
    """Return the seconds from submission to the VolcanoJob, and from DELETE to its end."""
    began = time.monotonic()
    await one.submit(job_id)
    name = f"j-{job_id}"

    async def made() -> bool:
        return not await gone(admin, name)

    await eventually(made)
    submitted = time.monotonic() - began
    await one.until(job_id, "RUNNING")
    began = time.monotonic()
    await one.call("DELETE", f"/v1/jobs/{job_id}", expect=202)
    await eventually(lambda: gone(admin, name))
    removed = time.monotonic() - began
    await one.until(job_id, "SUCCESS")
    return submitted, removed


async def test_a_hook_that_blocks_the_loop_is_found_and_switched_off_at_the_next_start(
    cluster: EmbeddedCluster, redis_server: RedisServer, tmp_path: Path
) -> None:
    one = make_controller(cluster, redis_server, tmp_path, FUMAROLE_INSTANCE="blocked")
    one.instance = "blocked"
    async with running(one), Kube.connect(cluster.kubeconfig("admin")) as admin:
        await one.submit("complete-blocks-1")
        await one.submit("fine")
        await one.until("complete-blocks-1", "RUNNING")
        await one.call("DELETE", "/v1/jobs/complete-blocks-1", expect=202)

        async def told() -> bool:
            tail = one.tail()
            return "a plugin blocks the event loop" in tail and "after the next start" in tail

        await eventually(told, seconds=150, what="nobody has noticed")
        # Liveness fails because nothing responds any more, and the process is ended.
        with pytest.raises((TimeoutError, aiohttp.ClientError)):
            async with asyncio.timeout(2):
                await one.is_ready()
        await one.kill()
        await one.start()
        job = await one.until("complete-blocks-1", "SUCCESS", seconds=150)
        assert await gone(admin, "j-complete-blocks-1")
        errors = {one["error"] for one in job["plugin_failures"]}
        assert any(error.startswith("blocked the controller") for error in errors), errors
        assert (await one.job("fine"))["state"] == "RUNNING"


async def test_hooks_stuck_in_threads_are_abandoned_and_do_not_block_shutdown(
    cluster: EmbeddedCluster, redis_server: RedisServer, tmp_path: Path
) -> None:
    one = make_controller(cluster, redis_server, tmp_path, FUMAROLE_INSTANCE="threads")
    one.instance = "threads"
    async with running(one):
        for number in range(4):
            await one.submit(f"start-threads-{number}", resources={"cpu": 0.01})
        for number in range(4):
            await one.until(f"start-threads-{number}", "RUNNING", seconds=150)
            await until(
                one, f"start-threads-{number}",
                lambda job: [f["next_at"] for f in job["plugin_failures"]] == [None],
            )  # fmt: skip
        job = await one.job("start-threads-0")
        assert job["plugin_failures"][0]["error"] == "took longer than 1.5 s"
        await one.call("DELETE", "/v1/jobs/start-threads-0", expect=202)
        await one.until("start-threads-0", "SUCCESS", seconds=150)
        # The process exits without waiting for threads that cannot be ended.
        assert await one.stop() == 0
