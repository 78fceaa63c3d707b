"""Tests that the controller may crash at any call for a job, and that the job still ends well.

The test first runs a job and counts the calls. Then it runs one job per call: the job's controller
crashes at this call and another controller takes over. This is done with a job that has a tool, and
with a chain of jobs.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
import sqlalchemy as sa

from controller.jobs.cluster.prerequisites import ensure_namespace
from controller.jobs.reconcile import actions
from controller.jobs.spec.model import Job
from controller.kube.client import Kube
from controller.store import tables
from controller.store.jobs.progress import pod_records_of
from controller.store.jobs.tombstones import delete_job_records
from deploy.local.cluster import EmbeddedCluster
from tests.controller.jobs.parts import (
    Crash,
    Parts,
    Tripwire,
    patiently,
    running_informer,
)
from tests.controller.jobs.reconcile.crash_checks import check, check_all, nothing_is_left
from tests.controller.jobs.reconcile.crash_world import (
    ATTENDED,
    CHAIN,
    INSTANCE,
    LIVES,
    SIDE,
    World,
    make,
    make_home,
    make_one,
)
from tests.controller.new_stores import leading_store
from tests.controller.running import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(480)]
AT_ONCE = 6
SAMPLES = {
    "ends": 4,
    "asked": 3,
    "regretted": 3,
    "expires": 2,
    "suspended": 2,
    "retried": 2,
    "tools": 2,
    "dropped": 2,
    "chain": 2,
}
LONG = (pytest.mark.long, pytest.mark.timeout(7200))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder: Path = tmp_path_factory.mktemp("crashes")
    async with (
        leading_store(folder) as (_, term),
        EmbeddedCluster() as cluster,
        Kube.connect(cluster.kubeconfig("controller")) as kube,
        Kube.connect(cluster.kubeconfig("admin")) as admin,
        running_informer(kube, INSTANCE) as informer,
    ):
        tools = folder / "tools.json"
        tools.write_text(json.dumps({"tools": {"side": SIDE}}))
        await ensure_namespace(kube, "jobs", instance=INSTANCE)
        home = await make_home(cluster, admin)
        url = f"sqlite:///{folder}/store.db"
        made = World(kube, informer, url, tools=tools, home=home)
        made.term = term
        yield made


"""How jobs live of which each follows the one before; the record of the first does not last."""
"""How jobs live that have a tool."""
"""How jobs live of which no program may ever have run."""


async def live(world: World, parts: Parts, jobs: Sequence[Job], life: str) -> None:
    """Run a job, or a chain, from its current state to its end."""
    if not await _known(parts, jobs[-1].id):
        await parts.submit(*jobs)
        if life == "regretted":
            await parts.drive(jobs[0].id, lambda r: r.is_final or r.uid is not None)
    elif life == "dropped":
        await patiently(lambda: parts.commands.end(jobs[0].id))
    if life == "chain":
        await live_chained(world, parts, jobs)
    else:
        await live_alone(parts, jobs[0], life)


async def live_chained(world: World, parts: Parts, jobs: Sequence[Job]) -> None:
    for job in jobs:
        await parts.look(job.id, tools=False)  # each but the first reports which job it waits for
    for job, life in zip(jobs, CHAIN, strict=True):
        if await _known(parts, job.id):
            record = await parts.drive_to_the_end(job.id)
            assert record.state == LIVES[life][2], (record, record.message)
        if job is jobs[0]:
            await forget(world, parts, job.id)


async def forget(world: World, parts: Parts, job_id: str) -> None:
    """Delete the job's record, as happens some time after its end, and have the rest removed."""

    async def drop() -> None:
        async with parts.store.fenced(parts.term).write() as transaction:
            await delete_job_records(transaction, [job_id], at=time.time())

    if await _known(parts, job_id):
        await check(world, parts, job_id, CHAIN[0], "before it is forgotten")
        await patiently(drop)

    async def is_gone() -> bool:
        await parts.look(job_id, tools=False)
        return await nothing_is_left(world, job_id)

    await eventually(is_gone, seconds=150, what=f"something of {job_id} is left")


async def live_alone(parts: Parts, job: Job, life: str) -> None:
    if life not in ("ends", "fails", "retried", "regretted"):
        await parts.drive(job.id, lambda r: r.is_final or r.state != "IN_QUEUE")
    if life in ATTENDED:
        await _until_beside(parts, job.id, runs=1)
    if life in ("suspended", *ATTENDED):
        await _pause(parts, job.id)
    if life in ATTENDED:
        await _until_beside(parts, job.id, runs=2)
    if life in ("asked", "suspended", "regretted", *ATTENDED):
        await patiently(lambda: parts.commands.end(job.id))
    while (
        life == "expires"
        and (await patiently(lambda: parts.commands.end_if_over([job.id])))[job.id] is not None
    ):
        await asyncio.sleep(0.2)
    record = await parts.drive_to_the_end(job.id)
    assert record.state == LIVES[life][2], record
    for run in await parts.runs_of(job.id):
        await parts.drive_to_the_end(run.id)


