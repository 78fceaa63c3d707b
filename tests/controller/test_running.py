"""Tests the controller as a process, on the embedded cluster and a real Redis."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from contextlib import suppress
from typing import Any

import pytest
from redis.asyncio import Redis

from controller.kube.client import Kube, Objects
from controller.kube.kinds import (
    CONFIG_MAPS,
    NETWORK_POLICIES,
    PODS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
    VCJOBS,
    Kind,
)
from controller.store.database import Store
from controller.store.instance import store_capabilities
from controller.volcano.preflight import read_openapi
from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import BASE_DOMAIN, Controller, Routes, eventually, running
from tests.controller.volcano.test_capabilities import KIND, schema_of
from tests.overruns import overruns
from tests.programs import RedisServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

# A container's first process ignores signals without a handler.
SERVER = ["sh", "-c", "trap 'exit 0' TERM; python3 -m http.server 8000 & wait"]
WEB: dict[str, Any] = {
    "image": "python",
    "invocation": {"command": SERVER},
    "interactive": {"site": {"kind": "web", "port": 8000}},
}


async def of_job(admin: Kube, kind: Kind, controller: Controller, job: str) -> Objects:
    labels = f"fumarole.dev/instance={controller.instance},fumarole.dev/job={job}"
    return await admin.list(kind, labels=labels)


async def test_a_job_runs_and_its_session_reaches_redis(
    controller: Controller, admin: Kube, routes: Routes
) -> None:
    await controller.submit("web1", **WEB)
    sid = await controller.open("web1", endpoint="site")
    waiting = await routes.until(sid, "starting")
    assert waiting["target"] is None
    assert waiting["hosts"] == [f"{sid}.{BASE_DOMAIN}"]
    assert waiting["message"]
    route = await routes.until(sid, "ready")
    (pod,) = await of_job(admin, PODS, controller, "web1")
    assert pod["metadata"]["name"] == "j-web1-job-0"
    assert route["target"] == {
        "scheme": "http", "host": pod["status"]["podIP"], "port": 8000, "base_path": "/",
        "id": pod["metadata"]["uid"],
    }  # fmt: skip
    assert (route["job"], route["rank"], route["kind"], route["owner"]) == ("web1", 0, "web", "ada")
    job = await controller.until("web1", "RUNNING")
    assert job["started_at"] is not None
    assert (await controller.call("GET", f"/v1/sessions/{sid}"))["state"] == "ready"


async def test_a_second_endpoint_does_not_wait_for_the_first(
    controller: Controller, routes: Routes
) -> None:
    # For example a board that a user starts later, from the notebook of the second endpoint.
    first = {"board": {"kind": "web", "port": 6006}}
    await controller.submit("two1", **WEB | {"interactive": first | WEB["interactive"]})
    board = await controller.open("two1", endpoint="board")
    site = await controller.open("two1", endpoint="site")
    assert (await routes.until(site, "ready"))["target"]["port"] == 8000
    assert (await routes.until(board, "starting"))["target"] is None


async def test_a_deleted_job_leaves_nothing(
    controller: Controller, admin: Kube, routes: Routes
) -> None:
    secret = {"token": {"type": "secret", "value": "s3cret-canary"}}
    await controller.submit("del1", **WEB, parameters=secret)
    sid = await controller.open("del1", endpoint="site")
    await routes.until(sid, "ready")
    assert await of_job(admin, SECRETS, controller, "del1")
    await controller.call("DELETE", "/v1/jobs/del1", expect=202)
    await routes.until_gone(sid)
    job = await controller.until("del1", "SUCCESS")
    assert job["reason"] == "asked"
    assert (await controller.call("GET", f"/v1/sessions/{sid}"))["state"] == "ended"

    async def nothing() -> bool:
        kinds = (VCJOBS, PODS, SECRETS, NETWORK_POLICIES, SERVICES, CONFIG_MAPS)
        return not any([await of_job(admin, kind, controller, "del1") for kind in kinds])

    await eventually(nothing, what="something is left")
    await controller.call("DELETE", "/v1/jobs/del1", expect=200)
    assert "s3cret-canary" not in controller.log.read_text()


async def test_a_secret_reaches_the_program_and_nothing_else(
    controller: Controller, admin: Kube
) -> None:
    value = "pa$$(HOME) $(TOKEN) 'x' \"y\" `id`"
    await controller.submit(
        "sec1",
        image="python",
        parameters={"token": {"type": "secret", "value": value}},
        invocation={
            "command": [
                "python3",
                "-c",
                "import os,sys; sys.exit(0 if (os.environ['T'], sys.argv[1:], os.environ['L']) =="
                f" ({value!r}, ['--t=' + {value!r}, {value!r}], {value!r}) else 3)",
                {"parameter": "token", "prefix": "--t="},
                value,
            ],
            "environment": {"T": {"parameter": "token"}, "L": value},
        },
    )
    job = await controller.until("sec1", "SUCCESS", "FAILURE")
    assert job["state"] == "SUCCESS", job
    assert "value" not in job["parameters"]["token"]
    (made,) = await of_job(admin, VCJOBS, controller, "sec1")
    annotation = json.loads(made["metadata"]["annotations"]["fumarole.dev/spec"])
    assert annotation["parameters"] == {"token": {"type": "secret"}}


async def test_a_chain_runs_in_order_and_stops_at_a_failure(
    controller: Controller, admin: Kube
) -> None:
    short = {"command": ["sh", "-c", "sleep 1"]}
    # Paused, so that no job starts before its waiting state was observed, even on a slow machine.
    await controller.call("POST", "/v1/maintenance", {"action": "pause"})
    await controller.submit("train1", invocation=short)
    await controller.submit("small1", invocation={"command": ["false"]}, after=["train1"])
    await controller.submit("other1", invocation=short, after=["train1"])
    await controller.submit("last1", invocation=short, after=["small1", "other1"])

    async def waits() -> bool:
        job = await controller.job("last1")
        return (job["state"], job["reason"]) == ("IN_QUEUE", "predecessor")

    await eventually(waits, what="it does not wait for the others")
    assert not await of_job(admin, VCJOBS, controller, "last1")
    await controller.call("POST", "/v1/maintenance", {"action": "resume"})
    last = await controller.until("last1", "FAILURE", "SUCCESS", seconds=120)
    assert (last["reason"], last["started_at"]) == ("predecessor", None)
    assert last["message"] == "the job small1, which it follows, ended as FAILURE (exit_code)"
    train, other = (
        await controller.job("train1"),
        await controller.until("other1", "SUCCESS", seconds=120),
    )
    assert (train["state"], other["started_at"] >= train["finished_at"] - 1) == ("SUCCESS", True)
    history = await controller.call("GET", "/v1/jobs/last1/history")
    assert history["attempts"] == []


async def test_a_cluster_refusal_is_returned_to_the_submitter(
    controller: Controller, admin: Kube
) -> None:
    await controller.submit("first1")
    await controller.until("first1", "RUNNING")  # its namespace exists by then
    least = {"owner": {"user": "ada"}, "image": "busybox"}
    jobs = [{**least, "id": "good1"}, {**least, "id": "typo1", "queue": "nobodys"}]
    said = await controller.call("POST", "/v1/jobs", {"items": jobs}, expect=422)
    assert [one["path"] for one in said["details"]["problems"]] == ["items[1].queue"]
    await controller.call("GET", "/v1/jobs/good1", expect=404)
    hard = {"hard": {"count/jobs.batch.volcano.sh": "0"}}
    quota = {"metadata": {"name": "full"}, "spec": hard}
    await admin.create(RESOURCE_QUOTAS, quota, "jobs")
    try:
        said = await controller.call("POST", "/v1/jobs", {"items": jobs[:1]}, expect=422)
    finally:
        await admin.delete(RESOURCE_QUOTAS, "full", "jobs")
    (problem,) = said["details"]["problems"]
    assert problem["path"] == "items[0].owner"
    assert problem["message"].startswith("exceeded quota: full, requested:")
    await controller.submit("good1")


async def test_a_standby_refuses_like_the_leader(
    controller: Controller, cluster: EmbeddedCluster, redis_server: RedisServer
) -> None:
    await controller.submit("first2")
    await controller.until("first2", "RUNNING")
    # An earlier leader stored the features of an older Volcano; this process never saw that
    # cluster.
    schema = schema_of("1.11") | {"x-kubernetes-group-version-kind": [KIND]}
    store = Store(f"sqlite:///{controller.folder}/state/store.db")
    async with store.write() as transaction:
        document = {"components": {"schemas": {"job": schema}}}
        await store_capabilities(transaction, read_openapi(document))
    await store.close()
    answers = Controller(
        controller.folder,
        kubeconfig=cluster.kubeconfig("controller"),
        redis_url=redis_server.url,
        instance=controller.instance,
        roles="api",
        name="answers",
    )
    least = {"owner": {"user": "ada"}, "image": "busybox"}
    topology = {"network": {"mode": "hard", "tier": 1}}
    wrong = [{**least, "id": "a", "topology": topology}, {**least, "id": "b", "queue": "nobodys"}]
    async with running(answers):
        for one in (answers, controller):
            said = await one.call("POST", "/v1/jobs", {"items": wrong}, expect=422)
            paths = [problem["path"] for problem in said["details"]["problems"]]
            assert paths == ["items[0].topology.network", "items[1].queue"]
        # A job that this replica accepts is run by the leader.
        await answers.submit("other2")
    await controller.until("other2", "RUNNING", seconds=90)


async def test_a_killed_controller_continues_after_restart(
    controller: Controller, admin: Kube, routes: Routes
) -> None:
    await controller.submit("keep1", **WEB)
    sid = await controller.open("keep1", endpoint="site")
    before = await routes.until(sid, "ready")
    (made,) = await of_job(admin, VCJOBS, controller, "keep1")
    await controller.kill()
    assert await routes.of(sid) == before
    await controller.start()
    after = await routes.until(sid, "ready")
    assert after["target"] == before["target"]
    assert [one["metadata"]["uid"] for one in await of_job(admin, VCJOBS, controller, "keep1")] == [
        made["metadata"]["uid"]
    ]
    head = await routes.reader.head()
    assert head is not None
    assert head.since is None, "nothing was lost, so no token needs to be refused"
    assert (await controller.job("keep1"))["state"] == "RUNNING"


async def test_an_accepted_job_runs_although_its_controller_died(
    controller: Controller, admin: Kube
) -> None:
    secret = {"t": {"type": "secret", "value": "survives"}}
    command = ["sh", "-c", 'test "$T" = survives']
    for number in range(3):
        await controller.submit(
            f"crash{number}",
            parameters=secret,
            invocation={"command": command, "environment": {"T": {"parameter": "t"}}},
        )
    # Killed in the middle of a batch, or just after it.
    batch = make_batch("sweep1", ["sh", "-c", "test {{n}} -lt 9"], n=[1, 2, 3, "x" * 64])
    asking = asyncio.create_task(controller.call("POST", "/v1/batches", batch, expect=201))
    await asyncio.wait([asking], timeout=0.05)
    await controller.kill()
    await asyncio.gather(asking, return_exceptions=True)
    await controller.start()
    for number in range(3):
        job = await controller.until(f"crash{number}", "SUCCESS", "FAILURE")
        assert job["state"] == "SUCCESS", job
    with suppress(AssertionError):  # it exists already
        await controller.call("POST", "/v1/batches", batch, expect=201)
    again = await controller.call("POST", "/v1/batches", batch)
    results = [one["result"] for one in again["results"]]
    assert results == ["unchanged", "unchanged", "unchanged", "rejected"]
    assert (await batch_is_over(controller, "sweep1"))["counts"] == {"SUCCESS": 3}
    updates = [(await controller.call("GET", f"/v1/jobs/sweep1-{n}/history")) for n in range(3)]
    assert [len(one["attempts"]) for one in updates] == [1, 1, 1]
    # Ended while its jobs are being submitted.
    endless = make_batch("sweep2", ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"], n=[1, 2])
    await controller.call("POST", "/v1/batches", endless, expect=201)
    with suppress(AssertionError):  # 200 if they are over already
        await controller.call("DELETE", "/v1/batches/sweep2", expect=202)
    assert (await batch_is_over(controller, "sweep2"))["counts"] == {"SUCCESS": 2}

    async def nothing() -> bool:
        jobs = ("sweep2-0", "sweep2-1")
        return not any([await of_job(admin, VCJOBS, controller, job) for job in jobs])

    await eventually(nothing, what="a VolcanoJob is left")


def make_batch(batch_id: str, command: list[str], **matrix: list[Any]) -> dict[str, Any]:
    template = {
        "owner": {"user": "ada"},
        "image": "busybox",
        "labels": {"n": "{{n}}"},
        "resources": {"cpu": 0.05, "memory": "64Mi"},
        "invocation": {"command": command},
    }
    return {"id": batch_id, "mode": "best_effort", "template": template, "matrix": matrix}


async def batch_is_over(controller: Controller, batch_id: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        shown = await controller.call("GET", f"/v1/batches/{batch_id}")
        return shown if shown["over"] else None

    return await eventually(look, seconds=90, what=f"{batch_id} is not over")


async def test_objects_of_another_instance_are_not_touched(
    controller: Controller, admin: Kube
) -> None:
    labels = {"fumarole.dev/instance": "other", "fumarole.dev/job": "foreign"}
    container = {"name": "job", "image": "busybox", "command": ["sleep", "60"]}
    spec = {
        "minAvailable": 1, "schedulerName": "volcano", "queue": "default",
        "tasks": [
            {"name": "job", "replicas": 1, "template": {"spec": {"containers": [container]}}}
        ],
    }  # fmt: skip
    await controller.submit("mine")
    await controller.until("mine", "RUNNING")
    metadata = {"name": "j-foreign", "labels": labels}
    made = await admin.create(VCJOBS, {"metadata": metadata, "spec": spec}, "jobs")
    await controller.submit("foreign")
    job = await controller.until("foreign", "FAILURE")
    assert job["reason"] == "refused"
    assert "somebody else" in job["message"]
    kept = await admin.get(VCJOBS, "j-foreign", "jobs")
    assert kept["metadata"]["uid"] == made["metadata"]["uid"]
    await admin.delete(VCJOBS, "j-foreign", "jobs")


async def test_of_two_controllers_the_later_leads(
    controller: Controller, cluster: EmbeddedCluster, redis_server: RedisServer
) -> None:
    other = Controller(
        controller.folder,
        kubeconfig=cluster.kubeconfig("controller"),
        redis_url=redis_server.url,
        instance=controller.instance,
    )
    other.spawn = subprocess.Popen
    async with running(other):
        assert await controller.exit_code() == 1
        assert "the controller cannot continue" in controller.tail()
        assert "Traceback" not in controller.log.read_text(), controller.tail()
        await other.submit("led1")
        await other.until("led1", "RUNNING")


async def test_revocations_and_routes_survive_the_loss_of_redis(
    controller: Controller, module_redis: Redis, routes: Routes
) -> None:
    await controller.submit("flush1", **WEB)
    sid = await controller.open("flush1", endpoint="site")
    before = await routes.until(sid, "ready")
    await controller.call("POST", f"/v1/sessions/{sid}/revoke", {"sub": "eve"})

    async def revoked() -> bool:
        snapshot = await routes.reader.snapshot()
        return snapshot is not None and f"sub:{sid}:eve" in snapshot.revoked

    await eventually(revoked)
    await module_redis.flushall()
    await eventually(revoked, what="the revocation is lost")
    after = await routes.until(sid, "ready")
    assert after["target"] == before["target"]
    head = await routes.reader.head()
    assert head is not None
    assert head.since is not None, "which tokens were used is lost, and gateways must know"


async def test_a_separately_started_controller_shuts_down_on_sigterm(
    controller: Controller,
) -> None:
    await controller.kill()
    controller.spawn = subprocess.Popen
    await controller.start()
    await controller.submit("term1")
    assert await controller.stop() == 0
    await asyncio.sleep(0)
    assert "Traceback" not in controller.log.read_text(), controller.tail()


async def test_a_job_ends_at_its_time_limit_and_is_charged(controller: Controller) -> None:
    async with overruns() as machine:
        await controller.submit("time1", time_allocation_seconds=2)
        job = await controller.until("time1", "EXPIRED")
    assert job["reason"] == "expired"
    history = await controller.call("GET", "/v1/jobs/time1/history")
    (asked,) = [one for one in history["updates"] if one["state"] == "CANCELING"]
    assert 0 <= asked["at"] - job["expires_at"] < 2 + machine.longest
    (run,) = history["attempts"][0]["runs"]
    usage = await controller.call("GET", "/v1/usage")
    (final,) = [one for one in usage["items"] if one["job"] == "time1"]
    assert final["final"]
    assert final["seconds"] == run["ended_at"] - run["started_at"]


async def test_a_time_limit_that_passed_during_a_downtime_ends_the_job_at_once(
    controller: Controller,
) -> None:
    await controller.submit("time2", time_allocation_seconds=3)
    await controller.submit("time3", time_allocation_seconds=3)
    await controller.call("POST", "/v1/jobs/time3/extend", {"seconds": 3600})
    for job_id in ("time2", "time3"):
        await controller.until(job_id, "RUNNING")
    await controller.kill()
    await asyncio.sleep(4)
    async with overruns() as machine:
        await controller.start()
        looks_since = time.time()
        job = await controller.until("time2", "EXPIRED")
    assert job["attempt"] == 1
    history = await controller.call("GET", "/v1/jobs/time2/history")
    (asked,) = [one for one in history["updates"] if one["state"] == "CANCELING"]
    assert asked["at"] - looks_since < 2 + machine.longest
    assert (await controller.job("time3"))["state"] == "RUNNING"
    # The first cause decides: the job expired before the request to end it.
    await controller.call("DELETE", "/v1/jobs/time2")
    assert (await controller.job("time2"))["reason"] == "expired"


async def test_updates_of_a_whole_life_are_sent_once(
    controller: Controller,
) -> None:
    command = ["sh", "-c", "echo hello; exit 3"]
    await controller.submit("told1", invocation={"command": command})
    await controller.until("told1", "FAILURE")
    history = await controller.call("GET", "/v1/jobs/told1/history")
    *before, last = history["updates"]
    states = [one["state"] for one in before]
    assert states[0] == "IN_QUEUE"
    assert set(states) <= {"IN_QUEUE", "RUNNING"}
    # No update with state RUNNING carries a reason of the end.
    assert {one["reason"] for one in before if one["state"] == "RUNNING"} <= {None}
    assert "exit_code" not in {one["reason"] for one in before}
    assert (last["reason"], last["exits"][0]["exit_code"]) == ("exit_code", 3)
    (task,) = (await controller.call("GET", "/v1/jobs/told1/tasks"))["items"]
    assert (task["state"], task["exit_code"]) == ("FAILED", 3)
    assert await controller.read("/v1/jobs/told1/logs") == "hello\n"
    used = await controller.call("GET", "/v1/utilization")
    assert used["capacity"]["cpu"] > 0
