"""Tests tools of jobs with a controller process, the embedded cluster and a real Redis."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from controller.kube.client import Kube, Objects
from controller.kube.decoding import Object
from controller.kube.kinds import CONFIG_MAPS, NETWORK_POLICIES, PODS, VCJOBS, Kind
from controller.kube.watch import Listed, watch
from controller.volcano.names import TOOL_PREFIX
from controller.volcano.parsing import read_pod
from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import Controller, Routes, eventually, running
from tests.programs import RedisServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

SITE = {
    "image": "python",
    # A container's first process ignores signals without a handler.
    "command": ["sh", "-c", "trap 'exit 0' TERM; python3 -m http.server 8000 & wait"],
    "port": 8000,
    "ready_path": "/",
    "resources": {"cpu": 0.05, "memory": "64Mi"},
}
HUGE = SITE | {"resources": {"cpu": 5000, "memory": "64Mi"}}
ENDS = SITE | {"command": ["sh", "-c", "echo it ends; exit 3"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def controller(
    cluster: EmbeddedCluster, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Controller]:
    folder = tmp_path_factory.mktemp("tools")
    declared = {"site": SITE, "huge": HUGE, "ends": ENDS}
    (folder / "tools.json").write_text(json.dumps({"tools": declared}))
    one = Controller(
        folder / "controller",
        kubeconfig=cluster.kubeconfig("controller"),
        redis_url=redis_server.url,
        instance="tools",
        FUMAROLE_CONTROLLER_TOOLS_FILE=str(folder / "tools.json"),
        FUMAROLE_CONTROLLER_USAGE_PERIOD_SECONDS="1",
    )
    async with running(one):
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def pods(admin: Kube) -> AsyncIterator[Mapping[str, Object]]:
    """Yield the last state of every pod that the API server showed, by uid."""
    seen = dict[str, Object]()

    async def follow() -> None:
        async with aclosing(watch(admin, PODS, labels="fumarole.dev/instance=tools")) as events:
            async for event in events:
                for pod in event.objects if isinstance(event, Listed) else (event.object,):
                    seen[pod["metadata"]["uid"]] = pod

    following = asyncio.create_task(follow())
    yield seen
    following.cancel()
    await asyncio.wait([following])


async def of_tools(admin: Kube, kind: Kind) -> Objects:
    """Return the objects of all tools' runs, of every job."""
    found = await admin.list(kind, labels="fumarole.dev/instance=tools,fumarole.dev/job")
    label = "fumarole.dev/job"
    return [one for one in found if one["metadata"]["labels"][label].startswith(TOOL_PREFIX)]


async def until(
    controller: Controller, job: str, name: str, state: str, *reasons: str
) -> dict[str, Any]:
    """Return the tool once it has this state."""

    async def look() -> dict[str, Any] | None:
        found = await controller.call("GET", f"/v1/jobs/{job}/tools/{name}")
        fits = found["state"] == state and (not reasons or found["reason"] in reasons)
        return found if fits else None

    return await eventually(look, seconds=60, what=f"{name} is not {state} {reasons}")


async def until_nothing_is_left(admin: Kube) -> None:
    """Wait until the cluster has no object of any tool."""

    async def look() -> bool:
        kinds = (VCJOBS, PODS, NETWORK_POLICIES, CONFIG_MAPS)
        return not any([await of_tools(admin, kind) for kind in kinds])

    await eventually(look, seconds=60, what="something of a tool is left")


async def test_a_tool_runs_beside_its_job_and_ends_with_it(
    controller: Controller, admin: Kube, routes: Routes, pods: Mapping[str, Object]
) -> None:
    await controller.submit("beside", tools=["site"])
    sid = await controller.open("beside", endpoint="tool:site")
    route = await routes.until(sid, "ready")
    (vcjob,), (pod,) = await of_tools(admin, VCJOBS), await of_tools(admin, PODS)
    assert (route["job"], route["rank"], route["kind"]) == ("beside", 0, "web")
    assert route["target"] == {
        "scheme": "http", "host": pod["status"]["podIP"], "port": 8000, "base_path": "/",
        "id": pod["metadata"]["uid"],
    }  # fmt: skip
    (own,) = await admin.list(VCJOBS, labels="fumarole.dev/job=beside")
    assert vcjob["metadata"]["ownerReferences"][0]["uid"] == own["metadata"]["uid"]
    assert vcjob["metadata"]["namespace"] == own["metadata"]["namespace"]
    assert vcjob["spec"]["queue"] == own["spec"]["queue"]
    assert own["spec"]["minAvailable"] == 1
    assert await of_tools(admin, NETWORK_POLICIES)
    said = await controller.call("POST", "/v1/jobs/beside/tools", {"tool": "site"})
    assert said["unshared"] == ["/dev/shm", "/work"]
    # The readiness of its pod is published before or after its state is stored.
    await until(controller, "beside", "site", "RUNNING")
    # The kubelet has probed its readiness.
    assert '"GET / HTTP/1.1" 200' in await controller.read("/v1/jobs/beside/logs?tool=site")
    assert await controller.read("/v1/jobs/beside/logs") == ""
    await eventually(lambda: has_used(controller, "beside", "site"), what="it costs nothing")
    # The loss of a tool's pod is not a failure of the job; the tool's own end is shown.
    await controller.call("DELETE", "/v1/jobs/beside", expect=202)
    await routes.until_gone(sid)
    await controller.until("beside", "SUCCESS")
    await until(controller, "beside", "site", "ENDED", "job_ended")
    await until_nothing_is_left(admin)
    await assert_usage_is_what_ran(controller, "beside", pods)


