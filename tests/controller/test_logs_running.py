"""Logs outlive their pods: controllers as processes, real programs in the embedded cluster."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from controller.kube.client import Kube
from controller.kube.kinds import PODS
from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import SIGNER, Controller, eventually, running
from tests.programs import RedisServer
from tests.shared.samples import make_claims

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

FINAL = ("SUCCESS", "FAILURE", "EXPIRED")
RETENTION_SECONDS = "5"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as one:
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(cluster: EmbeddedCluster) -> AsyncIterator[Kube]:
    async with Kube.connect(cluster.kubeconfig("admin")) as kube:
        yield kube


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def controller(
    cluster: EmbeddedCluster, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Controller]:
    one = Controller(
        tmp_path_factory.mktemp("logs"),
        kubeconfig=cluster.kubeconfig("controller"),
        redis_url=redis_server.url,
        instance="logs",
        FUMAROLE_CONTROLLER_RETENTION_SECONDS=RETENTION_SECONDS,
    )
    async with running(one):
        yield one


async def submit(controller: Controller, job_id: str, program: str, **fields: Any) -> None:
    await controller.submit(job_id, invocation={"command": ["sh", "-c", program]}, **fields)


async def until_pods_are_gone(admin: Kube, job_id: str) -> None:
    async def gone() -> bool:
        pods = await admin.list(PODS, "jobs")
        return not any(one["metadata"]["name"].startswith(f"j-{job_id}-") for one in pods)

    await eventually(gone, seconds=90, what=f"{job_id} still has pods")


async def get(controller: Controller, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    token = SIGNER.sign(make_claims(time.time(), aud="fumarole-controller"))
    url = f"http://{controller.addresses['api']}{path}"
    sent = {"Authorization": f"Bearer {token}", **headers}
    async with aiohttp.ClientSession() as http, http.get(url, headers=sent) as answer:
        return answer.status, await answer.text(), dict(answer.headers)


async def events(
    controller: Controller, path: str, last: str = ""
) -> AsyncIterator[tuple[str, str, Any]]:
    """Yield id, name and data of each event."""
    token = SIGNER.sign(make_claims(time.time(), aud="fumarole-controller"))
    headers = {"Authorization": f"Bearer {token}"} | ({"Last-Event-ID": last} if last else {})
    url = f"http://{controller.addresses['api']}{path}"
    event = {"id": ""}
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                event[name] = value
            elif "event" in event:
                yield event["id"], event.pop("event"), json.loads(event.pop("data"))


async def test_logs_of_three_attempts_after_their_pods_are_gone(
    controller: Controller, admin: Kube
) -> None:
    program = "echo began; date +%s%N; sleep 1; echo ended; exit 3"
    policy = {"event": "PodFailed", "action": "RestartJob"}
    await submit(controller, "three", program, policies=[policy], max_retry=2)
    await controller.until("three", "FAILURE", seconds=90)
    await until_pods_are_gone(admin, "three")
    history = await controller.call("GET", "/v1/jobs/three/history")
    runs = [run for one in history["attempts"] for run in one["runs"]]
    assert len(runs) == 3, runs
    texts = [await controller.read(f"/v1/jobs/three/logs?pod={run['uid']}") for run in runs]
    for text in texts:
        assert [line for line in text.split("\n") if not line.isdigit()] == ["began", "ended", ""]
    assert len(set(texts)) == 3
    assert await controller.read("/v1/jobs/three/logs") == texts[-1]
    assert await controller.read("/v1/jobs/three/logs?tail=1") == "ended\n"
    assert [run["log"] for run in runs] == [
        {"bytes": len(text), "complete": True, "truncated": []} for text in texts
    ]


async def test_a_cancel_waits_for_no_log_and_loses_nothing_of_it(
    controller: Controller, admin: Kube
) -> None:
    program = (
        "n=0; trap 'for i in 1 2 3; do echo last $i; sleep 0.2; done; exit 0' TERM;"
        "while :; do n=$((n+1)); echo line $n; sleep 0.02; done"
    )
    await submit(controller, "cancel", program)
    await controller.until("cancel", "RUNNING")
    await eventually(lambda: has_lines(controller, "cancel", 20))
    await controller.call("DELETE", "/v1/jobs/cancel", expect=202)
    await controller.until("cancel", *FINAL, seconds=60)
    await until_pods_are_gone(admin, "cancel")
    *lines, last, empty = (await controller.read("/v1/jobs/cancel/logs")).split("\n")
    assert (last, empty) == ("last 3", "")
    counted = [line for line in lines if line.startswith("line")]
    assert counted == [f"line {n}" for n in range(1, len(counted) + 1)]


async def has_lines(controller: Controller, job_id: str, lines: int) -> bool:
    status, text, _ = await get(controller, f"/v1/jobs/{job_id}/logs")
    return status == 200 and text.count("\n") >= lines


async def test_of_a_log_that_is_too_long_the_tail_is_kept_and_that_is_said(
    controller: Controller, admin: Kube
) -> None:
    program = (
        "yes \"$(head -c 1000 /dev/zero | tr '\\0' x)\" | head -c 30M; echo; echo the end;"
        " sleep 1; exit 3"
    )
    policy = {"event": "PodFailed", "action": "RestartJob"}
    await submit(controller, "long", program, policies=[policy], max_retry=0)
    await controller.until("long", "FAILURE", seconds=90)
    await until_pods_are_gone(admin, "long")
    status, text, headers = await get(controller, "/v1/jobs/long/logs")
    assert (status, headers["Fumarole-Log-Truncated"]) == (200, "size")
    assert 9 << 20 < len(text) <= 10 << 20
    assert text.endswith("xxx\nthe end\n")
    history = await controller.call("GET", "/v1/jobs/long/history")
    assert history["attempts"][0]["runs"][0]["log"]["truncated"] == ["size"]
