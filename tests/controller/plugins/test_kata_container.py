from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.controller.plugins.plans import pod_of, problems_of

BIG: dict[str, Any] = {"resources": {"cpu": 4, "memory": "8Gi"}}


async def test_the_vm_overhead_is_within_the_requested_resources() -> None:
    pod = await pod_of(runtime="kata", **BIG)
    assert pod["runtimeClassName"] == "kata"
    amounts = pod["containers"][0]["resources"]
    assert amounts["limits"] == {"cpu": "3", "memory": "7Gi"}
    assert amounts["requests"] == amounts["limits"]


async def test_shared_memory_equals_the_remaining_memory() -> None:
    pod = await pod_of(runtime="kata", **BIG)
    (volume,) = [one for one in pod["volumes"] if one["name"] == "shm"]
    assert volume["emptyDir"]["sizeLimit"] == "7Gi"


async def test_without_a_runtime_no_overhead_is_subtracted() -> None:
    pod = await pod_of(**BIG)
    assert "runtimeClassName" not in pod
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "4", "memory": "8Gi"}


async def test_less_than_the_stated_minimum_is_refused() -> None:
    found = await problems_of(runtime="kata", resources={"cpu": 1.5, "memory": "1Gi"})
    assert set(found) == {"resources.cpu", "resources.memory"}
    assert found["resources.memory"] == "a runtime needs 2Gi at least: 1Gi for itself, and 1Gi"


async def test_a_runtime_that_the_deployment_lacks_is_refused() -> None:
    assert set(await problems_of(runtime="gvisor", **BIG)) == {"runtime"}


@pytest.fixture
def product(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "products.yaml"
    path.write_text(
        "products: {vm: {cpu: 4, memory: 8Gi, runtime: kata, overhead: {memory: 512Mi}}}"
    )
    return {
        "FUMAROLE_CONTROLLER_PRODUCTS_FILE": str(path),
        "FUMAROLE_CONTROLLER_RUNTIMES": "kata=kata-qemu,other",
    }


async def test_a_product_defines_runtime_and_overhead(product: dict[str, str]) -> None:
    pod = await pod_of(settings=product, product="vm")
    assert pod["runtimeClassName"] == "kata-qemu"
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "3", "memory": "7680Mi"}


async def test_a_job_cannot_leave_the_runtime_of_its_product(product: dict[str, str]) -> None:
    assert set(await problems_of(settings=product, product="vm", runtime="other")) == {"runtime"}
