"""Tests the cluster's metrics.k8s.io: the usage of real processes, in metrics-server's form."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from controller.kube.client import Kube
from controller.kube.errors import NotFound
from controller.kube.kinds import POD_METRICS
from controller.resource_metrics.pod_metrics import PodMetricsSource
from controller.resource_metrics.sources import Measured, PodKey, SourceFailed, Values
from controller.volcano.names import INSTANCE_LABEL
from deploy.local.cluster import EmbeddedCluster
from deploy.local.cluster.apiserver.kubelets import Kubelets
from deploy.local.cluster.apiserver.metrics import POD_METRICS as POD_METRICS_KIND
from deploy.local.cluster.apiserver.metrics import MetricsServer
from deploy.local.cluster.apiserver.requests import Target
from deploy.local.cluster.apiserver.store import Store
from deploy.local.cluster.client import PODS, Client, Object

BURNS = "x = bytearray(64 << 20)\nwhile True: pass"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    made = EmbeddedCluster(metrics_seconds=0.7)
    asyncio.run(made.start())
    yield made
    asyncio.run(made.stop())


def make_pod(name: str, *containers: list[str]) -> Object:
    return {
        "metadata": {"name": name, "labels": {INSTANCE_LABEL: "test"}},
        "spec": {
            "containers": [
                {"name": f"c{index}", "image": "python", "command": command}
                for index, command in enumerate(containers)
            ],
            "terminationGracePeriodSeconds": 0,
        },
    }


async def until_measured(
    kube: Kube, namespace: str, name: str, fits: Callable[[Values], bool]
) -> Values:
    """Return the pod's usage once *fits* accepts it; the time depends on the machine."""
    source, key = PodMetricsSource(kube, instance="test", namespace=None), PodKey(namespace, name)
    async with asyncio.timeout(90):
        while True:
            measured = Measured()
            with suppress(SourceFailed):  # before the second scrape
                await source.read(measured)
            if key in measured and fits(measured[key]):
                return measured[key]
            await asyncio.sleep(0.2)


async def test_metrics_distinguish_busy_and_idle_pods(
    cluster: EmbeddedCluster, client: Client, namespace: str
) -> None:
    await client.create(PODS, namespace, make_pod("busy", ["python3", "-c", BURNS]))
    waits = ["sleep", "1000"]
    await client.create(PODS, namespace, make_pod("idle", waits, waits))
    async with Kube.connect(cluster.kubeconfig("controller")) as kube:
        works = 64 << 20
        await until_measured(
            kube,
            namespace,
            "busy",
            lambda one: one["cpu_cores"] > 0.02 and one["memory_bytes"] > works,
        )
        idle = await until_measured(kube, namespace, "idle", lambda one: one["cpu_cores"] < 0.02)
        assert 0 < idle["memory_bytes"] < works
    async with Kube.connect(cluster.kubeconfig("admin")) as kube:
        found = await kube.get(POD_METRICS, "idle", namespace)
        assert found["metadata"]["labels"] == {INSTANCE_LABEL: "test"}
        assert [one["name"] for one in found["containers"]] == ["c0", "c1"]
        assert all(one["usage"]["memory"].endswith("Ki") for one in found["containers"])
        with pytest.raises(NotFound, match=f'pods.metrics.k8s.io "{namespace}/none" not found'):
            await kube.get(POD_METRICS, "none", namespace)
        assert "pods" in await kube.resources("metrics.k8s.io/v1beta1")
        await client.delete(PODS, namespace, "busy")
        async with asyncio.timeout(30):
            while any(
                one["metadata"]["name"] == "busy" for one in await kube.list(POD_METRICS, namespace)
            ):
                await asyncio.sleep(0.1)


def test_pod_metrics_are_available_after_the_second_scrape() -> None:
    store = Store()
    kubelets = Kubelets(store, POD_METRICS_KIND, ssl.create_default_context())
    server = MetricsServer(store, kubelets, 1.0)
    response = server.answer("list", Target("metrics.k8s.io", "v1beta1", "pods"), {})
    assert (response.status, response.text) == (503, "service unavailable\n")
