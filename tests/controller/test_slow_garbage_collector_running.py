"""Tests how soon programs end behind 500 ended jobs that the garbage collector has yet to clear."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from controller.kube.client import Kube
from controller.kube.kinds import NETWORK_POLICIES, VCJOBS
from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import Controller, eventually, running
from tests.programs import RedisServer

pytestmark = pytest.mark.asyncio

ENDED = 500
AT_ONCE = 100
CANCELLED = 100
STUBBORN = 5
"""Of the last ones: they do not end when they are told to, but when their grace period is over."""

GRACE_SECONDS = 30.0
"""Kubernetes' own: no job says another."""

MOST_SECONDS = 2.0
BETWEEN_SECONDS = 0.5
NEARLY_STILL = {"collector": 0.5}
AS_A_REAL_ONE = {"collector": 20.0}
MARK = "fumarole-ends"
ENDS_AT_ONCE = "trap 'exit 0' TERM; sleep 3600 & wait"
STAYS = "trap '' TERM; while :; do sleep 3600 & wait; done"


@dataclass
class World:
    """A controller as a process, over a cluster with a slow garbage collector."""

    controller: Controller
    cluster: EmbeddedCluster
    admin: Kube

    async def submit(self, ids: Iterable[str], program: str) -> None:
        items = [
            {
                "id": job_id,
                "owner": {"user": "ada"},
                "image": "busybox",
                "resources": {"cpu": "1m", "memory": "4Mi"},
                "invocation": {"command": ["sh", "-c", program, f"{MARK}-{job_id}."]},
            }
            for job_id in ids
        ]
        response = await self.controller.call("POST", "/v1/jobs", {"items": items})
        assert all(one["result"] == "created" for one in response["items"]), response

    async def cancel(self, job_id: str) -> None:
        await self.controller.call("DELETE", f"/v1/jobs/{job_id}", expect=202)

    async def none_is(self, *states: str) -> bool:
        for state in states:
            if (await self.controller.call("GET", f"/v1/jobs?state={state}&limit=1"))["items"]:
                return False
        return True

    async def all_run(self) -> bool:
        return await self.none_is("IN_QUEUE")

    async def nothing_lives(self) -> bool:
        return await self.none_is("IN_QUEUE", "RUNNING")

    async def left_behind(self) -> int:
        """Return the number of ended jobs whose objects the collector has not removed."""
        policies = await self.admin.list(NETWORK_POLICIES, "jobs")
        alive = {one["metadata"]["uid"] for one in await self.admin.list(VCJOBS, "jobs")}
        owners = {
            owner["uid"]
            for one in policies
            for owner in one["metadata"].get("ownerReferences") or ()
        }
        return len(owners - alive)


@asynccontextmanager
async def opened(folder: Path, redis_url: str) -> AsyncIterator[World]:
    async with EmbeddedCluster(lags=NEARLY_STILL) as cluster:
        controller = Controller(
            folder / "controller", kubeconfig=cluster.kubeconfig("controller"), redis_url=redis_url
        )
        async with running(controller), Kube.connect(cluster.kubeconfig("admin")) as admin:
            yield World(controller, cluster, admin)


def programs_of(ids: Iterable[str]) -> dict[str, list[psutil.Process]]:
    """Return the processes of each job, found by the mark in their arguments."""
    marks = {f"{MARK}-{job_id}.": job_id for job_id in ids}
    found: dict[str, list[psutil.Process]] = {job_id: [] for job_id in marks.values()}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            if words[:2] == ["sh", "-c"] and words[-1] in marks:
                found[marks[words[-1]]].append(process)
    return found


async def seconds_to_end(world: World, job_id: str, programs: list[psutil.Process]) -> float:
    """Return the seconds from the orchestrator's request until the job's program ends."""
    assert programs, f"{job_id} has no program"
    began = time.monotonic()
    await world.cancel(job_id)
    while any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in programs):
        assert time.monotonic() - began < 120, f"{job_id} runs on\n{world.controller.tail()}"
        await asyncio.sleep(0.05)
    return time.monotonic() - began


@pytest.mark.long
@pytest.mark.timeout(3000)
async def test_programs_end_in_time_behind_five_hundred_ended_jobs(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """From cancellation to the program's end: the grace period and two seconds, for 99 of 100."""
    async with opened(tmp_path, redis_server.url) as world:
        for first in range(0, ENDED, AT_ONCE):
            ids = [f"ended-{number}" for number in range(first, first + AT_ONCE)]
            await world.submit(ids, ENDS_AT_ONCE)
            await eventually(world.all_run, seconds=300, what="they do not all run")
            for job_id in ids:
                await world.cancel(job_id)
            await eventually(world.nothing_lives, seconds=300, what="they do not all end")
        quick = [f"quick-{number}" for number in range(CANCELLED - STUBBORN)]
        slow = [f"slow-{number}" for number in range(STUBBORN)]
        await world.submit(quick, ENDS_AT_ONCE)
        await world.submit(slow, STAYS)
        await eventually(world.all_run, seconds=300, what="they do not all run")
        programs = programs_of(quick + slow)
        behind = await world.left_behind()
        world.cluster.set_lags(AS_A_REAL_ONE)
        measured = []
        for job_id in slow + quick:
            ending = seconds_to_end(world, job_id, programs[job_id])
            measured.append(asyncio.create_task(ending))
            await asyncio.sleep(BETWEEN_SECONDS)
        took = await asyncio.gather(*measured)
        left = await world.left_behind()
        beyond = [one - GRACE_SECONDS for one in took[:STUBBORN]] + took[STUBBORN:]
        beyond.sort()
        print(f"behind {behind} jobs, then {left}; seconds beyond the grace:")
        print(f"p50 {beyond[49]:.2f}, p99 {beyond[98]:.2f}, most {beyond[99]:.2f}")
        print("stubborn", [round(one, 2) for one in took[:STUBBORN]])
        assert behind >= ENDED * 0.9
        assert left >= ENDED // 2, "the collector was not behind"
        assert beyond[98] <= MOST_SECONDS
        assert min(took[:STUBBORN]) >= GRACE_SECONDS - 1.0, "a grace period was cut short"
