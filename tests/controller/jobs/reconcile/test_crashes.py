"""The controller dies at every call that it makes for a job, and each time all ends well.

The calls are found by the test: a job is run once and they are counted; then one job is run for
each of them, whose controller dies there and is followed by another one. So it is done with a job
that has a tool, and with a chain of jobs.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
import pytest_asyncio
import sqlalchemy as sa

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.cluster.prerequisites import ensure_namespace
from controller.jobs.pipeline.builder import Companion, JobBuilder, When
from controller.jobs.pipeline.companion_kinds import CompanionKind
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobFromServer, JobPlugin
from controller.jobs.reconcile import actions
from controller.jobs.spec.model import Job
from controller.jobs.submission.commands import JobCommands
from controller.jobs.usage.ledger import Ledger as UsageLedger
from controller.kube.client import Kube
from controller.kube.kinds import (
    LEASES,
    NETWORK_POLICIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    VCJOBS,
)
from controller.plugins import PLUGINS
from controller.store import tables
from controller.store.database import Store
from controller.store.instance import ensure_position, raise_term
from controller.store.jobs.job_rows import FINAL_STATES, JobRecord, forget_these_jobs, known_jobs
from controller.store.jobs.progress.attempts import attempts_of, companions_of
from controller.store.jobs.progress.pods import pod_records_of
from controller.store.outbox.update_rows import UpdateRow, updates_of
from controller.store.outbox.usage_entries import usage_after
from controller.volcano.names import companion_name
from controller.volcano.observed import read_pod
from deploy.local.cluster import EmbeddedCluster
from tests.controller.jobs.parts import (
    Crash,
    Parts,
    TrippedKube,
    TrippedStore,
    Tripwire,
    make_parts,
    patiently,
)
from tests.controller.running import eventually
from tests.controller.samples import make_context, make_defaults, make_job, make_plugins

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(480)]

INSTANCE = "crash"
WHEN: Final[tuple[When, ...]] = ("before", "after")
AT_ONCE = 6
SAMPLES = {
    "ends": 8,
    "asked": 6,
    "regretted": 6,
    "expires": 4,
    "suspended": 3,
    "retried": 4,
    "tools": 4,
    "dropped": 4,
    "chain": 4,
}
LONG = (pytest.mark.long, pytest.mark.timeout(3600))
LIVING = ("IN_QUEUE", "RUNNING")
SLEEPS = "trap 'exit 0' TERM; sleep 60 & wait"
# Nobody is let in: its port is never asked for.
SIDE = {
    "image": "busybox",
    "command": ["sh", "-c", SLEEPS],
    "port": 8000,
    "resources": {"cpu": 0.01, "memory": "16Mi"},
}


class Ledger(JobPlugin):
    """Has an effect outside, which doing it again does not double, and companions of a kind."""

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
        # The uid of every VolcanoJob that was ever made, by its name.
        self.made = defaultdict[str, set[str]](set)

    def pipeline(self, store: Store) -> Pipeline:
        """Return our plugins, whose effects on the store can be cut off too, and one of others."""
        context = make_context(
            defaults=self.defaults,
            control=JobCommands(store, clock=time.time, random=os.urandom, wake=lambda _job: None),
            ledger=UsageLedger(store, defaults=self.defaults, clock=time.time),
        )
        plugins = make_plugins([*PLUGINS, Ledger], context)
        return Pipeline(plugins, instance=INSTANCE, namespace="jobs")

    @asynccontextmanager
    async def controller(self, wire: Tripwire) -> AsyncIterator[Parts]:
        store = TrippedStore(self.url, wire, self.turn)
        try:
            yield make_parts(
                kube=TrippedKube(self.kube, wire, self.made),
                store=store,
                informer=self.informer,
                pipeline=self.pipeline(store),
                term=self.term,
                instance=INSTANCE,
                defaults=self.defaults,
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
        Kube.connect(cluster.kubeconfig("admin")) as admin,
    ):
        informer = InformerCache(kube, instance=INSTANCE, changed=lambda _job: None)
        watching = asyncio.create_task(informer.run())
        await informer.complete()
        tools = folder / "tools.json"
        tools.write_text(json.dumps({"tools": {"side": SIDE}}))
        await ensure_namespace(kube, "jobs", instance=INSTANCE)
        home = await make_home(cluster, admin)
        url = f"sqlite:///{folder}/store.db"
        made = World(kube, informer, url, tools=tools, home=home)
        made.term = term
        yield made
        watching.cancel()
        await asyncio.wait([watching])
    await store.close()


async def make_home(cluster: EmbeddedCluster, admin: Kube) -> Path | None:
    """Return the folder of users' files; None where pods have no mounts of their own."""
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
    # What it runs, what else it says, and how it ends.
    "ends": ("exit 0", {}, "SUCCESS"),
    "fails": ("exit 3", {}, "FAILURE"),
    "asked": (SLEEPS, {}, "SUCCESS"),
    "suspended": (SLEEPS, {}, "SUCCESS"),
    # Its end is asked for as soon as its VolcanoJob was made, or its first controller has died.
    "regretted": (SLEEPS, {}, "SUCCESS"),
    # With a tool beside each attempt.
    "tools": (SLEEPS, {"tools": ["side"]}, "SUCCESS"),
    # The same, until its first controller has died: then its end is asked for.
    "dropped": (SLEEPS, {"tools": ["side"]}, "SUCCESS"),
    "expires": (SLEEPS, {"time_allocation_seconds": 1}, "EXPIRED"),
    # By a policy that we carry out ourselves, once.
    "retried": (
        "exit 3",
        {
            "policies": [{"event": "PodFailed", "action": "RestartJob", "timeout_seconds": 1}],
            "max_retry": 1,
        },
        "FAILURE",
    ),
    # It follows one that failed.
    "never": ("exit 0", {}, "FAILURE"),
}
CHAIN: Final = ("ends", "ends", "fails", "never")
"""How jobs live of which each follows the one before; the record of the first does not last."""

