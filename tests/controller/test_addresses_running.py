"""Tests jobs whose ranks have their own addresses: no session reaches another tenant's pod.

Controller, gateway and Redis run as processes, on the embedded cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from controller.kube.client import Kube, Object
from controller.kube.errors import NotFound
from controller.kube.kinds import PODS, RESOURCE_QUOTAS, SERVICES, VCJOBS
from deploy.local.cluster import EmbeddedCluster
from deploy.local.cluster.client import Client
from deploy.local.cluster.kubeconfig import read_kubeconfig
from tests.controller.running import Controller, Routes, eventually, running
from tests.deploy.local.cluster.kubelet.test_network import _pod_network as pod_network
from tests.gateway.process import GatewayProcess
from tests.programs import RedisServer

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(180),
    pytest.mark.needs("namespaces"),
]

PORT = 8000
# A container's first process ignores signals without a handler.
SERVER = ["sh", "-c", f"trap 'exit 0' TERM; python3 -m http.server {PORT} & wait"]
WEB: dict[str, Any] = {
    "image": "python",
    "invocation": {"command": SERVER},
    "interactive": {"site": {"kind": "web", "port": PORT}},
}
# Replies with the number of its connections, which shows that it had none before.
OTHER = f"""
import socket
server, count = socket.create_server(("0.0.0.0", {PORT})), 0
while True:
    connection, _ = server.accept()
    count += 1
    connection.sendall(f"other {{count}}".encode())
    connection.close()
"""
# With this seed the kubelet gives a freed address to the next pod at once.
SEED = 7
SERVICES_ONLY = "127.128.0.0/10"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(seed=SEED) as one:
        async with Client(read_kubeconfig(one.kubeconfig("admin"))) as client:
            if await pod_network(client) == "none":
                pytest.skip("the kernel lets us make no network between Pods")
        yield one


@asynccontextmanager
async def installation(
    cluster: EmbeddedCluster, redis_url: str, folder: Path, instance: str, **settings: str
) -> AsyncIterator[tuple[Controller, GatewayProcess]]:
    """Run a controller, and a gateway that dials only Service addresses."""
    gateway = GatewayProcess(
        folder,
        redis_url,
        FUMAROLE_INSTANCE=instance,
        FUMAROLE_GATEWAY_UPSTREAM_NETWORKS=SERVICES_ONLY,
    )
    controller = Controller(
        folder / "controller",
        kubeconfig=cluster.kubeconfig("controller"),
        redis_url=redis_url,
        instance=instance,
        **{
            "FUMAROLE_LINK_KEY_FILE": str(folder / "link"),
            "FUMAROLE_CONTROLLER_PUBLIC_URL": gateway.settings["FUMAROLE_GATEWAY_PUBLIC_URL"],
            "FUMAROLE_CONTROLLER_RANK_SERVICES": "yes",
            **settings,
        },
    )
    async with running(controller), gateway:
        yield controller, gateway


async def the_pod(admin: Kube, job: str, *, instead_of: str = "") -> Object:
    """Return the job's running pod, other than *instead_of*."""

    async def look() -> Object | None:
        for pod in await admin.list(PODS, labels=f"fumarole.dev/job={job}"):
            runs = pod.get("status", {}).get("phase") == "Running"
            if runs and pod["metadata"]["uid"] != instead_of:
                return pod
        return None

    return await eventually(look, what="no pod runs")


async def start_other(admin: Kube, name: str) -> str:
    """Start another tenant's pod on the node, without the scheduler; return its address."""
    container = {
        "name": "main", "image": "python", "command": ["python", "-u", "-c", OTHER],
        "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
    }  # fmt: skip
    spec = {"nodeName": "embedded", "containers": [container], "terminationGracePeriodSeconds": 0}
    await admin.create(PODS, {"metadata": {"name": name}, "spec": spec}, "default")

    async def look() -> str | None:
        status = (await admin.get(PODS, name, "default")).get("status", {})
        return status.get("podIP") if status.get("phase") == "Running" else None

    return await eventually(look, what="the other pod does not run")


async def heard(address: str) -> bytes | None:
    """Return the data sent at *address*, or None if nothing listens."""
    with suppress(OSError):
        reader, writer = await asyncio.open_connection(address, PORT)
        said = await reader.read()
        writer.close()
        return said
    return None


