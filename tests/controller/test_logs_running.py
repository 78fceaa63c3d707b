"""Tests stored logs that outlive their pods, with real controllers and programs."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import aiohttp
import psutil
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
RETENTION_SECONDS = "2"


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
    async with aiohttp.ClientSession() as http, http.get(url, headers=sent) as response:
        return response.status, await response.text(), dict(response.headers)


async def events(
    controller: Controller, path: str, last: str = ""
) -> AsyncGenerator[tuple[str, str, Any], None]:
    """Yield the id, name and data of each event."""
    token = SIGNER.sign(make_claims(time.time(), aud="fumarole-controller"))
    headers = {"Authorization": f"Bearer {token}"} | ({"Last-Event-ID": last} if last else {})
    url = f"http://{controller.addresses['api']}{path}"
    event = {"id": ""}
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                event[name] = value
            elif "event" in event:
                yield event["id"], event.pop("event"), json.loads(event.pop("data"))


async def kept_runs(controller: Controller, job_id: str) -> list[dict[str, Any]] | None:
    """Return the pods in the job's history once the log of each is stored completely."""
    history = await controller.call("GET", f"/v1/jobs/{job_id}/history")
    runs = [run for one in history["attempts"] for run in one["runs"]]
    return runs if all(run["log"] and run["log"]["complete"] for run in runs) else None


async def test_logs_of_three_attempts_are_readable_after_their_pods_are_gone(
    controller: Controller, admin: Kube
) -> None:
    program = "echo began; date +%s%N; echo $FUMAROLE_URL_LAB; exit 3"
    lab = {"kind": "web", "port": 8888, "url": True}
    policy = {"event": "PodFailed", "action": "RestartJob"}
    job = {"policies": [policy], "max_retry": 2, "interactive": {"lab": lab}}
    await submit(controller, "three", program, **job)
    (session,) = (await controller.call("GET", "/v1/sessions?job=three"))["items"]
    url = f"https://{session['sid']}.apps.example.com"
    await controller.until("three", "FAILURE", seconds=90)
    await until_pods_are_gone(admin, "three")
    runs = await eventually(lambda: kept_runs(controller, "three"), what="its logs are not kept")
    assert len(runs) == 3, runs
    texts = [await controller.read(f"/v1/jobs/three/logs?pod={run['uid']}") for run in runs]
    for text in texts:
        assert [line for line in text.split("\n") if not line.isdigit()] == ["began", url, ""]
    assert len(set(texts)) == 3
    assert await controller.read("/v1/jobs/three/logs") == texts[-1]
    assert await controller.read("/v1/jobs/three/logs?tail=1") == f"{url}\n"
    assert [run["log"] for run in runs] == [
        {"bytes": len(text), "complete": True, "truncated": []} for text in texts
    ]
    # Damaged objects are left out, and no reader waits for them.
    for path in (controller.folder / "state/logs").glob("*/*"):
        path.write_bytes(b"damaged")
    assert await controller.read("/v1/jobs/three/logs") == ""
    assert "event: end" in await controller.read("/v1/jobs/three/logs?follow=true")


