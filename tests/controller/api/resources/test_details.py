"""Tests a job's ranks, history and logs, and the API's products, utilization and maintenance."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from controller.logs.records import MOST_PIECE
from controller.store.jobs.job_rows import find_job, insert_job, update_job
from controller.store.jobs.progress import (
    PodRecord,
    record_attempt,
    update_attempt,
    upsert_pod_records,
)
from tests.controller.api.conftest import Api
from tests.controller.api.jobs import make_job, submit
from tests.controller.kube.api_server import Answer, Script, listing, says
from tests.controller.samples import make_record


def run(rank: int, **fields: Any) -> PodRecord:
    values: dict[str, Any] = {
        "job_id": "j1", "pod_uid": f"p{rank}", "attempt": 1, "rank": rank, "task": "job",
        "index": rank, "pod": f"j-j1-job-{rank}", "node": "n1", "phase": "Running", "reason": "",
        "message": "", "exit_code": None, "signal": None, "seen_at": 5.0, "started_at": 10.0,
        "ended_at": None,
    }  # fmt: skip
    return PodRecord(**values | fields)


async def ran(api: Api, *runs: PodRecord, **fields: Any) -> None:
    spec = {"id": "j1", "owner": {"user": "ada"}, "image": "x", "replicas": 4}
    async with api.store.write() as transaction:
        await insert_job(transaction, make_record(spec=spec, uid="u1", **fields), labels={})
        await record_attempt(transaction, "j1", 1, uid="u1", now=4.0)
        await upsert_pod_records(transaction, runs)


async def get(api: Api, path: str) -> Any:
    response = await api.client.get(path)
    assert response.status == 200, await response.text()
    return await response.json()


async def test_every_rank_is_shown_by_its_last_pod(api: Api) -> None:
    first = run(1, pod_uid="old", seen_at=1.0, exit_code=3, ended_at=9.0, phase="Failed")
    again = run(1, exit_code=0, ended_at=30.0, phase="Succeeded")
    await ran(api, run(0), first, again, run(2, started_at=None, phase="Pending"), state="RUNNING")
    tasks = (await get(api, "/v1/jobs/j1/tasks"))["items"]
    assert [(one["rank"], one["state"]) for one in tasks] == [
        (0, "RUNNING"), (1, "SUCCEEDED"), (2, "PREPARING"), (3, "WAITING"),
    ]  # fmt: skip
    assert (tasks[0]["node"], tasks[1]["exit_code"], tasks[3]["pod"]) == ("n1", 0, None)


async def test_history_holds_every_attempt_pod_and_update(api: Api) -> None:
    await ran(api, run(0, exit_code=137, reason="OOMKilled", ended_at=20.0), state="RUNNING")
    async with api.store.write() as transaction:
        await record_attempt(transaction, "j1", 2, uid="u2", now=40.0)
        await upsert_pod_records(transaction, [run(0, pod_uid="p0b", attempt=2)])
        record = await find_job(transaction, "j1")
        assert record is not None
        await update_job(transaction, record, now=41.0, attempt=2, message="again")
    history = await get(api, "/v1/jobs/j1/history")
    assert [(one["attempt"], one["uid"]) for one in history["attempts"]] == [(1, "u1"), (2, "u2")]
    (first,) = history["attempts"][0]["runs"]
    assert (first["exit_code"], first["reason"], first["uid"]) == (137, "OOMKilled", "p0")
    assert [one["attempt"] for one in history["updates"]] == [1, 2]
    assert (await api.client.get("/v1/jobs/never-was/history")).status == 404


def text(*pieces: bytes, cut_when: asyncio.Semaphore | None = None) -> Answer:
    shown = [
        {"metadata": {"name": f"j-j1-job-{i}", "uid": f"p{i}"}, "status": {"phase": "Succeeded"}}
        for i in range(2)
    ]
    pods = listing(*shown, version="1")

    async def answer(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/log"):
            return await pods(request)
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if cut_when is not None:
            await cut_when.acquire()
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


async def test_a_log_is_text_of_the_last_pod(api: Api, script: Script) -> None:
    await ran(api, run(0), run(1))
    script.answer(text("grüß\nGott".encode()))
    response = await api.client.get("/v1/jobs/j1/logs?rank=1&tail=5")
    assert (response.status, await response.text()) == (200, "grüß\nGott")
    assert response.content_type == "text/plain"
    (_, path, query) = script.requests[-2]
    assert path == "/api/v1/namespaces/jobs/pods/j-j1-job-1/log"
    assert query == {"container": "job", "tailLines": "5", "timestamps": "true"}


async def test_a_followed_log_is_streamed_line_by_line(api: Api, script: Script) -> None:
    await ran(api, run(0))
    whole = "ü\n".encode()
    script.answer(text(b"one\ntw", b"o\n", whole[:1], whole[1:], b"\xff", b"rest"))
    response = await api.client.get("/v1/jobs/j1/logs?follow=true")
    events = [one.split("\n") for one in (await response.text()).split("\n\n") if one]
    assert [(e[0].partition(": ")[2], json.loads(e[1].partition(": ")[2])) for e in events] == [
        ("line", "one"), ("line", "two"), ("line", "ü"), ("line", "\N{REPLACEMENT CHARACTER}rest"),
        ("end", {}),
    ]  # fmt: skip
    assert script.requests[0][2]["follow"] == "true"


async def test_an_interrupted_log_of_one_rank_is_marked_by_a_line(api: Api, script: Script) -> None:
    await ran(api, run(0), run(1))
    was_read = asyncio.Semaphore(0)
    long = "x" * MOST_PIECE
    script.answer(text(f"one\n{long}y".encode(), cut_when=was_read))
    response = await api.client.get("/v1/jobs/j1/logs?rank=all")
    said = ""
    async for piece in response.content.iter_any():
        said += piece.decode()
        if said.endswith(long):
            was_read.release()
    why = "(no log: The cluster does not answer; try again later.)"
    # A partial line, or the longest piece that a record may hold, has no known rank.
    assert said == "".join(f"[{n}] one\n[{n}] {long}\n[{n}] {why}\n" for n in (0, 1))


@pytest.mark.parametrize("query", ["?follow=true", "?rank=0"])
async def test_a_log_that_is_being_opened_counts_as_a_stream(
    api: Api, script: Script, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr("controller.api.server_sent_events.MOST_STREAMS", 1)
    monkeypatch.setattr("controller.api.server_sent_events.CHECK_SECONDS", 0.05)
    begun = asyncio.Event()

    async def silent(_request: web.Request) -> web.StreamResponse:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    await ran(api, run(0))
    script.answer(silent)
    async with asyncio.timeout(4):
        first = asyncio.create_task(api.client.get(f"/v1/jobs/j1/logs{query}"))
        await begun.wait()
        refused = await api.client.get(f"/v1/jobs/j1/logs{query}")
        assert (refused.status, (await refused.json())["code"]) == (503, "too_many_streams")
        assert len(script.requests) == 1  # the cluster is not asked
        first.cancel()
        while api.streams.open:
            await asyncio.sleep(0.01)


async def test_an_interrupted_followed_log_is_marked(api: Api, script: Script) -> None:
    await ran(api, run(0))
    was_read = asyncio.Semaphore(0)
    script.answer(text(b"one\n", cut_when=was_read))
    response = await api.client.get("/v1/jobs/j1/logs?follow=true")
    said = ""
    async for piece in response.content.iter_any():
        said += piece.decode()
        if "one" in said and was_read.locked():
            was_read.release()
    assert "event: broken" in said


@pytest.mark.parametrize(
    ("query", "cluster", "status"),
    [
        ("?rank=0", says({}, 404), 410), ("?rank=0", says({}, 400), 409),
        ("?rank=0", says({}, 500), 503), ("?rank=3", says({}), 409), ("?rank=4", says({}), 422),
        ("?tail=-1", says({}), 422), ("?follow=perhaps", says({}), 422),
    ],
    ids=["gone", "waiting", "down", "never-ran", "no-rank", "tail", "follow"],
)  # fmt: skip
async def test_a_missing_log_states_the_reason(
    api: Api, script: Script, query: str, cluster: Answer, status: int
) -> None:
    await ran(api, run(0))
    script.answer(cluster)
    response = await api.client.get(f"/v1/jobs/j1/logs{query}")
    assert response.status == status, await response.text()


@pytest.mark.parametrize("query", ["", "?follow=true"])
async def test_a_forbidden_log_is_not_reported_as_unavailable_cluster(
    api: Api, script: Script, caplog: pytest.LogCaptureFixture, query: str
) -> None:
    await ran(api, run(0))
    why = 'pods "x" is forbidden: User "u" cannot get resource "pods/log"'
    script.answer(says({"reason": "Forbidden", "message": why}, 403))
    response = await api.client.get(f"/v1/jobs/j1/logs{query}")
    said = await response.json()
    assert (response.status, said["code"]) == (503, "cluster_unavailable")
    assert said["message"] == "The controller has no permission to read pod logs."
    assert any("cannot get resource" in str(vars(record).get("why")) for record in caplog.records)


@pytest.mark.parametrize("rank", ["-1", "x", "ALL", str(2**31 + 1), "1.0", ""])
async def test_an_invalid_rank_is_one_problem_at_rank(api: Api, rank: str) -> None:
    response = await api.client.get("/v1/jobs/j1/logs", params={"rank": rank})
    problems = (await response.json())["details"]["problems"]
    assert (response.status, [one["path"] for one in problems]) == (422, ["rank"])


def node(cpu: str, *, ready: str = "True", **spec: Any) -> dict[str, Any]:
    allocatable = {"cpu": cpu, "memory": "1Gi", "nvidia.com/gpu": "2"}
    conditions = [{"type": "Ready", "status": ready}]
    status = {"allocatable": allocatable, "conditions": conditions}
    return {"metadata": {"name": "n"}, "spec": spec, "status": status}


async def test_utilization_shows_capacity_running_and_waiting_requests(
    api: Api, script: Script
) -> None:
    script.answer(
        listing(node("3500m"), node("4", unschedulable=True), node("8", ready="False"),
                node("1"), version="1")
    )  # fmt: skip
    await submit(api, make_job(replicas=2, resources={"cpu": 0.5, "memory": "16Mi", "gpu": 1}))
    await submit(api, make_job("j2"))
    async with api.store.write() as transaction:
        record = await find_job(transaction, "j2")
        assert record is not None
        await update_job(transaction, record, now=1.0, state="RUNNING")
    shown = await get(api, "/v1/utilization")
    assert shown["capacity"] == {"cpu": 4.5, "memory": 2**31, "gpu": 4}
    assert shown["queued"] == {"jobs": 1, "cpu": 1.0, "memory": 2**25, "gpu": 2}
    assert shown["used"] == {"jobs": 1, "cpu": 1.0, "memory": 2**30, "gpu": 0}


async def test_utilization_is_summed_in_thousandths(api: Api, script: Script) -> None:
    script.answer(listing(node("1"), version="1"))
    for name, cpu in (("j1", 0.1), ("j2", 0.2)):
        await submit(api, make_job(name, resources={"cpu": cpu, "memory": "16Mi"}))
    assert (await get(api, "/v1/utilization"))["queued"]["cpu"] == 0.3


async def test_utilization_is_shown_while_the_cluster_does_not_respond(
    api: Api, script: Script
) -> None:
    script.answer(says({}, 500))
    assert (await get(api, "/v1/utilization"))["capacity"] is None
    assert (await get(api, "/v1/products"))["items"] == []


async def test_maintenance_holds_jobs_and_then_refuses_new_ones(api: Api) -> None:
    await submit(api, make_job())
    paused = await api.client.post("/v1/maintenance", json={"action": "pause", "message": "disk"})
    shown = await paused.json()
    assert (shown["mode"], shown["message"], shown["waiting"]) == ("paused", "disk", 1)
    assert (await submit(api, make_job("j2")))[0] == 200
    await api.client.post("/v1/maintenance", json={"action": "drain"})
    status, response = await submit(api, make_job("j3"))
    assert (status, response["code"]) == (503, "draining")
    # A retry after a lost response: 503 would say that the job was not accepted.
    status, response = await submit(api, make_job("j2"))
    assert (status, response["items"][0]["result"]) == (200, "unchanged")
    assert (await submit(api, make_job("j2"), make_job("j3")))[0] == 503
    await api.client.post("/v1/maintenance", json={"action": "resume"})
    assert (await get(api, "/v1/maintenance"))["mode"] == "running"
    assert (await submit(api, make_job("j3")))[0] == 200
    assert (await api.client.post("/v1/maintenance", json={"action": "stop"})).status == 422
    # PostgreSQL accepts a NUL in no text column.
    held = await api.client.post("/v1/maintenance", json={"action": "pause", "message": "a\0b"})
    assert (held.status, (await get(api, "/v1/maintenance"))["mode"]) == (422, "running")


async def test_a_job_shows_its_queue_position_and_restart_policies(api: Api) -> None:
    policy = [
        {"event": "PodFailed", "action": "RestartJob"},
        {"exit_code": 3, "action": "AbortJob"},
    ]
    for number in range(3):
        await submit(api, make_job(f"q{number}", policies=policy, max_retry=2))
        async with api.store.write() as transaction:
            record = await find_job(transaction, f"q{number}")
            assert record is not None
            await update_job(transaction, record, now=1.0, queue="batch", reason="queued")
    shown = await get(api, "/v1/jobs/q2")
    assert (shown["queue_position"], shown["queue"]) == (3, "batch")
    estimate = {"ahead": 2, "ahead_of_higher_priority": 0, "waiting": 3}
    assert shown["queue_estimate"] == estimate
    async with api.store.write() as transaction:
        record = await find_job(transaction, "q2")
        assert record is not None
        await update_job(transaction, record, now=1.0, priority_value=1000)
    assert (await get(api, "/v1/jobs/q2"))["queue_position"] == 1
    assert (await get(api, "/v1/jobs/q0"))["queue_estimate"] == {
        "ahead": 1,
        "ahead_of_higher_priority": 1,
        "waiting": 3,
    }
    retry = shown["retry"]
    assert (retry["max_retry"], retry["retries_used"], retry["max_evictions"]) == (2, 0, 3)
    assert [one["explanation"] for one in retry["policies"]] == [
        "when a pod failed, the job is started again",
        "when a program ended with exit code 3, the job is stopped and has failed",
    ]
    assert "2 times at most" in retry["explanation"]


async def test_a_job_shows_its_restart_count(api: Api) -> None:
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    spec = {"id": "j1", "owner": {"user": "ada"}, "image": "x", "max_retry": 3}
    record = make_record(spec=spec | {"policies": policies}, uid="u1", retries_used=1)
    async with api.store.write() as transaction:
        await insert_job(transaction, record, labels={})
        await record_attempt(transaction, "j1", 1, uid="u1", now=4.0)
        await update_attempt(transaction, "j1", 1, retries=2)
        await upsert_pod_records(transaction, [run(0), run(0, pod_uid="old", reason="Evicted")])
    assert (await get(api, "/v1/jobs/j1"))["retry"]["retries_used"] == 2
    async with api.store.write() as transaction:
        await update_attempt(transaction, "j1", 1, retries=9)
    # Volcano counts the restart that it refuses; that one is not a retry.
    assert (await get(api, "/v1/jobs/j1"))["retry"]["retries_used"] == 3
