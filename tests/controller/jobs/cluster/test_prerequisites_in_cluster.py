"""Tests the prerequisites of a job (namespace, queue, claims) on the embedded cluster."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from controller.jobs.cluster.prerequisites import (
    DOUBTED_SECONDS,
    GOOD_FOR_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MADE_FOR_SECONDS,
    RIGHTS_SECONDS,
    Prerequisites,
)
from controller.jobs.cluster.verdicts import NameTaken
from controller.jobs.pipeline.pipeline import Plan
from controller.kube.client import Kube
from controller.kube.errors import Forbidden, NotFound
from controller.kube.kinds import (
    NAMESPACES,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    QUEUES,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    SECRETS,
)
from controller.kube.transport import Transport
from controller.site.owner_shares import RoleGrant
from controller.volcano.names import INSTANCE_LABEL
from deploy.local.cluster import EmbeddedCluster
from tests.clock import Clock
from tests.controller.plugins.test_fair_share import file, plan_of
from tests.controller.running import eventually

__all__ = ["file"]  # a fixture
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]


@pytest_asyncio.fixture(loop_scope="module")
async def kube(cluster: EmbeddedCluster) -> AsyncIterator[Kube]:
    async with Kube.connect(cluster.kubeconfig("controller")) as kube:
        yield kube


async def stand(prerequisites: Prerequisites, plan: Plan, clock: Clock) -> None:
    """Wait until the job's prerequisites exist, so that it could be submitted."""
    place = plan.volcano_job.namespace, plan.volcano_job.queue

    async def ready() -> bool:
        clock.now += prerequisites.retry_in(*place)
        return await prerequisites.why_not_ready(*place, plan.shared) is None

    await eventually(ready)


async def test_an_owners_prerequisites_are_created_and_recreated(
    kube: Kube, admin: Kube, clock: Clock, file: object
) -> None:
    plan = await plan_of(
        owner={"user": "ada"},
        FUMAROLE_CONTROLLER_OWNERS_FILE=str(file),
        FUMAROLE_CONTROLLER_ROLE_GRANTS="fumarole-jobs=system/controller",
    )
    name = plan.volcano_job.namespace
    prerequisites = Prerequisites(kube, instance="test", clock=clock)
    first = await prerequisites.why_not_ready(name, name, plan.shared)
    assert first is None or name in first
    await stand(prerequisites, plan, clock)
    namespace = await admin.get(NAMESPACES, name)
    assert namespace["metadata"]["labels"]["fumarole.dev/instance"] == "test"
    assert (await admin.get(QUEUES, name))["spec"]["weight"] == 3
    assert await admin.get(ROLE_BINDINGS, "fumarole.fumarole-jobs", name)
    assert await admin.get(RESOURCE_QUOTAS, "fumarole", name)
    assert await admin.get(SECRETS, "site", name)
    assert await admin.get(PERSISTENT_VOLUME_CLAIMS, "home", name)
    policy = "fumarole.default-deny"
    await admin.delete(NETWORK_POLICIES, policy, name)
    clock.now += MADE_FOR_SECONDS + GOOD_FOR_SECONDS
    await stand(prerequisites, plan, clock)
    assert await admin.get(NETWORK_POLICIES, policy, name)


async def test_a_removed_role_binding_is_recreated_after_a_refusal(
    kube: Kube, admin: Kube, clock: Clock, file: object
) -> None:
    plan = await plan_of(
        owner={"user": "bob"},
        FUMAROLE_CONTROLLER_OWNERS_FILE=str(file),
        FUMAROLE_CONTROLLER_ROLE_GRANTS="fumarole-jobs=system/controller",
    )
    name, grant = plan.volcano_job.namespace, "fumarole.fumarole-jobs"
    prerequisites = Prerequisites(kube, instance="test", clock=clock)
    await stand(prerequisites, plan, clock)
    await admin.delete(ROLE_BINDINGS, grant, name)
    prerequisites.expire(plan.shared)
    await stand(prerequisites, plan, clock)
    with pytest.raises(NotFound):  # created just now: not every refused job may recreate everything
        await admin.get(ROLE_BINDINGS, grant, name)
    clock.now += DOUBTED_SECONDS + GOOD_FOR_SECONDS
    await stand(prerequisites, plan, clock)
    with pytest.raises(NotFound):
        await admin.get(ROLE_BINDINGS, grant, name)
    prerequisites.expire(plan.shared)
    await stand(prerequisites, plan, clock)
    assert await admin.get(ROLE_BINDINGS, grant, name)