async def _until_beside(parts: Parts, job_id: str, *, runs: int) -> None:
    """Drive the job until its tool has had *runs* runs, or the job ends."""
    record = await parts.record(job_id)
    while not record.is_final and record.desired == "run":
        found = await parts.runs_of(job_id)
        if len(found) >= min(runs, record.attempt) and found[-1].state == "RUNNING":
            return
        await parts.look(job_id, tools=True)
        record = await parts.record(job_id)


async def _pause(parts: Parts, job_id: str) -> None:
    record = await parts.record(job_id)
    if record.is_final or record.desired == "ended":
        return
    if (record.desired, record.attempt, record.stopping) == ("run", 1, False):
        await patiently(lambda: parts.commands.suspend(job_id))
    if (await parts.record(job_id)).desired == "suspended":
        await parts.drive(job_id, lambda r: r.is_final or r.state == "SUSPENDED")
        await patiently(lambda: parts.commands.resume(job_id))
    await parts.drive(job_id, lambda r: r.is_final or (r.attempt, r.state) == (2, "RUNNING"))


async def _known(parts: Parts, job_id: str) -> bool:
    query = sa.select(tables.jobs.c.id).where(tables.jobs.c.id == job_id)
    async with parts.store.read() as transaction:
        return (await transaction.scalar(query)) is not None


async def crash_once(world: World, jobs: Sequence[Job], point: int, life: str) -> str:
    """Crash the jobs' controller at *point*; return the name of that point."""
    wire = Tripwire(point)
    try:
        async with world.controller(wire) as parts:
            await live(world, parts, jobs, life)
    except Crash as crash:
        where = str(crash)
    else:
        where = "nowhere"  # this time fewer calls were needed
    async with world.controller(Tripwire()) as parts:
        await live(world, parts, jobs, life)
        await check_all(world, parts, jobs, life, where)
    return where


async def points_of(world: World, jobs: Sequence[Job], life: str) -> list[str]:
    wire = Tripwire()
    async with world.controller(wire) as parts:
        await live(world, parts, jobs, life)
        points = [*wire.points]
        await check_all(world, parts, jobs, life, "nowhere")
    return points


@pytest.mark.parametrize(
    ("lives", "samples"),
    [
        # A sample of the points, which differs from run to run.
        pytest.param(tuple(SAMPLES), SAMPLES, id="some"),
        *(
            pytest.param((life,), {}, id=life, marks=LONG)
            for life in (*LIVES, "chain")
            if life != "never"
        ),
    ],
)
async def test_a_crash_at_any_point_runs_and_ends_the_job_once(
    world: World, lives: tuple[str, ...], samples: Mapping[str, int]
) -> None:
    gate = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as tasks:
        for life in lives:
            tasks.create_task(die_everywhere(world, life, gate, samples.get(life)))


def chosen(points: Sequence[str], count: int | None) -> list[int]:
    """Return *count* of the points, mostly of writes; without *count*, all points."""
    if count is None:
        # A few extra: the number of calls depends on how often the controller had to poll.
        return list(range(len(points) + 4))
    reads = [at for at, point in enumerate(points) if point.endswith((" read", " get"))]
    others = sorted(set(range(len(points))) - set(reads))
    return random.sample(reads, count // 3) + random.sample(others, count - count // 3)


async def die_everywhere(
    world: World, life: str, gate: asyncio.Semaphore, count: int | None
) -> None:
    """Crash a job's controller at each point of a life, or at *count* points: one job per point."""
    name = f"{life}-{'all' if count is None else 'some'}"
    points = await points_of(world, make(world, f"{name}-first", life), life)
    assert len(points) > 60, points
    found: list[str] = []

    async def one(point: int) -> None:
        async with gate:
            jobs = make(world, f"{name}-{point}", life)
            found.append(await crash_once(world, jobs, point, life))

    async with asyncio.TaskGroup() as tasks:
        for point in chosen(points, count):
            tasks.create_task(one(point))
    if count is None:
        calls = ("create", "write", "read")
        assert set(found) >= {f"{when} {call}" for call in calls for when in ("before", "after")}


async def test_an_end_waits_for_events_of_pods_that_ran(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_one("news", "asked")
    async with world.controller(Tripwire()) as parts:
        with monkeypatch.context() as behind:
            # VolcanoJob events arrive, but pod events are late, by less than the controller waits
            # for them. A shell without a trap takes all of its grace period.
            behind.setattr(actions, "NEWS_SECONDS", 3600.0)
            for of in ("of_job", "departed_of"):
                behind.setattr(world.informer.pods, of, lambda _job: ())
            await parts.submit(job)
            await parts.drive(job.id, lambda r: r.state == "RUNNING")
            await patiently(lambda: parts.commands.end(job.id))

            async def gone() -> bool:
                await parts.look(job.id, tools=False)
                return await nothing_is_left(world, job.id)

            await eventually(gone, seconds=150, what="the VolcanoJob or its pod stays")
            for _ in range(10):
                await parts.look(job.id, tools=False)
            assert not (await parts.record(job.id)).is_final
        await parts.drive_to_the_end(job.id)
        await check(world, parts, job.id, "asked", "the watch")
        async with parts.store.read() as transaction:
            (run,) = await pod_records_of(transaction, job.id)
        assert run.started_at is not None
        assert run.ended_at is not None
