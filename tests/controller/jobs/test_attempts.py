"""Attempts that follow one another, in the embedded cluster: evicted, suspended, deleted."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from controller.jobs.picture import Picture
from controller.kube.client import Kube, Objects
from controller.kube.kinds import COMMANDS, CONFIG_MAPS, NETWORK_POLICIES, PODS, SERVICES, VCJOBS
from controller.store.database import Store
from controller.store.jobs import JobRecord
from controller.store.leadership import raise_term
from controller.store.maintenance import set_maintenance
from controller.store.position import ensure_position
from controller.store.progress import attempts_of
from controller.store.runs import runs_of
from controller.store.updates import updates_of
from deploy.local.cluster import EmbeddedCluster
from tests.controller.jobs.parts import Parts, make_parts
from tests.controller.running import eventually
from tests.controller.samples import make_context, make_defaults, make_job, make_pipeline

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

INSTANCE = "attempts"
SLEEPS = {"command": ["sh", "-c", "trap 'exit 0' TERM; sleep 60 & wait"]}
LABELLED = (VCJOBS, PODS, NETWORK_POLICIES, CONFIG_MAPS, SERVICES, COMMANDS)


@dataclass
class World:
    """A controller over a cluster, and an administrator of it."""

    parts: Parts
    admin: Kube
    folder: Path
    assemble: Callable[[Store, int], Parts]

    def back_up(self) -> str:
        """Copy the store as it is now; return the copy's URL."""
        copy = self.folder / "backup.db"
        with (
            closing(sqlite3.connect(self.folder / "store.db")) as one,
            closing(sqlite3.connect(copy)) as other,
        ):
            one.backup(other)
        return f"sqlite:///{copy}"

    async def submit(self, job_id: str, **fields: Any) -> None:
        values = {"resources": {"cpu": 0.01, "memory": "16Mi"}, "invocation": SLEEPS} | fields
        await self.parts.submit(make_job(id=job_id, **values))

    async def until(self, job_id: str, state: str, attempt: int = 1) -> JobRecord:
        wanted = (state, attempt)
        return await self.parts.drive(
            job_id, lambda r: (r.state, r.attempt) == wanted and self.has_started(r)
        )

    @staticmethod
    def has_started(record: JobRecord) -> bool:
        return record.state != "RUNNING" or record.started_at is not None

    async def end(self, job_id: str) -> JobRecord:
        await self.parts.wishes.end(job_id)
        return await self.parts.drive_to_the_end(job_id)

    async def evict(self, job_id: str, index: int = 0) -> None:
        """Do to a pod what a kubelet does that runs out of something."""
        name = f"j-{job_id}-job-{index}"
        status = {"phase": "Failed", "reason": "Evicted", "message": "the node was low on disk"}
        await self.admin.merge(PODS, name, {"status": status}, "jobs", subresource="status")

    async def nothing_is_left(self, job_id: str) -> bool:
        labels = f"fumarole.dev/job={job_id}"
        return not any([await self.admin.list(kind, labels=labels) for kind in LABELLED])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder: Path = tmp_path_factory.mktemp("attempts")
    store = Store(f"sqlite:///{folder}/store.db")
    await store.open()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity=os.urandom(4).hex())
        term = await raise_term(transaction)
    async with (
        EmbeddedCluster() as cluster,
        Kube.connect(cluster.kubeconfig("controller")) as kube,
        Kube.connect(cluster.kubeconfig("admin")) as admin,
    ):
        picture = Picture(kube, instance=INSTANCE, changed=lambda _job: None)
        watching = asyncio.create_task(picture.run())
        await picture.complete()
        defaults = make_defaults(FUMAROLE_CONTROLLER_RETENTION_SECONDS="3")
        pipeline = make_pipeline(make_context(defaults=defaults), instance=INSTANCE)

        def assemble(store: Store, term: int) -> Parts:
            return make_parts(
                kube=kube, store=store, picture=picture, pipeline=pipeline, term=term,
                instance=INSTANCE, evictions_allowed=1,
            )  # fmt: skip

        yield World(assemble(store, term), admin, folder, assemble)
        watching.cancel()
        await asyncio.wait([watching])
    await store.close()