async def test_a_weakened_policy_is_restored_and_create_only_objects_are_kept(
    kube: Kube, admin: Kube, clock: Clock, file: object
) -> None:
    plan = await plan_of(owner={"user": "eve"}, FUMAROLE_CONTROLLER_OWNERS_FILE=str(file))
    name = plan.volcano_job.namespace
    await stand(Prerequisites(kube, instance="test", clock=clock), plan, clock)
    opened = {"spec": {"ingress": [{}], "policyTypes": ["Ingress"]}}
    await admin.merge(NETWORK_POLICIES, "fumarole.default-deny", opened, name)
    await admin.merge(QUEUES, name, {"spec": {"weight": 9}})
    await stand(Prerequisites(kube, instance="test", clock=clock), plan, clock)
    found = await admin.get(NETWORK_POLICIES, "fumarole.default-deny", name)
    assert found["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert (await admin.get(QUEUES, name))["spec"]["weight"] == 9


async def test_a_foreign_namespace_is_never_used(kube: Kube, admin: Kube, clock: Clock) -> None:
    plan = await plan_of(owner={"user": "mallory"})
    name = plan.volcano_job.namespace
    made = await admin.create(NAMESPACES, {"metadata": {"name": name}})
    with pytest.raises(NameTaken, match=name):
        await Prerequisites(kube, instance="test", clock=clock).why_not_ready(
            name, name, plan.shared
        )
    found = await admin.get(NAMESPACES, name)
    assert "labels" not in made["metadata"] or "fumarole.dev/instance" not in str(found)
    with pytest.raises(NotFound):
        await admin.get(NETWORK_POLICIES, "fumarole.default-deny", name)


async def test_two_owners_with_colliding_names_do_not_share_a_namespace(
    kube: Kube, admin: Kube, clock: Clock
) -> None:
    plan = await plan_of(owner={"user": "first"})
    name = plan.volcano_job.namespace
    await stand(Prerequisites(kube, instance="test", clock=clock), plan, clock)
    other = [
        replace(one, annotations={"fumarole.dev/owner": '{"user":"second"}'})
        for one in plan.shared
        if one.kind == "Namespace"
    ]
    with pytest.raises(NameTaken):
        await Prerequisites(kube, instance="test", clock=clock).why_not_ready(name, name, other)


async def test_existing_prerequisites_are_cached_for_a_while(
    kube: Kube, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = await plan_of(owner={"user": "busy"})
    prerequisites = Prerequisites(kube, instance="test", clock=clock)
    await stand(prerequisites, plan, clock)

    async def fail(*_: object, **__: object) -> None:
        raise AssertionError("the cluster was asked")

    monkeypatch.setattr(Transport, "call", fail)
    place = plan.volcano_job.namespace, plan.volcano_job.queue
    assert await prerequisites.why_not_ready(*place, plan.shared) is None


async def test_a_missing_prerequisite_is_polled_once_for_all_jobs_with_backoff(
    kube: Kube, admin: Kube, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = await plan_of(owner={"user": "closed"})
    place = plan.volcano_job.namespace, plan.volcano_job.queue
    prerequisites = Prerequisites(kube, instance="test", clock=clock)
    await stand(prerequisites, plan, clock)
    await admin.merge(QUEUES, place[1], {"status": {"state": "Closed"}}, subresource="status")
    clock.now += GOOD_FOR_SECONDS + 1
    asked = 0
    real = Kube.get

    async def get(self: Kube, *given: Any) -> Any:
        nonlocal asked
        asked += 1
        return await real(self, *given)

    monkeypatch.setattr(Kube, "get", get)
    began = clock.now
    while clock.now < began + 60:  # a hundred jobs check twice a second
        for _ in range(100):
            assert "is not open" in (await prerequisites.why_not_ready(*place, plan.shared) or "")
        clock.now += 0.5
    # The namespace, its ServiceAccount and the queue are read after 0.4 s, 0.8 s, … 15 s.
    assert asked <= 3 * 9
    await admin.merge(QUEUES, place[1], {"status": {"state": "Open"}}, subresource="status")
    clock.now += LONGEST_PAUSE_SECONDS
    assert await prerequisites.why_not_ready(*place, plan.shared) is None


async def test_a_removed_queue_is_recreated(kube: Kube, admin: Kube, clock: Clock) -> None:
    plan = await plan_of(owner={"user": "no queue"})
    name = plan.volcano_job.namespace
    prerequisites = Prerequisites(kube, instance="test", clock=clock)
    await stand(prerequisites, plan, clock)
    await admin.delete(QUEUES, name)
    clock.now += GOOD_FOR_SECONDS + 1
    assert await prerequisites.why_not_ready(name, name, plan.shared) == f"there is no queue {name}"
    await stand(prerequisites, plan, clock)
    assert await admin.get(QUEUES, name)


async def test_a_removed_namespace_is_recreated_with_its_objects(
    kube: Kube, admin: Kube, clock: Clock
) -> None:
    plan = await plan_of(owner={"user": "removed"})
    name = plan.volcano_job.namespace
    prerequisites = Prerequisites(kube, instance="test", clock=clock)
    await stand(prerequisites, plan, clock)
    await admin.delete(NAMESPACES, name)

    async def gone() -> bool:
        try:
            await admin.get(NAMESPACES, name)
        except NotFound:
            return True
        return False

    await eventually(gone)
    await admin.delete(QUEUES, name)
    clock.now += GOOD_FOR_SECONDS + 1
    assert await prerequisites.why_not_ready(name, name, plan.shared) is not None
    await stand(prerequisites, plan, clock)
    found = await admin.get(NAMESPACES, name)
    assert found["metadata"]["annotations"]["fumarole.dev/owner"] == '{"user":"removed"}'
    assert await admin.get(NETWORK_POLICIES, "fumarole.default-deny", name)


async def test_existing_objects_are_found_in_a_full_quota(
    kube: Kube, admin: Kube, clock: Clock, file: object
) -> None:
    # The API server checks the quota before it checks whether the name exists: 403, not 409.
    plan = await plan_of(
        owner={"user": "full"},
        FUMAROLE_CONTROLLER_OWNERS_FILE=str(file),
    )
    name = plan.volcano_job.namespace
    prerequisites = Prerequisites(kube, instance="test", clock=clock)
    await stand(prerequisites, plan, clock)
    kinds = (
        *("networkpolicies.networking.k8s.io", "secrets", "resourcequotas"),
        "persistentvolumeclaims",
    )
    hard = {f"count/{kind}": "0" for kind in kinds}
    await admin.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}}, name)
    clock.now += MADE_FOR_SECONDS + GOOD_FOR_SECONDS
    await stand(prerequisites, plan, clock)
    await admin.delete(NETWORK_POLICIES, "fumarole.default-deny", name)
    clock.now += MADE_FOR_SECONDS + GOOD_FOR_SECONDS
    with pytest.raises(Forbidden, match="exceeded quota: q"):
        await prerequisites.why_not_ready(name, name, plan.shared)


