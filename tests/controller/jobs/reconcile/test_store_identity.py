"""Tests whether the store belongs to this cluster: comparing, adopting, removing, recording."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.reconcile import adoption as module
from controller.jobs.reconcile.adoption import Adoption
from controller.kube.client import Kube
from controller.kube.errors import AlreadyExists, Invalid, KubeError, NotFound, Unavailable
from controller.store import tables
from controller.store.database import Store
from controller.store.instance import raise_term
from controller.store.jobs.job_rows import JobRecord, find_job, insert_job
from controller.store.jobs.progress import attempts_of, companions_of
from controller.store.jobs.relations import callers_of
from controller.store.jobs.tombstones import delete_job_records
from controller.store.jobs.tools import tools_of
from controller.volcano.names import volcano_job_name
from controller.volcano.observed import ObservedJob
from tests.clock import Clock
from tests.controller.jobs.reconcile.test_adoption import RUN, make_tools_job
from tests.controller.samples import UID, make_defaults, make_observed, make_pod, make_record

SPEC = {"id": "j1", "owner": {"user": "ada"}, "image": "busybox"}


class Cluster:
    """A fake cluster with one ConfigMap and no job objects; records removed VolcanoJobs."""

    def __init__(self, identity: str | None = None) -> None:
        self.identity = identity
        self.has_namespace = True
        self.fails: list[KubeError] = []
        self.made: list[dict[str, Any]] = []
        self.removed: list[tuple[str, str, str]] = []
        self.kept: dict[str, str] = {}

    def _fail(self) -> None:
        if self.fails:
            raise self.fails.pop(0)

    async def get(self, kind: Any, name: str, namespace: str = "") -> dict[str, Any]:
        if kind.kind == "Namespace":
            assert name == "jobs"
            if not self.has_namespace:
                raise NotFound("no Namespace")
            return {}
        assert (kind.kind, name, namespace) == ("ConfigMap", "fumarole-test.store", "jobs")
        self._fail()
        if self.identity is None:
            raise NotFound("no ConfigMap")
        return {"data": {"identity": self.identity}} if self.identity else {}

    async def create(self, kind: Any, body: dict[str, Any], namespace: str = "") -> None:
        if kind.kind == "Namespace":
            self.has_namespace = True
            return
        assert (kind.kind, namespace, self.has_namespace) == ("ConfigMap", "jobs", True)
        self._fail()
        self.made.append(body)
        self.identity = body["data"]["identity"]

    async def json_patch(
        self, kind: Any, name: str, operations: list[dict[str, Any]], namespace: str
    ) -> None:
        assert (kind.kind, name, namespace) == ("ConfigMap", "fumarole-test.store", "jobs")
        self._fail()
        test, replace = operations
        assert (test["op"], test["path"]) == ("test", "/data/identity")
        assert (replace["op"], replace["path"]) == ("replace", "/data/identity")
        if test["value"] != self.identity:
            raise Invalid("the test failed")
        self.identity = replace["value"]

    async def find_recovery_data(self, job: ObservedJob) -> Mapping[str, Any]:
        return self.kept

    async def remove_volcano_job(self, namespace: str, name: str, uid: str) -> bool:
        self.removed.append((namespace, name, uid))
        return True


@dataclass
class World:
    """A store named *test*, a cluster, and the adoption that compares them."""

    store: Store
    clock: Clock
    adoption: Adoption
    informer: InformerCache
    cluster: Cluster

    def show(self, *jobs: ObservedJob) -> None:
        for job in jobs:
            self.informer.jobs.put(job)

    def problems(self) -> Sequence[str]:
        return self.adoption.problems

    async def record(self, job_id: str = "j1") -> JobRecord | None:
        async with self.store.read() as transaction:
            return await find_job(transaction, job_id)


@pytest.fixture
async def world(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> World:
    cluster = Cluster()
    informer = InformerCache(cast(Kube, cluster), instance="test", changed=lambda _job: None)
    async with store.write() as transaction:
        term = await raise_term(transaction)
    one = Adoption(
        store=store.fenced(term), kube=cast(Kube, cluster), informer=informer,
        cluster=cast(JobObjects, cluster), instance="test", namespace="jobs",
        defaults=make_defaults(), clock=clock,
    )  # fmt: skip
    return World(store, clock, one, informer, cluster)


def accepted(job_id: str = "j1", *, uid: str = UID, phase: str = "Running", **said: Any) -> Any:
    """Return the VolcanoJob of a job that was accepted with the fields *said*."""
    annotations = {"fumarole.dev/spec": json.dumps(SPEC | {"id": job_id} | said)}
    return make_observed(
        phase, job_id=job_id, name=volcano_job_name(job_id), uid=uid, annotations=annotations
    )


def with_id(job_id: object) -> ObservedJob:
    """Return a VolcanoJob of a later version, whose spec has this id."""
    said = json.dumps(SPEC | {"id": job_id, "colour": "red"})
    return make_observed(annotations={"fumarole.dev/spec": said})


async def test_a_new_store_records_its_identity_in_a_new_cluster(world: World) -> None:
    assert world.problems() == ("store and cluster have not been compared yet",)
    assert not world.adoption.settled.is_set()
    await world.adoption.settle()
    assert not world.problems()
    assert world.adoption.settled.is_set()
    (made,) = world.cluster.made
    assert made["data"] == {"identity": "test"}
    labels = {"fumarole.dev/instance": "test"}
    assert made["metadata"] == {"name": "fumarole-test.store", "labels": labels}


async def test_the_namespace_is_created_for_the_first_store(world: World) -> None:
    world.cluster.has_namespace = False
    await world.adoption.settle()
    assert world.cluster.identity == "test"


async def test_a_known_store_identity_is_not_written_again(world: World) -> None:
    world.cluster.identity = "test"
    async with world.store.write() as transaction:
        await insert_job(transaction, make_record(id="other"), labels={})
    world.show(accepted())
    await world.adoption.settle()
    assert (world.cluster.made, await world.record()) == ([], None)


@pytest.mark.parametrize("identity", ["another", "test", None])
async def test_a_store_without_the_clusters_jobs_adopts_them(
    world: World, identity: str | None
) -> None:
    world.cluster.identity = identity
    world.show(accepted(), accepted("j2", uid="two"))
    await world.adoption.settle()
    assert world.cluster.identity == "test"
    assert {name for name in ("j1", "j2") if await world.record(name)} == {"j1", "j2"}


async def test_the_store_of_another_cluster_adopts_unknown_jobs(world: World) -> None:
    world.cluster.identity = "another"
    async with world.store.write() as transaction:
        await insert_job(transaction, make_record(message="known"), labels={})
    world.show(accepted(), accepted("j2", uid="two"))
    await world.adoption.settle()
    one, two = await world.record(), await world.record("j2")
    assert one is not None
    assert two is not None
    assert (one.message, two.reason) == ("known", "adopted")


async def test_no_action_is_taken_while_a_job_cannot_be_adopted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    world.cluster.identity = "another"
    strange = make_observed(annotations={})
    world.show(strange, accepted("j2", uid="two"))
    settling = asyncio.create_task(world.adoption.settle())
    why = "jobs/j-j1 cannot be adopted: it does not say what was accepted"
    async with asyncio.timeout(20):
        while world.problems() != (why,):
            await asyncio.sleep(0)
    assert await world.record("j2") is not None
    assert not world.adoption.settled.is_set()
    assert world.cluster.identity == "another"
    # An operator removes the VolcanoJob.
    world.informer.jobs.drop(strange)
    async with asyncio.timeout(20):
        await settling
    assert not world.problems()
    assert world.cluster.identity == "test"


async def test_an_unresponsive_cluster_is_retried(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    world.cluster.fails = [Unavailable("away") for _ in range(3)]
    settling = asyncio.create_task(world.adoption.settle())
    async with asyncio.timeout(20):
        while len(world.cluster.fails) == 3:
            await asyncio.sleep(0)
        while world.problems() != ("away",):
            await asyncio.sleep(0)
        await settling
    assert not world.problems()
    assert world.cluster.identity == "test"


async def test_an_unresponsive_cluster_is_retried_with_a_pause(world: World) -> None:
    world.cluster.fails = [Unavailable("away") for _ in range(9)]
    settling = asyncio.create_task(world.adoption.settle())
    async with asyncio.timeout(20):
        while tuple(world.problems()) != ("away",):
            await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    assert len(world.cluster.fails) == 8
    settling.cancel()
    await asyncio.wait([settling])


@pytest.mark.parametrize(
    ("identity", "error"), [(None, AlreadyExists("there")), ("another", Invalid("not so"))]
)
async def test_a_concurrently_changed_identity_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch, identity: str | None, error: KubeError
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    world.cluster.identity = identity
    checked = asyncio.Event()
    writes = world.cluster.create if identity is None else world.cluster.json_patch
    calls = 0

    async def refused(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise error
        await checked.wait()
        await writes(*arguments)

    name = "create" if identity is None else "json_patch"
    monkeypatch.setattr(world.cluster, name, refused)
    settling = asyncio.create_task(world.adoption.settle())
    async with asyncio.timeout(20):
        while world.problems() != ("the identity of the store was changed meanwhile",):
            await asyncio.sleep(0)
        checked.set()
        await settling
    assert (calls, world.cluster.identity) == (2, "test")


async def test_a_config_map_without_identity_counts_as_unset(world: World) -> None:
    world.cluster.identity = ""
    identity = module.StoreIdentity(cast(Kube, world.cluster), instance="test", namespace="jobs")
    assert await identity.read() is None


# One job


async def test_a_volcano_job_with_a_tombstone_is_removed(world: World) -> None:
    async with world.store.write() as transaction:
        await insert_job(transaction, make_record(uid=UID, state="SUCCESS"), labels={})
        await delete_job_records(transaction, ["j1"], at=1.0)
    world.show(accepted())
    await world.adoption.look_at("j1")
    assert (world.cluster.removed, await world.record()) == ([("jobs", "j-j1", UID)], None)
    # The tombstone covers that VolcanoJob only.
    world.show(accepted(uid="another"))
    await world.adoption.look_at("j1")
    assert (len(world.cluster.removed), await world.record() is None) == (1, False)


async def test_an_unknown_volcano_job_is_adopted_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    said: dict[str, Any] = {
        "owner": {"user": "ada", "project": "p"}, "labels": {"a": "b"}, "replicas": 2,
        "resources": {"cpu": 2, "memory": "1Gi"}, "time_allocation_seconds": 90,
        "parameters": {
            "other": {"type": "peer", "job": "j7", "hostname": "other", "ports": [80]},
        },
    }  # fmt: skip
    job = accepted(**said)
    world.show(job)
    world.informer.pods.put(make_pod(started_at=7.0))
    await world.adoption.look_at("j1")
    record = await world.record()
    assert record is not None
    assert (record.owner_user, record.owner_project, record.namespace) == ("ada", "p", "jobs")
    assert (record.desired, record.state, record.stopping) == ("run", "IN_QUEUE", False)
    message = "found in the cluster, not in the store"
    assert (record.reason, record.message) == ("adopted", message)
    assert (record.attempt, record.uid, record.created_at) == (1, UID, 1.0)
    assert (record.started_at, record.allocated_seconds) == (7.0, 90)
    assert (record.cpu, record.memory) == (4.0, 2.0 * (1 << 30))
    assert (record.tools, record.tool) == (0, None)
    async with world.store.read() as transaction:
        (attempt,) = await attempts_of(transaction, "j1")
        assert (attempt.attempt, attempt.uid) == (1, UID)
        assert attempt.submitted_at == world.clock.now
        (caller,) = await callers_of(transaction, "j7")
        assert caller.job_id == "j1"
        labels = (await transaction.execute(sa.select(tables.job_labels))).all()
        assert [(one.job_id, one.name, one.value) for one in labels] == [("j1", "a", "b")]
    await world.adoption.look_at("j1")
    assert await world.record() == record
    assert [one.message for one in caplog.records].count("adopted") == 1


@pytest.mark.parametrize(
    ("phase", "suspended"), [("Aborting", True), ("Aborted", True), ("Completed", False)]
)
async def test_an_adopted_aborted_job_is_suspended(
    world: World, phase: str, suspended: bool
) -> None:
    world.show(accepted(phase=phase))
    await world.adoption.look_at("j1")
    record = await world.record()
    assert record is not None
    assert (record.desired == "suspended", record.stopping) == (suspended, suspended)


async def test_the_history_annotated_on_a_volcano_job_is_used(world: World) -> None:
    job = accepted()
    said = {
        "created": "5.5", "attempt": "3", "retries-used": "2", "evictions": "1",
        "first-start": "6.5",
    }  # fmt: skip
    more = {f"fumarole.dev/{name}": value for name, value in said.items()}
    world.show(make_observed(annotations=job.annotations | more))
    world.cluster.kept = {"allocated-seconds": "70.5"}
    await world.adoption.look_at("j1")
    record = await world.record()
    assert record is not None
    assert (record.created_at, record.attempt, record.started_at) == (5.5, 3, 6.5)
    assert (record.retries_used, record.evictions) == (2, 1)
    assert record.allocated_seconds == 70.5


async def test_a_job_without_known_secrets_expects_no_service(world: World) -> None:
    world.show(accepted(parameters={"key": {"type": "secret"}}))
    await world.adoption.look_at("j1")
    assert await world.record() is not None
    async with world.store.read() as transaction:
        assert await companions_of(transaction, "j1") == []


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (make_observed(annotations={}), "it does not say what was accepted"),
        (accepted(colour="red", owner="ada"), "what it says was accepted is not valid: "),
        (accepted(colour="red", owner={"user": 7}), "what it says was accepted is not valid: "),
        (with_id(7), "what it says was accepted is not valid: "),
        (
            make_observed(annotations=accepted("j2").annotations),
            "it says to be another job than its name does",
        ),
        (
            make_observed(name="j-j2", annotations=accepted().annotations),
            "it says to be another job than its name does",
        ),
    ],
)  # fmt: skip
async def test_an_unidentified_volcano_job_is_left_alone(
    world: World, caplog: pytest.LogCaptureFixture, job: ObservedJob, why: str
) -> None:
    world.show(job)
    await world.adoption.look_at("j1")
    assert (await world.record(), world.cluster.removed) == (None, [])
    (warned,) = [one for one in caplog.records if "cannot be adopted" in one.message]
    assert getattr(warned, "why", "").startswith(why)


async def test_a_job_of_a_later_version_keeps_owner_and_project(world: World) -> None:
    world.show(accepted(colour="red", owner={"user": "ada", "project": "p"}))
    await world.adoption.look_at("j1")
    record = await world.record()
    assert record is not None
    assert (record.owner_user, record.owner_project) == ("ada", "p")


async def test_the_job_of_a_tool_is_adopted_before_the_tool(world: World) -> None:
    world.show(make_tools_job(), accepted(uid="vcjob-1"))
    await world.adoption.look_at(RUN)
    job, run = await world.record(), await world.record(RUN)
    assert job is not None
    assert run is not None
    assert job.tools == 1


async def test_declared_tools_of_an_adopted_job_are_attached(world: World, tmp_path: Path) -> None:
    declared = {"board": {"image": "board:1", "port": 6006, "resources": {"cpu": 0.5}}}
    (tmp_path / "tools.json").write_text(json.dumps({"tools": declared}))
    file = str(tmp_path / "tools.json")
    world.adoption.defaults = make_defaults(FUMAROLE_CONTROLLER_TOOLS_FILE=file)
    world.show(accepted(tools=["board", "no-more"]))
    await world.adoption.look_at("j1")
    record = await world.record()
    assert record is not None
    async with world.store.read() as transaction:
        (tool,) = await tools_of(transaction, "j1")
    assert record.tools == 1
    assert (tool.name, tool.rank, tool.run, tool.asked_at) == ("board", 0, None, world.clock.now)
    assert (tool.spec["image"], tool.charged["cpu"]) == ("board:1", 0.5)
