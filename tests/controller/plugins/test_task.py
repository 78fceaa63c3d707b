from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.jobs.spec.problems import JobRejected
from tests.controller.plugins.plans import container_of, plan_of, pod_of, problems_of

SVC = ["--publish-not-ready-addresses=true", "--disable-network-policy=true"]


async def test_the_single_task_starts_all_replicas_as_one_gang() -> None:
    spec = (await plan_of(replicas=3)).volcano_job.manifest()["spec"]
    assert spec["minAvailable"] == 3
    assert [(task["name"], task["replicas"]) for task in spec["tasks"]] == [("job", 3)]
    assert spec["plugins"] == {"env": [], "svc": SVC}
    assert spec["queue"] == "default"


async def test_zero_retries_are_written_in_volcanos_count() -> None:
    spec = (await plan_of()).volcano_job.manifest()["spec"]
    assert spec["maxRetry"] == 1
    assert "policies" not in spec
    assert spec["ttlSecondsAfterFinished"] == 3600


async def test_requests_equal_limits() -> None:
    container = await container_of(resources={"cpu": 1.5, "memory": "2Gi", "gpu": 2})
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["resources"]["limits"] == {
        "cpu": "1500m",
        "memory": "2Gi",
        "nvidia.com/gpu": "2",
    }


async def test_without_a_request_the_deployments_defaults_apply() -> None:
    settings = {
        "FUMAROLE_CONTROLLER_DEFAULT_CPU": "250m",
        "FUMAROLE_CONTROLLER_DEFAULT_MEMORY": "512Mi",
    }
    container = await container_of(settings=settings)
    assert container["resources"]["limits"] == {"cpu": "250m", "memory": "512Mi"}


async def test_zero_gpus_request_none_and_the_resource_name_is_configured() -> None:
    settings = {"FUMAROLE_CONTROLLER_GPU_RESOURCE": "amd.com/gpu"}
    assert "nvidia.com/gpu" not in (await container_of(resources={"gpu": 0}))["resources"]["limits"]
    limits = (await container_of(settings=settings, resources={"gpu": 1}))["resources"]["limits"]
    assert limits["amd.com/gpu"] == "1"


async def test_pods_carry_the_labels_by_which_they_are_found() -> None:
    plan = await plan_of()
    template = plan.volcano_job.manifest()["spec"]["tasks"][0]["template"]
    assert template["metadata"]["labels"] == {
        "fumarole.dev/instance": "test",
        "fumarole.dev/job": "j1",
    }


async def test_the_image_comes_from_the_job() -> None:
    assert (await container_of(image="registry.example/a/b@sha256:" + "0" * 64))["image"] == (
        "registry.example/a/b@sha256:" + "0" * 64
    )


TRAIN: dict[str, Any] = {
    "tasks": [
        {"name": "master"},
        {"name": "worker", "replicas": 3, "min_available": 2, "depends_on": ["master"]},
    ]
}


async def test_a_task_overrides_the_fields_of_the_job() -> None:
    plan = await plan_of(
        image="all",
        resources={"cpu": 2, "memory": "1Gi"},
        tasks=[{"name": "a", "image": "own"}, {"name": "b", "resources": {"gpu": 2}}],
    )
    a, b = plan.volcano_job.manifest()["spec"]["tasks"]
    assert a["template"]["spec"]["containers"][0]["image"] == "own"
    container = b["template"]["spec"]["containers"][0]
    assert container["image"] == "all"
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "2"}
    assert container["resources"]["requests"] == container["resources"]["limits"]