async def test_a_pod_with_a_reused_address_receives_no_byte_of_old_sessions(
    cluster: EmbeddedCluster,
    admin: Kube,
    module_redis: Redis,
    redis_server: RedisServer,
    tmp_path: Path,
) -> None:
    async with installation(cluster, redis_server.url, tmp_path, "own") as (controller, gateway):
        routes = Routes(module_redis, "own")
        await controller.submit("web1", **WEB)
        sid = await controller.open("web1", endpoint="site")
        first = (await routes.until(sid, "ready"))["target"]
        service = await admin.get(SERVICES, "rank-web1-0", "jobs")
        assert first["host"] == service["spec"]["clusterIP"]
        cookie = {"Cookie": await gateway.open(sid, job="web1")}

        async def status() -> int:
            return (await gateway.ask(sid, "GET", "/", cookie)).status

        await eventually(lambda: _is(status, 200), what="it is not reached")
        pod = await the_pod(admin, "web1")
        address = pod["status"]["podIP"]

        # No update reaches the gateway: the controller is gone, and Volcano recreates no pods yet.
        await controller.kill()
        await cluster.kill_program("volcano")
        await admin.delete(
            PODS, pod["metadata"]["name"], "jobs", uid=pod["metadata"]["uid"], grace_seconds=0
        )
        await eventually(lambda: _is_gone(admin, pod), what="the pod is still there")
        # The kubelet may still be about to free the address.
        taken = [await start_other(admin, "other0")]
        while taken[-1] != address:
            assert len(taken) < 9, taken
            taken.append(await start_other(admin, f"other{len(taken)}"))
        assert (await routes.of(sid) or {})["target"] == first
        listens = await eventually(lambda: heard(address), what="the other pod does not listen")
        assert listens == b"other 1"
        for _ in range(20):
            assert await status() in (502, 503)
        assert await heard(address) == b"other 2", "somebody was there"

        # The next pod of that rank has the same Service address, before any update.
        await cluster.start_program("volcano")
        again = await the_pod(admin, "web1", instead_of=pod["metadata"]["uid"])
        assert again["status"]["podIP"] != address
        await eventually(lambda: _is(status, 200), what="the next pod is not reached")
        await controller.start()

        async def told() -> bool:
            target = (await routes.of(sid) or {})["target"] or {}
            return target == {**first, "id": again["metadata"]["uid"]}

        await eventually(told, what="the route does not follow")
        assert await heard(address) == b"other 3", "somebody was there meanwhile"


async def _is(status: Any, wanted: int) -> bool:
    return bool(await status() == wanted)


async def _is_gone(admin: Kube, pod: Object) -> bool:
    try:
        found = await admin.get(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
    except NotFound:
        return True
    return bool(found["metadata"]["uid"] != pod["metadata"]["uid"])


@pytest.mark.long
async def test_rank_services_are_created_recreated_and_removed_with_a_running_job(
    cluster: EmbeddedCluster,
    admin: Kube,
    module_redis: Redis,
    redis_server: RedisServer,
    tmp_path: Path,
) -> None:
    controller = Controller(
        tmp_path / "controller",
        kubeconfig=cluster.kubeconfig("controller"),
        redis_url=redis_server.url,
        instance="comes",
    )

    async def service() -> Object:
        return await admin.get(SERVICES, "rank-web2-0", "jobs")

    async with running(controller):
        routes = Routes(module_redis, "comes")

        async def leads_to(address: str) -> bool:
            target = (await routes.of(sid) or {})["target"] or {}
            return bool(target.get("host") == address)

        await controller.submit("web2", **WEB)
        sid = await controller.open("web2", endpoint="site")
        await routes.until(sid, "ready")
        pod = (await the_pod(admin, "web2"))["status"]["podIP"]
        assert await leads_to(pod)

        await controller.stop()
        controller.settings["FUMAROLE_CONTROLLER_RANK_SERVICES"] = "yes"
        await controller.start()
        await eventually(lambda: _is_there(service), what="it gets no Service")
        made = await service()
        (job,) = await admin.list(VCJOBS, labels="fumarole.dev/job=web2")
        assert [one["uid"] for one in made["metadata"]["ownerReferences"]] == [
            job["metadata"]["uid"]
        ]
        await eventually(lambda: leads_to(made["spec"]["clusterIP"]), what="it leads elsewhere")

        # Somebody deletes the Service: another one may get its address, so it is no longer a
        # target.
        await admin.delete(SERVICES, "rank-web2-0", "jobs")

        async def is_another() -> bool:
            found = await _is_there(service) and await service()
            return bool(found and found["metadata"]["uid"] != made["metadata"]["uid"])

        await eventually(is_another, what="it gets no other Service")
        again = await service()
        await eventually(lambda: leads_to(again["spec"]["clusterIP"]), what="it leads elsewhere")

        async def is_gone() -> bool:
            return not await _is_there(service)

        await controller.call("DELETE", "/v1/jobs/web2", expect=202)
        await controller.until("web2", "SUCCESS")
        await eventually(is_gone, what="the Service stays")


@pytest.mark.long
async def test_a_job_waits_for_a_quota_that_admits_its_services(
    cluster: EmbeddedCluster, admin: Kube, redis_server: RedisServer, tmp_path: Path
) -> None:
    controller = Controller(
        tmp_path / "controller",
        kubeconfig=cluster.kubeconfig("controller"),
        redis_url=redis_server.url,
        instance="quota",
        FUMAROLE_CONTROLLER_RANK_SERVICES="yes",
    )
    async with running(controller):
        quota = {"metadata": {"name": "few"}, "spec": {"hard": {"count/services": "1"}}}
        await admin.create(RESOURCE_QUOTAS, quota, "jobs")
        await controller.submit("web3", **WEB, replicas=2)

        async def waits() -> bool:
            return bool((await controller.job("web3"))["reason"] == "forbidden")

        await eventually(waits, what="nobody refuses it")
        # The job does not run without its Services.
        assert await admin.list(VCJOBS, labels="fumarole.dev/job=web3") == []
        await admin.delete(RESOURCE_QUOTAS, "few", "jobs")
        await controller.until("web3", "RUNNING")


async def _is_there(service: Callable[[], Awaitable[Object]]) -> bool:
    try:
        return not (await service())["metadata"].get("deletionTimestamp")
    except NotFound:
        return False
