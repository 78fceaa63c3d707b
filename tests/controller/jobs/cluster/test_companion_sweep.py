"""Tests the sweep of orphaned objects, with the rights of the manifests and no others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from controller.jobs.cluster import companion_sweep as module
from controller.jobs.cluster.companion_sweep import GRACE_SECONDS, CompanionSweep
from controller.jobs.cluster.informer import InformerCache
from controller.jobs.cluster.job_objects import JobObjects
from controller.kube import decoding
from controller.kube.client import Kube
from controller.kube.errors import NotFound
from controller.kube.kinds import CONFIG_MAPS, NAMESPACES, ROLE_BINDINGS, SERVICES, VCJOBS, Kind
from controller.store.database import Store
from controller.store.jobs.job_rows import insert_job
from controller.volcano.names import INSTANCE_LABEL, JOB_LABEL
from deploy.local.cluster import EmbeddedCluster
from tests.clock import Clock
from tests.controller.new_stores import leading_store
from tests.controller.running import eventually
from tests.controller.samples import make_record
from tests.deploy.kubernetes.manifests import PLURALS, apply_rights, read

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

INSTANCE = "swept"
FAILED: list[Exception] = []
PLACE, FOREIGN = "ours", "theirs"
CONTAINER = {"name": "job", "image": "busybox", "command": ["sleep", "60"]}
TEMPLATE = {"spec": {"containers": [CONTAINER]}}


@dataclass
class World:
    """The controller's account, an administrator, and the controller's view of the cluster."""

    kube: Kube
    admin: Kube
    informer: InformerCache

    async def plant(self, job: str, *, place: str = PLACE, instance: str = INSTANCE) -> None:
        labels = {INSTANCE_LABEL: instance, JOB_LABEL: job}
        body = {"metadata": {"name": f"j-{job}.planted", "labels": labels}}
        await self.admin.create(CONFIG_MAPS, body, place)

    async def is_there(self, job: str, *, place: str = PLACE) -> bool:
        try:
            await self.admin.get(CONFIG_MAPS, f"j-{job}.planted", place)
        except NotFound:
            return False
        return True


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with (
        EmbeddedCluster() as cluster,
        Kube.connect(cluster.kubeconfig("admin")) as admin,
        Kube.connect(cluster.kubeconfig("account-controller")) as kube,
    ):
        await apply_rights(admin)
        for name in (PLACE, FOREIGN):
            await admin.create(NAMESPACES, {"metadata": {"name": name}})
        # The account has an owner's rights in one namespace, and none in the other.
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
        account = {"kind": "ServiceAccount", "name": "fumarole-controller"}
        binding = {
            "metadata": {"name": "jobs"},
            "roleRef": {**reference, "name": "fumarole-jobs"},
            "subjects": [{**account, "namespace": "fumarole-system"}],
        }
        await admin.create(ROLE_BINDINGS, binding, PLACE)
        informer = InformerCache(kube, instance=INSTANCE, changed=lambda _job: None)
        watching = asyncio.create_task(informer.run())
        await informer.complete()
        yield World(kube, admin, informer)
        watching.cancel()
        await asyncio.wait([watching])


@pytest_asyncio.fixture(loop_scope="module")
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with leading_store(tmp_path) as (one, _):
        yield one


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def orphans(world: World, store: Store, clock: Clock) -> CompanionSweep:
    return CompanionSweep(
        store.fenced(1),
        kube=world.kube,
        cluster=JobObjects(world.kube, instance=INSTANCE),
        informer=world.informer,
        instance=INSTANCE,
        clock=clock,
        enqueue=lambda _job: None,
        failed=FAILED.append,
    )


async def test_only_orphans_are_removed_after_a_grace_period(
    world: World, store: Store, clock: Clock, orphans: CompanionSweep
) -> None:
    async with store.write() as transaction:
        await insert_job(transaction, make_record(id="waits"), labels={})
        over = make_record(id="over", state="SUCCESS", finished_at=1.0)
        await insert_job(transaction, over, labels={})
    labels = {INSTANCE_LABEL: INSTANCE, JOB_LABEL: "alive"}
    spec = {"minAvailable": 1, "tasks": [{"name": "job", "replicas": 1, "template": TEMPLATE}]}
    alive: dict[str, Any] = {"metadata": {"name": "j-alive", "labels": labels}, "spec": spec}
    await world.admin.create(VCJOBS, alive, PLACE)

    async def seen() -> bool:
        return world.informer.job(PLACE, "alive") is not None

    await eventually(seen)
    for job in ("nobody", "over", "waits", "alive"):
        await world.plant(job)
    await world.plant("anothers", instance="another")
    assert (await orphans.sweep()).removed == 0
    clock.now += GRACE_SECONDS - 1
    assert (await orphans.sweep()).removed == 0
    clock.now += 1
    assert (await orphans.sweep()).removed == 2
    kept = [job for job in ("nobody", "over", "waits", "alive", "anothers")
            if await world.is_there(job)]  # fmt: skip
    assert kept == ["waits", "alive", "anothers"]
    # An object that is created anew gets a new grace period.
    await world.plant("nobody")
    assert (await orphans.sweep()).removed == 0
    for job in ("nobody", "waits", "alive", "anothers"):
        await world.admin.delete(CONFIG_MAPS, f"j-{job}.planted", PLACE)


async def test_an_unreadable_object_does_not_stop_the_sweep(
    world: World, orphans: CompanionSweep, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module._suspect

    def read(kind: Kind, given: Any) -> Any:
        if given["metadata"]["labels"][JOB_LABEL] == "odd":
            raise KeyError("uid")
        return real(kind, given)

    monkeypatch.setattr(module, "_suspect", read)
    FAILED.clear()
    for job in ("odd", "even"):
        await world.plant(job)
    for _ in range(2):
        await orphans.sweep()
        clock.now += GRACE_SECONDS
    assert await world.is_there("odd")
    assert not await world.is_there("even")
    assert [type(one) for one in FAILED] == [KeyError, KeyError]
    monkeypatch.undo()
    for _ in range(2):
        await orphans.sweep()
        clock.now += GRACE_SECONDS
    assert not await world.is_there("odd")


async def test_a_forbidden_kind_does_not_stop_the_sweep(
    world: World, clock: Clock, orphans: CompanionSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "FIRST_LIMIT", 2)
    monkeypatch.setattr(decoding, "MOST_LIMIT", 2)
    monkeypatch.setattr(decoding, "LEAST_LIMIT", 2)
    (role,) = (one for one in read("base/rbac-cluster.yaml") if one["kind"] == "ClusterRole")
    less = [rule for rule in role["rules"] if SERVICES.plural not in rule["resources"]]
    less.append({"apiGroups": [""], "resources": [CONFIG_MAPS.plural], "verbs": ["list"]})
    kind = PLURALS["ClusterRole"]
    await world.admin.merge(kind, role["metadata"]["name"], {"rules": less})
    jobs = [f"left-{number}" for number in range(5)]
    for job in jobs:
        await world.plant(job)
    await world.plant("left-0", place=FOREIGN)
    assert (await orphans.sweep()).removed == 0
    clock.now += GRACE_SECONDS
    assert (await orphans.sweep()).removed == len(jobs)
    assert [job for job in jobs if await world.is_there(job)] == []
    assert await world.is_there("left-0", place=FOREIGN)
