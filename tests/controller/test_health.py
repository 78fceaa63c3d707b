"""Tests readiness and liveness with unavailable dependencies and a stalled reconciler."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from controller.jobs.reconcile import reconciler as module
from controller.jobs.reconcile.reconciler import Reconciler, ReconcilerMetrics
from controller.jobs.reconcile.workqueue import WorkQueue
from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import Controller, running


async def test_without_redis_the_api_of_a_single_replica_stays_ready(
    own_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    one = Controller(
        tmp_path, kubeconfig=own_cluster.kubeconfig("controller"), redis_url="redis://127.0.0.1:1/0",
        instance="degraded",
    )  # fmt: skip
    async with running(one):
        url = f"http://{one.addresses['ops']}/readyz"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            body = await response.json()
        assert (response.status, body["status"]) == (200, "degraded")
        assert body["reasons"][0] == "routes are not published to Redis"
        url = f"http://{one.addresses['ops']}/metrics"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            lines = (await response.text()).splitlines()
        assert 'fumarole_controller_problems{status="not_ready"} 0.0' in lines
        count = float(len(body["reasons"]))
        assert f'fumarole_controller_problems{{status="degraded"}} {count}' in lines
        await one.submit("goes")
        await one.until("goes", "RUNNING")


def make_reconciler(queue: WorkQueue) -> Reconciler:
    nothing = cast(Any, SimpleNamespace())
    return Reconciler(
        store=nothing, informer=nothing, observer=nothing, actions=nothing, adoption=nothing,
        queue=queue, job_changed=lambda _job: None, metrics=ReconcilerMetrics(CollectorRegistry()),
    )  # fmt: skip


def test_liveness_fails_only_if_jobs_wait_without_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    queue = WorkQueue(clock=lambda: now[0], random=lambda: 0.5)
    one = make_reconciler(queue)
    now[0] += 10_000
    assert one.faults() == ()  # not started: store or cluster is unavailable yet
    one._note_progress()
    now[0] += 10_000
    assert one.faults() == ()  # nothing to do
    queue.enqueue("j1", "asked")
    assert one.faults() == ()
    now[0] += module.STALL_SECONDS
    assert len(one.faults()) == 1
    one._note_progress()
    assert one.faults() == ()