async def test_a_terminating_claim_is_awaited_and_recreated(
    kube: Kube, admin: Kube, clock: Clock, file: object
) -> None:
    plan = await plan_of(owner={"user": "anew"}, FUMAROLE_CONTROLLER_OWNERS_FILE=str(file))
    name = plan.volcano_job.namespace
    prerequisites = Prerequisites(kube, instance="test", clock=clock)
    await stand(prerequisites, plan, clock)
    # Stands for the finalizer that Kubernetes keeps while a pod uses the claim.
    held = {"metadata": {"finalizers": ["example.com/in-use"]}}
    before = await admin.merge(PERSISTENT_VOLUME_CLAIMS, "home", held, name)
    await admin.delete(PERSISTENT_VOLUME_CLAIMS, "home", name)
    clock.now += MADE_FOR_SECONDS + GOOD_FOR_SECONDS
    said = "the PersistentVolumeClaim home is being removed"
    assert await prerequisites.why_not_ready(name, name, plan.shared) == said
    # A pod may use the claim for days: all jobs that wait for it share one read.
    assert prerequisites.retry_in(name, name) > 0
    await admin.merge(PERSISTENT_VOLUME_CLAIMS, "home", {"metadata": {"finalizers": None}}, name)
    await stand(prerequisites, plan, clock)
    after = await admin.get(PERSISTENT_VOLUME_CLAIMS, "home", name)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


