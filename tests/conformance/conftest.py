"""Provides the cluster of the cases: the one that ``KUBECONFIG`` names, or an embedded one."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from kubernetes_asyncio import client, config
from kubernetes_asyncio.client.exceptions import ApiException

from deploy.local.cluster import EmbeddedCluster
from tests.conformance.calls import MERGE, SCHEDULING, Kube, eventually, make_pod

_IDLE_SECONDS: Final = 15.0
_PULL_SECONDS: Final = 120.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the cases the time that a real cluster needs."""
    for item in items:
        if os.environ.get("KUBECONFIG") and "tests/conformance" in item.nodeid:
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="package")
def embedded() -> Iterator[EmbeddedCluster | None]:
    """Run the embedded cluster of this folder; None if ``KUBECONFIG`` names a cluster."""
    if os.environ.get("KUBECONFIG"):
        yield None
        return
    cluster = EmbeddedCluster()
    asyncio.run(cluster.start())
    yield cluster
    asyncio.run(cluster.stop())


@pytest.fixture(scope="package")
def kubeconfig(embedded: EmbeddedCluster | None) -> Path:
    """Return the administrator's kubeconfig."""
    return embedded.kubeconfig("admin") if embedded else Path(os.environ["KUBECONFIG"])


@pytest.fixture(autouse=True)
def _tell_the_seed(embedded: EmbeddedCluster | None) -> None:
    """Print the seed where pytest shows it: beside the failure."""
    if embedded is not None:
        print(f"FUMAROLE_CLUSTER_SEED={embedded.seed}")


@pytest.fixture
async def kube(kubeconfig: Path) -> AsyncIterator[Kube]:
    """Provide the APIs of the cluster, as the administrator."""
    async with _connected(kubeconfig) as kube:
        yield kube


@asynccontextmanager
async def _connected(kubeconfig: Path) -> AsyncIterator[Kube]:
    configuration = client.Configuration()
    await config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    async with client.ApiClient(configuration) as api:
        yield Kube(api)


@pytest.fixture
async def namespace(kube: Kube) -> AsyncIterator[str]:
    """Create a namespace for one test, with its ServiceAccount."""
    name = f"case-{secrets.token_hex(4)}"
    await kube.core.create_namespace({"metadata": {"name": name}})

    async def has_account() -> bool:
        accounts = await kube.core.list_namespaced_service_account(name)
        return any(account.metadata.name == "default" for account in accounts.items)

    try:
        await eventually(has_account)
        yield name
    finally:
        await _delete_namespaces(kube, name)


async def _delete_namespaces(kube: Kube, name: str) -> None:
    """Delete the namespace, and the namespaces that a case created beside it and left."""
    for found in (await kube.core.list_namespace()).items:
        if found.metadata.name.startswith(name) and not found.metadata.deletion_timestamp:
            await kube.core.delete_namespace(found.metadata.name)


@pytest.fixture
async def queue(kube: Kube, namespace: str) -> AsyncIterator[str]:
    """Return a name for a Queue of one test; the Queue is deleted after the test."""
    yield namespace
    with suppress(ApiException):
        await kube.custom.delete_cluster_custom_object(*SCHEDULING, "queues", namespace)
        return
    # Volcano before 1.12 deletes only a closed Queue; no job of the test runs in it any more.
    status = {"status": {"state": "Closed"}}
    path = f"/apis/{'/'.join(SCHEDULING)}/queues/{namespace}"
    await kube.call("PATCH", f"{path}/status", status, headers={"Content-Type": MERGE})
    await kube.call("DELETE", path)


@pytest.fixture
def kubelet(can_run_pods: str | None) -> None:
    """Skip the case if the cluster cannot run containers."""
    if can_run_pods is not None:
        pytest.skip(can_run_pods)


@pytest.fixture(scope="session")
def can_run_pods() -> str | None:
    """Return why the cluster runs no containers, or None if it does: one container is tried."""
    kubeconfig = os.environ.get("KUBECONFIG")
    return asyncio.run(_try_a_pod(Path(kubeconfig))) if kubeconfig else None


async def _try_a_pod(kubeconfig: Path) -> str | None:
    name = f"case-{secrets.token_hex(4)}"
    async with _connected(kubeconfig) as kube:
        await kube.core.create_namespace({"metadata": {"name": name}})
        pod = make_pod("tried", schedulingGates=None)
        pod["spec"]["containers"][0]["command"] = ["sh", "-c", "exit 0"]

        async def state() -> Any:
            with suppress(ApiException):  # the ServiceAccount may not exist yet
                await kube.core.create_namespaced_pod(name, pod)
            found = (await kube.core.list_namespaced_pod(name)).items
            return found[0].status if found else None

        try:
            return await _watch_a_pod(state)
        finally:
            await kube.core.delete_namespace(name)


async def _watch_a_pod(state: Callable[[], Awaitable[Any]]) -> str | None:
    """Return why a pod does not run, or None once it has ended.

    The wait is long while an image is pulled. It is short if nothing begins, or if the container
    runs
    and does not end: otherwise every case that needs a kubelet would wait that long too.
    """
    loop = asyncio.get_running_loop()
    since, last = loop.time(), None
    while True:
        status = await state()
        if status is not None and status.phase == "Succeeded":
            return None
        waits = status is not None and status.phase == "Pending" and status.start_time is not None
        if (now := status and status.phase) != last:
            since, last = loop.time(), now
        if loop.time() - since > (_PULL_SECONDS if waits else _IDLE_SECONDS):
            return f"this cluster runs no containers: a busybox stayed {last or 'uncreated'}"
        await asyncio.sleep(0.5)
