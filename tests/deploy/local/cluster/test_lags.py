"""Tests the delays of a real cluster's parts, set by each test: the races that they open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.cluster import EmbeddedCluster
from deploy.local.cluster.client import CONFIG_MAPS, PODS, Client, Object
from deploy.local.cluster.lags import LAGS, Lags, RateLimit, chosen_lags, write_lags
from deploy.local.cluster.volcano.definitions import JOBS
from tests.deploy.local.cluster.test_unusual_conditions import make_job

_ENDS = ("Completed", "Failed", "Aborted", "Terminated")


@pytest.fixture(autouse=True)
async def _calm_again(cluster: EmbeddedCluster) -> AsyncIterator[None]:
    """End every delay with the test that set it."""
    yield
    cluster.set_lags({})


async def _status(client: Client, namespace: str, name: str) -> Object:
    job = await client.get(JOBS, namespace, name) or {}
    return dict(job.get("status") or {})


async def _until_phase(client: Client, namespace: str, name: str, *phases: str) -> Object:
    async with asyncio.timeout(40):
        while True:
            status = await _status(client, namespace, name)
            if status.get("state", {}).get("phase") in phases:
                return status
            await asyncio.sleep(0.05)


async def _lags_are_read(cluster: EmbeddedCluster, values: dict[str, float]) -> None:
    cluster.set_lags(values)
    await asyncio.sleep(0.1)  # a signal handler: no reply shows that it has run


def _gated(name: str, **spec: Any) -> Object:
    """Return a job whose pod fails once the ConfigMap ``gate`` has an entry ``open``."""
    job = make_job(name, "until test -e /gate/open; do sleep 0.05; done; exit 7", **spec)
    pod = job["spec"]["tasks"][0]["template"]["spec"]
    pod["volumes"] = [{"name": "gate", "configMap": {"name": "gate"}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "gate", "mountPath": "/gate"}]
    return job


async def _fail(client: Client, namespace: str) -> None:
    await client.patch(CONFIG_MAPS, namespace, "gate", {"data": {"open": "1"}})


@pytest.fixture
async def gate(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, namespace, {"metadata": {"name": "gate"}})


def _on_failure(action: str, **rest: Any) -> list[Object]:
    return [{"event": "PodFailed", "action": action, **rest}]


@pytest.mark.needs("namespaces")
@pytest.mark.usefixtures("gate")
@pytest.mark.parametrize("action", ["RestartJob", "AbortJob", "TerminateJob"])
async def test_a_policy_loses_against_an_update_just_before_the_failure(
    cluster: EmbeddedCluster, client: Client, namespace: str, action: str
) -> None:
    await _lags_are_read(cluster, {"volcano-sync": 5.0})
    await client.create(JOBS, namespace, _gated("a", policies=_on_failure(action)))
    await _until_phase(client, namespace, "a", "Running")
    await client.patch(JOBS, namespace, "a", {"metadata": {"annotations": {"note": "1"}}})
    await _fail(client, namespace)
    status = await _until_phase(client, namespace, "a", *_ENDS)
    assert (status["state"]["phase"], status.get("retryCount", 0)) == ("Failed", 0)


@pytest.mark.needs("namespaces")
@pytest.mark.usefixtures("gate")
async def test_a_policy_applies_if_the_job_is_not_updated_meanwhile(
    cluster: EmbeddedCluster, client: Client, namespace: str
) -> None:
    await _lags_are_read(cluster, {"volcano-sync": 5.0})
    await client.create(JOBS, namespace, _gated("a", policies=_on_failure("AbortJob")))
    await _until_phase(client, namespace, "a", "Running")
    await _fail(client, namespace)
    assert (await _until_phase(client, namespace, "a", *_ENDS))["state"]["phase"] == "Aborted"


async def test_a_backlog_of_the_slow_client_loses_retries(
    cluster: EmbeddedCluster, client: Client, namespace: str
) -> None:
    # Slower than a real client, because there are fewer jobs.
    await _lags_are_read(cluster, {"volcano-client": 6.0})
    names = [f"j{number}" for number in range(8)]
    for name in names:
        script = "sleep 0.3; exit 7"
        job = make_job(name, script, maxRetry=2, policies=_on_failure("RestartJob"))
        await client.create(JOBS, namespace, job)
    async with asyncio.timeout(90):
        ends = [await _until_phase(client, namespace, name, *_ENDS) for name in names]
    assert {end["state"]["phase"] for end in ends} == {"Failed"}
    assert any(end.get("retryCount", 0) < 2 for end in ends)


@pytest.mark.needs("namespaces")
@pytest.mark.usefixtures("gate")
async def test_a_policy_with_a_timeout_recreates_pods_and_loses_its_phase(
    cluster: EmbeddedCluster, client: Client, namespace: str
) -> None:
    await _lags_are_read(cluster, {"volcano-timeout": 1.0})
    two = _gated("a", policies=_on_failure("RestartJob", timeout="1s"))
    two["spec"]["tasks"][0]["replicas"] = 2
    two["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["command"][2] += (
        " $(test $VC_TASK_INDEX = 1 && sleep 600)"
    )
    two["spec"]["plugins"] = {"env": []}
    await client.create(JOBS, namespace, two)
    await _until_phase(client, namespace, "a", "Running")
    first = (await client.get(PODS, namespace, "a-job-0") or {})["metadata"]["uid"]
    await _fail(client, namespace)
    async with asyncio.timeout(30):
        while (await client.get(PODS, namespace, "a-job-0") or {}).get("metadata", {}).get(
            "uid", first
        ) == first:
            await asyncio.sleep(0.05)
    assert "retryCount" not in await _status(client, namespace, "a")


async def test_the_garbage_collector_lags(
    cluster: EmbeddedCluster, client: Client, namespace: str
) -> None:
    owner = await client.create(CONFIG_MAPS, namespace, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    reference["uid"] = owner["metadata"]["uid"]
    for number in range(50):
        metadata = {"name": f"owned-{number}", "ownerReferences": [reference]}
        await client.create(CONFIG_MAPS, namespace, {"metadata": metadata})
    await _lags_are_read(cluster, {"collector": LAGS["collector"]})
    await client.delete(CONFIG_MAPS, namespace, "owner")
    started = time.monotonic()
    async with asyncio.timeout(60):
        while True:
            items, _ = await client.list_objects(CONFIG_MAPS, {})
            if not any(item["metadata"]["name"].startswith("owned-") for item in items):
                break
            await asyncio.sleep(0.1)
    # 100 requests, of which 30 are made at once and the others at 20 a second.
    assert time.monotonic() - started > 3


async def test_requests_pass_in_a_burst_and_then_at_the_rate(tmp_path: Path) -> None:
    write_lags(tmp_path / "lags.json", {"collector": 100.0})
    limit = RateLimit(Lags(tmp_path / "lags.json"), "collector", burst_seconds=0.1)
    started = time.monotonic()
    for _ in range(10):
        await limit.wait()
    await limit.wait(30)
    assert time.monotonic() - started > 0.28
    unlimited = RateLimit(Lags(None), "collector", burst_seconds=0.1)
    await unlimited.wait(10**9)


def test_unknown_lags_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="tide"):
        write_lags(tmp_path / "lags.json", {"tide": 1.0})


def test_a_seed_chooses_all_lags_deterministically() -> None:
    chosen = [chosen_lags(seed) for seed in (1, 2, 1)]
    assert chosen[0] == chosen[2] != chosen[1]
    for lags in chosen:
        assert lags.keys() == LAGS.keys()
        assert all(LAGS[name] / 2 <= value <= LAGS[name] * 2 for name, value in lags.items())
