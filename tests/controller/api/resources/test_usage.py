"""Tests the usage ledger API: an orchestrator reads and acknowledges entries."""

from __future__ import annotations

from typing import Any

from controller.jobs.usage import Ledger
from controller.store.database import Store
from controller.store.jobs.job_rows import find_job, insert_job
from controller.store.jobs.progress import (
    PodRecord,
    record_attempt,
    update_attempt,
    upsert_pod_records,
)
from tests.clock import Clock
from tests.controller.api.conftest import Api
from tests.controller.samples import make_defaults, make_record

START = 1000.0


def run(job_id: str, rank: int = 0, ended_at: float | None = None) -> PodRecord:
    return PodRecord(
        job_id=job_id, pod_uid=f"{job_id}-{rank}", attempt=1, rank=rank, task="job", index=rank,
        pod="p", node="n", phase="Running", reason="", message="", exit_code=None, signal=None,
        seen_at=START, started_at=START, ended_at=ended_at,
    )  # fmt: skip


async def runs(store: Store, job_id: str, *, user: str = "ada", project: str | None = None,
               ranks: int = 1) -> None:  # fmt: skip
    owner = {"user": user} | ({"project": project} if project else {})
    spec = {"id": job_id, "owner": owner, "image": "x", "replicas": ranks}
    record = make_record(
        id=job_id, owner_user=user, owner_project=project, uid=f"u-{job_id}", state="RUNNING",
        started_at=START, spec=spec, product="gpu-1",
        price={"amount": "2.5", "unit": "credits", "per_seconds": 3600},
    )  # fmt: skip
    async with store.write() as transaction:
        await insert_job(transaction, record, labels={})
        await record_attempt(transaction, job_id, 1, uid=f"u-{job_id}", now=START)
        await upsert_pod_records(transaction, [run(job_id, rank) for rank in range(ranks)])


async def read(api: Api, query: str = "") -> dict[str, Any]:
    response = await api.client.get(f"/v1/usage{query}")
    assert response.status == 200, await response.text()
    page: dict[str, Any] = await response.json()
    return page


async def test_usage_is_recorded_by_period_up_to_the_end_and_paginated(api: Api) -> None:
    clock = Clock(START + 2000.0)
    ledger = Ledger(api.store, defaults=make_defaults(), clock=clock)
    await runs(api.store, "j1", ranks=2)
    assert await ledger.write_up("j1") == START + 2700
    assert await ledger.write_up("j1") == START + 2700
    page = await read(api)
    assert [(one["rank"], one["period"], one["seconds"]) for one in page["items"]] == [
        (0, 0, 900.0), (0, 1, 1800.0), (1, 0, 900.0), (1, 1, 1800.0),
    ]  # fmt: skip
    one = page["items"][0]
    assert (one["job"], one["owner"], one["product"]) == ("j1", {"user": "ada"}, "gpu-1")
    assert (one["price"]["amount"], one["resources"]) == ("2.5", {"cpu": "1", "memory": "1Gi"})
    assert page["ledger"] == "test"
    async with api.store.write() as transaction:
        ended = [run("j1", rank, ended_at=START + 2500.0) for rank in range(2)]
        await upsert_pod_records(transaction, ended)
        await update_attempt(transaction, "j1", 1, ended_at=START + 2501.0)
    clock.now += 9000
    assert await ledger.write_up("j1") is None
    rest = await read(api, f"?after={page['next']}")
    last = [(one["rank"], one["period"], one["seconds"], one["final"]) for one in rest["items"]]
    assert last == [(0, 2, 2500.0, True), (1, 2, 2500.0, True)]
    assert await ledger.write_up("j1") is None
    assert (await read(api, "?after=0&limit=1"))["next"] == 1
    assert (await read(api, f"?after={rest['next']}"))["items"] == []


async def test_running_out_of_funds_ends_only_that_owners_jobs(api: Api) -> None:
    for job_id, user, project in (
        ("mine", "ada", None), ("ours", "ada", "sun"), ("theirs", "bob", "sun"),
        ("his", "bob", None),
    ):  # fmt: skip
        await runs(api.store, job_id, user=user, project=project)
    clock = Clock(START + 1000.0)
    await Ledger(api.store, defaults=make_defaults(), clock=clock).write_up("mine")
    out = [{"owner": {"user": "ada"}}, {"job": "his"}, {"job": "never-was"}]
    body = {"through": 1, "exhausted": out}
    response = await api.client.post("/v1/usage/ack", json=body)
    assert await response.json() == {"through": 1, "ended": ["his", "mine"]}
    async with api.store.read() as transaction:
        record = await find_job(transaction, "mine")
        assert record is not None
        assert (record.state, record.reason) == ("CANCELING", "out_of_funds")
        assert record.end_state == "FAILURE"
        kept = await find_job(transaction, "ours")
        assert kept is not None
        assert kept.desired == "run"
    again = await api.client.post("/v1/usage/ack", json=body)
    assert await again.json() == {"through": 1, "ended": []}
    sun = {"through": 0, "exhausted": [{"owner": {"project": "sun"}}]}
    response = await api.client.post("/v1/usage/ack", json=sun)
    # The acknowledgement is kept.
    assert await response.json() == {"through": 1, "ended": ["ours", "theirs"]}
    assert sorted(set(api.enqueued)) == ["his", "mine", "ours", "theirs"]


async def test_an_exhausted_owner_as_the_ledger_names_it_means_the_project(api: Api) -> None:
    await runs(api.store, "ours", user="ada", project="sun")
    await runs(api.store, "theirs", user="bo", project="sun")
    await runs(api.store, "mine", user="ada")
    body = {"through": 0, "exhausted": [{"owner": {"user": "ada", "project": "sun"}}]}
    response = await api.client.post("/v1/usage/ack", json=body)
    assert response.status == 200, await response.text()
    assert sorted(set(api.enqueued)) == ["ours", "theirs"]


async def test_an_exhausted_owner_names_a_user_or_a_project(api: Api) -> None:
    body = {"through": 0, "exhausted": [{"owner": {"user": None, "project": None}}]}
    response = await api.client.post("/v1/usage/ack", json=body)
    assert response.status == 422
    assert "a user or a project must be given" in await response.text()


async def test_unread_usage_cannot_be_acknowledged(api: Api) -> None:
    await runs(api.store, "j1")
    body = {"through": 1, "exhausted": [{"job": "j1"}]}
    response = await api.client.post("/v1/usage/ack", json=body)
    assert (response.status, (await response.json())["code"]) == (409, "beyond_the_end")
    async with api.store.read() as transaction:
        record = await find_job(transaction, "j1")
        assert record is not None
        assert record.desired == "run"
    for bad in ({"through": -1}, {"through": 0, "exhausted": [{}]}, {}):
        assert (await api.client.post("/v1/usage/ack", json=bad)).status == 422
