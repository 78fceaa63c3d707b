"""Tests tools of jobs: how the API attaches, shows and refuses them.

The declared tools are those of the documentation's example.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controller.jobs.pipeline.builder import JobBuilder
from controller.jobs.spec.model import Job
from controller.jobs.tools.plans import UNNAMED, ToolPlans
from controller.plugins.miscellaneous import MiscellaneousPlugin
from controller.resource_metrics.sources import PodKey
from controller.store.instance import Mode, set_maintenance
from controller.store.jobs.job_rows import find_job, insert_job, update_job
from controller.store.jobs.progress import record_attempt, upsert_pod_records
from controller.store.jobs.tools import find_tool, set_run
from controller.volcano.names import TOOL_PREFIX, pod_name, volcano_job_name
from tests.controller.api.conftest import Api
from tests.controller.api.jobs import ids, make_job, submit
from tests.controller.api.resources.test_details import get, run, text
from tests.controller.api.resources.test_metrics import sampled
from tests.controller.kube.api_server import Script, says
from tests.controller.samples import make_record

PAGE = Path(__file__).parents[4] / "docs/how-to/tools.md"
RUN = f"{TOOL_PREFIX}{'a' * 24}"


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    declared = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert declared is not None
    (tmp_path / "tools.yaml").write_text(declared[1])
    return {
        "FUMAROLE_CONTROLLER_TOOLS_FILE": str(tmp_path / "tools.yaml"),
        "FUMAROLE_CONTROLLER_VOLUMES": "home=homes/{user},fast=scratch/{user}",
        "FUMAROLE_CONTROLLER_FAIR_SHARE": "off",
    }


async def call(api: Api, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
    response = await api.client.request(method, f"/v1/jobs/{path}", json=body)
    return response.status, await response.json()


async def attach(api: Api, tool: str, job: str = "j1", **more: Any) -> tuple[int, dict[str, Any]]:
    return await call(api, "POST", f"{job}/tools", {"tool": tool, **more})


def paths(said: dict[str, Any]) -> list[str]:
    return [one["path"] for one in said["details"]["problems"]]


async def maintain(api: Api, mode: Mode) -> None:
    async with api.store.write() as transaction:
        await set_maintenance(transaction, mode, None, now=1.0)


async def begin_run(api: Api, name: str, **fields: Any) -> None:
    """Start the tool as the reconciler would."""
    async with api.store.write() as transaction:
        tool = await find_tool(transaction, ("j1", name, 0))
        assert tool is not None
        of = {"job": "j1", "name": name, "rank": 0, "asked_at": tool.asked_at}
        record = make_record(id=RUN, spec={**tool.spec, "id": RUN}, tool=of, **fields)
        if await find_job(transaction, RUN) is None:
            await insert_job(transaction, record, labels={})
        else:
            await update_job(transaction, record, now=9.0, **fields)
        await set_run(transaction, tool, RUN)


async def test_a_tool_is_attached_once_and_can_be_removed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await submit(api, make_job(replicas=2)))[0] == 200
    status, said = await attach(api, "tensorboard")
    assert (status, said["state"], said["reason"]) == (201, "WAITING", "rank")
    assert (said["endpoint"], said["unshared"]) == (
        "tool:tensorboard",
        ["/dev/shm", "/etc/ucloud", "/work"],
    )
    assert api.enqueued[-1] == "j1"
    with monkeypatch.context() as patched:
        patched.delattr(ToolPlans, "make")  # an existing attachment is not planned again
        assert await attach(api, "tensorboard") == (200, said)
    assert (await attach(api, "tensorboard", rank=1))[0] == 201
    assert (await attach(api, "code-server"))[0] == (await attach(api, "wetty"))[0] == 201
    status, said = await attach(api, "jupyterlab")
    assert (status, paths(said)) == (422, ["tool"])  # the job already has four
    _, shown = await call(api, "GET", "j1/tools")
    named = [(one["tool"], one["rank"]) for one in shown["items"]]
    assert named == [("tensorboard", 0), ("tensorboard", 1), ("code-server", 0), ("wetty", 0)]
    await begin_run(api, "tensorboard", state="RUNNING", reason=None, message=None)
    assert (await call(api, "GET", "j1/tools/tensorboard"))[1]["state"] == "RUNNING"
    removed = {"tool": "tensorboard", "rank": 0, "removed": True}
    assert await call(api, "DELETE", "j1/tools/tensorboard") == (200, removed)
    again = removed | {"removed": False}
    assert await call(api, "DELETE", "j1/tools/tensorboard?rank=0") == (200, again)
    assert (await call(api, "GET", "j1/tools/tensorboard"))[0] == 404
    assert (await call(api, "GET", "j1/tools/tensorboard?rank=1"))[0] == 200
    assert RUN in api.enqueued
    async with api.store.read() as transaction:
        run, job = await find_job(transaction, RUN), await find_job(transaction, "j1")
    assert run is not None
    assert job is not None
    assert (run.desired, run.end_reason, job.desired, job.tools) == ("ended", "removed", "run", 3)


async def test_an_invalid_tool_is_refused_with_all_errors(api: Api) -> None:
    wrong = make_job(tools=["tensorboard", "nothing", "tensorboard"])
    status, said = await submit(api, wrong)
    assert (status, paths(said)) == (422, ["items[0].tools[1]", "items[0].tools[2]"])
    status, said = await submit(api, make_job(tools=["nothing"], product="nothing", runtime="none"))
    assert set(paths(said)) == {f"items[0].{one}" for one in ("tools[0]", "product", "runtime")}
    assert (await submit(api, make_job(tools=["tensorboard"])))[0] == 200
    assert (await submit(api, make_job(tools=["tensorboard"])))[1]["items"][0]["result"] == (
        "unchanged"
    )
    status, said = await attach(api, "nothing", rank=1)
    assert (status, paths(said)) == (422, ["tool", "rank"])
    assert (await attach(api, "tensorboard", job="j2"))[0] == 404
    assert (await call(api, "GET", "j2/tools"))[0] == (await call(api, "DELETE", "j2/tools/x"))[0]
    await call(api, "DELETE", "j1")
    status, said = await attach(api, "wetty")
    assert (status, said["code"]) == (409, "ending")
    _, said = await call(api, "GET", "j1/tools/tensorboard")
    assert (said["state"], said["reason"]) == ("ENDED", "job_ended")
    async with api.store.write() as transaction:
        record = await find_job(transaction, "j1")
        assert record is not None
        await update_job(transaction, record, now=9.0, state="SUCCESS", finished_at=9.0)
    assert (await attach(api, "wetty"))[1]["code"] == "over"


async def test_problems_found_by_plugins_and_dry_run_are_reported_for_the_tool(
    api: Api, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await submit(api, make_job()))[0] == 200
    quota = 'admission webhook "q" denied the request: no more terminals for ada'
    script.answer(says({"message": quota, "reason": "BadRequest"}, 400))
    status, said = await attach(api, "wetty")
    assert (status, paths(said)) == (422, ["tool"])
    assert "no more terminals for ada" in said["details"]["problems"][0]["message"]
    with monkeypatch.context() as patched:

        async def refuse(_plugin: object, job: Job, builder: JobBuilder) -> None:
            if job.name == "wetty":
                builder.refuse("resources.cpu", "too many")

        patched.setattr(MiscellaneousPlugin, "on_create", refuse)
        status, said = await attach(api, "wetty")
    problem = {"path": "tool.resources.cpu", "message": "too many"}
    assert (status, said["details"]["problems"]) == (422, [problem])
    with monkeypatch.context() as patched:
        # New jobs of this owner get another namespace. The dry run of a tool uses its job's
        # namespace.
        async def move(_plugin: object, _job: Job, builder: JobBuilder) -> None:
            if builder.accepted_in is None:
                builder.volcano_job.namespace = "elsewhere"

        patched.setattr(MiscellaneousPlugin, "on_create", move)
        assert paths((await attach(api, "wetty"))[1]) == ["tool"]
        assert script.requests[-1][1].endswith("/namespaces/jobs/jobs")
    assert (await call(api, "GET", "j1/tools"))[1] == {"items": []}
    script.answer(says({}, 503))  # the API server says nothing about the tool
    assert (await attach(api, "wetty"))[0] == 201


async def test_tools_are_dry_run_after_their_accepted_jobs(api: Api, script: Script) -> None:
    tried = list[str]()

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        tried.append(body["metadata"]["name"])
        spec = body["spec"]["tasks"][0]["template"]["spec"]
        images = {one["image"].split(":")[0] for one in spec["containers"]}
        if tried[-1] != "j-j2" and "registry.example.com/wetty" not in images:
            return web.json_response(body, status=201)
        said = 'admission webhook "q" denied the request: no more terminals for ada'
        refusal = {"kind": "Status", "message": said, "reason": "BadRequest"}
        return web.json_response(refusal, status=400)

    script.answer(answer)
    jobs = [
        make_job(tools=["tensorboard", "wetty"]),
        make_job(id="j2", tools=["wetty"]),
        make_job(id="j3", tools=["tensorboard"]),
    ]
    status, said = await submit(api, *jobs)
    assert (status, paths(said)) == (422, ["items[0].tools[1]", "items[1]"])
    assert "no more terminals for ada" in said["details"]["problems"][0]["message"]
    # If a request is refused anyway, its tools get no dry run.
    assert sorted(tried[:3]) == ["j-j1", "j-j2", "j-j3"]
    assert tried[3:] == [volcano_job_name(UNNAMED)] * 3
    assert await ids(api) == []
    assert (await submit(api, jobs[2]))[0] == 200
    tried.clear()
    assert (await submit(api, jobs[2]))[1]["items"][0]["result"] == "unchanged"
    assert tried == []


async def test_an_ended_tool_runs_again_when_reattached(api: Api) -> None:
    await submit(api, make_job(tools=["tensorboard"]))
    await begin_run(api, "tensorboard")
    failed = {
        "reason": "exit_code",
        "message": "it failed",
        "details": {"cause": "exit_code", "exit_code": 3},
    }
    await begin_run(api, "tensorboard", state="FAILURE", **failed)
    _, before = await call(api, "GET", "j1/tools/tensorboard")
    assert (before["state"], before["reason"]) == ("ENDED", "exit_code")
    assert before["details"]["exit_code"] == 3
    await maintain(api, "draining")
    status, said = await attach(api, "tensorboard")
    assert (status, said["code"]) == (503, "draining")
    await maintain(api, "running")
    status, said = await attach(api, "tensorboard")
    assert (status, said["state"], said["reason"]) == (201, "WAITING", "rank")
    assert said["details"] is None
    assert said["attached_at"] > before["attached_at"]
    assert (await attach(api, "tensorboard"))[0] == 200


async def test_a_tool_run_is_not_listed_as_job(api: Api) -> None:
    await submit(api, make_job(tools=["tensorboard"]))
    await begin_run(api, "tensorboard", owner_user="ada")
    for query in ("", "?order=newest", "?user=ada", "?state=IN_QUEUE"):
        assert await ids(api, query) == ["j1"]
    for method, path in [("GET", ""), ("DELETE", ""), ("GET", "/tools"), ("GET", "/history")]:
        assert (await call(api, method, f"{RUN}{path}"))[0] == 404
    updates = await (
        await api.client.get("/v1/updates", headers={"Accept": "application/json"})
    ).json()
    assert {one["job"] for one in updates["items"]} == {"j1"}
    used = await (await api.client.get("/v1/maintenance")).json()
    assert (used["waiting"], used["running"]) == (1, 0)
    ack = {"through": 0, "exhausted": [{"owner": {"user": "ada"}}]}
    response = await api.client.post("/v1/usage/ack", json=ack)
    assert (await response.json())["ended"] == ["j1"]


async def test_log_and_usage_of_a_tool_are_separate_from_its_job(api: Api, script: Script) -> None:
    await submit(api, make_job(replicas=2, tools=["tensorboard"]))
    log, pod = "/v1/jobs/j1/logs?tool=tensorboard", pod_name(RUN, "job", 0)
    assert (await api.client.get(log)).status == 409  # the tool has not run yet
    (waits,) = (await get(api, "/v1/jobs/j1/metrics"))["tools"]
    assert (waits["pod"], waits["missing"]["cpu_cores"]) == (None, "not_running")
    await begin_run(api, "tensorboard", state="RUNNING", uid="u1", reason=None, message=None)
    async with api.store.write() as transaction:
        await record_attempt(transaction, RUN, 1, uid="u1", now=4.0)
        await upsert_pod_records(transaction, [run(0, job_id=RUN, pod=pod)])
        record = await find_job(transaction, RUN)
        assert record is not None
    script.answer(text(b"it listens"))
    response = await api.client.get(f"{log}&tail=5")
    assert (response.status, await response.text()) == (200, "it listens")
    (_, path, _) = script.requests[-2]
    assert path == f"/api/v1/namespaces/{record.namespace}/pods/{pod}/log"
    for query, status in (("rank=1", 404), ("rank=2", 422), ("rank=all", 422), ("attempt=1", 422)):
        assert (await api.client.get(f"{log}&{query}")).status == status, query
    assert (await api.client.get("/v1/jobs/j1/logs?tool=wetty")).status == 404
    await sampled(api, 20.0, {PodKey(record.namespace, pod): {"cpu_cores": 0.5}})
    shown = await get(api, "/v1/jobs/j1/metrics")
    (uses,) = shown["tools"]
    assert (uses["tool"], uses["rank"], uses["pod"]) == ("tensorboard", 0, pod)
    assert (uses["values"]["cpu_cores"], uses["series"]["at"]) == (0.5, [20.0])
    assert shown["values"]["cpu_cores"] is None
    assert (await get(api, "/v1/jobs/j1/metrics?rank=1"))["tools"] == []


async def test_a_session_of_an_attached_tool_ends_with_it(api: Api) -> None:
    await submit(api, make_job(replicas=2, tools=["wetty"]))
    item = {"job": "j1", "rank": 0, "endpoint": "tool:wetty"}
    response = await api.client.post("/v1/sessions", json={"items": [item]})
    (opened,) = (await response.json())["items"]
    assert (response.status, opened["kind"], opened["endpoint"]) == (201, "web", "tool:wetty")
    for wrong in ({"rank": 1}, {"endpoint": "tool:tensorboard"}, {"endpoint": "tool:"}):
        response = await api.client.post("/v1/sessions", json={"items": [item | wrong]})
        assert response.status == 422, wrong
    await call(api, "DELETE", "j1/tools/wetty")
    ended = await (await api.client.get(f"/v1/sessions/{opened['sid']}")).json()
    assert (ended["state"], ended["end_reason"]) == ("ended", "tool_removed")


@pytest.mark.parametrize(
    ("folder", "near"), [("/home/run", False), ("/fast/run", True), (None, False)]
)
async def test_a_tool_with_a_node_local_volume_is_placed_on_that_node(
    api: Api, folder: str | None, near: bool
) -> None:
    fields = {"output": folder} if folder else {}
    assert (await submit(api, make_job(tools=["tensorboard"], **fields)))[0] == 200
    async with api.store.read() as transaction:
        tool = await find_tool(transaction, ("j1", "tensorboard", 0))
    assert tool is not None
    assert tool.shape == {"near": near, "ready_path": "/"}
    assert tool.unshared == ["/dev/shm"] + ([] if folder else ["/work"])
    assert replace(tool, asked_at=0.0).spec.get("output") == folder
