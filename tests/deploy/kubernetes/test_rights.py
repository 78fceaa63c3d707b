"""Tests controller and hub with exactly the manifests' rights, on the embedded cluster.

The server judges by its stored roles and bindings, and records every request. So the tests see a
missing right by a refusal, and an unused right by its absence in the record.
"""

from __future__ import annotations

import ast
import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.pipeline.builder import Companion
from controller.kube import kinds
from controller.kube.client import Kube
from controller.kube.errors import Forbidden
from controller.kube.exec import ExecFailed, ExecTarget, PodExec
from controller.kube.kinds import PODS, ROLE_BINDINGS, SECRETS, Kind
from controller.kube.lease import Lease
from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import Controller, running
from tests.deploy.kubernetes.manifests import (
    PLURALS,
    RBAC,
    RIGHTS,
    apply_rights,
    grants,
    read,
    settings_of_controller,
)
from tests.programs import RedisServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

RANK_SERVICES = "components/rank-services/rbac.yaml"
MEASURED = {"cpu_cores", "memory_bytes"}
METRICS = "components/metrics/rbac.yaml"
ACCOUNT = "system:serviceaccount:fumarole-system:fumarole-"
# Rights that only unusual events need, which a normal run does not show.
SELDOM = {
    ("get", "batch.volcano.sh", "jobs"): "whether a VolcanoJob that a watch lost is really gone",
    ("delete", "", "secrets"): "what was made for a job that never came to be",
    ("delete", "", "configmaps"): "what was made for a job that never came to be",
    ("delete", "networking.k8s.io", "networkpolicies"): "what a job that never came to be had",
    ("patch", "", "resourcequotas"): "a quota that was changed in the settings",
    ("patch", "", "configmaps"): "a store that was replaced",
    ("get", "", "persistentvolumeclaims"): "a claim that is going, or that fills a quota",
    ("get", "", "services"): "what was left behind, before it is removed",
    ("get", "networking.k8s.io", "networkpolicies"): "what was left behind",
    ("get", "bus.volcano.sh", "commands"): "what was left behind",
    ("delete", "bus.volcano.sh", "commands"): "one that Volcano has not carried out",
    ("create", "", "pods/exec"): "API servers from 1.35 on",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    started = EmbeddedCluster(metrics_seconds=1.0)
    async with started as one, Kube.connect(one.kubeconfig("admin")) as admin:
        await apply_rights(admin, RANK_SERVICES, METRICS)
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def processes(
    cluster: EmbeddedCluster, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Controller]:
    folder = tmp_path_factory.mktemp("rights")
    (folder / "site.json").write_text('{"auths": {}}')
    (folder / "owners.yaml").write_text(
        json.dumps(
            {
                "quota": {"requests.cpu": "8"},
                "claims": [{"name": "home", "size": "1Gi"}],
                "pull_credentials": [{"name": "site", "file": "site.json"}],
            }
        )
    )
    settings = settings_of_controller() | {
        "FUMAROLE_CONTROLLER_OPS_LISTEN": "127.0.0.1:0",
        "FUMAROLE_CONTROLLER_OWNERS_FILE": str(folder / "owners.yaml"),
        "FUMAROLE_CONTROLLER_RANK_SERVICES": "yes",
        "FUMAROLE_CONTROLLER_METRICS_SECONDS": "1",
        "FUMAROLE_CONTROLLER_PRIORITIES": "high=gone",
    }
    controller = Controller(
        folder / "one",
        kubeconfig=cluster.kubeconfig("account-controller"),
        redis_url=redis_server.url,
        instance="default",
        **settings,
    )
    async with running(controller):
        yield controller


def asked(cluster: EmbeddedCluster, account: str) -> list[dict[str, Any]]:
    """Return the requests of our accounts to the server."""
    lines = (cluster.folder / "asked.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [one for one in found if one["user"] == f"{ACCOUNT}{account}"]


async def test_jobs_of_two_owners_need_exactly_the_rights_of_the_manifests(
    cluster: EmbeddedCluster, processes: Controller
) -> None:
    server = ["sh", "-c", "trap 'exit 0' TERM; python3 -m http.server 8000 & wait"]
    web: dict[str, Any] = {
        "image": "python",
        "invocation": {"command": server},
        "interactive": {"site": {"kind": "web", "port": 8000}},
        "parameters": {"token": {"type": "secret", "value": "x"}},
    }
    await processes.submit("one", owner={"user": "ada"}, **web)
    await processes.submit("two", owner={"user": "bob", "project": "sun"}, replicas=2)
    await processes.until("one", "RUNNING")
    await processes.until("two", "RUNNING")
    # If the owner's namespace exists, the server's refusal is returned at once.
    job = {"id": "no", "owner": {"user": "ada"}, "image": "busybox", "queue": "nobodys"}
    said = await processes.call("POST", "/v1/jobs", {"items": [job]}, expect=422)
    assert [one["path"] for one in said["details"]["problems"]] == ["items[0].queue"]
    for job_id in ("three", "four"):
        peer = {"lab": {"type": "peer", "job": "one", "hostname": "lab"}}
        await processes.submit(job_id, owner={"user": "ada"}, parameters=peer)
        await processes.until(job_id, "RUNNING")
    # A job that waits for a whole node while others use a part: the controller asks why it waits.
    whole_node = {"cpu": 64, "memory": "1Gi"}
    await processes.submit("five", owner={"user": "ada"}, resources=whole_node, priority="high")
    await open_shell(cluster, "one")
    async with asyncio.timeout(60):
        while (await processes.call("GET", "/v1/jobs/one/metrics"))["missing"].keys() & MEASURED:
            await asyncio.sleep(0.2)
    await lead(cluster)
    await processes.read("/v1/jobs/one/logs")
    await processes.call("GET", "/v1/utilization")
    await processes.call("POST", "/v1/jobs/two/suspend", expect=202)
    await processes.until("two", "SUSPENDED")
    async with asyncio.timeout(60):
        while not any(one["resource"] == "podgroups" for one in asked(cluster, "controller")):
            await asyncio.sleep(0.2)
    for job_id in ("three", "four", "five", "one", "two"):
        await processes.call("DELETE", f"/v1/jobs/{job_id}", expect=202)
        await processes.until(job_id, "SUCCESS")

    roles = {one["metadata"]["name"]: grants(one) for one in read(*RIGHTS) if "rules" in one}
    own = grants(read("base/rbac-own.yaml")[0])
    inside = roles["fumarole-jobs"] | own
    everywhere_granted = set[tuple[str, str, str]]().union(
        *(grants(read(name)[0]) for name in ("base/rbac-cluster.yaml", RANK_SERVICES, METRICS))
    )
    for account, whole, within in (
        ("controller", everywhere_granted, inside),
        ("hub", set(), roles["fumarole-terminals"]),
    ):
        seen = asked(cluster, account)
        # In a real cluster, a binding takes effect after a moment; here it does so at once. An
        # owner's
        # first job is tried before the owner's namespace and the rights in it exist.
        denied = [one for one in seen if not one["allowed"]]
        assert [one for one in denied if not one["dry_run"]] == []
        assert {(one["verb"], one["resource"]) for one in denied} <= {("create", "jobs")}
        # A dry run alone does not count as use of a right.
        used = {(one["verb"], one["group"], one["resource"]) for one in seen if not one["dry_run"]}
        unused = (whole | within) - used - SELDOM.keys() - {("bind", RBAC, "clusterroles")}
        assert unused == set(), f"{account} has rights that it does not use"
        everywhere = {
            (one["verb"], one["group"], one["resource"]) for one in seen if not one["namespace"]
        }
        assert everywhere <= whole


async def lead(cluster: EmbeddedCluster) -> None:
    """Lead as a controller that shares its store with others."""
    async with Kube.connect(cluster.kubeconfig("account-controller")) as kube:
        lease = Lease(
            kube,
            name="fumarole-default",
            namespace="fumarole-system",
            instance="default",
            holder="one",
            clock=time.monotonic,
            now=time.time,
        )
        assert await lease.take()
        assert await lease.renew()
        await lease.release()


async def open_shell(cluster: EmbeddedCluster, job: str) -> None:
    """Open a shell in the job's pod as the hub does, with the hub's account."""
    async with Kube.connect(cluster.kubeconfig("admin")) as admin:
        (pod,) = await admin.list(PODS, labels=f"fumarole.dev/job={job}")
    place = pod["metadata"]["namespace"], pod["metadata"]["name"]
    async with Kube.connect(cluster.kubeconfig("account-hub")) as kube:
        stream = await PodExec(kube).open(ExecTarget(*place, "job"), ["true"])
        await stream.close()


async def test_every_kind_that_the_controller_calls_is_in_a_role() -> None:
    # This test, and not a cluster, reports a new call without a right.
    called: set[str] = set()
    for source in (Path(__file__).parents[3] / "controller").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "controller.kube.kinds":
                called |= {one.name for one in node.names if one.name != "Kind"}
    roles = [one for one in read(*RIGHTS, METRICS) if "rules" in one]
    granted = {(group, resource) for one in roles for _, group, resource in grants(one)}
    # Every logged-in account may ask for its own rights, by the role system:basic-user.
    for name in called - {"ACCESS_REVIEWS"}:
        kind: Kind = getattr(kinds, name)
        group = kind.api.rpartition("/")[0]
        assert (group, kind.plural) in granted, f"no role lets the controller call {name}"


async def test_the_controllers_account_may_not_do_more(cluster: EmbeddedCluster) -> None:
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    async with (
        Kube.connect(cluster.kubeconfig("admin")) as admin,
        Kube.connect(cluster.kubeconfig("account-controller")) as kube,
    ):
        role = {"metadata": {"name": "everything"}, "rules": everything}
        await admin.create(PLURALS["ClusterRole"], role)
        for call in (
            kube.list(SECRETS),
            kube.get(SECRETS, "x", "fumarole-system"),
            kube.list(PLURALS["Namespace"]),
            kube.delete(PLURALS["Namespace"], "default"),
            kube.merge(PLURALS["Namespace"], "default", {"metadata": {"labels": {"a": "b"}}}),
            kube.create(SECRETS, {"metadata": {"name": "x"}}, "kube-system"),
            kube.create(ROLE_BINDINGS, binding("everything"), "default"),
            kube.create(PLURALS["ClusterRoleBinding"], binding("fumarole-jobs")),
            kube.create(PLURALS["ClusterRole"], {"metadata": {"name": "x"}, "rules": []}),
        ):
            with pytest.raises(Forbidden):
                await call


def binding(role: str) -> dict[str, Any]:
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    subject = {"kind": "ServiceAccount", "name": "fumarole-controller"}
    return {
        "metadata": {"name": f"x-{role}"},
        "roleRef": reference,
        "subjects": [{**subject, "namespace": "fumarole-system"}],
    }


async def test_a_right_that_is_missing_is_named(cluster: EmbeddedCluster) -> None:
    make = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}
    role = {"metadata": {"name": "makes-and-no-more"}, "rules": [make]}
    given = binding("makes-and-no-more")
    given["subjects"][0]["name"] = "fumarole-hub"
    async with (
        Kube.connect(cluster.kubeconfig("admin")) as admin,
        Kube.connect(cluster.kubeconfig("account-hub")) as hub,
    ):
        executor = PodExec(hub)
        await admin.create(PLURALS["ClusterRole"], role)
        await admin.create(ROLE_BINDINGS, given, "kube-public")
        objects = JobObjects(hub, instance="default")
        ranks = Companion(kind="ConfigMap", name="j-x.ranks", manifest={"data": {}}, when="before")
        await objects.companions.ensure("x", "kube-public", ranks, owner=None)
        # The ConfigMap exists already; the right to patch it is missing.
        with pytest.raises(Forbidden, match='cannot patch resource "configmaps"'):
            await objects.companions.ensure("x", "kube-public", ranks, owner=None)
        with pytest.raises(ExecFailed, match="create pods/exec in the namespace kube-public"):
            await executor.open(ExecTarget("kube-public", "x", "job"), ["true"])


async def test_an_account_that_writes_bindings_cannot_escalate(
    cluster: EmbeddedCluster,
) -> None:
    async with (
        Kube.connect(cluster.kubeconfig("admin")) as admin,
        Kube.connect(cluster.kubeconfig("account-hub")) as hub,
    ):
        role = {
            "metadata": {"name": "writes-bindings"},
            "rules": [
                {"apiGroups": [RBAC], "resources": ["rolebindings", "roles"], "verbs": ["create"]}
            ],
        }
        given = binding("writes-bindings")
        given["subjects"][0]["name"] = "fumarole-hub"
        await admin.create(PLURALS["ClusterRole"], role)
        await admin.create(ROLE_BINDINGS, given, "default")
        with pytest.raises(Forbidden, match="not currently held"):
            await hub.create(ROLE_BINDINGS, binding("fumarole-jobs"), "default")
        more = {**role, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}
        with pytest.raises(Forbidden, match="not currently held"):
            await hub.create(PLURALS["Role"], more, "default")
        await hub.create(PLURALS["Role"], role, "default")


async def test_a_job_ends_whose_namespace_hangs_in_its_deletion(
    cluster: EmbeddedCluster, processes: Controller
) -> None:
    """The namespace controller deletes the rights in it; an object with a finalizer keeps it."""
    run = {"image": "python", "invocation": {"command": ["sleep", "600"]}, "stop_grace_seconds": 1}
    secret = {"token": {"type": "secret", "value": "x"}}
    await processes.submit("hangs", owner={"user": "eve"}, parameters=secret, **run)
    await processes.until("hangs", "RUNNING")
    async with Kube.connect(cluster.kubeconfig("admin")) as admin:
        (pod,) = await admin.list(PODS, labels="fumarole.dev/job=hangs")
        namespace = pod["metadata"]["namespace"]
        kept = {"metadata": {"name": "kept", "finalizers": ["example.com/kept"]}}
        await admin.create(PLURALS["ServiceAccount"], kept, namespace)
        await admin.delete(PLURALS["Namespace"], namespace)
        ended = await processes.until("hangs", "FAILURE")
        assert ended["reason"] in ("deleted", "lost")
        there = await admin.get(PLURALS["Namespace"], namespace)
        assert there["status"]["phase"] == "Terminating"


async def test_a_deleted_role_binding_is_restored_when_a_step_of_a_job_is_refused(
    cluster: EmbeddedCluster, processes: Controller
) -> None:
    run = {"image": "python", "invocation": {"command": ["sleep", "600"]}, "stop_grace_seconds": 1}
    await processes.submit("unbound", owner={"user": "mallory"}, **run)
    await processes.until("unbound", "RUNNING")
    async with Kube.connect(cluster.kubeconfig("admin")) as admin:
        (pod,) = await admin.list(PODS, labels="fumarole.dev/job=unbound")
        namespace = pod["metadata"]["namespace"]
        for role in ("fumarole-jobs", "fumarole-terminals"):
            await admin.delete(ROLE_BINDINGS, f"fumarole.{role}", namespace)
        await processes.call("DELETE", "/v1/jobs/unbound", expect=202)
        await processes.until("unbound", "SUCCESS", "FAILURE")
        for role in ("fumarole-jobs", "fumarole-terminals"):
            await admin.get(ROLE_BINDINGS, f"fumarole.{role}", namespace)
