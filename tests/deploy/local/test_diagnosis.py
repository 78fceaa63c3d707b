"""Tests that the diagnosis of an unusable app names the pod, the address, and the response."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from controller.kube.client import Kube
from controller.kube.kinds import NAMESPACES, PODS, SERVICE_ACCOUNTS
from deploy.local.apps.catalogue import APPS
from deploy.local.demo import tell_unreached
from deploy.local.diagnosis import Diagnosis, port_of, refused_shell, try_to_connect
from shared.log import TextFormatter
from tests.controller.running import eventually

LAB, SHELL = APPS["jupyterlab"], APPS["shell"]


@pytest.fixture
async def admin(embedded_cluster_kubeconfig: Path) -> AsyncIterator[Kube]:
    async with Kube.connect(embedded_cluster_kubeconfig) as kube:
        yield kube


@pytest.fixture
async def namespace(admin: Kube) -> str:
    name = f"diagnosis-{uuid4().hex[:8]}"
    await admin.create(NAMESPACES, {"metadata": {"name": name}})

    async def there() -> bool:
        return bool(await admin.list(SERVICE_ACCOUNTS, name))

    await eventually(there, what="the namespace has no account")
    return name


async def make_pod(
    admin: Kube, namespace: str, status: dict[str, Any], *, port: int | None = None
) -> None:
    # Bound to a node without a kubelet, so only the test writes its status.
    container: dict[str, Any] = {"name": "job", "image": "x"}
    if port is not None:
        container["ports"] = [{"name": "lab", "containerPort": port}]
    spec = {"containers": [container], "nodeName": "far-away"}
    labels = {"fumarole.dev/job": "a"}
    body = {"metadata": {"name": "j-a-job-0", "labels": labels}, "spec": spec}
    await admin.create(PODS, body, namespace)
    await admin.merge(PODS, "j-a-job-0", {"status": status}, namespace, subresource="status")


def diagnosis(kubeconfig: Path, namespace: str, *, networks: str = "127.0.0.0/8",
              log: str = "") -> Diagnosis:  # fmt: skip
    return Diagnosis(
        kubeconfig=kubeconfig, namespace=namespace, pod_networks=networks, hub_log=lambda: log
    )


async def test_a_missing_pod_is_diagnosed(
    embedded_cluster_kubeconfig: Path, namespace: str
) -> None:
    (said,) = await diagnosis(embedded_cluster_kubeconfig, namespace).explain("a", LAB)
    assert f"no pod was made in {namespace}" in said
    assert "describe vcjob j-a" in said


WAITING = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
         "message": "0/3 nodes are available: 3 Insufficient cpu."}
    ],
    "containerStatuses": [
        {"name": "job", "image": "x", "imageID": "", "ready": False, "restartCount": 0,
         "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    ],
}  # fmt: skip


async def test_a_waiting_pod_states_its_reason(
    embedded_cluster_kubeconfig: Path, admin: Kube, namespace: str
) -> None:
    await make_pod(admin, namespace, WAITING)
    (said,) = await diagnosis(embedded_cluster_kubeconfig, namespace).explain("a", LAB)
    assert f"the pod {namespace}/j-a-job-0 on the node far-away is Pending" in said
    assert "3 Insufficient cpu" in said
    assert "ImagePullBackOff: no such image" in said


def running(address: str) -> dict[str, Any]:
    return {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}


async def test_the_dialled_address_and_its_response_are_shown(
    embedded_cluster_kubeconfig: Path, admin: Kube, namespace: str
) -> None:
    address = "127.99.4.7"
    await make_pod(admin, namespace, running(address))
    one = diagnosis(embedded_cluster_kubeconfig, namespace)
    (said,) = await one.explain("a", LAB)
    assert (
        f"the pod {namespace}/j-a-job-0 on the node far-away is dialled at {address}:8888" in said
    )
    assert "connection refused" in said
    with socket.create_server((address, port_of(LAB))):
        (said,) = await one.explain("a", LAB)
    assert said.endswith("answers from this machine")
    other = diagnosis(embedded_cluster_kubeconfig, namespace, networks="10.0.0.0/8")
    (said,) = await other.explain("a", LAB)
    assert f"{address}, which is not in POD_NETWORKS (10.0.0.0/8)" in said


async def test_an_unresponsive_address_is_diagnosed_as_not_routed() -> None:
    # A full accept queue drops connection attempts, as a network without a route does.
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        await asyncio.sleep(0.1)
        said = await try_to_connect("127.0.0.1", port, seconds=0.5)
        for one in waiting:
            one.close()
    assert said is not None
    assert "no answer in 0.5 s" in said
    assert "no route into the network of the cluster's pods" in said


async def test_the_response_to_the_hub_is_shown(
    embedded_cluster_kubeconfig: Path, admin: Kube, namespace: str
) -> None:
    await make_pod(admin, namespace, running("127.99.4.8"))
    log = "\n".join(
        line(f"pods/exec was refused with {status}", job=job)
        for status, job in ((403, "a"), (500, "a"), (404, "b"))
    )
    (said,) = await diagnosis(embedded_cluster_kubeconfig, namespace, log=log).explain("a", SHELL)
    assert "a shell in it: pods/exec was refused with 500." in said
    (said,) = await diagnosis(embedded_cluster_kubeconfig, namespace).explain("a", SHELL)
    assert "the hub's log has no refused shell" in said


def line(why: str, *, job: str) -> str:
    """Return a line of the hub's log."""
    record = logging.LogRecord(
        "controller.hub.held", logging.INFO, "", 0, "cannot open a shell: %s", (why,), None
    )
    record.__dict__ |= {"sid": "s", "job": job, "rank": 0, "pod": "jobs/j-a-job-0"}
    return TextFormatter().format(record)


