"""Tests the Prometheus metrics source and its handling of responses."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from controller.resource_metrics import prometheus
from controller.resource_metrics.prometheus import QUERIES, PrometheusSource, make_session
from controller.resource_metrics.sources import Measured, Metric, SourceFailed
from controller.volcano.names import pod_name
from tests.gateway.relay.authorities import Authority, server_context

POD = ("jobs", "j-a-job-0")
BY_QUERY: dict[str, Metric] = {query: metric for metric, (query, _) in QUERIES.items()}


class Server:
    """Serves the query of each metric; a metric that is not in *answers* has no samples."""

    def __init__(self) -> None:
        self.answers: dict[Metric, web.Response | list[Any]] = {}
        self.always: web.Response | None = None
        self.requests: list[web.Request] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if self.always is not None:
            return web.Response(
                status=self.always.status, text=self.always.text, headers=self.always.headers
            )
        found = self.answers.get(BY_QUERY[request.query["query"]], [])
        if isinstance(found, web.Response):
            return found
        data = {"resultType": "vector", "result": found}
        return web.json_response({"status": "success", "data": data, "warnings": ["w"]})


def sample(value: str, **labels: str) -> dict[str, Any]:
    named = labels or {"namespace": "jobs", "pod": "j-a-job-0"}
    return {"metric": named, "value": [1767225600.781, value]}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application()
    app.router.add_get("/prometheus/api/v1/query", made.handle)
    async with TestServer(app) as running:
        made.url = str(running.make_url("/prometheus"))
        yield made


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with make_session() as session:
        yield session


@pytest.mark.parametrize("query", [query for query, _ in QUERIES.values()])
def test_only_pods_of_jobs_and_tools_are_queried(query: str) -> None:
    patterns = re.findall(r'pod=~"([^"]+)"', query)
    assert patterns
    for pattern in patterns:
        for job_id in ("a", "tool.0"):
            assert re.fullmatch(pattern, pod_name(job_id, "job", 0))
        assert not re.fullmatch(pattern, "coredns-0")


async def test_network_and_gpus_are_converted_to_documented_units(
    server: Server, http: aiohttp.ClientSession
) -> None:
    server.answers = {
        "network_receive_bytes_per_second": [sample("1204.5")],
        "network_transmit_bytes_per_second": [sample("0")],
        "gpu_utilization": [sample("37")],
        # If the scraper keeps its own labels, it renames the pod's.
        "gpu_memory_bytes": [
            sample("512", exported_namespace="jobs", exported_pod="j-a-job-0", pod="dcgm-x")
        ],
    }
    measured: Measured = {}
    assert await PrometheusSource(http, url=server.url).read(measured) == {}
    assert measured == {
        POD: {
            "network_receive_bytes_per_second": 1204.5,
            "network_transmit_bytes_per_second": 0.0,
            "gpu_utilization": pytest.approx(0.37),
            "gpu_memory_bytes": 512 * 2**20,
        }
    }
    assert len(server.requests) == 4
    assert all("Authorization" not in one.headers for one in server.requests)


@pytest.mark.usefixtures("strict_by_default")
async def test_a_private_server_may_have_an_authority_without_key_identifiers(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, app = Authority(tmp_path, "ours"), web.Application()
    app.router.add_get("/api/v1/query", server.handle)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    running = TestServer(app, scheme="https")
    await running.start_server(ssl=server_context(authority.vouch("127.0.0.1")))
    try:
        async with make_session() as http:
            source = PrometheusSource(http, url=str(running.make_url("")))
            assert await source.read({}) == {}
    finally:
        await running.close()


async def test_the_token_file_is_read_for_each_query(
    server: Server, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    source = PrometheusSource(http, url=server.url + "/", token_file=token)
    for text in ("first\n", "second"):
        token.write_text(text)
        await source.read({})
        assert server.requests[-1].headers["Authorization"] == f"Bearer {text.strip()}"
    token.unlink()
    with pytest.raises(SourceFailed) as failed:
        await source.read({})
    assert failed.value.reason == "unavailable"
    assert "second" not in str(failed.value)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "", "seven", "1.7e308"])
async def test_a_malformed_amount_is_no_value(
    server: Server, http: aiohttp.ClientSession, value: str
) -> None:
    nameless = sample("1", namespace="jobs")
    server.answers = {"gpu_utilization": [sample(value), nameless, sample("1", pod="j-b")]}
    measured: Measured = {}
    await PrometheusSource(http, url=server.url).read(measured)
    assert measured == {("", "j-b"): {"gpu_utilization": 0.01}}


async def test_a_failing_query_keeps_the_results_of_others(
    server: Server, http: aiohttp.ClientSession
) -> None:
    bad = web.json_response({"status": "error", "errorType": "bad_data"}, status=400)
    server.answers = {"network_receive_bytes_per_second": bad, "gpu_utilization": [sample("50")]}
    measured: Measured = {}
    missing = await PrometheusSource(http, url=server.url).read(measured)
    assert missing == {"network_receive_bytes_per_second": "unavailable"}
    assert measured == {POD: {"gpu_utilization": 0.5}}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (web.Response(status=401), "forbidden"),
        (web.Response(status=302, headers={"Location": "/login"}), "unavailable"),
        (web.Response(status=500), "unavailable"),
        (web.Response(text="<html>"), "unavailable"),
        (web.Response(text="[" * 5000), "unavailable"),
        (web.json_response({"status": "success", "data": {"result": [{"value": 1}]}}),
         "unavailable"),
        (web.json_response({"status": "success"}), "unavailable"),
        (web.Response(text='{"status": "' + 5000 * "x" + '"}'), "unavailable"),
    ],
)  # fmt: skip
async def test_a_broken_server_yields_no_sample(
    server: Server,
    http: aiohttp.ClientSession,
    answer: web.Response,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prometheus, "MOST_BYTES", 4000)
    server.always = answer
    measured: Measured = {}
    with pytest.raises(SourceFailed) as failed:
        await PrometheusSource(http, url=server.url).read(measured)
    assert (failed.value.reason, measured) == (reason, {})


async def test_an_unreachable_server_is_reported_unavailable(http: aiohttp.ClientSession) -> None:
    # No server can listen there.
    with pytest.raises(SourceFailed) as failed:
        await PrometheusSource(http, url="http://127.0.0.1:1").read({})
    assert failed.value.reason == "unavailable"
