"""Tests owners, peers and public links with a controller process and the embedded cluster."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from controller.jobs.submission.commands import JobCommands
from controller.kube.client import Kube
from controller.kube.kinds import NAMESPACES, NETWORK_POLICIES, PODS, QUEUES, SERVICES, VCJOBS, Kind
from controller.store.database import Store
from deploy.local.cluster import EmbeddedCluster
from shared.bus import connect
from tests.controller.running import BASE_DOMAIN, Controller, Routes, eventually, running
from tests.programs import RedisServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

NODES = Kind("v1", "nodes", "Node", namespaced=False)
# A container's first process ignores signals without a handler.
SERVER = ["sh", "-c", "trap 'exit 0' TERM; python3 -m http.server 8000 & wait"]
WEB: dict[str, Any] = {
    "image": "python",
    "invocation": {"command": SERVER},
    "interactive": {"site": {"kind": "web", "port": 8000}},
}
# Exits with 0 if the address responds in time.
ASK = """
import sys, time, urllib.request
until = time.monotonic() + float(sys.argv[2])
while True:
    try:
        urllib.request.urlopen(sys.argv[1], timeout=2).read()
        sys.exit(0)
    except OSError as error:
        if time.monotonic() > until:
            sys.exit(f"not reached: {error}")
        time.sleep(0.2)
"""


def asking(address: str, *, seconds: int = 60) -> dict[str, Any]:
    command = ["python3", "-c", ASK, address, str(seconds)]
    return {"image": "python", "invocation": {"command": command}}


def peer(job: str, hostname: str, **fields: Any) -> dict[str, Any]:
    return {hostname: {"type": "peer", "job": job, "hostname": hostname, **fields}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def controller(
    cluster: EmbeddedCluster, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Controller]:
    folder = tmp_path_factory.mktemp("owners")
    one = Controller(
        folder / "controller",
        kubeconfig=cluster.kubeconfig("controller"),
        redis_url=redis_server.url,
        instance="owners",
        FUMAROLE_CONTROLLER_FAIR_SHARE="on",
        FUMAROLE_CONTROLLER_STORE_URL=f"sqlite:///{folder}/store.db",
    )
    async with running(one):
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def routes(redis_server: RedisServer, controller: Controller) -> AsyncIterator[Routes]:
    client: Redis = connect(redis_server.url)
    yield Routes(client, controller.instance)
    await client.aclose()


async def of_job(admin: Kube, kind: Any, job: str) -> list[dict[str, Any]]:
    labels = f"fumarole.dev/instance=owners,fumarole.dev/job={job}"
    return await admin.list(kind, labels=labels)


async def policy_of(admin: Kube, job: str) -> str:
    """Return the job's own policy as text."""
    found = await of_job(admin, NETWORK_POLICIES, job)
    return next(str(one["spec"]) for one in found if one["metadata"]["name"].endswith(".network"))


async def test_each_owner_has_a_namespace_and_queue(controller: Controller, admin: Kube) -> None:
    owners: dict[str, dict[str, str]] = {
        "own-a": {"user": "ada"},
        "own-b": {"user": "Bob <bob@example.com> \N{SNOWMAN}"},
        "own-c": {"user": "ada", "project": "sun"},
    }
    for job, owner in owners.items():
        await controller.submit(job, owner=owner)
    places = {}
    for job, owner in owners.items():
        await controller.until(job, "RUNNING")
        (made,) = await of_job(admin, VCJOBS, job)
        place = made["metadata"]["namespace"]
        namespace = await admin.get(NAMESPACES, place)
        who = json.loads(namespace["metadata"]["annotations"]["fumarole.dev/owner"])
        assert list(who.items()) == list(owner.items())[-1:]
        assert made["spec"]["queue"] == place
        assert (await admin.get(QUEUES, place))["status"]["state"] == "Open"
        assert [pod["metadata"]["namespace"] for pod in await of_job(admin, PODS, job)] == [place]
        assert await admin.get(NETWORK_POLICIES, "fumarole.default-deny", place)
        places[job] = place
    assert len(set(places.values())) == 3
    for job in owners:
        await controller.call("DELETE", f"/v1/jobs/{job}", expect=202)
    for job in owners:
        await controller.until(job, "SUCCESS")
        # What the owner's next job needs stays.
        assert await admin.get(NAMESPACES, places[job])
        assert await admin.get(QUEUES, places[job])


