"""Tests ``/v1/batches``: jobs from one template are created once, counted, listed and ended."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest

from controller.jobs.submission import accept
from controller.store.database import Transaction
from controller.store.jobs.job_rows import find_job, lock_job, update_job
from controller.store.jobs.tombstones import delete_job_records
from tests.controller.api.conftest import Api
from tests.controller.api.jobs import ids, make_job, submit
from tests.controller.api.test_audit import RecordingHandler, kept

__all__ = ["kept"]

# In two of the twelve combinations the values together are longer than a label may be.
MATRIX: dict[str, Any] = {
    "a": ["a" * 10, "a" * 20, "a" * 40],
    "b": ["b" * 5, "b" * 10, "b" * 24, "b" * 30],
}
TEMPLATE: dict[str, Any] = {
    "owner": {"user": "ada", "project": "sun"},
    "image": "shell",
    "labels": {"both": "{{a}}{{b}}"},
}


def make_batch(batch_id: str = "b1", **fields: Any) -> dict[str, Any]:
    ways = {"count", "array", "matrix"}
    way = {} if ways & fields.keys() else {"count": 3}
    return {"id": batch_id, "template": make_template()} | way | fields


def make_template(**fields: Any) -> dict[str, Any]:
    return {"owner": {"user": "ada"}, "image": "shell"} | fields


async def post(api: Api, body: Any) -> tuple[int, dict[str, Any]]:
    response = await api.client.post("/v1/batches", json=body)
    return response.status, await response.json()


async def get(api: Api, path: str, status: int = 200) -> dict[str, Any]:
    response = await api.client.get(path)
    assert response.status == status, await response.text()
    found: dict[str, Any] = await response.json()
    return found


async def finish(api: Api, *job_ids: str, state: str = "SUCCESS", at: float = 5.0) -> None:
    async with api.store.write() as transaction:
        for job_id in job_ids:
            record = await lock_job(transaction, job_id)
            assert record is not None
            await update_job(transaction, record, now=at, state=state, finished_at=at)


async def forget(api: Api, *job_ids: str) -> None:
    async with api.store.write() as transaction:
        await delete_job_records(transaction, job_ids, at=9.0)


async def test_an_atomic_matrix_with_two_invalid_items_creates_no_job_and_names_both(
    api: Api,
) -> None:
    status, said = await post(api, make_batch(template=TEMPLATE, matrix=MATRIX))
    assert status == 422
    paths = {one["path"] for one in said["details"]["problems"]}
    assert paths == {"items[10].labels.both", "items[11].labels.both"}
    assert said["details"]["items"] == [
        {"index": index, "id": f"b1-{index}", "parameters": {"a": "a" * 40, "b": "b" * length}}
        for index, length in ((10, 24), (11, 30))
    ]
    assert (await ids(api), api.enqueued) == ([], [])
    await get(api, "/v1/batches/b1", 404)


async def test_a_best_effort_matrix_with_two_invalid_items_creates_ten_jobs_once(
    api: Api,
) -> None:
    asked = make_batch(mode="best_effort", template=TEMPLATE, matrix=MATRIX)
    status, said = await post(api, asked)
    assert (status, said["size"], said["jobs"], said["rejected"]) == (201, 12, 10, 2)
    assert (said["counts"], said["over"]) == ({"IN_QUEUE": 10}, False)
    assert said["owner"] == {"user": "ada", "project": "sun"}
    results = [one["result"] for one in said["results"]]
    assert results == ["created"] * 10 + ["rejected"] * 2
    assert [one["index"] for one in said["results"]] == list(range(12))
    assert said["results"][5]["parameters"] == {"a": "a" * 20, "b": "b" * 10}
    assert said["results"][11]["problems"][0]["path"] == "labels.both"
    assert "problems" not in said["results"][0]
    assert len(api.enqueued) == 10
    made = await ids(api, "?batch=b1")
    assert sorted(made) == sorted(f"b1-{n}" for n in range(10))
    status, again = await post(api, asked)
    assert status == 200
    assert [one["result"] for one in again["results"]] == ["unchanged"] * 10 + ["rejected"] * 2
    assert again["results"][11]["problems"] == said["results"][11]["problems"]
    assert {**again, "results": None} == {**said, "results": None}
    assert (len(api.enqueued), sorted(await ids(api))) == (10, sorted(made))


async def test_a_job_shows_its_batch_and_variables(api: Api) -> None:
    template = make_template(
        replicas="{{n}}", invocation={"command": ["train", "--lr={{lr}}", "{{n}}"]}
    )
    asked = make_batch(template=template, array=[{"n": 1, "lr": 0.1}, {"n": 2, "lr": 1e-5}])
    assert (await post(api, asked))[0] == 201
    shown = await get(api, "/v1/jobs/b1-1")
    assert (shown["batch"], shown["replicas"]) == ("b1", 2)
    assert shown["batch_item"] == {"index": 1, "parameters": {"n": 2, "lr": 1e-5}}
    assert shown["invocation"]["command"] == ["train", "--lr=1e-05", "2"]
    await submit(api, make_job("alone"))
    alone = await get(api, "/v1/jobs/alone")
    assert (alone["batch"], alone["batch_item"]) == (None, None)


async def test_another_body_for_a_known_batch_id_is_a_conflict(api: Api) -> None:
    assert (await post(api, make_batch()))[0] == 201
    for other in (
        make_batch(count=4),
        make_batch(mode="best_effort"),
        make_batch(template=make_template(image="busybox")),
    ):
        status, said = await post(api, other)
        assert (status, said["code"]) == (409, "conflict")
        assert said["details"]["problems"] == [
            {"path": "id", "message": "this id belongs to another batch"}
        ]
    assert await ids(api) == ["b1-0", "b1-1", "b1-2"]


async def test_concurrent_identical_batches_are_created_once(api: Api) -> None:
    answers = await asyncio.gather(*(post(api, make_batch(count=40)) for _ in range(3)))
    assert sorted(status for status, _ in answers) == [200, 200, 201]
    assert len(await ids(api)) == len(api.enqueued) == 40


async def test_a_crash_before_the_commit_leaves_nothing_and_the_call_can_be_repeated(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(_transaction: Transaction, _jobs: object) -> None:
        raise RuntimeError("the process dies here")

    with monkeypatch.context() as patched:
        patched.setattr(accept, "insert_jobs", dies)
        assert (await post(api, make_batch(mode="best_effort")))[0] == 500
    assert (await ids(api), api.enqueued) == ([], [])
    await get(api, "/v1/batches/b1", 404)
    assert (await post(api, make_batch(mode="best_effort")))[0] == 201
    assert len(await ids(api)) == 3


@pytest.mark.parametrize("mode", ["atomic", "best_effort"])
async def test_an_error_of_all_items_is_reported_once_and_no_job_is_kept(
    api: Api, mode: str
) -> None:
    template = make_template(colour="red", replicas="{{n}}")
    array = [{"n": 1}, {"n": 0}]
    status, said = await post(api, make_batch(mode=mode, template=template, array=array))
    assert status == 422
    assert {one["path"] for one in said["details"]["problems"]} == {
        "template.colour",
        "items[1].replicas",
    }
    await get(api, "/v1/batches/b1", 404)
    right = make_template(replicas="{{n}}")
    assert (await post(api, make_batch(mode="best_effort", template=right, array=array)))[0] == 201


async def test_an_unknown_variable_is_refused_in_both_modes(api: Api) -> None:
    template = make_template(name="{{who}}")
    for mode in ("atomic", "best_effort"):
        status, said = await post(api, make_batch(mode=mode, template=template))
        assert (status, said["details"]["problems"][0]["path"]) == (422, "template.name")
    assert await ids(api) == []


async def test_a_batch_has_one_owner(api: Api) -> None:
    template = make_template(owner={"user": "{{who}}"})
    status, said = await post(
        api, make_batch(template=template, array=[{"who": "a"}, {"who": "b"}])
    )
    assert (status, said["details"]["problems"][0]["path"]) == (422, "template.owner")


@pytest.mark.parametrize(
    "more",
    [
        {"count": 1001},
        {"array": [{}] * 1001},
        {"matrix": {"a": [1] * 40, "b": [1] * 26}},
        {"template": make_template(name="x" * 9000), "count": 1000},
    ],
)
async def test_more_than_a_thousand_items_or_an_oversize_expansion_is_413(
    api: Api, more: dict[str, Any]
) -> None:
    status, said = await post(api, make_batch(**more))
    assert (status, said["code"]) == (413, "too_large")


async def test_a_body_over_4_mib_is_413(api: Api) -> None:
    long = make_batch(template=make_template(name="x" * (4 << 20)))
    response = await api.client.post(
        "/v1/batches",
        data=io.BytesIO(json.dumps(long).encode()),
        headers={"Content-Type": "application/json"},
    )
    assert response.status == 413


async def test_a_template_secret_is_never_returned_and_changes_the_body_hash(
    api: Api,
) -> None:
    def asked(value: str) -> dict[str, Any]:
        return make_batch(
            template=make_template(
                parameters={"token": {"type": "secret", "value": value}},
                invocation={"environment": {"TOKEN": {"parameter": "token"}}},
            )
        )

    answers = [await post(api, asked("c4n4ry")), await post(api, asked("c4n4ry"))]
    assert [status for status, _ in answers] == [201, 200]
    assert (await post(api, asked("other")))[0] == 409
    answers += [(200, await get(api, "/v1/batches/b1/items")), (200, await get(api, "/v1/jobs"))]
    assert "c4n4ry" not in repr(answers)


async def test_a_batch_adopts_existing_jobs_of_the_same_owner_only(api: Api) -> None:
    # After the loss of the store, the jobs were adopted but their batch was not.
    await submit(api, make_job("b1-0"), make_job("b1-1", image="busybox"))
    await post(api, make_batch("b2", template=make_template(id="b1-2"), count=1))
    api.enqueued.clear()
    status, said = await post(api, make_batch(mode="best_effort", count=4))
    assert status == 201
    results = [one["result"] for one in said["results"]]
    assert results == ["unchanged", "conflict", "conflict", "created"]
    assert (said["jobs"], said["counts"], api.enqueued) == (2, {"IN_QUEUE": 2}, ["b1-3"])
    assert await ids(api, "?batch=b1") == ["b1-0", "b1-3"]
    assert (await get(api, "/v1/jobs/b1-0"))["batch_item"]["index"] == 0
    assert await ids(api, "?batch=b2") == ["b1-2"]
    status, said = await post(api, make_batch("b3", template=make_template(id="b1-2"), count=1))
    assert (status, said["details"]["problems"][0]["path"]) == (409, "items[0].id")


async def test_during_maintenance_a_replay_still_gets_its_response(api: Api) -> None:
    await post(api, make_batch())
    drain = {"action": "drain", "message": "no more"}
    assert (await api.client.post("/v1/maintenance", json=drain)).status == 200
    assert (await post(api, make_batch()))[0] == 200
    status, said = await post(api, make_batch("b2"))
    assert (status, said["code"], said["message"]) == (503, "draining", "no more")
    await get(api, "/v1/batches/b2", 404)


async def test_a_batch_counts_jobs_whose_records_were_deleted(api: Api) -> None:
    await post(api, make_batch(count=4))
    await finish(api, "b1-1")
    await finish(api, "b1-2", state="FAILURE")
    assert (await get(api, "/v1/batches/b1"))["counts"] == {
        "FAILURE": 1, "IN_QUEUE": 2, "SUCCESS": 1,
    }  # fmt: skip
    for job_id in ("b1-2", "b1-1"):
        await forget(api, job_id)
        shown = await get(api, "/v1/batches/b1")
        assert shown["counts"] == {"FAILURE": 1, "IN_QUEUE": 2, "SUCCESS": 1}
    # The id is free again. A new job with this id does not belong to the batch.
    await submit(api, make_job("b1-2", image="busybox"))
    items = (await get(api, "/v1/batches/b1/items"))["items"]
    assert [one["state"] for one in items] == ["IN_QUEUE", "SUCCESS", "FAILURE", "IN_QUEUE"]
    assert await ids(api, "?batch=b1") == ["b1-0", "b1-3"]
    assert (await post(api, make_batch(count=4)))[0] == 200
    assert (await api.client.delete("/v1/batches/b1")).status == 202
    assert (await get(api, "/v1/jobs/b1-2"))["desired"] == "run"
    await finish(api, "b1-0", "b1-3", state="EXPIRED")
    await forget(api, "b1-0", "b1-3")
    shown = await get(api, "/v1/batches/b1")
    assert (shown["counts"], shown["over"]) == ({"EXPIRED": 2, "FAILURE": 1, "SUCCESS": 1}, True)
    assert (await post(api, make_batch(count=4)))[0] == 200


async def test_ending_a_batch_ends_all_jobs_and_is_idempotent(
    api: Api, kept: RecordingHandler
) -> None:
    await post(api, make_batch(count=130))
    await submit(api, make_job("other"))
    await finish(api, "b1-7", state="FAILURE")
    api.enqueued.clear()
    response = await api.client.delete("/v1/batches/b1")
    assert response.status == 202
    shown = await response.json()
    assert (shown["counts"], shown["over"]) == ({"CANCELING": 129, "FAILURE": 1}, False)
    assert sorted(api.enqueued) == sorted({f"b1-{n}" for n in range(130)} - {"b1-7"})
    assert len(kept.of("ended")) == 129
    assert (await get(api, "/v1/jobs/other"))["desired"] == "run"
    assert (await api.client.delete("/v1/batches/b1")).status == 202
    async with api.store.read() as transaction:
        untouched = await find_job(transaction, "b1-7")
    assert untouched is not None
    assert untouched.desired == "run"
    assert len(kept.of("ended")) == 129
    await finish(api, *(f"b1-{n}" for n in range(130)))
    assert (await api.client.delete("/v1/batches/b1")).status == 200
    assert (await api.client.delete("/v1/batches/b9")).status == 404


async def test_batches_are_listed_by_owner_newest_first_in_pages(api: Api) -> None:
    for number in range(5):
        owner = {"user": "ada" if number % 2 else "eve"}
        owner |= {"project": "sun"} if number == 3 else {}
        await post(api, make_batch(f"b{number}", template=make_template(owner=owner), count=1))

    async def found(query: str) -> list[str]:
        return [one["id"] for one in (await get(api, f"/v1/batches{query}"))["items"]]

    assert await found("") == ["b4", "b3", "b2", "b1", "b0"]
    assert await found("?user=ada") == ["b3", "b1"]
    assert await found("?project=sun&user=ada") == ["b3"]
    assert await found("?user=bob") == []
    first = await get(api, "/v1/batches?limit=2")
    assert [one["counts"] for one in first["items"]] == [{"IN_QUEUE": 1}] * 2
    second = await get(api, f"/v1/batches?limit=3&after={first['next']}")
    assert ([one["id"] for one in second["items"]], second["next"]) == (["b2", "b1", "b0"], None)
    for wrong in ("?limit=101", "?after=x", "?colour=red"):
        await get(api, f"/v1/batches{wrong}", 422)


async def test_items_and_jobs_of_a_batch_are_paginated(api: Api) -> None:
    await post(api, make_batch(count=12))
    await submit(api, make_job("other"))
    first = await get(api, "/v1/batches/b1/items?limit=7")
    assert [one["index"] for one in first["items"]] == list(range(7))
    second = await get(api, f"/v1/batches/b1/items?limit=7&after={first['next']}")
    assert [one["id"] for one in second["items"]] == [f"b1-{n}" for n in range(7, 12)]
    assert second["next"] is None
    assert (await get(api, "/v1/batches/b1/items?after=99999"))["items"] == []
    await get(api, "/v1/batches/b9/items", 404)
    for order in ("id", "newest"):
        seen: list[str] = []
        after: Any = ""
        for _ in range(3):
            path = f"/v1/jobs?batch=b1&limit=5&order={order}&after={after}"
            page = await get(api, path)
            seen += [one["id"] for one in page["items"]]
            after = page["next"]
        assert after is None
        assert sorted(seen) == sorted(f"b1-{n}" for n in range(12))
    await finish(api, "b1-3")
    assert await ids(api, "?batch=b1&state=SUCCESS") == ["b1-3"]
    assert await ids(api, "?batch=b1&user=eve") == []


@pytest.mark.parametrize("settings", [{"FUMAROLE_CONTROLLER_VOLUMES": "sets=sets:ro"}])
async def test_jobs_inherit_the_data_set_policies_of_their_batch(api: Api) -> None:
    parameters: dict[str, Any] = {
        "images": {"type": "directory", "path": "/sets/images"},
        "words": {"type": "file", "path": "/sets/words", "policy": "{{how}}"},
    }
    data = {
        "images": {"policy": "staged", "size_limit": "1Gi"},
        "words": {"policy": "memory", "size_limit": "1Mi"},
    }
    hows = [{"how": "shared"}, {"how": "direct"}]
    asked = make_batch(template=make_template(parameters=parameters), data=data, array=hows)
    assert (await post(api, asked))[0] == 201
    shown = [(await get(api, f"/v1/jobs/b1-{index}"))["parameters"] for index in (0, 1)]
    assert [one["images"] for one in shown] == [parameters["images"] | data["images"]] * 2
    assert [one["words"].get("policy", "direct") for one in shown] == ["shared", "direct"]
    assert (await post(api, asked))[0] == 200
    data["images"]["size_limit"] = "2Gi"
    assert (await post(api, asked))[0] == 409
    parameters["lr"] = {"type": "text", "value": "x"}
    wrong = asked | {"data": {"lr": {"policy": "shared"}, "none": {"policy": "shared"}}}
    status, said = await post(api, wrong)
    assert (status, {one["path"] for one in said["details"]["problems"]}) == (
        422,
        {"data.lr", "data.none"},
    )
