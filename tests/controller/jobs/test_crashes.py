"""The controller dies at every call that it makes for a job, and each time all ends well.

The calls are found by the test: a job is run once and they are counted; then one job is run for
each of them, whose controller dies there and is followed by another one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest
import pytest_asyncio
import sqlalchemy as sa

from controller.jobs.model import Job
from controller.jobs.picture import Picture
from controller.jobs.pipeline import Pipeline, make_plugins
from controller.jobs.plugin import JobFromServer, JobPlugin
from controller.kube.client import Kube
from controller.kube.kinds import NETWORK_POLICIES, PODS, VCJOBS
from controller.plugins import PLUGINS
from controller.store import tables
from controller.store.database import Store
from controller.store.leadership import raise_term
from controller.store.position import ensure_position
from controller.store.progress import companions_of
from deploy.local.cluster import EmbeddedCluster
from tests.controller.jobs.parts import (
    Crash,
    Parts,
    TrippedKube,
    TrippedStore,
    Tripwire,
    make_parts,
)
from tests.controller.running import eventually
from tests.controller.samples import make_context, make_job

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

INSTANCE = "crash"
AT_ONCE = 8
HOOKS = ("start", "complete", "cleanup")


class Ledger(JobPlugin):
    """Has an effect outside, which doing it again does not double."""

    name: ClassVar[str] = "ledger"
    entries: ClassVar[Counter[tuple[str, str]]] = Counter()

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        self.entries[job_id, "start"] += 1
        return None

    async def on_job_complete(self, job_id: str, job_from_server: JobFromServer) -> None:
        self.entries[job_id, "complete"] += 1

    async def on_cleanup(self, job_id: str) -> None:
        self.entries[job_id, "cleanup"] += 1


class World:
    """A cluster and a store that outlive every controller."""

    def __init__(self, kube: Kube, picture: Picture, url: str) -> None:
        self.kube = kube
        self.picture = picture
        self.url = url
        plugins = make_plugins([*PLUGINS, Ledger], make_context(), wanted=None)
        self.pipeline = Pipeline(plugins, instance=INSTANCE, namespace="jobs")
        self.term = 0

    @asynccontextmanager
    async def controller(self, wire: Tripwire) -> AsyncIterator[Parts]:
        store = TrippedStore(self.url, wire)
        try:
            yield make_parts(
                kube=TrippedKube(self.kube, wire),
                store=store,
                picture=self.picture,
                pipeline=self.pipeline,
                term=self.term,
                instance=INSTANCE,
            )
        finally:
            await store.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder: Path = tmp_path_factory.mktemp("crashes")
    store = Store(f"sqlite:///{folder}/store.db")
    await store.open()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity="test")
        term = await raise_term(transaction)
    async with (
        EmbeddedCluster() as cluster,
        Kube.connect(cluster.kubeconfig("controller")) as kube,
    ):
        picture = Picture(kube, instance=INSTANCE, changed=lambda _job: None)
        watching = asyncio.create_task(picture.run())
        await picture.complete()
        made = World(kube, picture, f"sqlite:///{folder}/store.db")
        made.term = term
        yield made
        watching.cancel()
        await asyncio.wait([watching])
    await store.close()


def make(job_id: str, command: str) -> Job:
    return make_job(
        id=job_id,
        resources={"cpu": 0.01, "memory": "16Mi"},
        parameters={"t": {"type": "secret", "value": "survives"}},
        invocation={
            "command": ["sh", "-c", f'test "$T" = survives && {command}'],
            "environment": {"T": {"parameter": "t"}},
        },
    )


async def live(parts: Parts, job: Job, *, ended_by_user: bool) -> None:
    """Let a job live from where it is to its end."""
    known = await _known(parts, job.id)
    if not known:
        await parts.submit(job)
    if ended_by_user:
        await parts.drive(job.id, lambda r: r.is_final or r.state != "IN_QUEUE")
        await parts.wishes.end(job.id)
    record = await parts.drive_to_the_end(job.id)
    assert record.state == "SUCCESS", record


async def _known(parts: Parts, job_id: str) -> bool:
    query = sa.select(tables.jobs.c.id).where(tables.jobs.c.id == job_id)
    async with parts.store.read() as transaction:
        return (await transaction.scalar(query)) is not None


async def crash_once(world: World, job: Job, point: int, *, ended_by_user: bool) -> str:
    """Let the job's controller die at *point*; return where that was."""
    wire = Tripwire(point)
    try:
        async with world.controller(wire) as parts:
            await live(parts, job, ended_by_user=ended_by_user)
    except Crash as crash:
        where = str(crash)
    else:
        where = "nowhere"  # this time it needed fewer calls
    async with world.controller(Tripwire()) as parts:
        await live(parts, job, ended_by_user=ended_by_user)
        await check(world, parts, job.id, where)
    return where