async def test_an_evicted_job_is_submitted_again_and_loses_no_retry(world: World) -> None:
    await world.submit("evicted", policies=[{"event": "PodPending", "action": "AbortJob",
                                             "timeout_seconds": 600}])  # fmt: skip
    first = await world.until("evicted", "RUNNING")
    await world.evict("evicted")
    again = await world.until("evicted", "RUNNING", attempt=2)
    assert (again.evictions, again.retries_used) == (1, 0)
    assert again.started_at == first.started_at
    # More often than is allowed it is not.
    await world.evict("evicted")
    record = await world.parts.drive_to_the_end("evicted")
    assert (record.state, record.reason) == ("FAILURE", "evicted")
    async with world.parts.store.read() as transaction:
        attempts = await attempts_of(transaction, "evicted")
        runs = await runs_of(transaction, "evicted")
        told = [(one.state, one.reason) for one in await updates_of(transaction, "evicted")]
    assert all(one != other for one, other in pairwise(told)), "nothing is told twice"
    assert told.count(("IN_QUEUE", "evicted")) == 1
    assert [(one.outcome, one.reason) for one in attempts] == [
        ("EVICTED", "evicted"), ("FAILURE", "evicted"),
    ]  # fmt: skip
    assert [(run.attempt, run.reason) for run in runs] == [(1, "Evicted"), (2, "Evicted")]
    assert all(run.ended_at is not None for run in runs)


async def test_a_job_whose_pod_is_drained_goes_on_with_another_pod(world: World) -> None:
    await world.submit("drained")
    record = await world.until("drained", "RUNNING")
    path = PODS.path("jobs", "j-drained-job-0", "eviction")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "j-drained-job-0"}}
    await world.admin._call("POST", path, body=body)

    async def told() -> bool:
        await world.parts.reconciler.reconcile("drained")
        async with world.parts.store.read() as transaction:
            runs = await runs_of(transaction, "drained")
        ended = [run.reason for run in runs if run.ended_at is not None]
        return len(runs) == 2 and ended == ["EvictionByEvictionAPI"]

    await eventually(told, seconds=60, what="the pod was not made again")
    after = await world.until("drained", "RUNNING")
    # Volcano makes it again by itself, and counts no retry.
    assert (after.uid, after.attempt, after.retries_used) == (record.uid, 1, 0)
    await world.end("drained")


async def test_a_store_that_is_restored_from_before_an_attempt_goes_on_with_it(
    world: World,
) -> None:
    await world.submit("restored")
    before = await world.until("restored", "RUNNING")
    backup = world.back_up()
    await world.evict("restored")
    await world.until("restored", "RUNNING", attempt=2)
    (runs,) = await world.admin.list(VCJOBS, labels="fumarole.dev/job=restored")
    store = Store(backup)
    await store.open()
    async with store.write() as transaction:
        parts = world.assemble(store, await raise_term(transaction))
    assert (await parts.record("restored")).attempt == 1
    record = await parts.drive("restored", lambda r: (r.attempt, r.state) == (2, "RUNNING"))
    assert record.uid == runs["metadata"]["uid"]
    assert record.started_at == before.started_at
    async with store.read() as transaction:
        attempts = await attempts_of(transaction, "restored")
        assert all(one.ended_at for one in await runs_of(transaction, "restored", 1))
    assert [(one.attempt, one.outcome) for one in attempts] == [(1, "LOST"), (2, None)]
    (kept,) = await world.admin.list(VCJOBS, labels="fumarole.dev/job=restored")
    assert kept["metadata"]["uid"] == runs["metadata"]["uid"]
    assert "deletionTimestamp" not in kept["metadata"]
    await parts.wishes.end("restored")
    assert (await parts.drive_to_the_end("restored")).state == "SUCCESS"
    await store.close()
    await eventually(lambda: world.nothing_is_left("restored"), what="something is left")


