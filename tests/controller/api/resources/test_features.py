"""Tests that the API refuses a feature that a product does not offer, and does not list it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.store.jobs.job_rows import find_job, update_job
from controller.store.jobs.progress import upsert_pod_records
from tests.controller.api.conftest import Api
from tests.controller.api.jobs import make_job, submit
from tests.controller.api.resources.test_details import node, run, text
from tests.controller.kube.api_server import Script, listing, says

NOTHING = {"logs": False, "extend": False, "utilization": False}
PRODUCTS: dict[str, Any] = {
    "open": {"cpu": 1, "memory": "1Gi", "node_labels": {"machine": "small"}},
    "closed": {"cpu": 2, "memory": "1Gi", "features": NOTHING},
    "large": {"cpu": 4, "memory": "1Gi", "node_labels": {"machine": ["large", "huge"]}},
}


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "products.json"
    path.write_text(json.dumps({"products": PRODUCTS}))
    return {"FUMAROLE_CONTROLLER_PRODUCTS_FILE": str(path)}


async def status_of(api: Api, method: str, path: str, body: Any = None) -> tuple[int, str]:
    response = await api.client.request(method, path, json=body)
    said = await response.json() if response.content_type == "application/json" else {}
    return response.status, said.get("code", "")


@pytest.mark.parametrize(
    ("product", "expected"), [("open", (200, "")), ("closed", (409, "not_offered"))]
)
async def test_logs_and_extensions_depend_on_the_product(
    api: Api, script: Script, product: str, expected: tuple[int, str]
) -> None:
    job = make_job(product=product, time_allocation_seconds=60)
    assert (await submit(api, job))[0] == 200
    async with api.store.write() as transaction:
        await upsert_pod_records(transaction, [run(0)])
    script.answer(text(b"x"))
    asked = "/v1/jobs/j1/logs"
    assert (await status_of(api, "GET", asked))[0] == expected[0]
    assert (await status_of(api, "POST", "/v1/jobs/j1/extend", {"seconds": 5})) == expected
    if expected[0] == 409:
        assert (await status_of(api, "GET", asked)) == expected
        shown = await (await api.client.get("/v1/jobs/j1")).json()
        assert shown["time_allocation_seconds"] == 60


async def test_utilization_of_a_product_counts_its_nodes_and_jobs(api: Api, script: Script) -> None:
    machines = ("small", "large", "huge", "large")
    nodes = [node(str(cpu)) for cpu in (1, 10, 20, 40)]
    for one, machine in zip(nodes, machines, strict=True):
        one["metadata"] = {"labels": {"machine": machine}}
    script.answer(says({}, 201))
    await submit(api, make_job("small", product="open"), make_job("two", product="large"))
    async with api.store.write() as transaction:
        record = await find_job(transaction, "two")
        assert record is not None
        await update_job(transaction, record, now=1.0, state="RUNNING")
    script.answer(listing(*nodes, version="1"))
    shown = {}
    for query in ("", "?product=open", "?product=large"):
        response = await (await api.client.get(f"/v1/utilization{query}")).json()
        counted = (response["queued"]["jobs"], response["used"]["cpu"])
        shown[query] = (response["capacity"]["cpu"], *counted)
    assert shown == {"": (71, 1, 4), "?product=open": (1, 1, 0), "?product=large": (70, 0, 4)}


@pytest.mark.parametrize(
    ("query", "expected"),
    [("product=closed", (409, "not_offered")), ("product=none", (404, "not_found")),
     ("colour=red", (422, "invalid"))],
)  # fmt: skip
async def test_utilization_is_refused_if_the_product_lacks_it(
    api: Api, query: str, expected: tuple[int, str]
) -> None:
    assert await status_of(api, "GET", f"/v1/utilization?{query}") == expected


async def test_refused_features_match_the_list(api: Api) -> None:
    items = (await (await api.client.get("/v1/products")).json())["items"]
    offered = {one["name"]: one["features"] for one in items}
    for feature in NOTHING:
        assert (offered["open"][feature], offered["closed"][feature]) == (True, False)
