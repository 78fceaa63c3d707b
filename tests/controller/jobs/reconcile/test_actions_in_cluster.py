"""Tests the reconciler's actions for a job on the embedded cluster."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import AsyncMock, patch

import pytest
import pytest_asyncio

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.cluster.prerequisites import Prerequisites
from controller.jobs.cluster.verdicts import NameTaken
from controller.jobs.pipeline.border import PluginFailed
from controller.jobs.pipeline.builder import Companion, JobBuilder
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.pipeline.plugin_models import CompanionKind
from controller.jobs.reconcile.adoption import StoreIdentity
from controller.jobs.spec.model import Job
from controller.kube.client import Kube
from controller.kube.errors import Conflict, Forbidden, Invalid, NotFound
from controller.kube.kinds import (
    COMMANDS,
    CONFIG_MAPS,
    LEASES,
    NAMESPACES,
    NETWORK_POLICIES,
    RESOURCE_QUOTAS,
    SECRETS,
    VCJOBS,
    Kind,
)
from controller.leader.discovery import CompanionRights
from controller.plugins import PLUGINS
from controller.store.database import Store
from controller.store.instance import ensure_position, raise_term, read_leadership
from controller.store.jobs.job_rows import find_job, insert_job
from controller.store.jobs.progress import CompanionRecord
from controller.volcano.names import INSTANCE_LABEL, JOB_LABEL
from controller.volcano.observed import ObservedJob, read_job
from deploy.local.cluster import EmbeddedCluster
from tests.controller.jobs.parts import Parts, make_parts
from tests.controller.running import eventually
from tests.controller.samples import (
    forget_jobs,
    make_context,
    make_job,
    make_pipeline,
    make_plugins,
    make_record,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

SPEC = {
    "minAvailable": 1,
    "queue": "default",
    "tasks": [
        {
            "name": "job",
            "replicas": 1,
            "template": {
                "spec": {"containers": [{"name": "job", "image": "busybox", "command": ["true"]}]}
            },
        }
    ],
}


class TwoAccounts:
    """The cluster through the controller's account, and through an administrator's."""

    def __init__(self, kube: Kube, admin: Kube) -> None:
        self.kube = kube
        self.admin = admin


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both() -> AsyncIterator[TwoAccounts]:
    async with (
        EmbeddedCluster() as cluster,
        Kube.connect(cluster.kubeconfig("controller")) as kube,
        Kube.connect(cluster.kubeconfig("admin")) as admin,
    ):
        prerequisites = Prerequisites(kube, instance="test", clock=time.monotonic)

        async def ready() -> bool:
            return await prerequisites.why_not_ready("jobs", "default") is None

        await eventually(ready)
        yield TwoAccounts(kube, admin)


@pytest.fixture
def instance(request: pytest.FixtureRequest) -> str:
    # Each test is a separate installation in the shared cluster.
    return f"t{abs(hash(request.node.name)) % 10**9}"


@pytest.fixture
def cluster(both: TwoAccounts, instance: str) -> JobObjects:
    return JobObjects(both.kube, instance=instance)


async def make_vcjob(admin: Kube, job_id: str, instance: str, **annotations: str) -> ObservedJob:
    labels = {INSTANCE_LABEL: instance, JOB_LABEL: job_id}
    metadata = {"name": f"j-{job_id}", "labels": labels, "annotations": annotations}
    return read_job(await admin.create(VCJOBS, {"metadata": metadata, "spec": SPEC}, "jobs"))


def secret(name: str, value: str = "b25l") -> Companion:
    manifest = {"type": "Opaque", "data": {"a": value}}
    return Companion(kind="Secret", name=name, manifest=manifest, when="before")


# Companions


async def test_a_companion_is_created_recreated_and_then_owned(
    both: TwoAccounts, cluster: JobObjects, instance: str
) -> None:
    owner = await make_vcjob(both.admin, "own", instance)
    one = secret("j-own.parameters")
    first = await cluster.companions.ensure("own", "jobs", one, owner=None)
    changed = secret(one.name, "dHdv")
    second = await cluster.companions.ensure("own", "jobs", changed, owner=owner)
    assert first.uid == second.uid
    assert (first.owner_uid, second.owner_uid) == (None, owner.uid)
    found = await both.admin.get(SECRETS, one.name, "jobs")
    assert found["data"] == {"a": "dHdv"}
    (reference,) = found["metadata"]["ownerReferences"]
    assert reference["uid"] == owner.uid
    assert "controller" not in reference
    await cluster.remove_volcano_job("jobs", owner.name, owner.uid)

    async def gone() -> bool:
        try:
            await both.admin.get(SECRETS, one.name, "jobs")
        except NotFound:
            return True
        return False

    await eventually(gone, what="the cluster did not remove what the VolcanoJob owned")


async def test_a_foreign_companion_is_not_touched(
    both: TwoAccounts, cluster: JobObjects, instance: str
) -> None:
    labels = {INSTANCE_LABEL: "another", JOB_LABEL: "x"}
    metadata = {"name": "j-x.parameters", "labels": labels}
    foreign = await both.admin.create(
        SECRETS, {"metadata": metadata, "data": {"a": "b25l"}}, "jobs"
    )
    with pytest.raises(NameTaken):
        await cluster.companions.ensure("x", "jobs", secret("j-x.parameters", "dHdv"), owner=None)
    intended = CompanionRecord(
        kind="Secret", namespace="jobs", name="j-x.parameters", uid="", owner_uid=None
    )
    await cluster.companions.remove("x", intended)
    kept = await both.admin.get(SECRETS, "j-x.parameters", "jobs")
    assert kept["metadata"]["resourceVersion"] == foreign["metadata"]["resourceVersion"]


@pytest.mark.parametrize("owner", ["another", ""], ids=["foreign", "ours"])
async def test_only_the_controllers_command_is_withdrawn(
    both: TwoAccounts, cluster: JobObjects, instance: str, owner: str
) -> None:
    labels = {INSTANCE_LABEL: owner or instance, JOB_LABEL: "wd"}
    name, target = "j-wd.command", {"kind": "Job", "name": "j-none"}
    # Volcano carries out a command by deleting it. This finalizer keeps the command.
    metadata = {"name": name, "labels": labels, "finalizers": ["example.com/held"]}
    body = {"metadata": metadata, "action": "AbortJob", "target": target}
    await both.admin.create(COMMANDS, body, "jobs")

    async def is_done() -> bool:
        found = await both.admin.get(COMMANDS, name, "jobs")
        return "deletionTimestamp" in found["metadata"]

    deleted = AsyncMock(wraps=both.kube.delete)
    with patch.object(both.kube, "delete", deleted):
        await cluster.withdraw_command("wd", "jobs")
        await cluster.withdraw_command("none", "jobs")
    assert deleted.await_count == (0 if owner else 1)
    await eventually(is_done)
    await both.admin.merge(COMMANDS, name, {"metadata": {"finalizers": None}}, "jobs")


async def test_a_job_is_stopped_although_a_foreign_command_has_its_name(
    both: TwoAccounts, cluster: JobObjects, instance: str
) -> None:
    job = await make_vcjob(both.admin, "taken", instance)
    metadata = {"name": "j-taken.command", "finalizers": ["example.com/held"]}
    target = {"kind": "Job", "name": "j-none"}
    body = {"metadata": metadata, "action": "AbortJob", "target": target}
    await both.admin.create(COMMANDS, body, "jobs")
    await cluster.command("taken", job, "AbortJob")

    async def is_stopped() -> bool:
        found = await both.admin.get(VCJOBS, job.name, "jobs")
        state = found.get("status", {}).get("state", {})  # the first status may come late
        return bool(state.get("phase") == "Aborted")

    await eventually(is_stopped)
    # A command that Volcano has not carried out is withdrawn under that name too.
    labels = {INSTANCE_LABEL: instance, JOB_LABEL: "taken"}
    second = {**body, "metadata": {**metadata, "name": "j-taken.command-2", "labels": labels}}
    await both.admin.create(COMMANDS, second, "jobs")
    deleted = AsyncMock(wraps=both.kube.delete)
    with patch.object(both.kube, "delete", deleted):
        await cluster.withdraw_command("taken", "jobs")
    assert [call.args[1] for call in deleted.await_args_list] == ["j-taken.command-2"]
    for name in ("j-taken.command", "j-taken.command-2"):
        await both.admin.merge(COMMANDS, name, {"metadata": {"finalizers": None}}, "jobs")


async def test_an_intended_companion_is_removed_if_it_was_created(
    both: TwoAccounts, cluster: JobObjects
) -> None:
    made = await cluster.companions.ensure("int", "jobs", secret("j-int.parameters"), owner=None)
    intended = CompanionRecord(
        kind="Secret", namespace="jobs", name=made.name, uid="", owner_uid=None
    )
    await cluster.companions.remove("int", intended)
    with pytest.raises(NotFound):
        await both.admin.get(SECRETS, made.name, "jobs")
    await cluster.companions.remove("int", intended)


async def test_an_object_with_another_uid_under_the_name_is_left_alone(
    both: TwoAccounts, cluster: JobObjects
) -> None:
    made = await cluster.companions.ensure("old", "jobs", secret("j-old.parameters"), owner=None)
    await both.admin.delete(SECRETS, made.name, "jobs")
    again = await cluster.companions.ensure("old", "jobs", secret(made.name), owner=None)
    await cluster.companions.remove("old", made)
    kept = await both.admin.get(SECRETS, made.name, "jobs")
    assert kept["metadata"]["uid"] == again.uid


async def test_a_changed_network_policy_is_restored(both: TwoAccounts, cluster: JobObjects) -> None:
    plan = await make_pipeline().plan(make_job(id="pol"))
    (policy,) = [one for one in plan.companions if one.kind == "NetworkPolicy"]
    await cluster.companions.ensure("pol", "jobs", policy, owner=None)
    await both.admin.merge(NETWORK_POLICIES, policy.name, {"spec": {"ingress": None}}, "jobs")
    await cluster.companions.ensure("pol", "jobs", policy, owner=None)
    found = await both.admin.get(NETWORK_POLICIES, policy.name, "jobs")
    assert found["spec"]["ingress"] == policy.manifest["spec"]["ingress"]


async def test_a_terminating_companion_does_not_count_as_existing(
    both: TwoAccounts, cluster: JobObjects
) -> None:
    made = await cluster.companions.ensure("going", "jobs", secret("j-going.a"), owner=None)
    # As an EndpointSlice blocks a Service whose owner was deleted in the foreground.
    held = {"metadata": {"finalizers": ["example.com/wait"]}}
    await both.admin.merge(SECRETS, made.name, held, "jobs")
    await both.admin.delete(SECRETS, made.name, "jobs")
    with pytest.raises(NotFound, match="of another attempt is still there"):
        await cluster.companions.ensure("going", "jobs", secret(made.name), owner=None)
    await both.admin.merge(SECRETS, made.name, {"metadata": {"finalizers": None}}, "jobs")
    again = await cluster.companions.ensure("going", "jobs", secret(made.name), owner=None)
    assert again.uid != made.uid


async def test_created_objects_are_found_in_a_full_quota(
    both: TwoAccounts, cluster: JobObjects
) -> None:
    # The API server checks the quota before it checks whether the name exists: 403, not 409.
    volcano = JobObjects(both.kube, instance="test")
    plan, other = [await make_pipeline().plan(make_job(id=one)) for one in ("full", "fuller")]
    job = await volcano.ensure_volcano_job(plan)
    made = await cluster.companions.ensure("full", "jobs", secret("j-full.a"), owner=None)
    spec = {"hard": {"count/jobs.batch.volcano.sh": "0", "count/secrets": "0"}}
    quota = {"metadata": {"name": "full"}, "spec": spec}
    await both.admin.create(RESOURCE_QUOTAS, quota, "jobs")
    try:
        assert (await volcano.ensure_volcano_job(plan)).uid == job.uid
        again = await cluster.companions.ensure("full", "jobs", secret(made.name), owner=None)
        assert again.uid == made.uid
        with pytest.raises(Forbidden, match="exceeded quota: full"):
            await volcano.ensure_volcano_job(other)
        with pytest.raises(Forbidden, match="exceeded quota: full"):
            await cluster.companions.ensure("full", "jobs", secret("j-full.b"), owner=None)
    finally:
        await both.admin.delete(RESOURCE_QUOTAS, "full", "jobs")


# The VolcanoJob


@pytest.mark.parametrize("left", [{}, {INSTANCE_LABEL: "another"}, {INSTANCE_LABEL: "test"}])
async def test_labels_changed_by_admission_are_restored_on_a_volcano_job(
    both: TwoAccounts, left: dict[str, str]
) -> None:
    # As a policy engine that allows listed labels only: the controller finds objects by label.
    create = both.kube.create

    async def admitted(kind: Kind, body: dict[str, Any], namespace: str) -> dict[str, Any]:
        return await create(
            kind, {**body, "metadata": {**body["metadata"], "labels": left}}, namespace
        )

    plan = await make_pipeline().plan(make_job(id="relabelled"))
    with patch.object(both.kube, "create", admitted), pytest.raises(NameTaken, match="labels"):
        await JobObjects(both.kube, instance="test").ensure_volcano_job(plan)

    async def is_gone() -> bool:
        try:
            await both.admin.get(VCJOBS, "j-relabelled", "jobs")
        except NotFound:
            return True
        return False

    await eventually(is_gone)


async def test_a_volcano_job_is_created_once(both: TwoAccounts, instance: str) -> None:
    cluster = JobObjects(both.kube, instance="test")
    plan = await make_pipeline().plan(make_job(id="once"))
    first = await cluster.ensure_volcano_job(plan)
    assert (await cluster.ensure_volcano_job(plan)).uid == first.uid
    other = JobObjects(both.kube, instance="another")
    with pytest.raises(NameTaken):
        await other.ensure_volcano_job(plan)
    assert await other.find_volcano_job("jobs", "j-once", "once") is None
    await cluster.remove_volcano_job("jobs", first.name, "of-another-one")
    found = await cluster.find_volcano_job("jobs", "j-once", "once")
    assert found is not None
    # Somebody may have given it to another instance meanwhile.
    assert not await other.remove_volcano_job("jobs", first.name, first.uid, shown=False)
    assert await other.remove_volcano_job("jobs", first.name, "of-another-one", shown=False)
    assert await cluster.find_volcano_job("jobs", "j-once", "once") is not None
    assert await cluster.remove_volcano_job("jobs", first.name, first.uid, shown=False)
    assert await cluster.find_volcano_job("jobs", "j-once", "once") is None
    await cluster.remove_volcano_job("jobs", first.name, first.uid)


async def test_recovery_data_is_found_only_for_its_own_volcano_job(
    both: TwoAccounts, cluster: JobObjects, instance: str
) -> None:
    job = await make_vcjob(both.admin, "start", instance)
    assert await cluster.find_recovery_data(job) == {}
    kept = Companion(
        kind="ConfigMap", name="j-start.recovery", manifest={"data": {"a": "1"}}, when="after"
    )
    await cluster.companions.ensure("start", "jobs", kept, owner=job)
    assert await cluster.find_recovery_data(job) == {"a": "1"}
    later = replace(job, uid="of a later attempt")
    assert await cluster.find_recovery_data(later) == {}


# Prerequisites


async def test_prerequisites_report_missing_objects_and_create_the_namespace(
    both: TwoAccounts,
) -> None:
    prerequisites = Prerequisites(both.kube, instance="test", clock=time.monotonic)
    assert "no queue" in (await prerequisites.why_not_ready("jobs", "missing") or "")
    first = await prerequisites.why_not_ready("new-ground", "default")
    assert first is None or "being prepared" in first

    async def ready() -> bool:
        return await prerequisites.why_not_ready("new-ground", "default") is None

    await eventually(ready)
    assert (await both.admin.get(NAMESPACES, "new-ground"))["status"]["phase"] == "Active"


# The store's identity, and objects that the store does not know


async def test_the_store_identity_is_replaced_only_if_unchanged(both: TwoAccounts) -> None:
    identity = StoreIdentity(both.kube, instance="idt", namespace="jobs")
    assert await identity.read() is None
    await identity.write("one", instead_of=None)
    assert await identity.read() == "one"
    with pytest.raises(Conflict):
        await identity.write("two", instead_of=None)
    with pytest.raises(Conflict):
        await identity.write("two", instead_of="three")
    await identity.write("two", instead_of="one")
    assert await identity.read() == "two"


@pytest_asyncio.fixture(loop_scope="module")
async def settled(
    both: TwoAccounts, instance: str, tmp_path: Path
) -> AsyncIterator[tuple[Parts, InformerCache]]:
    store = Store(f"sqlite:///{tmp_path}/store.db")
    await store.open()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity=os.urandom(4).hex())
        term = await raise_term(transaction)
    informer = InformerCache(both.kube, instance=instance, changed=lambda _job: None)
    watching = asyncio.create_task(informer.run())
    await informer.complete()
    yield make_parts(
        kube=both.kube, store=store, informer=informer, pipeline=make_pipeline(), term=term,
        instance=instance,
    ), informer  # fmt: skip
    watching.cancel()
    await asyncio.wait([watching])
    await store.close()


LEASE = CompanionKind(api_version="coordination.k8s.io/v1", kind="Lease", plural="leases")


def lease(name: str, **spec: Any) -> Companion:
    metadata = {"labels": {"team": "x", JOB_LABEL: "no"}, "annotations": {"a": "b"}}
    manifest = {"metadata": metadata, "spec": spec}
    return LEASE.complete(Companion(kind="Lease", name=name, manifest=manifest, when="before"))


async def test_a_companion_of_a_declared_kind_is_created_merged_owned_and_removed(
    both: TwoAccounts, cluster: JobObjects, instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await make_vcjob(both.admin, "lease", instance)
    name = "j-lease.plugin"
    first = await cluster.companions.ensure(
        "lease", "jobs", lease(name, holderIdentity="x"), owner=None
    )
    assert first.kind == "coordination.k8s.io/v1/leases"
    # Fields that another client filled in stay, as the API server's defaults do.
    await both.admin.merge(LEASES, name, {"spec": {"leaseTransitions": 3}}, "jobs")
    again = lease(name, holderIdentity="y")
    second = await cluster.companions.ensure("lease", "jobs", again, owner=owner)
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
        kept = await cluster.companions.ensure("lease", "jobs", third, owner=owner)
    assert kept.uid == first.uid
    assert (await both.admin.get(LEASES, name, "jobs"))["spec"] == found["spec"]
    await cluster.companions.remove("lease", replace(second, uid=""))
    with pytest.raises(NotFound):
        await both.admin.get(LEASES, name, "jobs")
    await cluster.companions.remove("lease", second)
    # A kind that the cluster no longer serves blocks nothing.
    gone = replace(second, kind="gone.example.com/v1/things")
    await JobObjects(both.admin, instance=instance).companions.remove("lease", gone)


async def test_a_foreign_object_of_a_declared_kind_is_not_touched(
    both: TwoAccounts, cluster: JobObjects
) -> None:
    metadata = {"name": "j-theirs.plugin", "labels": {INSTANCE_LABEL: "another", JOB_LABEL: "x"}}
    theirs = await both.admin.create(LEASES, {"metadata": metadata, "spec": {}}, "jobs")
    with pytest.raises(NameTaken, match="of somebody else is there"):
        await cluster.companions.ensure("theirs", "jobs", lease("j-theirs.plugin"), owner=None)
    record = CompanionRecord(kind=LEASE.key, namespace="jobs", name="j-theirs.plugin", uid="",
                             owner_uid=None)  # fmt: skip
    await cluster.companions.remove("theirs", record)
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


class ComesAndGoes(JobPlugin):
    """A plugin that delays the job at first, and then raises."""

    name: ClassVar[str] = "comes_and_goes"
    broken: ClassVar[bool] = False

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        if self.broken:
            raise ZeroDivisionError
        builder.wait_for("something")


async def test_companions_created_before_a_plugin_raised_are_removed_with_the_job(
    both: TwoAccounts,
    settled: tuple[Parts, InformerCache],
    instance: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts, informer = settled
    await parts.adoption.settle()
    async with parts.store.read() as transaction:
        term = (await read_leadership(transaction)).term
    plugins = make_plugins([*PLUGINS, ComesAndGoes], make_context())
    parts = make_parts(
        kube=both.kube, store=parts.store, informer=informer, term=term, instance=instance,
        pipeline=Pipeline(plugins, instance=instance, namespace="jobs"),
    )  # fmt: skip
    secret = {"token": {"type": "secret", "value": "x"}}
    await parts.submit(make_job(id="undo", parameters=secret))
    await parts.drive("undo", lambda record: record.message == "waiting for something")
    assert await both.admin.get(SECRETS, "j-undo.parameters", "jobs")
    monkeypatch.setattr(ComesAndGoes, "broken", True)
    with pytest.raises(PluginFailed, match="comes_and_goes"):
        await parts.reconciler.reconcile("undo")
    record = await parts.record("undo")
    told = "the plugin comes_and_goes failed in on_create"
    assert (record.state, record.reason, record.message) == ("IN_QUEUE", "plugin", told)
    await parts.commands.end("undo")
    await parts.drive_to_the_end("undo")
    for kind, name in ((SECRETS, "j-undo.parameters"), (NETWORK_POLICIES, "j-undo.network"),
                       (VCJOBS, "j-undo")):  # fmt: skip
        with pytest.raises(NotFound):
            await both.admin.get(kind, name, "jobs")


def spec_of(job_id: str, **fields: Any) -> str:
    return json.dumps({"id": job_id, "owner": {"user": "ada"}, "image": "busybox"} | fields)


async def until_seen(informer: InformerCache, job_id: str) -> None:
    async def look() -> bool:
        return informer.job("jobs", job_id) is not None

    await eventually(look)


@pytest.mark.parametrize("count", [5, pytest.param(50, marks=pytest.mark.long)])
async def test_an_empty_store_beside_running_jobs_adopts_them_all(
    both: TwoAccounts, settled: tuple[Parts, InformerCache], instance: str, count: int
) -> None:
    parts, informer = settled
    made = [
        await make_vcjob(
            both.admin, f"ad{count}-{number}", instance,
            **{"fumarole.dev/spec": spec_of(f"ad{count}-{number}", labels={"n": str(number)}),
               "fumarole.dev/attempt": "2", "fumarole.dev/created": "12.5",
               "fumarole.dev/first-start": "13.5"},
        )
        for number in range(count)
    ]  # fmt: skip
    for job in made:
        await until_seen(informer, job.job_id)
    assert parts.adoption.problems
    await parts.adoption.settle()
    assert parts.adoption.problems == ()
    for number, job in enumerate(made):
        record = await parts.record(job.job_id)
        assert (record.uid, record.attempt, record.created_at) == (job.uid, 2, 12.5)
        assert record.started_at == 13.5
        assert record.spec["labels"] == {"n": str(number)}
        kept = await both.admin.get(VCJOBS, job.name, "jobs")
        assert "deletionTimestamp" not in kept["metadata"]


async def test_an_unadoptable_job_blocks_all_other_actions(
    both: TwoAccounts, settled: tuple[Parts, InformerCache], instance: str
) -> None:
    parts, informer = settled
    await make_vcjob(both.admin, "odd", instance, **{"fumarole.dev/spec": spec_of("other")})
    await until_seen(informer, "odd")
    settling = asyncio.create_task(parts.adoption.settle())

    async def told() -> bool:
        return any("j-odd cannot be adopted" in problem for problem in parts.adoption.problems)

    await eventually(told)
    assert not settling.done()
    settling.cancel()
    kept = await both.admin.get(VCJOBS, "j-odd", "jobs")
    assert "deletionTimestamp" not in kept["metadata"]


async def test_an_unknown_volcano_job_is_adopted_and_one_with_tombstone_removed(
    both: TwoAccounts, settled: tuple[Parts, InformerCache], instance: str
) -> None:
    parts, informer = settled
    await parts.adoption.settle()
    planted = await make_vcjob(
        both.admin, "plant", instance, **{"fumarole.dev/spec": spec_of("plant")}
    )
    over = await make_vcjob(both.admin, "over", instance)
    async with parts.store.write() as transaction:
        record = make_record(id="over", uid=over.uid, state="SUCCESS", finished_at=1.0)
        await insert_job(transaction, record, labels={})
        await forget_jobs(transaction, finished_before=2.0, limit=9)
    for job_id in ("plant", "over"):
        await until_seen(informer, job_id)
        await parts.reconciler.reconcile(job_id)
    assert (await parts.record("plant")).uid == planted.uid
    with pytest.raises(NotFound):
        await both.admin.get(VCJOBS, "j-over", "jobs")


async def test_a_volcano_job_without_annotations_is_left_alone(
    both: TwoAccounts, settled: tuple[Parts, InformerCache], instance: str
) -> None:
    parts, informer = settled
    await parts.adoption.settle()
    await make_vcjob(both.admin, "mute", instance)
    await until_seen(informer, "mute")
    await parts.reconciler.reconcile("mute")
    async with parts.store.read() as transaction:
        assert await find_job(transaction, "mute") is None
    kept = await both.admin.get(VCJOBS, "j-mute", "jobs")
    assert "deletionTimestamp" not in kept["metadata"]


async def test_a_foreign_store_adopts_all_jobs_first(
    both: TwoAccounts, settled: tuple[Parts, InformerCache], instance: str
) -> None:
    parts, informer = settled
    identity = StoreIdentity(both.kube, instance=instance, namespace="jobs")
    await identity.write("of the store before", instead_of=None)
    async with parts.store.write() as transaction:
        await insert_job(transaction, make_record(id="known"), labels={})
    await make_vcjob(both.admin, "left", instance, **{"fumarole.dev/spec": spec_of("left")})
    await until_seen(informer, "left")
    await parts.adoption.settle()
    assert (await parts.record("left")).reason == "adopted"
    assert await identity.read() != "of the store before"
    name = f"fumarole-{instance}.store"
    found = await both.admin.get(CONFIG_MAPS, name, "jobs")
    assert found["metadata"]["labels"] == {INSTANCE_LABEL: instance}
