"""Tests reading PodMetrics from metrics-server and other servers of its API."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from controller.kube.client import Kube
from controller.resource_metrics.pod_metrics import PodMetricsSource
from controller.resource_metrics.sources import Measured, PodKey, SourceFailed
from tests.controller.kube.api_server import Answer, Script, says

TOO_LITTLE = {"usage": {"cpu": "1"}}


@pytest.fixture
def script() -> Script:
    return Script(says({"items": []}))


def metrics(name: str, *containers: Any, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "jobs", "labels": {}},
        "timestamp": "2026-01-01T00:00:00Z",
        "window": "15.04s",
        "containers": list(containers),
        **more,
    }


def container(cpu: Any, memory: Any) -> dict[str, Any]:
    return {"name": "job", "usage": {"cpu": cpu, "memory": memory}}


def a_list(*items: Any) -> Answer:
    return says({"kind": "PodMetricsList", "metadata": {}, "items": list(items)})


async def read(kube: Kube, namespace: str | None = None) -> Measured:
    measured = Measured()
    source = PodMetricsSource(kube, instance="test", namespace=namespace)
    assert await source.read(measured) == {}
    return measured


async def test_one_list_returns_metrics_of_all_pods(kube: Kube, script: Script) -> None:
    pods = [metrics(f"j-{i}-job-0", container(f"{i}m", f"{i}Ki")) for i in range(300)]
    script.answer(a_list(*pods))
    found = await read(kube)
    assert found[PodKey("jobs", "j-7-job-0")] == {"cpu_cores": 0.007, "memory_bytes": 7168.0}
    (request,) = script.requests
    # The request names no page: metrics-server has none and would ignore it.
    assert request == (
        "GET", "/apis/metrics.k8s.io/v1beta1/pods", {"labelSelector": "fumarole.dev/instance=test"},
    )  # fmt: skip
    await read(kube, "jobs")
    assert script.requests[-1][1] == "/apis/metrics.k8s.io/v1beta1/namespaces/jobs/pods"


@pytest.mark.parametrize(
    ("cpu", "memory", "values"),
    [
        ("12345678n", "1234Ki", {"cpu_cores": 0.012345678, "memory_bytes": 1263616.0}),
        ("0", "0", {"cpu_cores": 0.0, "memory_bytes": 0.0}),
        ("1500u", "1Gi", {"cpu_cores": 0.0015, "memory_bytes": 1073741824.0}),
        ("2", "129e6", {"cpu_cores": 2.0, "memory_bytes": 129e6}),
        ("1.5", "128974848", {"cpu_cores": 1.5, "memory_bytes": 128974848.0}),
        ("123m", None, {"cpu_cores": 0.123}),
        ("-5", "1Ki", {"memory_bytes": 1024.0}),
        ("NaN", "many", None),
        (7, ["1Ki"], None),
        ("9" * 400, "1" + "0" * 30, None),
    ],
)
async def test_quantities_are_parsed_in_server_notation(
    kube: Kube, script: Script, cpu: Any, memory: Any, values: dict[str, float] | None
) -> None:
    script.answer(a_list(metrics("j-a-job-0", container(cpu, memory))))
    found = (await read(kube)).get(PodKey("jobs", "j-a-job-0"))
    assert found == (None if values is None else pytest.approx(values))


async def test_containers_are_summed_and_a_missing_one_leaves_no_sum(
    kube: Kube, script: Script
) -> None:
    script.answer(
        a_list(
            metrics("j-a-job-0", container("100m", "1Ki"), container("50m", "2Ki")),
            metrics("j-b-job-0", container("100m", "1Ki"), TOO_LITTLE),
            metrics("j-c-job-0"),
            metrics("j-d-job-0", containers=None),
            metrics("j-e-job-0", "no object", {"usage": None}),
            {"metadata": {"name": "j-f-job-0"}, "containers": [container("1", "1")]},
        )
    )
    assert await read(kube) == {
        ("jobs", "j-a-job-0"): pytest.approx({"cpu_cores": 0.15, "memory_bytes": 3072.0}),
        ("jobs", "j-b-job-0"): pytest.approx({"cpu_cores": 1.1}),
    }


async def test_an_empty_list_may_be_null(kube: Kube, script: Script) -> None:
    script.answer(says({"metadata": None, "items": None}))
    assert await read(kube) == {}


async def cut(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b'{"items": [')
    assert request.transport is not None
    request.transport.abort()
    return response


async def plain_404(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=404, text="404 page not found\n")


async def plain_503(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=503, text="service unavailable\n")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (plain_404, "not_installed"),
        (says({"reason": "NotFound", "message": "could not find the requested"}, 404),
         "not_installed"),
        (says({"reason": "Forbidden", "message": "cannot list"}, 403), "forbidden"),
        (plain_503, "unavailable"),
        (says({"reason": "TooManyRequests"}, 429), "unavailable"),
        (says(["no list"]), "unavailable"),
        (says({"items": [{"kind": "no metadata"}]}), "unavailable"),
        (cut, "unavailable"),
    ],
)  # fmt: skip
async def test_a_server_without_metrics_states_the_reason(
    kube: Kube, script: Script, answer: Answer, reason: str
) -> None:
    script.answer(answer)
    source = PodMetricsSource(kube, instance="test", namespace=None)
    with pytest.raises(SourceFailed) as failed:
        await source.read(Measured())
    assert failed.value.reason == reason


async def test_a_server_that_ignores_the_selector_uses_bounded_memory(
    kube: Kube, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.resource_metrics.pod_metrics.MOST_PODS", 100)
    script.answer(a_list(*(metrics(f"x-{i}", container("1", "1")) for i in range(500))))
    source, measured = PodMetricsSource(kube, instance="test", namespace=None), Measured()
    with pytest.raises(SourceFailed, match="more than 100 pods"):
        await source.read(measured)
    assert len(measured) < 300
