"""Tests the reported reasons of waiting and failed jobs, with programs that cause them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from controller.kube.client import Kube
from controller.kube.kinds import COMMANDS, QUEUES
from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import Controller, Routes, eventually, running
from tests.programs import RedisServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

SECONDS = 90.0
QUEUE = "closes"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def controller(
    cluster: EmbeddedCluster,
    redis_server: RedisServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Controller]:
    one = Controller(
        tmp_path_factory.mktemp("reasons") / "controller",
        kubeconfig=cluster.kubeconfig("controller"),
        redis_url=redis_server.url,
        instance="reasons",
        FUMAROLE_CONTROLLER_PRIORITIES="high=gone",
    )
    async with running(one):
        yield one


def runs(*command: str, **fields: Any) -> dict[str, Any]:
    return {"invocation": {"command": list(command)}, **fields}


async def failed(controller: Controller, job_id: str, **fields: Any) -> dict[str, Any]:
    """Return a failed job; its last update has the same reason."""
    await controller.submit(job_id, **fields)
    job = await controller.until(job_id, "FAILURE", "SUCCESS", seconds=SECONDS)
    history = await controller.call("GET", f"/v1/jobs/{job_id}/history")
    last = history["updates"][-1]
    names = ("state", "reason", "message", "details")
    assert {name: last[name] for name in names} == {name: job[name] for name in names}
    assert history["attempts"][-1]["details"] == job["details"]
    return job


async def waits(controller: Controller, job_id: str, reason: str, cause: str) -> dict[str, Any]:
    """Return a job once it reports why it waits."""
    found: dict[str, Any] = {}

    async def is_reported() -> bool:
        found.update(await controller.job(job_id))
        return found["reason"] == reason and (found["details"] or {}).get("cause") == cause

    try:
        await eventually(is_reported, seconds=SECONDS)
    except AssertionError:
        raise AssertionError(f"not {reason}, {cause}: {found}") from None
    return found


async def test_a_crash_reports_exit_code_and_last_lines(controller: Controller) -> None:
    script = "echo one; echo two >&2; exit 7"
    job = await failed(controller, "crash", **runs("sh", "-c", script))
    assert (job["reason"], job["message"]) == ("exit_code", "job 0 ended with exit code 7")
    details = job["details"]
    assert (details["cause"], details["exit_code"], details["rank"]) == ("exit_code", 7, 0)
    assert details["log_tail"] == ["one", "two"]
    assert details["node"]
    # A session's page shows no log lines.
    assert "two" not in job["message"]


async def test_an_out_of_memory_kill_reports_the_limit(controller: Controller) -> None:
    script = "print('big', flush=True)\nkept = bytearray(96 << 20)\nimport time; time.sleep(300)"
    limits = {"cpu": 0.05, "memory": "64Mi"}
    taken = runs("python3", "-c", script, image="python", resources=limits)
    job = await failed(controller, "oom", **taken)
    assert job["reason"] == "out_of_memory"
    assert job["message"] == "job 0 used more memory than it had asked for: 64Mi"
    assert job["details"]["memory_limit"] == "64Mi"
    assert job["details"]["exit_code"] == 137
    assert job["details"]["log_tail"] == ["big"]


async def test_a_missing_program_is_named_and_not_charged(
    controller: Controller,
) -> None:
    job = await failed(controller, "nothing", **runs("no-such-program"))
    assert (job["reason"], job["details"]["cause"]) == ("exit_code", "start_error")
    assert job["message"] == (
        "job 0 could not start its program (exit code 128): "
        'exec: "no-such-program": executable file not found in $PATH'
    )
    assert job["details"]["log_tail"] is None
    history = await controller.call("GET", "/v1/jobs/nothing/history")
    assert history["attempts"][0]["runs"][0]["started_at"] is None
    usage = await controller.call("GET", "/v1/usage?after=0")
    assert [one for one in usage["items"] if one["job"] == "nothing"] == []


async def test_a_missing_program_with_secret_name_is_not_named(controller: Controller) -> None:
    token = {"token": {"type": "secret", "value": "no-such-secret"}}
    secret = {"invocation": {"command": [{"parameter": "token"}]}, "parameters": token}
    job = await failed(controller, "secret", **secret)
    assert 'exec: "***": executable file not found' in job["message"]
    history = await controller.call("GET", "/v1/jobs/secret/history")
    assert "no-such-secret" not in str((job, history))


async def test_a_missing_image_is_named_also_on_the_sessions_page(
    controller: Controller, redis_server: RedisServer
) -> None:
    lab = {"lab": {"kind": "web", "port": 8888}}
    await controller.submit("image", image="registry.example/nope:1", interactive=lab)
    sid = await controller.open("image", endpoint="lab")
    job = await waits(controller, "image", "image", "image_pull")
    text = "the image cannot be pulled: registry.example/nope:1: not found"
    assert job["message"] == text
    assert job["details"]["image"] == "registry.example/nope:1"
    redis = Redis.from_url(redis_server.url)
    try:
        routes = Routes(redis, "reasons")

        async def is_shown() -> bool:
            route = await routes.of(sid)
            return route is not None and route["status"].get("detail") == text

        await eventually(is_shown, seconds=SECONDS, what="the page does not say so")
    finally:
        await redis.aclose()
    # The kubelet pauses between two pulls, and then no longer reports the cause.
    history = await controller.call("GET", "/v1/jobs/image/history")
    updates = [one["message"] for one in history["updates"] if one["reason"] == "image"]
    assert updates == [text]


async def test_an_unavailable_resource_is_reported_and_not_refused(controller: Controller) -> None:
    gpus = {"cpu": 0.05, "memory": "64Mi", "gpu": 64}
    await controller.submit("gpus", resources=gpus)
    job = await waits(controller, "gpus", "unschedulable", "no_node_fits")
    assert job["state"] == "IN_QUEUE"
    assert job["message"].startswith(
        "no node could take it now: each pod of job asks for 64 nvidia.com/gpu"
    )
    assert job["details"]["resources"] == ["nvidia.com/gpu"]


async def test_a_missing_priority_class_is_named(controller: Controller) -> None:
    await controller.submit("priority", priority="high")
    job = await waits(controller, "priority", "forbidden", "missing_priority_class")
    assert job["message"] == "no PriorityClass with name gone was found"
    assert job["queue_estimate"] is None


async def test_a_closed_queue_is_the_waiting_reason(
    controller: Controller, cluster: EmbeddedCluster
) -> None:
    async with Kube.connect(cluster.kubeconfig("admin")) as admin:
        queue = await admin.create(QUEUES, {"metadata": {"name": QUEUE}, "spec": {"weight": 1}})

        async def is_open() -> bool:
            found = await admin.get(QUEUES, QUEUE)
            return (found.get("status") or {}).get("state") == "Open"

        await eventually(is_open, seconds=SECONDS, what="the queue does not open")
        await controller.submit("closed", queue=QUEUE, resources={"cpu": 900, "memory": "64Mi"})
        await waits(controller, "closed", "unschedulable", "no_node_fits")
        target = {"apiVersion": QUEUES.api, "kind": "Queue", "name": QUEUE}
        target["uid"] = queue["metadata"]["uid"]
        command = {"metadata": {"name": "close"}, "action": "CloseQueue", "target": target}
        await admin.create(COMMANDS, command, "jobs")
        job = await waits(controller, "closed", "queued", "queue_closed")
        assert job["details"]["queue"] == QUEUE
        assert f"the queue {QUEUE} is not open: it is Clos" in job["message"]


async def test_a_job_stopped_by_a_policy_reports_the_trigger(controller: Controller) -> None:
    policy = {"event": "PodFailed", "action": "TerminateJob"}
    crash = runs("sh", "-c", "echo last; exit 3", policies=[policy])
    job = await failed(controller, "stopped", **crash)
    assert job["reason"] in ("stopped", "exit_code")  # Volcano may not apply its policies
    assert "job 0 ended with exit code 3" in job["message"]
    assert job["details"]["log_tail"] == ["last"]


async def test_retries_are_counted_and_each_pod_names_its_start(
    controller: Controller,
) -> None:
    policy = {"event": "PodFailed", "action": "RestartJob"}
    crash = runs("sh", "-c", "exit 5", policies=[policy], max_retry=2)
    job = await failed(controller, "again", **crash)
    assert job["message"] == "job 0 ended with exit code 5"
    assert job["retry"]["retries_used"] == 2
    assert job["started_at"] is not None
    attempts = (await controller.call("GET", "/v1/jobs/again/history"))["attempts"]
    pods = [pod for one in attempts for pod in one["runs"]]
    assert len(pods) == 3
    assert {pod["exit_code"] for pod in pods} == {5}
    assert all(pod["started_at"] and pod["ended_at"] and pod["node"] for pod in pods)
    # The controller replaces a restart that Volcano lost by another attempt.
    assert sum(one["retries"] for one in attempts) + len(attempts) - 1 == 2
    assert all(one["started_at"] is not None for one in attempts)
    last = attempts[-1]
    assert (last["succeeded"], last["failed"]) == (0, 1)
    assert [pod["restart"] for pod in last["runs"]] == list(range(last["retries"] + 1))