async def test_a_new_store_adopts_the_jobs_of_all_owners(
    controller: Controller,
) -> None:
    await controller.submit("lost-a", owner={"user": "lost ada"})
    await controller.submit("lost-b", owner={"user": "lost bob"})
    await controller.until("lost-a", "RUNNING")
    await controller.until("lost-b", "RUNNING")
    await controller.stop()
    for file in controller.folder.parent.glob("store.db*"):
        file.unlink()
    await controller.start()
    for job, user in (("lost-a", "lost ada"), ("lost-b", "lost bob")):
        found = await controller.until(job, "RUNNING")
        assert found["owner"] == {"user": user}
        await controller.call("DELETE", f"/v1/jobs/{job}", expect=202)
        await controller.until(job, "SUCCESS")


@pytest.mark.needs("namespaces")
async def test_connected_jobs_communicate_until_the_requesting_job_ends(
    controller: Controller, admin: Kube
) -> None:
    await controller.submit("talk-a", **WEB)
    await controller.until("talk-a", "RUNNING")
    assert "talk-b" not in await policy_of(admin, "talk-a")
    await controller.submit(
        "talk-b", **asking("http://lab:8000/"), parameters=peer("talk-a", "lab")
    )
    done = await controller.until("talk-b", "SUCCESS", "FAILURE", seconds=80)
    assert done["state"] == "SUCCESS", done

    async def taken_back() -> bool:
        return "talk-b" not in await policy_of(admin, "talk-a")

    await eventually(taken_back, what="the rule stayed")

    async def service_gone() -> bool:
        return await of_job(admin, SERVICES, "talk-a") == []

    await eventually(service_gone, what="the Service stayed")
    assert (await controller.job("talk-a"))["state"] == "RUNNING"


@pytest.mark.needs("namespaces")
async def test_an_unconnected_job_is_not_reachable_by_address(
    controller: Controller, admin: Kube
) -> None:
    (node,) = await admin.list(NODES)
    if node["metadata"]["labels"].get("embedded-cluster/pod-network") != "filtered":
        pytest.skip("policies are not enforced here")
    await controller.submit("apart-a", **WEB)
    await controller.until("apart-a", "RUNNING")

    async def address() -> str | None:
        (pod,) = await of_job(admin, PODS, "apart-a")
        found: str | None = pod["status"].get("podIP")
        return found

    where = await eventually(address)
    await controller.submit("apart-b", **asking(f"http://{where}:8000/", seconds=10))
    assert (await controller.until("apart-b", "SUCCESS", "FAILURE"))["state"] == "FAILURE"


