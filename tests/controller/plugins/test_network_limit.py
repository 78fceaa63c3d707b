from __future__ import annotations

from pathlib import Path

import pytest

from tests.controller.plugins.plans import plan_of, problems_of

INGRESS = "kubernetes.io/ingress-bandwidth"
EGRESS = "kubernetes.io/egress-bandwidth"


@pytest.fixture
def product(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "products.yaml"
    path.write_text("products: {slow: {cpu: 1, memory: 1Gi, network: {egress: 1G}}}")
    return {"FUMAROLE_CONTROLLER_PRODUCTS_FILE": str(path)}


async def test_every_pod_is_limited_as_the_job_asks() -> None:
    plan = await plan_of(
        network={"ingress": "100M", "egress": "1500k"}, tasks=[{"name": "a"}, {"name": "b"}]
    )
    for task in plan.volcano_job.tasks:
        assert task.template.annotations[INGRESS] == "100M"
        assert task.template.annotations[EGRESS] == "1500k"


async def test_without_a_request_the_limit_of_the_product_applies() -> None:
    (task,) = (await plan_of()).volcano_job.tasks
    assert not {INGRESS, EGRESS} & task.template.annotations.keys()


async def test_a_job_may_lower_the_limit_of_its_product(product: dict[str, str]) -> None:
    (task,) = (await plan_of(settings=product, product="slow")).volcano_job.tasks
    assert task.template.annotations[EGRESS] == "1G"
    lower = await plan_of(settings=product, product="slow", network={"egress": "10M"})
    assert lower.volcano_job.tasks[0].template.annotations[EGRESS] == "10M"


async def test_more_than_the_product_has_is_refused(product: dict[str, str]) -> None:
    found = await problems_of(settings=product, product="slow", network={"egress": "2G"})
    assert found == {"network.egress": "the product has only 1G"}