def test_the_shell_of_another_job_is_ignored() -> None:
    assert refused_shell(line("no", job="ab"), "a") is None
    assert refused_shell("", "a") is None


async def test_a_missing_api_server_is_reported_without_exception(tmp_path: Path) -> None:
    (said,) = await diagnosis(tmp_path / "none", "jobs").explain("a", LAB)
    assert said.startswith("the pods of the job cannot be listed")


async def test_a_running_unreachable_pod_is_reported_once(
    embedded_cluster_kubeconfig: Path, admin: Kube, namespace: str
) -> None:
    await make_pod(admin, namespace, running("127.99.4.9"), port=8888)
    said: list[str] = []
    elsewhere = diagnosis(embedded_cluster_kubeconfig, namespace, networks="10.0.0.0/8")
    telling = asyncio.create_task(tell_unreached(elsewhere, said.append, every_seconds=0.05))

    async def told() -> bool:
        return bool(said)

    await eventually(told, what="nothing is said")
    await asyncio.sleep(0.5)
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)
    (one,) = said
    assert f"the pod {namespace}/j-a-job-0 on the node far-away" in one
    assert "not in POD_NETWORKS (10.0.0.0/8)" in one
    # A server that refuses or answers connections counts as reached.
    near = diagnosis(embedded_cluster_kubeconfig, namespace)
    assert await near.unreached() == {}
    with socket.create_server(("127.99.4.9", 8888)):
        assert await near.unreached() == {}


async def test_a_shell_refused_to_the_hub_is_reported(
    embedded_cluster_kubeconfig: Path, admin: Kube, namespace: str
) -> None:
    await make_pod(admin, namespace, running("127.99.4.10"))
    quiet = diagnosis(embedded_cluster_kubeconfig, namespace)
    assert await quiet.unreached() == {}
    log = line("pods/exec was refused with 500", job="a")
    found = await diagnosis(embedded_cluster_kubeconfig, namespace, log=log).unreached()
    (why,) = found.values()
    assert "a shell in it: pods/exec was refused with 500" in why
