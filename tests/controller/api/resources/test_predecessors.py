"""Tests jobs that wait for other jobs: which chains the API accepts and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.jobs.spec.accepted import read_spec
from controller.jobs.spec.parameters import ArtefactsParameter
from controller.store.jobs.job_rows import find_job, update_job
from controller.store.jobs.tombstones import delete_job_records
from tests.controller.api.conftest import Api
from tests.controller.api.jobs import ids, make_job, submit
from tests.controller.api.resources.test_batches import make_batch, make_template, post


def paths(said: dict[str, Any]) -> set[str]:
    return {one["path"] for one in said["details"]["problems"]}


async def test_a_chain_is_accepted_in_one_call_or_refused_with_all_errors(api: Api) -> None:
    chain = [make_job("c", after=["b"]), make_job("b", after=["a"]), make_job("a")]
    assert (await submit(api, *chain))[0] == 200
    assert (await submit(api, *chain))[1]["items"][0]["result"] == "unchanged"
    shown = await (await api.client.get("/v1/jobs/c")).json()
    assert shown["after"] == ["b"]
    circle = [make_job("x", after=["y"]), make_job("y", after=["a", "x"])]
    status, said = await submit(api, *circle, make_job("z", after=["a", "nobody"]))
    assert (status, paths(said)) == (422, {"items[0].after", "items[1].after", "items[2].after[1]"})
    status, said = await submit(api, make_job("e", owner={"user": "eve"}, after=["a"]))
    assert (status, paths(said)) == (422, {"items[0].after[0]"})
    assert await ids(api) == ["a", "b", "c"]


async def test_in_best_effort_followers_of_a_refused_job_are_refused(api: Api) -> None:
    _, said = await submit(
        api,
        make_job("a", replicas=0),
        make_job("b", after=["a"]),
        make_job("c", after=["b"]),
        make_job("d"),
        make_job("e", after=["d"]),
        mode="best_effort",
    )
    results = [one["result"] for one in said["items"]]
    assert results == ["rejected", "rejected", "rejected", "created", "created"]


async def test_items_of_a_batch_may_depend_on_each_other(api: Api) -> None:
    array = [{"first": "{{batch}}"}]
    assert (await post(api, make_batch("b0", count=1)))[0] == 201
    template = make_template(after=["{{first}}-0"])
    status, said = await post(api, make_batch(template=template, array=array))
    assert (status, paths(said)) == (422, {"items[0].after[0]"})
    status, _ = await post(api, make_batch(template=template, array=[{"first": "b0"}]))
    assert status == 201


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "kinds.yaml"
    path.write_text(KINDS)
    return {
        "FUMAROLE_CONTROLLER_VOLUMES": "home=home-{user}",
        "FUMAROLE_CONTROLLER_KINDS_FILE": str(path),
    }


KINDS = """
kinds:
  pruning:
    framework: pytorch
    parameters:
      model: {type: artefacts, required: true}
      share: {type: floating, default: 0.5}
"""


def reads(job: str, **fields: Any) -> dict[str, Any]:
    """Return the fields of a job that reads the artefacts of *job*."""
    return {"after": [job], "parameters": {"model": {"type": "artefacts", "job": job}}, **fields}


async def test_a_follower_mounts_its_predecessors_artefacts_and_keeps_their_paths(api: Api) -> None:
    train = make_job("train", kind="training", output="/home/runs/1")
    chain = [make_job("small", output="/home/runs/2", **reads("train")), train]
    assert (await submit(api, *chain))[0] == 200
    later = make_job("onnx", **reads("small", kind="conversion"))
    assert (await submit(api, later))[0] == 200
    shown = await (await api.client.get("/v1/jobs/onnx")).json()
    path = "/home/runs/2/artefacts"
    assert shown["parameters"] == {"model": {"type": "artefacts", "job": "small", "path": path}}
    assert shown["filled"] == ["parameters.model.path"]
    for job in (*chain, later):
        assert (await submit(api, job))[1]["items"][0]["result"] == "unchanged"
    other = make_job("onnx", **reads("small", kind="other"))
    assert (await submit(api, other))[0] == 409


async def test_a_chain_outlives_its_predecessors_record(api: Api) -> None:
    follower = make_job("small", **reads("train"))
    assert (await submit(api, make_job("train", output="/home/runs/1"), follower))[0] == 200
    async with api.store.write() as transaction:
        record = await find_job(transaction, "train")
        assert record is not None
        await update_job(transaction, record, now=1.0, state="SUCCESS", finished_at=1.0)
        await delete_job_records(transaction, ["train"], at=2.0)
        kept = await find_job(transaction, "small")
        assert kept is not None
    model = read_spec(kept.spec, {}).parameters["model"]
    assert isinstance(model, ArtefactsParameter)
    assert model.path == "/home/runs/1/artefacts"
    assert (await submit(api, follower))[1]["items"][0]["result"] == "unchanged"
    status, said = await submit(api, make_job("late", **reads("train")))
    assert (status, paths(said)) == (422, {"items[0].parameters.model.job"})


async def test_artefacts_of_no_job_or_of_another_owner_are_refused(api: Api) -> None:
    evil = {"user": "eve"}
    assert (await submit(api, make_job("bare"), make_job("out", output="/home/x")))[0] == 200
    # The follower's path would be longer than the store can keep and read back.
    long = f"/home{20 * ('/' + 200 * 'x')}/{64 * 'y'}"
    assert (await submit(api, make_job("long", output=long)))[0] == 200
    where = "parameters.model.job"
    for fields, expected in (
        (reads("nobody"), {where}),
        (reads("out", owner=evil), {where}),
        (reads("bare"), {where}),
        (reads("long"), {where}),
        (reads("out", after=[]), {where}),
        (reads("out", after=["bare"]), {where}),
    ):
        status, said = await submit(api, make_job("x", **fields))
        assert (status, paths(said)) == (422, {f"items[0].{path}" for path in expected}), fields
    said_path = {"type": "artefacts", "job": "out", "path": "/home/other"}
    wrong = make_job("x", **reads("out", parameters={"model": said_path}), filled=["framework"])
    status, said = await submit(api, wrong)
    assert (status, paths(said)) == (422, {"items[0].filled"})
    status, said = await submit(api, {name: wrong[name] for name in wrong if name != "filled"})
    assert (status, paths(said)) == (422, {"items[0].parameters.model.path"})


async def test_defaults_of_a_kind_are_applied_once_and_invalid_parameters_refused(
    api: Api,
) -> None:
    assert (await submit(api, make_job("train", output="/home/x")))[0] == 200
    asked = make_job("p", **reads("train", kind="pruning"), tasks=[{"name": "master"}])
    assert (await submit(api, asked))[0] == 200
    shown = await (await api.client.get("/v1/jobs/p")).json()
    assert shown["framework"] == "pytorch"
    assert shown["parameters"]["share"] == {"type": "floating", "value": 0.5}
    assert shown["filled"] == ["framework", "parameters.model.path", "parameters.share"]
    assert (await submit(api, asked))[1]["items"][0]["result"] == "unchanged"
    share = {"share": {"type": "integer", "value": 1}}
    status, said = await submit(api, make_job("q", kind="pruning", parameters=share))
    wrong = {"parameters.share.type", "parameters.model", "tasks"}
    assert (status, paths(said)) == (422, {f"items[0].{path}" for path in wrong})
    kinds = await (await api.client.get("/v1/kinds")).json()
    names = [one["name"] for one in kinds["items"]]
    assert names == ["conversion", "pruning", "quantization", "training"]