async def test_a_dependent_task_is_not_part_of_the_gang() -> None:
    spec = (await plan_of(**TRAIN)).volcano_job.manifest()["spec"]
    assert spec["minAvailable"] == 1
    worker = spec["tasks"][1]
    assert worker["minAvailable"] == 2
    assert worker["dependsOn"] == {"name": ["master"], "iteration": "all"}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"tasks": [{"name": "a"}, {"name": "a"}]}, "tasks[0].name"),
        ({"tasks": [{"name": "a", "min_available": 2}]}, "tasks[0].min_available"),
        ({"tasks": [{"name": "a", "depends_on": ["b"]}]}, "tasks[0].depends_on[0]"),
        ({"tasks": [{"name": "a", "depends_on": ["a"]}]}, "tasks[0].depends_on[0]"),
        ({"tasks": [{"name": "a"}, {"name": "b", "depends_on": ["a", "a"]}]},
         "tasks[1].depends_on[1]"),
        ({"tasks": [{"name": "a", "depends_on": ["c"]}, {"name": "b", "depends_on": ["a"]},
                    {"name": "c", "depends_on": ["b"]}]}, "tasks[2].depends_on[0]"),
        ({"id": "x" * 40, "tasks": [{"name": "a" * 12}], "replicas": 1000}, None),
        ({"min_success": 2}, "min_success"),
        ({"topology": {"numa": "restricted"}, "resources": {"cpu": 1.5}}, "resources.cpu"),
        ({"topology": {"numa": "restricted"},
          "tasks": [{"name": "a", "resources": {"cpu": 1.5}}]}, "tasks[0].resources.cpu"),
        ({"topology": {"numa": "none"}, "resources": {"cpu": 1.5}}, None),
        ({"priority": "high"}, "priority"),
        ({"queue": "root"}, "queue"),
        ({"product": "gpu-1"}, "product"),
        ({"policies": [{"action": "RestartJob", "event": "PodFailed"}] * 2}, "policies[0]"),
        ({"tasks": [{"name": "a", "policies": [
            {"action": "RestartJob", "event": "*"},
            {"action": "RestartTask", "exit_code": 3}]}]}, "tasks[0].policies[0]"),
        ({"policies": [{"action": "AbortJob", "event": "PodPending"}]}, "policies[0]"),
        ({"framework": "pytorch"}, "tasks"),
        ({"framework": "pytorch", "tasks": [{"name": "master", "replicas": 2}]},
         "tasks[0].replicas"),
        ({"framework": "pytorch", "tasks": [{"name": "master"}],
          "invocation": {"environment": {"RANK": "1"}}}, "invocation.environment.RANK"),
        ({"framework": "mpi", "tasks": [{"name": "master"}]}, "tasks"),
        ({"framework": "mpi", "tasks": [{"name": "master"}, {"name": "worker"}],
          "policies": [{"action": "RestartTask", "event": "PodFailed"}]}, "policies[0].action"),
        ({"framework": "tensorflow", "tasks": [{"name": "worker"}, {"name": "other"}]},
         "tasks[1].name"),
        ({"framework": "ray", "tasks": [{"name": "head"}],
          "invocation": {"command": ["x"]}}, "invocation.command"),
        ({"framework": "ray", "tasks": [{"name": "head"}],
          "interactive": {"board": {"kind": "web", "port": 8265}}}, "interactive.board.port"),
        ({"framework": "ray", "tasks": [{"name": "head"}],
          "interactive": {"dashboard": {"kind": "web", "port": 8000}}}, "interactive.dashboard"),
        ({"framework": "ray", "tasks": [{"name": "head"}],
          "interactive": {"dashboard": {"kind": "web", "port": 8265}}}, None),
    ],
)  # fmt: skip
async def test_a_job_that_volcano_cannot_run_is_refused(
    fields: dict[str, Any], path: str | None
) -> None:
    found = await problems_of(**fields)
    assert (path in found) if path else found == {}, found


async def test_an_error_inherited_by_all_tasks_is_reported_once() -> None:
    job: dict[str, Any] = {"topology": {"numa": "restricted"}, "resources": {"cpu": 1.5},
           "tasks": [{"name": "a"}, {"name": "b"}]}  # fmt: skip
    with pytest.raises(JobRejected) as caught:
        await plan_of(**job)
    assert [one.path for one in caught.value.problems] == ["resources.cpu"]


async def test_policies_and_retries_are_written_in_volcanos_count() -> None:
    spec = (
        await plan_of(
            tasks=[{"name": "a", "policies": [{"exit_code": 3, "action": "RestartTask"}]}],
            policies=[{"event": "PodEvicted", "action": "RestartJob"}],
            max_retry=3,
            min_success=1,
        )
    ).volcano_job.manifest()["spec"]
    assert spec["policies"] == [{"event": "PodEvicted", "action": "RestartJob"}]
    assert spec["tasks"][0]["policies"] == [{"exitCode": 3, "action": "RestartTask"}]
    assert spec["maxRetry"] == 4
    assert spec["minSuccess"] == 1