TWICE = ("suspended", "retried", "tools")
ATTENDED = ("tools", "dropped")
"""How jobs live that have a tool."""
CUT_SHORT = ("regretted", "dropped")
"""How jobs live of which no program may ever have run."""


def make(world: World, job_id: str, life: str) -> list[Job]:
    """Return a job; or a chain, whose jobs have the number of each behind *job_id*."""
    if life != "chain":
        return [make_one(job_id, life)]
    made = list[Job]()
    for number, one in enumerate(CHAIN):
        before = made[-1].id if made else None
        made.append(make_follower(world, f"{job_id}-{number}", one, before))
    return made


def make_follower(world: World, job_id: str, life: str, before: str | None) -> Job:
    """Return a job that reads what the one *before* has made, if its pod can have files at all."""
    command, parameters, fields = LIVES[life][0], {}, dict[str, Any]()
    if before is not None:
        fields["after"] = [before]
    if world.home is not None:
        (world.home / job_id).mkdir(exist_ok=True)
        fields["output"] = f"/home/{job_id}"
        # Fails where it is done twice.
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


async def live(world: World, parts: Parts, jobs: Sequence[Job], life: str) -> None:
    """Let a job, or a chain, live from where it is to its end."""
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
        await parts.look(job.id, tools=False)  # each but the first says for which one it waits
    for job, life in zip(jobs, CHAIN, strict=True):
        if await _known(parts, job.id):
            record = await parts.drive_to_the_end(job.id)
            assert record.state == LIVES[life][2], (record, record.message)
        if job is jobs[0]:
            await forget(world, parts, job.id)


async def forget(world: World, parts: Parts, job_id: str) -> None:
    """Drop the job's record, as is done some time after its end, and have the rest removed."""

    async def drop() -> None:
        async with parts.store.lead(parts.term) as transaction:
            await forget_these_jobs(transaction, [job_id], at=time.time())

    if await _known(parts, job_id):
        await check(world, parts, job_id, CHAIN[0], "before it is forgotten")
        await patiently(drop)

    async def is_gone() -> bool:
        await parts.look(job_id, tools=False)
        return await _nothing(world, f"fumarole.dev/job={job_id}")

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
    """Drive the job until its tool has run so often, or it ends."""
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
    """Let the jobs' controller die at *point*; return where that was."""
    wire = Tripwire(point)
    try:
        async with world.controller(wire) as parts:
            await live(world, parts, jobs, life)
    except Crash as crash:
        where = str(crash)
    else:
        where = "nowhere"  # this time it needed fewer calls
    async with world.controller(Tripwire()) as parts:
        await live(world, parts, jobs, life)
        await check_all(world, parts, jobs, life, where)
    return where