async def test_prerequisites_report_missing_objects_and_create_the_namespace(
    kube: Kube, admin: Kube
) -> None:
    prerequisites = Prerequisites(kube, instance="test", clock=time.monotonic)

    async def is_ready(namespace: str) -> bool:
        return await prerequisites.why_not_ready(namespace, "default") is None

    await eventually(lambda: is_ready("jobs"))
    assert "no queue" in (await prerequisites.why_not_ready("jobs", "missing") or "")
    first = await prerequisites.why_not_ready("new-ground", "default")
    assert first is None or "being prepared" in first
    await eventually(lambda: is_ready("new-ground"))
    assert (await admin.get(NAMESPACES, "new-ground"))["status"]["phase"] == "Active"


async def test_role_bindings_are_restored_once_a_minute_in_our_namespaces_only(
    kube: Kube, admin: Kube, clock: Clock
) -> None:
    grant = RoleGrant(role="fumarole-jobs", namespace="system", account="controller")
    prerequisites = Prerequisites(kube, instance="test", clock=clock, grants=[grant])
    for name, instance in (("bound", "test"), ("of-others", "other")):
        metadata = {"name": name, "labels": {INSTANCE_LABEL: instance}}
        await admin.create(NAMESPACES, {"metadata": metadata})
    for name in ("bound", "of-others", "no-such-namespace"):
        await prerequisites.restore_rights(name)
    found = await admin.get(ROLE_BINDINGS, "fumarole.fumarole-jobs", "bound")
    assert found["roleRef"]["name"] == "fumarole-jobs"
    assert not await admin.list(ROLE_BINDINGS, "of-others")
    await admin.delete(ROLE_BINDINGS, "fumarole.fumarole-jobs", "bound")
    await prerequisites.restore_rights("bound")
    assert not await admin.list(ROLE_BINDINGS, "bound")
    clock.now += RIGHTS_SECONDS
    await prerequisites.restore_rights("bound")
    assert await admin.list(ROLE_BINDINGS, "bound")


async def test_a_missing_role_of_a_binding_is_logged(
    kube: Kube,
    admin: Kube,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    metadata = {"name": "unbound", "labels": {INSTANCE_LABEL: "test"}}
    await admin.create(NAMESPACES, {"metadata": metadata})

    async def create(*_: object, **__: object) -> None:
        raise NotFound('clusterroles.rbac.authorization.k8s.io "fumarole-jobs" not found')

    monkeypatch.setattr(Kube, "create", create)
    grant = RoleGrant(role="fumarole-jobs", namespace="system", account="controller")
    prerequisites = Prerequisites(kube, instance="test", clock=clock, grants=[grant])
    await prerequisites.restore_rights("unbound")
    assert "role bindings cannot be restored" in caplog.text