async def check(world: World, parts: Parts, job_id: str, where: str) -> None:
    """See that the job was made once, did everything, and left nothing."""
    record = await parts.record(job_id)
    assert record.sealed is None, where
    async with parts.store.read() as transaction:
        attempts = (await transaction.execute(
            sa.select(tables.attempts).where(tables.attempts.c.job_id == job_id)
        )).all()  # fmt: skip
        ended = (await transaction.execute(
            sa.select(tables.transitions.c.state).where(
                tables.transitions.c.job_id == job_id,
                tables.transitions.c.state.in_(("SUCCESS", "FAILURE")),
            )
        )).all()  # fmt: skip
        assert await companions_of(transaction, job_id) == [], where
    assert [one.uid for one in attempts] == [record.uid], where
    assert len(ended) == 1, (where, ended)
    for hook in ("complete", "cleanup"):
        # Twice at most: once more if it was not recorded.
        assert 1 <= Ledger.entries[job_id, hook] <= 2, (where, hook)
    assert Ledger.entries[job_id, "start"] <= 2, where
    labels = f"fumarole.dev/job={job_id}"
    made = await world.kube.list(VCJOBS, labels=labels)
    assert {one["metadata"]["uid"] for one in made} <= {record.uid}, where
    if record.desired == "ended":
        await eventually(lambda: _nothing(world, labels), what=f"{where}: something is left")


async def _nothing(world: World, labels: str) -> bool:
    kinds = (VCJOBS, PODS, NETWORK_POLICIES)
    return not any([await world.kube.list(kind, labels=labels) for kind in kinds])


async def points_of(world: World, job: Job, *, ended_by_user: bool) -> list[str]:
    wire = Tripwire()
    async with world.controller(wire) as parts:
        await live(parts, job, ended_by_user=ended_by_user)
        await check(world, parts, job.id, "never")
    return wire.points


@pytest.mark.parametrize(
    ("kind", "ended_by_user", "stride"),
    [
        ("ends", False, 1),
        # Pods take their time to end, so not every point of these each time.
        ("asked", True, 5),
        pytest.param("asked-all", True, 1, marks=pytest.mark.long),
    ],
)
async def test_wherever_it_dies_the_job_is_run_once_and_ends_once(
    world: World, kind: str, ended_by_user: bool, stride: int
) -> None:
    command = "trap 'exit 0' TERM; sleep 60 & wait" if ended_by_user else "exit 0"
    first = make(f"{kind}-first", command)
    points = await points_of(world, first, ended_by_user=ended_by_user)
    assert len(points) > 15, points
    gate = asyncio.Semaphore(AT_ONCE)
    found: list[str] = []

    async def one(point: int) -> None:
        async with gate:
            job = make(f"{kind}-{point}", command)
            found.append(await crash_once(world, job, point, ended_by_user=ended_by_user))

    async with asyncio.TaskGroup() as tasks:
        # A few more: how many calls it takes depends on how often it had to look.
        for point in range(0, len(points) + 4, stride):
            tasks.create_task(one(point))
    if stride == 1:
        assert set(found) >= {"before create", "after create", "before write", "after write"}