async def check_all(world: World, parts: Parts, jobs: Sequence[Job], life: str, where: str) -> None:
    """See of each job what :func:`check` does; one that is forgotten was seen before."""
    if life == "chain":
        async with parts.store.read() as transaction:
            every = await usage_after(transaction, 0, limit=10**6)
            assert not await known_jobs(transaction, [jobs[0].id]), where
        assert [one.final for one in every if one.job_id == jobs[0].id].count(True) == 1, where
    lives = CHAIN if life == "chain" else (life,)
    for job, one in list(zip(jobs, lives, strict=True))[life == "chain" :]:
        await check(world, parts, job.id, one, where)


async def check(world: World, parts: Parts, job_id: str, life: str, where: str) -> None:
    """See that the job was made once, did everything, is paid for exactly, and left nothing."""
    record = await parts.record(job_id)
    assert record.sealed is None, where
    async with parts.store.read() as transaction:
        attempts = await attempts_of(transaction, job_id)
        updates = await updates_of(transaction, job_id)
        assert await companions_of(transaction, job_id) == [], where
    uids = world.made[f"j-{job_id}"]
    if life not in CUT_SHORT:
        assert len(uids) == (2 if life in TWICE else life != "never"), where
    assert {one.uid for one in attempts} == uids, where
    assert all(one.ended_at is not None and one.outcome for one in attempts), where
    assert record.retries_used == (life == "retried"), where
    # An end that comes between two attempts has no second one.
    between = life == "dropped" and len(attempts) < record.attempt
    assert (attempts[-1].uid if attempts and not between else None) == record.uid, where
    check_updates(updates, life, where)
    for hook in ("complete", "cleanup"):
        # Twice at most: once more if it was not recorded.
        assert 1 <= Ledger.entries[job_id, hook] <= 2, (where, hook)
    assert Ledger.entries[job_id, "start"] <= 2 * len(attempts), where
    labels = f"fumarole.dev/job={job_id}"
    made = await world.kube.list(VCJOBS, labels=labels)
    assert {one["metadata"]["uid"] for one in made} <= {record.uid}, where
    await check_usage(world, parts, job_id, where)
    for run in await parts.runs_of(job_id):
        await check_run(world, parts, run, where)
    if record.desired == "ended":
        await eventually(
            lambda: _nothing(world, labels), seconds=60, what=f"{where}: something is left"
        )


async def check_run(world: World, parts: Parts, run: JobRecord, where: str) -> None:
    """See that the run of a tool went with its job, is paid for exactly, and left nothing."""
    assert run.tool is not None
    assert (run.state, run.attempt) == ("SUCCESS", 1), (where, run)
    assert run.end_reason in ("attempt_ended", "job_ended"), (where, run)
    async with parts.store.read() as transaction:
        assert await updates_of(transaction, run.id) == [], where
        assert await companions_of(transaction, run.id) == [], where
    await check_usage(world, parts, run.id, where, tool=run.tool)
    labels = f"fumarole.dev/job={run.id}"
    await eventually(
        lambda: _nothing(world, labels), seconds=60, what=f"{where}: something of a tool is left"
    )


def check_updates(updates: Sequence[UpdateRow], life: str, where: str) -> None:
    """See that the end was told once, as the last, and nothing of it before."""
    told = [(one.state, one.reason) for one in updates]
    *before, (state, reason) = told
    assert state == LIVES[life][2], (where, told)
    assert not {one for one, _ in before} & {*FINAL_STATES}, (where, told)
    waited_for = {why for one, why in before if one in LIVING}
    # What it waits for is what it fails for.
    assert reason not in waited_for or reason == "predecessor", (where, told)
    assert all(one.exits is None for one in updates[:-1]), where


