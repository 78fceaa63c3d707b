from __future__ import annotations

from tests.controller.plugins.plans import pod_of


async def test_shared_memory_is_as_large_as_the_containers_own_limit() -> None:
    pod = await pod_of(resources={"memory": "3Gi"})
    volume = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "3Gi"}}
    assert volume in pod["volumes"]
    assert {"name": "shm", "mountPath": "/dev/shm"} in pod["containers"][0]["volumeMounts"]


async def test_without_a_request_shared_memory_follows_the_default_limit() -> None:
    pod = await pod_of()
    (volume,) = [one for one in pod["volumes"] if one["name"] == "shm"]
    assert volume["emptyDir"]["sizeLimit"] == "1Gi"