async def usage_of(controller: Controller, job: str) -> list[dict[str, Any]]:
    every = (await controller.call("GET", "/v1/usage?limit=1000"))["items"]
    return [one for one in every if one["job"] == job]


async def has_used(controller: Controller, job: str, tool: str) -> bool:
    found = await usage_of(controller, job)
    return any(one["tool"] == tool and one["seconds"] for one in found)


async def assert_usage_is_what_ran(
    controller: Controller, job: str, pods: Mapping[str, Object]
) -> None:
    """Compare the ledger with the containers' running times, as the kubelet reported them."""

    async def look() -> dict[str | None, dict[str, Any]] | None:
        found = {one["tool"]: one for one in await usage_of(controller, job) if one["final"]}
        return found if found.keys() == {None, "site"} else None

    used = await eventually(look, what="not everything is entered")
    for name, entry in used.items():
        (ran,) = [
            seconds_of(pod)
            for pod in pods.values()
            if pod["metadata"]["ownerReferences"][0]["uid"] == entry["uid"]
        ]
        assert entry["seconds"] == ran > 0, name


def seconds_of(pod: Object) -> float:
    """Return how long the pod's own program ran."""
    (status,) = [one for one in pod["status"]["containerStatuses"] if one["name"] == "job"]
    over = status["state"]["terminated"]
    began, ended = (datetime.fromisoformat(over[name]) for name in ("startedAt", "finishedAt"))
    return (ended - began).total_seconds()


async def test_a_tool_waits_restarts_and_is_removed(
    controller: Controller, admin: Kube, routes: Routes
) -> None:
    await controller.submit("back")
    await controller.call("POST", "/v1/jobs/back/tools", {"tool": "huge"}, expect=201)
    await controller.call("POST", "/v1/jobs/back/tools", {"tool": "site"}, expect=201)
    sid = await controller.open("back", endpoint="tool:site")
    first = (await routes.until(sid, "ready"))["target"]["id"]
    assert (await controller.job("back"))["state"] == "RUNNING"
    waits = await until(controller, "back", "huge", "WAITING", "unschedulable", "queued")
    assert waits["message"]
    await controller.call("POST", "/v1/jobs/back/suspend", expect=202)
    await controller.until("back", "SUSPENDED")
    await until(controller, "back", "site", "WAITING", "suspended")
    assert (await routes.until(sid, "starting"))["target"] is None
    await until_nothing_is_left(admin)
    await controller.call("POST", "/v1/jobs/back/resume", expect=202)
    assert (await routes.until(sid, "ready"))["target"]["id"] != first
    await controller.call("DELETE", "/v1/jobs/back/tools/site")
    await routes.until_gone(sid)
    await controller.call("DELETE", "/v1/jobs/back/tools/huge")
    await until_nothing_is_left(admin)
    assert (await controller.job("back"))["state"] == "RUNNING"
    await controller.call("DELETE", "/v1/jobs/back", expect=202)


async def test_an_ended_tool_runs_again_only_on_request(
    controller: Controller, admin: Kube
) -> None:
    await controller.submit("alone", tools=["ends"])
    first = await until(controller, "alone", "ends", "ENDED", "exit_code")
    assert first["details"]["exit_code"] == 3
    # Its log remains after its end.
    assert await controller.read("/v1/jobs/alone/logs?tool=ends") == "it ends\n"
    runs = {one["metadata"]["uid"] for one in await of_tools(admin, VCJOBS)}
    await controller.call("POST", "/v1/jobs/alone/tools", {"tool": "ends"}, expect=201)

    async def look() -> bool:
        found = {one["metadata"]["uid"] for one in await of_tools(admin, VCJOBS)}
        return bool(found - runs)

    await eventually(look, seconds=60, what="it is not run again")
    await until(controller, "alone", "ends", "ENDED", "exit_code")
    assert (await controller.job("alone"))["state"] == "RUNNING"
    # The job's VolcanoJob is deleted by hand: the VolcanoJobs of its tools go too.
    (own,) = await admin.list(VCJOBS, labels="fumarole.dev/job=alone")
    await admin.delete(VCJOBS, own["metadata"]["name"], own["metadata"]["namespace"])
    await controller.until("alone", "FAILURE")
    await until_nothing_is_left(admin)


@pytest.mark.parametrize("state", ["lost", "killed"])
async def test_a_restarted_controller_continues_its_tools(
    controller: Controller, admin: Kube, routes: Routes, tmp_path: Path, state: str
) -> None:
    job = f"again-{state}"
    await controller.submit(job, tools=["site"])
    sid = await controller.open(job, endpoint="tool:site")
    pod = (await routes.until(sid, "ready"))["target"]["id"]
    await controller.kill()
    if state == "lost":
        (controller.folder / "state").rename(tmp_path / "state")
    await controller.start()
    shown = await until(controller, job, "site", "RUNNING")
    assert shown["unshared"] == ["/dev/shm", "/work"]
    jobs = await controller.call("GET", "/v1/jobs?limit=100")
    assert not [one["id"] for one in jobs["items"] if one["id"].startswith(TOOL_PREFIX)]
    if state == "lost":
        sid = await controller.open(job, endpoint="tool:site")
    assert (await routes.until(sid, "ready"))["target"]["id"] == pod
    assert len([one for one in await of_tools(admin, PODS) if not read_pod(one).is_over]) == 1
    await controller.call("DELETE", f"/v1/jobs/{job}", expect=202)
    await routes.until_gone(sid)
    await until_nothing_is_left(admin)