async def test_policies_from_the_first_with_a_timeout_on_are_not_given_to_volcano() -> None:
    delayed = {"exit_code": 3, "action": "RestartJob", "timeout_seconds": 60}
    spec = (
        await plan_of(
            tasks=[
                {"name": "a", "policies": [delayed, {"event": "PodEvicted", "action": "AbortJob"}]},
                {"name": "b", "policies": [{"event": "PodFailed", "action": "RestartTask"}]},
            ],
            # At an exit code of 3, Volcano would abort at once.
            policies=[{"event": "PodFailed", "action": "AbortJob"},
                      {"event": "Unknown", "action": "TerminateJob"}],
        )
    ).volcano_job.manifest()["spec"]  # fmt: skip
    assert spec["tasks"][0]["policies"] == [{"event": "PodEvicted", "action": "AbortJob"}]
    assert spec["tasks"][1]["policies"] == [{"event": "PodFailed", "action": "RestartTask"}]
    assert spec["policies"] == [{"event": "Unknown", "action": "TerminateJob"}]
    assert spec["maxRetry"] == 4


@pytest.mark.parametrize("action", ["RestartTask", "RestartPod"])
async def test_a_policy_with_timeout_cannot_restart_a_task(action: str) -> None:
    delayed = {"event": "PodFailed", "action": action, "timeout_seconds": 5}
    with pytest.raises(JobRejected) as caught:
        await plan_of(tasks=[{"name": "a", "policies": [delayed]}], policies=[delayed])
    assert [one.path for one in caught.value.problems] == ["tasks[0].policies[0]", "policies[0]"]
    assert "cannot have timeout_seconds" in caught.value.problems[0].message
    first = {"exit_code": 3, "action": "AbortJob", "timeout_seconds": 5}
    with pytest.raises(JobRejected) as caught:
        await plan_of(policies=[first, {"event": "PodFailed", "action": action}])
    assert [one.path for one in caught.value.problems] == ["policies[1]"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({"max_retry": 0}, 1), ({}, 1),
     ({"policies": [{"event": "PodFailed", "action": "RestartJob"}]}, 4),
     ({"policies": [{"event": "PodFailed", "action": "AbortJob"}]}, 1),
     ({"tasks": [{"name": "a", "policies": [{"event": "*", "action": "RestartPod"}]}]}, 4)],
)  # fmt: skip
async def test_max_retry_zero_is_never_sent_to_volcano(
    fields: dict[str, Any], expected: int
) -> None:
    assert (await plan_of(**fields)).volcano_job.manifest()["spec"]["maxRetry"] == expected


@pytest.mark.parametrize(
    ("framework", "tasks", "plugins"),
    [
        ("pytorch", ["master", "worker"], {"pytorch": ["--master=master", "--worker=worker",
                                                        "--port=23456"]}),
        ("mpi", ["master", "worker"], {"mpi": ["--master=master", "--worker=worker", "--port=22"],
                                       "ssh": ["--ssh-key-file-path=/root/.ssh"]}),
        ("tensorflow", ["ps", "worker"], {"tensorflow": [
            "--ps=ps", "--worker=worker", "--chief=chief", "--evaluator=evaluator",
            "--port=2222"]}),
        ("ray", ["head", "worker"], {"ray": [
            "--head=head", "--worker=worker", "--headContainer=job", "--workerContainer=job",
            "--port=6379", "--dashboardPort=8265", "--clientPort=10001"]}),
    ],
)  # fmt: skip
async def test_a_framework_is_volcanos_plugin_with_its_arguments(
    framework: str, tasks: list[str], plugins: dict[str, list[str]]
) -> None:
    plan = await plan_of(framework=framework, tasks=[{"name": name} for name in tasks])
    assert plan.volcano_job.plugins == {
        "env": [],
        "svc": SVC,
        **plugins,
    }


async def test_topology_priority_and_queue_come_from_the_job() -> None:
    plan = await plan_of(
        settings={"FUMAROLE_CONTROLLER_PRIORITIES": "high=site-high"},
        priority="high",
        queue="batch",
        resources={"cpu": 2},
        topology={"numa": "single-numa-node", "network": {"mode": "hard", "tier": 1}},
    )
    spec = plan.volcano_job.manifest()["spec"]
    assert spec["priorityClassName"] == "site-high"
    assert spec["queue"] == "batch"
    assert spec["networkTopology"] == {"mode": "hard", "highestTierAllowed": 1}
    assert spec["tasks"][0]["topologyPolicy"] == "single-numa-node"


