"""Tests what Leinao Cloud OS required of a job server, through the orchestrator's API."""

from __future__ import annotations

from typing import Any

import pytest

from controller.store.instance import store_capabilities
from controller.volcano.preflight import read_openapi
from tests.controller.api.conftest import Api
from tests.controller.api.jobs import make_job, submit
from tests.controller.kube.api_server import Script, says
from tests.controller.volcano.test_capabilities import KIND, VERSIONS, schema_of

WRONG: dict[int, dict[str, Any]] = {
    7: {"replicas": 0},
    250: {"colour": "red"},
    499: {"framework": "mpi"},
}
TOPOLOGY = {"network": {"mode": "hard", "tier": 1}}


async def test_a_batch_of_500_jobs_reports_its_3_invalid_ones(api: Api, script: Script) -> None:
    script.answer(says({}, 503))  # another test covers the cluster's response to each job
    jobs = [make_job(f"j{number}", **WRONG.get(number, {})) for number in range(500)]
    status, said = await submit(api, *jobs)
    assert status == 422
    wrong = {one["path"].partition(".")[0] for one in said["details"]["problems"]}
    assert wrong == {f"items[{number}]" for number in WRONG}
    assert api.enqueued == []
    for result in ("created", "unchanged"):
        status, said = await submit(api, *jobs, mode="best_effort")
        assert status == 200
        results = [one["result"] for one in said["items"]]
        assert (results.count(result), results.count("rejected")) == (497, 3)
        reasons = [one.get("problems") for one in said["items"] if one["result"] == "rejected"]
        assert all(reasons)
    assert len(api.enqueued) == len(set(api.enqueued)) == 497


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_api_is_the_same_for_every_volcano_version(
    api: Api, script: Script, version: str
) -> None:
    script.answer(says({}, 201))
    schema = schema_of(version) | {"x-kubernetes-group-version-kind": [KIND]}
    async with api.store.write() as transaction:
        document = {"components": {"schemas": {"job": schema}}}
        await store_capabilities(transaction, read_openapi(document))
    assert (await submit(api, make_job("plain", replicas=2, max_retry=1)))[0] == 200
    status, said = await submit(api, make_job("wide", topology=TOPOLOGY))
    if version == "1.11":
        assert status == 422
        (problem,) = said["details"]["problems"]
        assert problem["path"] == "items[0].topology.network"
    else:
        assert (status, said["items"][0]["result"]) == (200, "created")
