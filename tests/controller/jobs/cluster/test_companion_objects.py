"""Tests companions of jobs on the embedded cluster, also those of kinds that a plugin declares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.cluster.verdicts import NameTaken
from controller.jobs.pipeline.builder import Companion
from controller.jobs.pipeline.plugin_models import CompanionKind
from controller.kube.errors import Forbidden, Invalid, NotFound
from controller.kube.kinds import LEASES, NETWORK_POLICIES, RESOURCE_QUOTAS, SECRETS, Kind
from controller.leader.discovery import CompanionRights
from controller.store.jobs.progress import CompanionRecord
from controller.volcano.names import INSTANCE_LABEL, JOB_LABEL
from tests.controller.jobs.two_accounts import TwoAccounts, make_vcjob, secret
from tests.controller.running import eventually
from tests.controller.samples import make_job, make_pipeline

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]


async def test_a_companion_is_created_recreated_and_then_owned(
    both: TwoAccounts, objects: JobObjects, instance: str
) -> None:
    owner = await make_vcjob(both.admin, "own", instance)
    one = secret("j-own.parameters")
    first = await objects.companions.ensure("own", "jobs", one, owner=None)
    changed = secret(one.name, "dHdv")
    second = await objects.companions.ensure("own", "jobs", changed, owner=owner)
    assert first.uid == second.uid
    assert (first.owner_uid, second.owner_uid) == (None, owner.uid)
    found = await both.admin.get(SECRETS, one.name, "jobs")
    assert found["data"] == {"a": "dHdv"}
    (reference,) = found["metadata"]["ownerReferences"]
    assert reference["uid"] == owner.uid
    assert "controller" not in reference
    await objects.remove_volcano_job("jobs", owner.name, owner.uid)

    async def gone() -> bool:
        try:
            await both.admin.get(SECRETS, one.name, "jobs")
        except NotFound:
            return True
        return False

    await eventually(gone, what="the cluster did not remove what the VolcanoJob owned")


async def test_a_foreign_companion_is_not_touched(
    both: TwoAccounts, objects: JobObjects, instance: str
) -> None:
    labels = {INSTANCE_LABEL: "another", JOB_LABEL: "x"}
    metadata = {"name": "j-x.parameters", "labels": labels}
    foreign = await both.admin.create(
        SECRETS, {"metadata": metadata, "data": {"a": "b25l"}}, "jobs"
    )
    with pytest.raises(NameTaken):
        await objects.companions.ensure("x", "jobs", secret("j-x.parameters", "dHdv"), owner=None)
    intended = CompanionRecord(
        kind="Secret", namespace="jobs", name="j-x.parameters", uid="", owner_uid=None
    )
    await objects.companions.remove("x", intended)
    kept = await both.admin.get(SECRETS, "j-x.parameters", "jobs")
    assert kept["metadata"]["resourceVersion"] == foreign["metadata"]["resourceVersion"]


async def test_an_intended_companion_is_removed_if_it_was_created(
    both: TwoAccounts, objects: JobObjects
) -> None:
    made = await objects.companions.ensure("int", "jobs", secret("j-int.parameters"), owner=None)
    intended = CompanionRecord(
        kind="Secret", namespace="jobs", name=made.name, uid="", owner_uid=None
    )
    await objects.companions.remove("int", intended)
    with pytest.raises(NotFound):
        await both.admin.get(SECRETS, made.name, "jobs")
    await objects.companions.remove("int", intended)


async def test_an_object_with_another_uid_under_the_name_is_left_alone(
    both: TwoAccounts, objects: JobObjects
) -> None:
    made = await objects.companions.ensure("old", "jobs", secret("j-old.parameters"), owner=None)
    await both.admin.delete(SECRETS, made.name, "jobs")
    again = await objects.companions.ensure("old", "jobs", secret(made.name), owner=None)
    await objects.companions.remove("old", made)
    kept = await both.admin.get(SECRETS, made.name, "jobs")
    assert kept["metadata"]["uid"] == again.uid


async def test_a_changed_network_policy_is_restored(both: TwoAccounts, objects: JobObjects) -> None:
    plan = await make_pipeline().plan(make_job(id="pol"))
    (policy,) = [one for one in plan.companions if one.kind == "NetworkPolicy"]
    await objects.companions.ensure("pol", "jobs", policy, owner=None)
    await both.admin.merge(NETWORK_POLICIES, policy.name, {"spec": {"ingress": None}}, "jobs")
    await objects.companions.ensure("pol", "jobs", policy, owner=None)
    found = await both.admin.get(NETWORK_POLICIES, policy.name, "jobs")
    assert found["spec"]["ingress"] == policy.manifest["spec"]["ingress"]


async def test_a_terminating_companion_does_not_count_as_existing(
    both: TwoAccounts, objects: JobObjects
) -> None:
    made = await objects.companions.ensure("going", "jobs", secret("j-going.a"), owner=None)
    # As an EndpointSlice blocks a Service whose owner was deleted in the foreground.
    held = {"metadata": {"finalizers": ["example.com/wait"]}}
    await both.admin.merge(SECRETS, made.name, held, "jobs")
    await both.admin.delete(SECRETS, made.name, "jobs")
    with pytest.raises(NotFound, match="of another attempt is still there"):
        await objects.companions.ensure("going", "jobs", secret(made.name), owner=None)
    await both.admin.merge(SECRETS, made.name, {"metadata": {"finalizers": None}}, "jobs")
    again = await objects.companions.ensure("going", "jobs", secret(made.name), owner=None)
    assert again.uid != made.uid


async def test_created_objects_are_found_in_a_full_quota(
    both: TwoAccounts, objects: JobObjects
) -> None:
    # The API server checks the quota before it checks whether the name exists: 403, not 409.
    volcano = JobObjects(both.kube, instance="test")
    plan, other = [await make_pipeline().plan(make_job(id=one)) for one in ("full", "fuller")]
    job = await volcano.ensure_volcano_job(plan)
    made = await objects.companions.ensure("full", "jobs", secret("j-full.a"), owner=None)
    spec = {"hard": {"count/jobs.batch.volcano.sh": "0", "count/secrets": "0"}}
    quota = {"metadata": {"name": "full"}, "spec": spec}
    await both.admin.create(RESOURCE_QUOTAS, quota, "jobs")
    try:
        assert (await volcano.ensure_volcano_job(plan)).uid == job.uid
        again = await objects.companions.ensure("full", "jobs", secret(made.name), owner=None)
        assert again.uid == made.uid
        with pytest.raises(Forbidden, match="exceeded quota: full"):
            await volcano.ensure_volcano_job(other)
        with pytest.raises(Forbidden, match="exceeded quota: full"):
            await objects.companions.ensure("full", "jobs", secret("j-full.b"), owner=None)
    finally:
        await both.admin.delete(RESOURCE_QUOTAS, "full", "jobs")


# Kinds that a plugin declares


LEASE = CompanionKind(api_version="coordination.k8s.io/v1", kind="Lease", plural="leases")


def lease(name: str, **spec: Any) -> Companion:
    metadata = {"labels": {"team": "x", JOB_LABEL: "no"}, "annotations": {"a": "b"}}
    manifest = {"metadata": metadata, "spec": spec}
    return LEASE.complete(Companion(kind="Lease", name=name, manifest=manifest, when="before"))


async def test_a_companion_of_a_declared_kind_is_created_merged_owned_and_removed(
    both: TwoAccounts, objects: JobObjects, instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await make_vcjob(both.admin, "lease", instance)
    name = "j-lease.plugin"
    first = await objects.companions.ensure(
        "lease", "jobs", lease(name, holderIdentity="x"), owner=None
    )
    assert first.kind == "coordination.k8s.io/v1/leases"
    # Fields that another client filled in stay, as the API server's defaults do.
    await both.admin.merge(LEASES, name, {"spec": {"leaseTransitions": 3}}, "jobs")
    again = lease(name, holderIdentity="y")
    second = await objects.companions.ensure("lease", "jobs", again, owner=owner)
    found = await both.admin.get(LEASES, name, "jobs")
    assert (first.uid, second.owner_uid) == (second.uid, owner.uid)
    assert found["spec"] == {"holderIdentity": "y", "leaseTransitions": 3}
    assert found["metadata"]["labels"] == {
        "team": "x", JOB_LABEL: "lease", INSTANCE_LABEL: instance,
    }  # fmt: skip
    assert found["metadata"]["annotations"] == {"a": "b"}
    assert [one["uid"] for one in found["metadata"]["ownerReferences"]] == [owner.uid]
    real = both.kube.merge

    async def immutable(kind: Kind, name: str, patch: Any, namespace: str | None = None) -> Any:
        if "spec" in patch:
            raise Invalid("spec: Invalid value: field is immutable", status=422)
        return await real(kind, name, patch, namespace)

    with monkeypatch.context() as patching:
        patching.setattr(both.kube, "merge", immutable)
        third = lease(name, holderIdentity="z")
        kept = await objects.companions.ensure("lease", "jobs", third, owner=owner)
    assert kept.uid == first.uid
    assert (await both.admin.get(LEASES, name, "jobs"))["spec"] == found["spec"]
    await objects.companions.remove("lease", replace(second, uid=""))
    with pytest.raises(NotFound):
        await both.admin.get(LEASES, name, "jobs")
    await objects.companions.remove("lease", second)
    # A kind that the cluster no longer serves blocks nothing.
    gone = replace(second, kind="gone.example.com/v1/things")
    await JobObjects(both.admin, instance=instance).companions.remove("lease", gone)


async def test_a_foreign_object_of_a_declared_kind_is_not_touched(
    both: TwoAccounts, objects: JobObjects
) -> None:
    metadata = {"name": "j-theirs.plugin", "labels": {INSTANCE_LABEL: "another", JOB_LABEL: "x"}}
    theirs = await both.admin.create(LEASES, {"metadata": metadata, "spec": {}}, "jobs")
    with pytest.raises(NameTaken, match="of somebody else is there"):
        await objects.companions.ensure("theirs", "jobs", lease("j-theirs.plugin"), owner=None)
    record = CompanionRecord(kind=LEASE.key, namespace="jobs", name="j-theirs.plugin", uid="",
                             owner_uid=None)  # fmt: skip
    await objects.companions.remove("theirs", record)
    assert await both.admin.get(LEASES, "j-theirs.plugin", "jobs") == theirs


async def test_rights_needed_by_plugins_are_checked_before_a_job_waits(both: TwoAccounts) -> None:
    def kind(api_version: str, name: str, plural: str) -> CompanionKind:
        return CompanionKind(api_version=api_version, kind=name, plural=plural)

    kinds = {
        LEASE: "one",
        kind("rbac.authorization.k8s.io/v1", "Role", "roles"): "two",
        kind("policy/v1", "Nothing", "nothings"): "three",
        kind("coordination.k8s.io/v1", "Lese", "leases"): "four",
        kind("v1", "Namespace", "namespaces"): "five",
    }
    rights = CompanionRights(both.kube, kinds, namespace=lambda: "jobs")
    await rights.look()
    what = "roles of rbac.authorization.k8s.io/v1"
    assert rights.problems == [
        f"the plugin two needs permission to list {what} in the whole cluster",
        *(
            f"the plugin two needs permission to {verb} {what} in the namespace jobs"
            for verb in ("create", "get", "patch", "delete")
        ),
        "the plugin three makes nothings of policy/v1, which the cluster does not serve",
        "the plugin four makes leases of coordination.k8s.io/v1 as Lese, not as Lease",
        "the plugin five makes namespaces of v1, which are not namespaced",
    ]