async def test_an_image_is_pulled_with_the_configured_credential() -> None:
    settings = {"FUMAROLE_CONTROLLER_PULL_CREDENTIALS": "site=registry-site"}
    pod = await pod_of(settings=settings, pull_credential="site")
    assert pod["imagePullSecrets"] == [{"name": "registry-site"}]
    assert "imagePullSecrets" not in await pod_of(settings=settings)
    found = await problems_of(settings=settings, pull_credential="other")
    assert set(found) == {"pull_credential"}


async def test_an_owners_namespace_has_the_credentials_of_the_owners_file(tmp_path: Path) -> None:
    (tmp_path / "docker.json").write_text('{"auths": {}}')
    owners = tmp_path / "owners.yaml"
    owners.write_text("pull_credentials: [{name: site, file: docker.json}]")
    settings = {
        "FUMAROLE_CONTROLLER_FAIR_SHARE": "on",
        "FUMAROLE_CONTROLLER_OWNERS_FILE": str(owners),
    }
    plan = await plan_of(settings=settings, pull_credential="site")
    (secret,) = plan.volcano_job.tasks[0].template.more["imagePullSecrets"]
    made = [one for one in plan.shared if one.kind == "Secret"]
    assert [one.name for one in made] == [secret["name"]]
    assert {one.namespace for one in made} == {plan.volcano_job.namespace}


PRODUCTS = """
products:
  gpu-1:
    cpu: 8
    memory: 64Gi
    gpu: 2
    gpu_resource: amd.com/gpu
    node_labels: {machine: gpu, zone: [a, b]}
    tolerations: [{key: gpu, value: "yes", effect: NoSchedule}]
    features: {vnc: false, peers: false, batch: false, kinds: [training]}
"""
WEB: dict[str, Any] = {"lab": {"kind": "web", "port": 8888}}


@pytest.fixture
def products(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "products.yaml"
    path.write_text(PRODUCTS)
    return {"FUMAROLE_CONTROLLER_PRODUCTS_FILE": str(path)}


async def test_a_product_defines_resources_and_node_selector(
    products: dict[str, str],
) -> None:
    pod = await pod_of(settings=products, product="gpu-1", kind="training", interactive=WEB)
    assert pod["containers"][0]["resources"]["limits"] == {
        "cpu": "8", "memory": "64Gi", "amd.com/gpu": "2",
    }  # fmt: skip
    assert pod["nodeSelector"] == {"machine": "gpu"}
    assert pod["tolerations"] == [
        {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
    ]
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms == {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
        ]
    }


async def test_requested_resources_may_lower_the_product(products: dict[str, str]) -> None:
    container = await container_of(
        settings=products,
        product="gpu-1",
        kind="training",
        interactive=WEB,
        resources={"cpu": 1, "gpu": 0},
    )
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "64Gi"}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"resources": {"cpu": 9}}, "resources.cpu"),
        ({"resources": {"memory": "65Gi"}}, "resources.memory"),
        ({"resources": {"gpu": 3}}, "resources.gpu"),
        ({"tasks": [{"name": "a", "resources": {"gpu": 3}}]}, "tasks[0].resources.gpu"),
        ({"kind": "quantization"}, "kind"),
        ({"interactive": {}}, "interactive"),
        ({"interactive": {"d": {"kind": "vnc", "port": 5900}}}, "interactive.d.kind"),
    ],
)
async def test_more_than_the_product_has_is_refused(
    products: dict[str, str], fields: dict[str, Any], path: str
) -> None:
    asked: dict[str, Any] = {"product": "gpu-1", "kind": "training", "interactive": WEB}
    assert list(await problems_of(settings=products, **asked | fields)) == [path]


async def test_a_job_without_required_product_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "products.yaml"
    path.write_text("required: true\nproducts: {a: {cpu: 1, memory: 1Gi}}")
    settings = {"FUMAROLE_CONTROLLER_PRODUCTS_FILE": str(path)}
    assert await problems_of(settings=settings) == {"product": "is missing: a"}


async def test_kind_and_product_are_set_as_labels(products: dict[str, str]) -> None:
    plan = await plan_of(settings=products, product="gpu-1", kind="training", interactive=WEB)
    manifest = plan.volcano_job.manifest()
    pods = manifest["spec"]["tasks"][0]["template"]["metadata"]["labels"]
    for labels in (manifest["metadata"]["labels"], pods):
        assert labels["fumarole.dev/kind"] == "training"
        assert labels["fumarole.dev/product"] == "gpu-1"