async def test_a_suspended_job_is_kept_without_pods_and_goes_on_as_another_attempt(
    world: World,
) -> None:
    await world.submit("paused", max_retry=2,
                       policies=[{"event": "PodFailed", "action": "RestartJob"}])  # fmt: skip
    await world.until("paused", "RUNNING")
    (before,) = await world.admin.list(VCJOBS, labels="fumarole.dev/job=paused")
    await world.parts.wishes.suspend("paused")
    await world.until("paused", "SUSPENDED")
    assert await world.admin.list(PODS, labels="fumarole.dev/job=paused") == []
    (kept,) = await world.admin.list(VCJOBS, labels="fumarole.dev/job=paused")
    assert kept["status"]["state"]["phase"] == "Aborted"
    await world.parts.wishes.resume("paused")
    record = await world.until("paused", "RUNNING", attempt=2)
    assert (record.retries_used, record.evictions) == (0, 0)
    (after,) = await world.admin.list(VCJOBS, labels="fumarole.dev/job=paused")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    # Nothing of its retries was used up.
    assert after["spec"]["maxRetry"] == before["spec"]["maxRetry"] == 3
    await world.end("paused")
    await eventually(lambda: world.nothing_is_left("paused"), what="something is left")


async def test_a_job_is_suspended_before_it_was_submitted_and_ended_while_it_is(
    world: World,
) -> None:
    await world.submit("early")
    await world.parts.wishes.suspend("early")
    await world.until("early", "SUSPENDED")
    assert await world.admin.list(VCJOBS, labels="fumarole.dev/job=early") == []
    await world.parts.wishes.resume("early")
    await world.until("early", "RUNNING")
    await world.parts.wishes.suspend("early")
    await world.until("early", "SUSPENDED")
    record = await world.end("early")
    assert (record.state, record.attempt) == ("SUCCESS", 1)
    # Volcano never removes an aborted one: we do.
    await eventually(lambda: world.nothing_is_left("early"), what="something is left")


async def test_one_that_somebody_aborts_has_failed_and_is_removed(world: World) -> None:
    await world.submit("aborted")
    await world.until("aborted", "RUNNING")
    (job,) = await world.admin.list(VCJOBS, labels="fumarole.dev/job=aborted")
    metadata = job["metadata"]
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": metadata["name"],
              "uid": metadata["uid"]}  # fmt: skip
    command = {"metadata": {"name": "by-hand"}, "action": "AbortJob", "target": target}
    await world.admin.create(COMMANDS, command, "jobs")
    record = await world.parts.drive_to_the_end("aborted")
    assert (record.state, record.reason) == ("FAILURE", "stopped")
    await eventually(lambda: world.nothing_is_left("aborted"), what="something is left")


async def test_one_that_is_deleted_by_hand_has_failed_and_leaves_nothing(world: World) -> None:
    await world.submit("deleted")
    await world.until("deleted", "RUNNING")
    await world.admin.delete(VCJOBS, "j-deleted", "jobs")
    record = await world.parts.drive_to_the_end("deleted")
    assert (record.state, record.reason) in {("FAILURE", "deleted"), ("FAILURE", "lost")}
    async with world.parts.store.read() as transaction:
        runs = await runs_of(transaction, "deleted")
    assert all(run.ended_at is not None for run in runs)
    await eventually(lambda: world.nothing_is_left("deleted"), what="something is left")


async def test_while_submission_is_paused_jobs_wait_and_say_so(world: World) -> None:
    async with world.parts.store.write() as transaction:
        await set_maintenance(transaction, "paused", "the disks are being changed", now=1.0)
    await world.submit("held")
    record = await world.parts.drive("held", lambda r: r.reason == "paused")
    assert record.message == "the disks are being changed"
    assert await world.admin.list(VCJOBS, labels="fumarole.dev/job=held") == []
    async with world.parts.store.write() as transaction:
        await set_maintenance(transaction, "running", None, now=2.0)
    await world.until("held", "RUNNING")
    await world.end("held")


async def test_a_job_that_is_over_leaves_nothing_after_its_retention(world: World) -> None:
    for job in ("short", "unseen"):
        await world.submit(job, invocation={"command": ["true"]})
    await world.parts.drive("unseen", lambda r: r.uid is not None)
    record = await world.parts.drive_to_the_end("short")
    assert record.state == "SUCCESS"
    await eventually(lambda: world.nothing_is_left("short"), seconds=40, what="something is left")
    # Whoever looks only now sees that it had come to its end before Volcano removed it.
    labels = "fumarole.dev/job=unseen"
    await eventually(lambda: gone(world.admin.list(VCJOBS, labels=labels)), seconds=40)
    record = await world.parts.drive_to_the_end("unseen")
    assert (record.state, record.reason) == ("SUCCESS", "completed")


async def gone(found: Awaitable[Objects]) -> bool:
    return not await found