async def test_a_cancelled_job_does_not_wait_for_its_log_and_loses_none_of_it(
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


async def test_an_oversize_log_keeps_its_tail_and_is_marked(
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


async def test_log_events_resume_exactly_where_they_stopped(
    controller: Controller, admin: Kube
) -> None:
    """The bytes are the same from the running pod and from the stored log."""
    long = "printf '%060000d\\n' 7; printf '\\303\\274\\n\\n'"
    program = f"for i in 1 2 3; do echo early $i; done; {long}; sleep 4; printf 'the\\nend'; exit 3"
    policy = {"event": "PodFailed", "action": "RestartJob"}
    await submit(controller, "events", program, policies=[policy], max_retry=0, replicas=2)
    await controller.until("events", "RUNNING")
    whole = "early 1\nearly 2\nearly 3\n" + "7".zfill(60000) + "\nü\n\nthe\nend\n"
    path = "/v1/jobs/events/logs?follow=true"
    running_parts = await read_in_parts(controller, path, at_a_time=3)
    await controller.until("events", "FAILURE", seconds=90)
    await until_pods_are_gone(admin, "events")
    assert running_parts == {0: whole}
    for at_a_time in (1, 4):
        assert await read_in_parts(controller, path, at_a_time=at_a_time) == {0: whole}
    both = await read_in_parts(controller, f"{path}&rank=all", at_a_time=5)
    assert both == {0: whole, 1: whole}
    text = await controller.read("/v1/jobs/events/logs?rank=all&tail=2")
    assert text == "[0] the\n[0] end\n[1] the\n[1] end\n"
    for bad in ("x", "0.0.1", "0.0.1.1.1", "0.0.zz.1"):
        assert (await get(controller, path, **{"Last-Event-ID": bad}))[0] == 422


async def read_in_parts(controller: Controller, path: str, *, at_a_time: int) -> dict[int, str]:
    """Return each rank's log from the events of several interrupted connections."""
    texts: dict[int, str] = {}
    last, over, tries = "", False, 0
    while not over:
        tries += 1
        assert tries < 100, texts
        read = events(controller, path, last)
        async with aclosing(read):
            seen = 0
            async for at, name, data in read:
                if name in ("end", "broken"):
                    over = name == "end"
                    break
                rank, text = (data["rank"], data["text"]) if "rank=all" in path else (0, data)
                texts[rank] = texts.get(rank, "") + text + ("" if name == "piece" else "\n")
                last, seen = at, seen + 1
                if seen == at_a_time:
                    break
    return texts


@pytest.mark.long
async def test_a_stalled_log_reader_uses_little_memory_and_is_disconnected(
    controller: Controller,
) -> None:
    program = "yes \"$(head -c 1000 /dev/zero | tr '\\0' x)\" | head -c 60M; sleep 3600"
    await submit(controller, "slow", program)
    await controller.until("slow", "RUNNING")
    process = psutil.Process(controller.pid)
    await eventually(lambda: has_lines(controller, "slow", 9000), seconds=60)
    before = process.memory_info().rss
    token = SIGNER.sign(make_claims(time.time(), aud="fumarole-controller"))
    host, _, port = controller.addresses["api"].rpartition(":")
    async with AsyncExitStack() as stack:
        for _ in range(10):
            _reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
            stack.callback(writer.close)
            head = "GET /v1/jobs/slow/logs?follow=true HTTP/1.1\r\nHost: x\r\n"
            writer.write(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
        await asyncio.sleep(5)
        assert process.memory_info().rss - before < 64 << 20
    await controller.call("DELETE", "/v1/jobs/slow", expect=202)


@pytest.mark.long
async def test_a_leader_killed_while_following_loses_and_doubles_no_line(
    controller: Controller, admin: Kube
) -> None:
    program = "n=0; while [ $n -lt 900 ]; do n=$((n+1)); echo line $n; sleep 0.02; done; exit 3"
    policy = {"event": "PodFailed", "action": "RestartJob"}
    await submit(controller, "killed", program, policies=[policy], max_retry=0)
    await controller.until("killed", "RUNNING")
    # Some of the log is stored by then.
    await eventually(lambda: has_stored(controller, "killed"), seconds=40)
    await controller.kill()
    await asyncio.sleep(1)
    await controller.start()
    await controller.until("killed", "FAILURE", seconds=90)
    await until_pods_are_gone(admin, "killed")
    status, text, headers = await get(controller, "/v1/jobs/killed/logs")
    assert text == "".join(f"line {n}\n" for n in range(1, 901))
    assert (status, headers.get("Fumarole-Log-Truncated")) == (200, None)


async def has_stored(controller: Controller, job_id: str) -> bool:
    history = await controller.call("GET", f"/v1/jobs/{job_id}/history")
    logs = [run["log"] for one in history["attempts"] for run in one["runs"]]
    return bool(logs) and logs[0] is not None and logs[0]["bytes"] > 0


@pytest.mark.long
async def test_a_pod_removed_without_controller_is_reported_with_a_lost_log(
    controller: Controller, admin: Kube
) -> None:
    program = "n=0; while :; do n=$((n+1)); echo line $n; sleep 0.05; done"
    policy = {"event": "PodFailed", "action": "RestartJob"}
    await submit(controller, "away", program, policies=[policy], max_retry=3)
    await controller.until("away", "RUNNING")
    await eventually(lambda: has_stored(controller, "away"), seconds=40)
    await controller.kill()
    (pod,) = [
        one
        for one in await admin.list(PODS, "jobs")
        if one["metadata"]["name"].startswith("j-away-")
    ]
    await admin.delete(PODS, pod["metadata"]["name"], "jobs", grace_seconds=0)
    await asyncio.sleep(1)
    await controller.start()
    uid = pod["metadata"]["uid"]

    async def said() -> bool:
        history = await controller.call("GET", "/v1/jobs/away/history")
        runs = [run for one in history["attempts"] for run in one["runs"]]
        return any(
            run["uid"] == uid and run["log"] and run["log"]["truncated"] == ["controller_away"]
            for run in runs
        )

    await eventually(said)
    text = await controller.read(f"/v1/jobs/away/logs?pod={uid}")
    assert text.startswith("line 1\nline 2\n")
    await controller.call("DELETE", "/v1/jobs/away", expect=202)


@pytest.mark.long
async def test_jobs_end_during_a_log_store_outage_and_logs_are_stored_later(
    controller: Controller, admin: Kube
) -> None:
    folder, aside = controller.folder / "state/logs", controller.folder / "aside"
    folder.rename(aside)
    try:
        program = "echo said; exit 3"
        await submit(controller, "nowhere", program)
        await controller.until("nowhere", "FAILURE", seconds=60)
        await until_pods_are_gone(admin, "nowhere")
        _, text, headers = await get(controller, "/v1/jobs/nowhere/logs")
        assert (text, headers["Fumarole-Log-Truncated"]) == ("", "store_away")
    finally:
        aside.rename(folder)
    await eventually(lambda: has_stored(controller, "nowhere"), seconds=60)
    assert await controller.read("/v1/jobs/nowhere/logs") == "said\n"
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert names
    assert all(re.fullmatch(r"[0-9a-f]{32}/[0-9a-f]+-[0-9]+", str(name)) for name in names)


@pytest.mark.long
async def test_logs_are_stored_in_s3_and_jobs_end_without_it(
    cluster: EmbeddedCluster, admin: Kube, redis_server: RedisServer, tmp_path: Path
) -> None:
    from moto.server import ThreadedMotoServer  # The import takes a second.

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    credentials = tmp_path / "credentials"
    credentials.write_text("[default]\naws_access_key_id = one\naws_secret_access_key = two\n")
    async with aiohttp.ClientSession() as http:
        (await http.put(f"http://{host}:{port}/kept")).raise_for_status()
    controller = Controller(
        tmp_path / "controller",
        kubeconfig=cluster.kubeconfig("controller"),
        redis_url=redis_server.url,
        instance="bucket",
        FUMAROLE_CONTROLLER_RETENTION_SECONDS=RETENTION_SECONDS,
        FUMAROLE_CONTROLLER_LOGS_S3_BUCKET="kept",
        FUMAROLE_CONTROLLER_LOGS_S3_PREFIX="fumarole/logs/",
        FUMAROLE_CONTROLLER_LOGS_S3_ENDPOINT=f"http://{host}:{port}",
        FUMAROLE_CONTROLLER_LOGS_S3_REGION="us-east-1",
        FUMAROLE_CONTROLLER_LOGS_S3_CREDENTIALS_FILE=str(credentials),
    )
    try:
        async with running(controller):
            await submit(controller, "b1", "echo said; exit 3")
            await controller.until("b1", "FAILURE", seconds=60)
            await until_pods_are_gone(admin, "b1")
            assert await controller.read("/v1/jobs/b1/logs") == "said\n"
            server.stop()
            await submit(controller, "b2", "echo said; exit 3")
            await controller.until("b2", "FAILURE", seconds=60)
            await until_pods_are_gone(admin, "b2")
            status, text, _ = await get(controller, "/v1/jobs/b1/logs")
            assert (status, json.loads(text)["code"]) == (503, "logs_unavailable")
            assert "two" not in controller.log.read_text()
    finally:
        server.stop()
