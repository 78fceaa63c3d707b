from __future__ import annotations

from tests.controller.plugins.making import container_of, plan_of


async def test_the_single_task_has_a_pod_a_replica_all_started_together() -> None:
    spec = (await plan_of(replicas=3)).volcano_job.manifest()["spec"]
    assert spec["minAvailable"] == 3
    assert [(task["name"], task["replicas"]) for task in spec["tasks"]] == [("job", 3)]
    assert spec["plugins"] == {"env": [], "svc": []}
    assert spec["queue"] == "default"


async def test_nothing_is_retried_and_volcano_is_told_so_in_its_own_count() -> None:
    spec = (await plan_of()).volcano_job.manifest()["spec"]
    assert spec["maxRetry"] == 1
    assert "policies" not in spec
    assert spec["ttlSecondsAfterFinished"] == 3600


async def test_requests_are_limits() -> None:
    container = await container_of(resources={"cpu": 1.5, "memory": "2Gi", "gpu": 2})
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["resources"]["limits"] == {
        "cpu": "1500m",
        "memory": "2Gi",
        "nvidia.com/gpu": "2",
    }


async def test_a_job_that_says_nothing_gets_the_deployments_defaults() -> None:
    settings = {
        "FUMAROLE_CONTROLLER_DEFAULT_CPU": "250m",
        "FUMAROLE_CONTROLLER_DEFAULT_MEMORY": "512Mi",
    }
    container = await container_of(settings=settings)
    assert container["resources"]["limits"] == {"cpu": "250m", "memory": "512Mi"}


async def test_no_gpu_asks_for_none_and_the_resource_is_the_deployments() -> None:
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


async def test_the_image_is_the_jobs() -> None:
    assert (await container_of(image="registry.example/a/b@sha256:" + "0" * 64))["image"] == (
        "registry.example/a/b@sha256:" + "0" * 64
    )
