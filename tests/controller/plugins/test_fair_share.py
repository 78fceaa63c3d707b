from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from controller.jobs.pipeline.builder import SharedObject
from controller.jobs.pipeline.pipeline import Pipeline, Plan
from controller.jobs.spec.problems import JobRejected
from controller.plugins import PLUGINS
from controller.settings import read_settings
from shared.settings import Environment
from tests.controller.samples import make_context, make_defaults, make_job, make_plugins

OWNERS: dict[str, Any] = {
    "labels": {"team.example.com/kind": "jobs"},
    "queue": {"weight": 3, "capability": {"cpu": 64, "nvidia.com/gpu": "8"}},
    "quota": {"requests.cpu": "100", "persistentvolumeclaims": 4},
    "claims": [
        {"name": "home", "size": "1Ti", "storage_class": "cephfs"},
        {"name": "data", "size": "10Gi", "access_modes": ["ReadOnlyMany"],
         "storage_class": "", "volume": "data-{owner}"},
    ],
    "pull_credentials": [{"name": "site", "file": "site.json"}],
}  # fmt: skip
DOCKER = json.dumps({"auths": {"registry.example.com": {"auth": "Y2FuYXJ5"}}})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "site.json").write_text(DOCKER)
    path = tmp_path / "owners.yaml"
    path.write_text(json.dumps(OWNERS))  # JSON is YAML
    return path


async def plan_of(accepted_in: str | None = None, *, on: str = "on", **given: Any) -> Plan:
    owner = given.pop("owner", {"user": "ada"})
    queue = given.pop("queue", None)
    defaults = make_defaults(FUMAROLE_CONTROLLER_FAIR_SHARE=on, **given)
    plugins = make_plugins(PLUGINS, make_context(defaults=defaults))
    pipeline = Pipeline(plugins, instance="test", namespace="fumarole-jobs")
    return await pipeline.plan(make_job(owner=owner, queue=queue), accepted_in=accepted_in)


def of_kind(plan: Plan, kind: str) -> list[SharedObject]:
    return [one for one in plan.shared if one.kind == kind]


async def test_each_owner_gets_a_namespace_and_a_queue_of_one_name() -> None:
    ada = await plan_of()
    assert ada.volcano_job.namespace == ada.volcano_job.queue
    assert ada.volcano_job.namespace.startswith("fumarole-u-ada-")
    sun = await plan_of(owner={"user": "ada", "project": "sun"})
    assert sun.volcano_job.namespace.startswith("fumarole-p-sun-")
    again = await plan_of(owner={"user": "bob", "project": "sun"})
    assert again.volcano_job.namespace == sun.volcano_job.namespace


async def test_the_owner_is_readable_from_namespace_and_queue() -> None:
    plan = await plan_of(owner={"user": "ada", "project": "Sønderborg \N{SUN WITH FACE}"})
    for kind in ("Namespace", "Queue"):
        (one,) = of_kind(plan, kind)
        owner = json.loads(one.annotations["fumarole.dev/owner"])
        assert owner == {"project": "Sønderborg \N{SUN WITH FACE}"}


async def test_when_disabled_all_jobs_share_one_namespace_and_queue() -> None:
    plan = await plan_of(on="off")
    assert (plan.volcano_job.namespace, plan.volcano_job.queue) == ("fumarole-jobs", "default")
    assert plan.shared == ()


async def test_a_job_stays_where_it_was_accepted() -> None:
    before = await plan_of("fumarole-jobs")
    assert (before.volcano_job.namespace, before.shared) == ("fumarole-jobs", ())
    assert before.volcano_job.queue == "default"
    there = (await plan_of()).volcano_job.namespace
    assert (await plan_of(there, on="off")).volcano_job.namespace == there


async def test_a_namespace_denies_all_traffic_and_enforces_pod_security() -> None:
    plan = await plan_of()
    (namespace,) = of_kind(plan, "Namespace")
    assert namespace.labels["pod-security.kubernetes.io/enforce"] == "restricted"
    (policy,) = of_kind(plan, "NetworkPolicy")
    assert policy.manifest["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert policy.namespace == namespace.name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RUN_AS_NON_ROOT", "no"),
        ("SECCOMP", "no"),
        ("ALLOW_PRIVILEGE_ESCALATION", "yes"),
        ("KEEP_CAPABILITIES", "yes"),
    ],
)
async def test_privileged_pods_get_a_namespace_that_permits_them(name: str, value: str) -> None:
    plan = await plan_of(**{f"FUMAROLE_CONTROLLER_{name}": value})
    (namespace,) = of_kind(plan, "Namespace")
    assert namespace.labels["pod-security.kubernetes.io/enforce"] == "baseline"


async def test_role_bindings_precede_objects_that_need_them() -> None:
    grants = "fumarole-jobs=system/controller, fumarole-terminals=system/hub"
    plan = await plan_of(FUMAROLE_CONTROLLER_ROLE_GRANTS=grants)
    kinds = [one.kind for one in plan.shared]
    assert kinds == ["Namespace", "RoleBinding", "RoleBinding", "NetworkPolicy", "Queue"]
    one = of_kind(plan, "RoleBinding")[1]
    assert one.manifest["roleRef"]["name"] == "fumarole-terminals"
    assert one.manifest["subjects"] == [
        {"kind": "ServiceAccount", "name": "hub", "namespace": "system"}
    ]