async def check_usage(
    world: World,
    parts: Parts,
    job_id: str,
    where: str,
    *,
    tool: Mapping[str, Any] | None = None,
) -> None:
    """See that what the ledger says is what the cluster says, and is said once."""
    paid_by, name = (job_id, None) if tool is None else (tool["job"], tool["name"])
    async with parts.store.read() as transaction:
        every = await usage_after(transaction, 0, limit=10**6)
        runs = await pod_records_of(transaction, job_id)
        uids = {one.attempt: one.uid for one in await attempts_of(transaction, job_id)}
    cut_short = any(life in job_id for life in CUT_SHORT)
    assert runs or tool is not None or not uids or cut_short, where
    if tool is None:
        own_uids = {one.uid for one in every if (one.job_id, one.tool) == (job_id, None)}
        assert own_uids <= {*uids.values()}, where
    for pod in await world.kube.list(PODS, labels=f"fumarole.dev/job={job_id}"):
        written = [one for one in runs if one.pod_uid == pod["metadata"]["uid"]]
        assert len(written) == 1, (where, job_id, uids, pod["metadata"]["ownerReferences"])
        seen, run = read_pod(pod), written[0]
        assert seen.ended is not None, where
        assert (run.started_at, run.ended_at) == (seen.started_at, seen.ended.finished_at), where
    for attempt in {run.attempt for run in runs}:
        own = [one for one in every if one.uid == uids[attempt]]
        assert {(one.job_id, one.tool) for one in own} <= {(paid_by, name)}, where
        own.sort(key=lambda one: one.period)
        began = [run for run in runs if run.attempt == attempt and run.started_at is not None]
        assert [one.period for one in own] == list(range(len(own))), where
        assert [one.final for one in own] == [False] * (len(own) - 1) + [True] * bool(own), where
        total = sum((run.ended_at or 0.0) - (run.started_at or 0.0) for run in began)
        assert (own[-1].seconds if own else 0.0) == total, (where, own, began)


async def _nothing(world: World, labels: str) -> bool:
    kinds = (VCJOBS, PODS, NETWORK_POLICIES, LEASES)
    return not any([await world.kube.list(kind, labels=labels) for kind in kinds])


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
        # Not every point each time: which ones differs from run to run.
        pytest.param(tuple(SAMPLES), SAMPLES, id="some"),
        *(
            pytest.param((life,), {}, id=life, marks=LONG)
            for life in (*LIVES, "chain")
            if life != "never"
        ),
    ],
)
async def test_wherever_it_dies_the_job_is_run_once_and_ends_once(
    world: World, lives: tuple[str, ...], samples: Mapping[str, int]
) -> None:
    gate = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as tasks:
        for life in lives:
            tasks.create_task(die_everywhere(world, life, gate, samples.get(life)))


def chosen(points: Sequence[str], count: int | None) -> list[int]:
    """Return *count* of the points, mostly of those that change something; without it, all."""
    if count is None:
        # A few more: how many calls it takes depends on how often it had to look.
        return list(range(len(points) + 4))
    reads = [at for at, point in enumerate(points) if point.endswith((" read", " get"))]
    others = sorted(set(range(len(points))) - set(reads))
    return random.sample(reads, count // 3) + random.sample(others, count - count // 3)


async def die_everywhere(
    world: World, life: str, gate: asyncio.Semaphore, count: int | None
) -> None:
    """Have a job's controller die at each point of a life, or at *count* of them: each time one."""
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


async def test_an_end_waits_for_the_news_of_pods_that_ran(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_one("news", "asked")
    async with world.controller(Tripwire()) as parts:
        with monkeypatch.context() as behind:
            # VolcanoJobs are followed, and the watch of pods is late: for less than is waited for,
            # though a shell that has no trap yet takes all of its grace period.
            behind.setattr(actions, "NEWS_SECONDS", 3600.0)
            for of in ("of_job", "departed_of"):
                behind.setattr(world.informer.pods, of, lambda _job: ())
            await parts.submit(job)
            await parts.drive(job.id, lambda r: r.state == "RUNNING")
            await patiently(lambda: parts.commands.end(job.id))

            async def gone() -> bool:
                await parts.look(job.id, tools=False)
                return await _nothing(world, f"fumarole.dev/job={job.id}")

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
