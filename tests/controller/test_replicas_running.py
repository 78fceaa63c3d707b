"""Tests a replica with the API role only, and a leader in a process of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from redis.asyncio import Redis

from controller.app import serve
from controller.configuration import read_configuration
from deploy.local.cluster import EmbeddedCluster
from shared.settings import Environment
from tests.controller.postgres import Postgres
from tests.controller.running import Controller, Routes, running
from tests.programs import RedisServer

pytestmark = [pytest.mark.needs("postgres"), pytest.mark.timeout(180)]
NEVER = 3600.0
WEB = {"interactive": {"site": {"kind": "web", "port": 8000}}}


async def test_a_leader_without_polling_is_notified_of_requests_to_a_replica(
    redis: Redis,
    redis_server: RedisServer,
    postgres: Postgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for where in ("jobs.reconcile.sources.POLL_SECONDS", "sessions.publisher.LOOK_SECONDS",
                  "sessions.publisher.HEARTBEAT_SECONDS"):  # fmt: skip
        monkeypatch.setattr(f"controller.{where}", NEVER)
    url, stopping = postgres.new_database(), asyncio.Event()
    async with EmbeddedCluster() as cluster:
        leader, replica = (
            Controller(
                tmp_path,
                kubeconfig=cluster.kubeconfig("controller"),
                redis_url=redis_server.url,
                instance="heard",
                roles=roles,
                name=roles,
                FUMAROLE_CONTROLLER_STORE_URL=url,
            )
            for roles in ("reconciler", "api")
        )
        leading = asyncio.create_task(
            serve(read_configuration(Environment(leader.settings)), stopping=stopping)
        )
        async with running(replica):
            routes = Routes(redis, "heard")
            await replica.submit("heard1", **WEB)
            await replica.until("heard1", "RUNNING")
            sids = [await replica.open("heard1", endpoint="site") for _ in range(2)]
            # The routes are published when the response arrives, or the replica logs that its wait
            # timed out.
            there = [await routes.of(sid) is not None for sid in sids]
            assert all(there) or "not published yet" in replica.log.read_text()
            await routes.until(sids[0], "starting")
            await replica.call("DELETE", f"/v1/sessions/{sids[0]}")
            await routes.until_gone(sids[0])
            await routes.until(sids[1], "starting")
            await replica.call("DELETE", "/v1/jobs/heard1", expect=202)
            await routes.until_gone(sids[1])
            await replica.until("heard1", "SUCCESS")
        stopping.set()
        leading.cancel()
        await asyncio.wait([leading])