async def test_quota_claims_credentials_and_weight_come_from_the_file(file: Path) -> None:
    plan = await plan_of(FUMAROLE_CONTROLLER_OWNERS_FILE=str(file))
    (queue,) = of_kind(plan, "Queue")
    assert queue.manifest["spec"] == {
        "weight": 3, "reclaimable": True, "capability": {"cpu": "64", "nvidia.com/gpu": "8"},
    }  # fmt: skip
    (quota,) = of_kind(plan, "ResourceQuota")
    assert quota.manifest["spec"]["hard"]["persistentvolumeclaims"] == "4"
    (secret,) = of_kind(plan, "Secret")
    assert secret.manifest["type"] == "kubernetes.io/dockerconfigjson"
    assert base64.b64decode(secret.manifest["data"][".dockerconfigjson"]).decode() == DOCKER
    home, data = of_kind(plan, "PersistentVolumeClaim")
    assert home.manifest["spec"]["storageClassName"] == "cephfs"
    assert home.manifest["spec"]["accessModes"] == ["ReadWriteMany"]
    assert data.manifest["spec"]["storageClassName"] == ""
    (namespace,) = of_kind(plan, "Namespace")
    assert data.manifest["spec"]["volumeName"] == f"data-{namespace.labels['fumarole.dev/owner']}"
    assert namespace.labels["team.example.com/kind"] == "jobs"


@pytest.mark.parametrize(
    ("granted", "queue", "taken"),
    [
        (["batch"], "batch", True), (["batch"], "other", False), ([], "batch", False),
        (None, "other", True), (["batch"], None, True), ([], None, True),
    ],
)  # fmt: skip
async def test_a_job_may_name_its_owners_queue_or_a_granted_one(
    tmp_path: Path, granted: list[str] | None, queue: str | None, taken: bool
) -> None:
    path = tmp_path / "owners.yaml"
    path.write_text(json.dumps({} if granted is None else {"queues": granted}))
    settings = {"FUMAROLE_CONTROLLER_OWNERS_FILE": str(path)}
    if taken:
        plan = await plan_of(queue=queue, **settings)
        assert plan.volcano_job.queue == queue or queue is None
        return
    with pytest.raises(JobRejected) as caught:
        await plan_of(queue=queue, **settings)
    assert [one.path for one in caught.value.problems] == ["queue"]


async def test_naming_the_owners_queue_equals_the_default(file: Path) -> None:
    settings = {"FUMAROLE_CONTROLLER_OWNERS_FILE": str(file)}
    own = (await plan_of(**settings)).volcano_job.queue
    named = await plan_of(queue=own, **settings)
    assert named.volcano_job.queue == own
    assert of_kind(named, "Queue")


def test_a_file_without_queues_is_warned_about(tmp_path: Path) -> None:
    path = tmp_path / "owners.yaml"
    for content, warned in (("{}", True), ("queues: []", False)):
        path.write_text(content)
        environment = Environment({"FUMAROLE_CONTROLLER_OWNERS_FILE": str(path)})
        read_settings(environment)
        assert any("lists no queues" in one for one in environment.warnings) is warned


async def test_a_credential_is_in_no_repr_of_the_settings(file: Path) -> None:
    settings = read_settings(Environment({"FUMAROLE_CONTROLLER_OWNERS_FILE": str(file)}))
    assert settings.jobs.fair_share is not None
    assert settings.jobs.fair_share.pull_secrets
    assert base64.b64encode(DOCKER.encode()).decode() not in repr(settings.jobs)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"quoat": {}}, "quoat: unknown field"),
        ({"queue": {"weight": 0}}, "queue.weight: Input should be greater"),
        ({"claims": [{"name": "Home", "size": "1Gi"}]}, "claims[0].name"),
        ({"claims": [{"name": "home"}]}, "claims[0].size: is missing"),
        ({"quota": {"cpu": "lots"}}, "quota.cpu"),
        # The API server would refuse each owner's namespace, and so every job.
        ({"labels": {"team": "a b"}}, "labels.team: String should match pattern"),
        ({"labels": {"team": "-"}}, "labels.team: String should match pattern"),
        ({"pod_security": "none"}, "pod_security"),
        ({"pull_credentials": [{"name": "x", "file": "absent"}]}, "cannot read a pull credential"),
        ({"pull_credentials": [{"name": "x", "file": "owners.yaml"}]}, "not a Docker config"),
        ([], "must hold fields and their values (pod_security"),
    ],
)
def test_an_error_in_the_file_is_reported_with_its_path(
    tmp_path: Path, content: Any, problem: str
) -> None:
    path = tmp_path / "owners.yaml"
    path.write_text(json.dumps(content))
    environment = Environment({"FUMAROLE_CONTROLLER_OWNERS_FILE": str(path)})
    read_settings(environment)
    (found,) = [one for one in environment.problems if "OWNERS_FILE" in one]
    assert problem in found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FAIR_SHARE", "maybe"),
        ("NAMESPACE_PREFIX", "-x"),
        ("NAMESPACE_PREFIX", "kube-x"),
        ("NAMESPACE_PREFIX", "Up"),
        ("NAMESPACE_PREFIX", "9x"),
        ("NAMESPACE_PREFIX", "a" * 21),
        ("ROLE_GRANTS", "role"),
        ("ROLE_GRANTS", "role=account"),
    ],
)
def test_contradictory_settings_are_refused(name: str, value: str) -> None:
    environment = Environment({f"FUMAROLE_CONTROLLER_{name}": value})
    read_settings(environment)
    assert any(f"FUMAROLE_CONTROLLER_{name} is wrong" in one for one in environment.problems)
