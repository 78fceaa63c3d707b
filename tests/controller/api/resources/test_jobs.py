"""Tests ``/v1/jobs``: a job is created once, refused with every problem, listed and ended."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from controller.api.error_responses import MOST_NAMED
from controller.jobs.pipeline.border import PluginBorder
from controller.jobs.spec.model import Job
from controller.plugins.shared_memory import SharedMemoryPlugin
from controller.store.database import Transaction
from controller.store.jobs.job_rows import find_job
from tests.controller.api.conftest import Api
from tests.controller.api.jobs import ids, make_job, submit

SECRET = "c4n4ry-s3cret"


def with_secret(value: str = SECRET) -> dict[str, Any]:
    return make_job(
        parameters={"token": {"type": "secret", "value": value}},
        invocation={"environment": {"TOKEN": {"parameter": "token"}}},
    )


async def test_an_accepted_job_is_enqueued_for_the_reconciler(api: Api) -> None:
    assert await submit(api, make_job()) == (200, {"items": [{"id": "j1", "result": "created"}]})
    assert api.enqueued == ["j1"]
    shown = await (await api.client.get("/v1/jobs/j1")).json()
    assert shown["owner"] == {"user": "ada"}
    assert (shown["state"], shown["attempt"]) == ("IN_QUEUE", 1)


async def test_repeating_a_job_is_a_no_op_and_another_job_with_its_id_a_conflict(api: Api) -> None:
    await submit(api, make_job())
    api.enqueued.clear()
    _, again = await submit(api, make_job(replicas=1))
    assert again["items"][0]["result"] == "unchanged"
    assert api.enqueued == []
    status, other = await submit(api, make_job(replicas=2))
    assert status == 409
    assert other["details"]["problems"] == [
        {"path": "items[0].id", "message": "this id belongs to another job"}
    ]
    assert (await (await api.client.get("/v1/jobs/j1")).json()).get("replicas", 1) == 1


async def test_a_changed_secret_is_a_conflict(api: Api) -> None:
    await submit(api, with_secret())
    assert (await submit(api, with_secret()))[1]["items"][0]["result"] == "unchanged"
    assert (await submit(api, with_secret("other")))[0] == 409


async def test_a_secret_is_never_returned_and_stored_only_encrypted(
    api: Api, tmp_path: Any
) -> None:
    answers = [await submit(api, with_secret()), await submit(api, with_secret())]
    answers += [await submit(api, with_secret() | {"colour": "red"})]
    shown = await (await api.client.get("/v1/jobs/j1")).text()
    assert SECRET not in shown + json.dumps(answers)
    async with api.store.read() as transaction:
        assert SECRET not in repr(await find_job(transaction, "j1"))
    for path in tmp_path.glob("store.db*"):
        assert SECRET.encode() not in path.read_bytes()


async def test_an_atomic_call_accepts_all_jobs_or_none(api: Api) -> None:
    status, response = await submit(api, make_job("a"), make_job("b", replicas=-1), {"id": "c"})
    assert status == 422
    paths = {problem["path"] for problem in response["details"]["problems"]}
    assert paths == {"items[1].replicas", "items[2].owner", "items[2].image"}
    assert await ids(api) == []
    assert api.enqueued == []


async def test_the_number_of_reported_problems_is_bounded(api: Api) -> None:
    wrong = {"id": "j1", "owner": {"user": "ada"}, "invocation": {"command": [1] * 100}}
    response = await api.client.post("/v1/jobs", json={"items": [wrong] * 11})
    assert response.status == 422
    body = await response.json()
    assert body["message"] == "1000 problems and more; nothing was changed"
    assert len(body["details"]["problems"]) == MOST_NAMED
    assert body["details"]["problems"][0]["path"].startswith("items[0]")


async def test_a_best_effort_call_accepts_the_valid_jobs(api: Api) -> None:
    await submit(api, make_job("d"))
    status, response = await submit(
        api,
        make_job("a"),
        make_job("b", replicas=-1),
        7,
        make_job("d"),
        make_job("d2", image="x"),
        mode="best_effort",
    )
    assert status == 200
    results = [(item["id"], item["result"]) for item in response["items"]]
    assert results == [
        ("a", "created"),
        ("b", "rejected"),
        (None, "rejected"),
        ("d", "unchanged"),
        ("d2", "created"),
    ]
    assert response["items"][1]["problems"][0]["path"] == "replicas"
    assert await ids(api) == ["a", "d", "d2"]


async def test_a_duplicate_id_in_one_call_is_refused(api: Api) -> None:
    status, response = await submit(api, make_job("a"), make_job("a", replicas=2))
    assert status == 422
    assert response["details"]["problems"][0]["path"] == "items[1].id"


async def test_a_plugin_that_raises_fails_the_call_and_is_named(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(_self: Any, job: Job, _builder: Any) -> None:
        if job.id == "second":
            raise ZeroDivisionError("of no concern to anybody outside")

    monkeypatch.setattr(SharedMemoryPlugin, "on_create", breaks)
    status, response = await submit(api, make_job("first"), make_job("second"))
    said = {"code": "plugin_failed", "message": "The plugin shared_memory failed."}
    assert (status, response) == (500, said)
    assert (await ids(api), api.enqueued) == ([], [])


async def test_in_best_effort_a_plugin_failure_affects_only_its_item(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(_self: Any, job: Job, _builder: Any) -> None:
        if job.id.startswith("bad"):
            raise ZeroDivisionError("of no concern to anybody outside")

    await submit(api, make_job("bad-known"))
    monkeypatch.setattr(SharedMemoryPlugin, "on_create", breaks)
    jobs = [make_job(f"{name}") for name in ("a", "bad1", "bad2", "bad3", "bad4", "b", "bad-known")]
    status, response = await submit(api, *jobs, mode="best_effort")
    assert status == 200
    results = {one["id"]: one["result"] for one in response["items"]}
    assert results == {"a": "created", "b": "created", "bad-known": "unchanged"} | {
        f"bad{number}": "rejected" for number in range(1, 5)
    }
    (problem,) = response["items"][1]["problems"]
    assert problem["path"] == ""
    assert "shared_memory" in problem["message"]
    assert await ids(api) == ["a", "b", "bad-known"]


async def test_a_hanging_plugin_is_awaited_at_most_three_times_per_call(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def hangs(_self: Any, job: Job, _builder: Any) -> None:
        asked.append(job.id)
        await asyncio.Event().wait()

    monkeypatch.setattr(SharedMemoryPlugin, "on_create", hangs)
    monkeypatch.setattr(PluginBorder, "_seconds_of", lambda _self, _call: 0.05)
    jobs = [make_job(f"j{number}") for number in range(20)]
    _, response = await submit(api, *jobs, mode="best_effort")
    assert [one["result"] for one in response["items"]] == ["rejected"] * 20
    assert asked == ["j0", "j1", "j2"]


async def test_a_field_of_an_absent_plugin_is_refused(api: Api) -> None:
    field = "colours"
    status, response = await submit(api, make_job() | {field: ["red"]})
    assert status == 422
    assert response["details"]["problems"] == [
        {"path": f"items[0].{field}", "message": "unknown field"}
    ]


async def test_jobs_are_listed_by_owner_state_and_label_in_pages(api: Api) -> None:
    for number in range(5):
        user = "ada" if number % 2 else "bob"
        await submit(
            api, make_job(f"j{number}", owner={"user": user, "project": "sun"}, labels={"n": "x"})
        )
    await submit(api, make_job("other"))
    assert await ids(api, "?user=bob") == ["j0", "j2", "j4"]
    assert await ids(api, "?project=sun&label=n=x&state=IN_QUEUE") == [f"j{n}" for n in range(5)]
    assert await ids(api, "?label=n=y") == []
    first = await (await api.client.get("/v1/jobs?limit=4")).json()
    assert first["next"] == "j3"
    second = await (await api.client.get("/v1/jobs?limit=4&after=j3")).json()
    assert [job["id"] for job in second["items"]] == ["j4", "other"]
    assert second["next"] is None


async def test_jobs_are_listed_newest_first_by_kind_and_time(api: Api) -> None:
    for name, kind in (("b", "lab"), ("c", "lab"), ("a", "batch")):
        await submit(api, make_job(name, kind=kind))
    assert await ids(api, "?kind=lab") == ["b", "c"]
    assert await ids(api, "?order=newest") == ["a", "c", "b"]
    assert await ids(api, "?order=newest&kind=lab&limit=1") == ["c"]
    first = await (await api.client.get("/v1/jobs?order=newest&limit=2")).json()
    assert await ids(api, f"?order=newest&limit=2&after={first['next']}") == ["b"]
    since = (await (await api.client.get("/v1/jobs/c")).json())["submitted_at"]
    for order in ("id", "newest"):
        assert set(await ids(api, f"?since={since:.9f}&order={order}")) >= {"a"}
        assert "b" not in await ids(api, f"?since={since:.9f}&order={order}")
    assert await ids(api, "?since=99999999999") == []


@pytest.mark.parametrize(
    ("query", "path"),
    [("?limit=0", "limit"), ("?limit=x", "limit"), ("?limit=²", "limit"),
     ("?limit=5_0", "limit"), ("?limit=%205", "limit"), ("?limit=%2B5", "limit"),
     ("?limit=5.0", "limit"), ("?limit=", "limit"),
     ("?state=DONE", "state[0]"), ("?label==x", "label[0]"), ("?limit=1&limit=2", "limit"),
     ("?colour=red", "colour"), ("?order=oldest", "order"), ("?order=newest&after=j1", "after"),
     ("?order=newest&after=nan_j1", "after"), ("?since=yesterday", "since"),
     ("?since=-1", "since"), ("?since=nan", "since"), ("?since=1e3", "since")],
)  # fmt: skip
async def test_an_invalid_query_parameter_is_named(api: Api, query: str, path: str) -> None:
    response = await api.client.get(f"/v1/jobs{query}")
    assert response.status == 422
    assert (await response.json())["details"]["problems"][0]["path"] == path


async def test_a_job_shows_the_user_who_ended_it_if_the_caller_named_one(api: Api) -> None:
    await submit(api, make_job("j1"), make_job("j2"), make_job("j3"))
    assert (await api.client.delete("/v1/jobs/j1", params={"by": "Ada L."})).status == 202
    await api.client.post("/v1/jobs/terminate", json={"items": ["j2"], "by": "Grace"})
    await api.client.delete("/v1/jobs/j3", params={"force": "true"})  # no effect
    # The first request to end the job is the one recorded.
    await api.client.delete("/v1/jobs/j1", params={"by": "Grace"})
    shown = [await api.client.get(f"/v1/jobs/j{number}") for number in (1, 2, 3)]
    body = [(await response.json())["details"] for response in shown]
    assert [one and (one["cause"], one["by"]) for one in body] == [
        ("asked", "Ada L."), ("asked", "Grace"), None,
    ]  # fmt: skip
    for wrong in ("", "x" * 256, "a\nb"):
        assert (await api.client.delete("/v1/jobs/j3", params={"by": wrong})).status == 422


async def test_ending_a_job_is_idempotent(api: Api) -> None:
    await submit(api, make_job())
    for _ in range(2):
        response = await api.client.delete("/v1/jobs/j1")
        assert response.status == 202
        assert (await response.json())["state"] == "CANCELING"
    many = await api.client.post("/v1/jobs/terminate", json={"items": ["j1", "never-was"]})
    assert [item["result"] for item in (await many.json())["items"]] == ["CANCELING", "not_found"]


async def test_many_jobs_are_ended_in_few_commits_and_enqueued_in_order(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"m{number}" for number in range(130)]
    await submit(api, *(make_job(job_id) for job_id in ids))
    asked = [*reversed(ids), "never-was", *ids[:5]]
    write, commits = api.store.write, list[None]()

    def counted() -> AbstractAsyncContextManager[Transaction]:
        commits.append(None)
        return write()

    monkeypatch.setattr(api.store, "write", counted)
    response = await api.client.post("/v1/jobs/terminate", json={"items": asked})
    items = (await response.json())["items"]
    assert [item["id"] for item in items] == asked
    results = {item["id"]: item["result"] for item in items}
    assert results.pop("never-was") == "not_found"
    assert results == dict.fromkeys(ids, "CANCELING")
    assert len(commits) == 2


@pytest.mark.parametrize("path", ["/v1/jobs/never-was", "/v1/jobs/..%2f", "/v1/nothing"])
async def test_an_unknown_job_is_404(api: Api, path: str) -> None:
    response = await api.client.get(path)
    assert response.status == 404
    assert set(await response.json()) == {"code", "message"}


@pytest.mark.parametrize("settings", [{"FUMAROLE_CONTROLLER_IMAGES": "quay.io/good/**"}])
async def test_an_unlisted_image_is_422_with_its_path(api: Api) -> None:
    status, body = await submit(api, make_job("a"))
    assert status == 422
    (problem,) = body["details"]["problems"]
    assert problem["path"] == "items[0].image"
    assert "jobs may use" in problem["message"]
    status, body = await submit(api, make_job("a", image="quay.io/good/x"))
    assert (status, body["items"][0]["result"]) == (200, "created")