@pytest.mark.needs("namespaces")
async def test_a_restarted_peer_keeps_its_alias(controller: Controller, admin: Kube) -> None:
    await controller.submit("back-a", **WEB)
    await controller.until("back-a", "RUNNING")
    loop = ["python3", "-c", ASK.replace("sys.exit(0)", "time.sleep(3600)")]
    loop += ["http://lab:8000/", "60"]
    await controller.submit(
        "back-b", image="python", invocation={"command": loop}, parameters=peer("back-a", "lab")
    )
    await controller.until("back-b", "RUNNING")
    (before,) = await of_job(admin, SERVICES, "back-a")
    (pod,) = await of_job(admin, PODS, "back-a")
    await admin.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])

    async def another() -> bool:
        found = await of_job(admin, PODS, "back-a")
        return any(
            one["metadata"]["uid"] != pod["metadata"]["uid"]
            and one["status"].get("phase") == "Running"
            for one in found
        )

    await eventually(another, what="the pod did not come again")
    (after,) = await of_job(admin, SERVICES, "back-a")
    assert after["spec"]["clusterIP"] == before["spec"]["clusterIP"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    await controller.submit(
        "back-c", **asking("http://lab:8000/"), parameters=peer("back-a", "lab")
    )
    assert (await controller.until("back-c", "SUCCESS", "FAILURE", seconds=80))[
        "state"
    ] == "SUCCESS"


async def test_a_resumed_job_is_reachable_as_before(
    controller: Controller, admin: Kube, routes: Routes
) -> None:
    await controller.submit("sus-a", **WEB, links=["sus-demo"])
    await controller.submit("sus-b", parameters=peer("sus-a", "lab"))
    await controller.until("sus-b", "RUNNING")
    (before,) = await of_job(admin, SERVICES, "sus-a")
    assert "ownerReferences" not in before["metadata"]
    store = Store(controller.settings["FUMAROLE_CONTROLLER_STORE_URL"])
    commands = JobCommands(store, clock=time.time, random=os.urandom, enqueue=lambda _job: None)
    await commands.suspend("sus-a")
    await controller.until("sus-a", "SUSPENDED")
    await commands.resume("sus-a")
    await controller.until("sus-a", "RUNNING")
    await store.close()
    (after,) = await of_job(admin, SERVICES, "sus-a")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["clusterIP"] == before["spec"]["clusterIP"]

    async def linked() -> bool:
        host = f"sus-demo.{BASE_DOMAIN}"
        return any(host in one["hosts"] and one["state"] == "ready" for one in await routes.all())

    await eventually(linked, what="the link does not lead to the next attempt")
    for job in ("sus-b", "sus-a"):
        await controller.call("DELETE", f"/v1/jobs/{job}", expect=202)
        await controller.until(job, "SUCCESS")
    assert await of_job(admin, SERVICES, "sus-a") == []


@pytest.mark.needs("namespaces")
async def test_jobs_of_two_owners_that_name_each_other_communicate(
    controller: Controller, admin: Kube
) -> None:
    least = {"resources": {"cpu": 0.05, "memory": "64Mi"}}
    server = {
        "id": "pair-a", "owner": {"user": "ada"}, **least, **WEB,
        "parameters": peer("pair-b", "client", ports=[9]),
    }  # fmt: skip
    client = {
        "id": "pair-b", "owner": {"user": "bob"}, **least, **asking("http://server:8000/"),
        "parameters": peer("pair-a", "server"),
    }  # fmt: skip
    alone = await controller.call("POST", "/v1/jobs", {"items": [client]}, expect=422)
    (problem,) = alone["details"]["problems"]
    assert problem["path"] == "items[0].parameters.server.job"
    await controller.call("POST", "/v1/jobs", {"items": [client, server]})
    assert (await controller.until("pair-b", "SUCCESS", "FAILURE", seconds=80))[
        "state"
    ] == "SUCCESS"


async def test_an_unknown_ended_or_foreign_job_cannot_be_named(
    controller: Controller,
) -> None:
    await controller.submit("named-a", **WEB, owner={"user": "bob"})
    await controller.submit("named-b", **WEB)
    await controller.call("DELETE", "/v1/jobs/named-b", expect=202)
    least = {"image": "python", "owner": {"user": "ada"}}
    messages = set()
    for index, other in enumerate(("named-a", "named-b", "absent")):
        job = {"id": f"named-{index}", **least, "parameters": peer(other, "lab")}
        response = await controller.call("POST", "/v1/jobs", {"items": [job]}, expect=422)
        (problem,) = response["details"]["problems"]
        assert problem["path"] == "items[0].parameters.lab.job"
        messages.add(problem["message"])
    # The messages do not reveal which jobs other owners have.
    assert len(messages) == 1


async def test_a_public_link_is_routed_while_the_job_lives(
    controller: Controller, routes: Routes
) -> None:
    await controller.submit("link-a", **WEB, links=["our-demo"])
    host = f"our-demo.{BASE_DOMAIN}"

    async def linked() -> dict[str, Any] | None:
        snapshot = await routes.all()
        return next((one for one in snapshot if host in one["hosts"]), None)

    route = await eventually(linked, what="there is no route")
    assert route["public"] is True
    assert route["hosts"] == [f"{route['sid']}.{BASE_DOMAIN}", host]
    ready = await routes.until(route["sid"], "ready")
    assert ready["target"]["port"] == 8000
    private = await controller.open("link-a", endpoint="site")
    assert (await routes.until(private, "ready"))["public"] is False
    taken = {"id": "link-b", "owner": {"user": "ada"}, **WEB, "links": ["our-demo"]}
    response = await controller.call("POST", "/v1/jobs", {"items": [taken]}, expect=409)
    assert response["details"]["problems"] == [
        {"path": "items[0].links[0]", "message": "is in use by another job"}
    ]
    await controller.call("DELETE", "/v1/jobs/link-a", expect=202)
    await controller.until("link-a", "SUCCESS")
    await routes.until_gone(route["sid"])
    strangers = taken | {"owner": {"user": "bob"}}
    response = await controller.call("POST", "/v1/jobs", {"items": [strangers]}, expect=409)
    assert response["details"]["problems"][0]["message"] == "is reserved for another owner"
    await controller.call("POST", "/v1/jobs", {"items": [taken]})
    again = await eventually(linked, what="the link does not lead to the next job")
    assert again["sid"] != route["sid"]
