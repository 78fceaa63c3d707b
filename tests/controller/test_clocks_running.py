"""Tests a controller whose clock is ahead of the API server's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import Controller, running
from tests.programs import RedisServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

AHEAD = """\
import runpy, time
now = time.time
time.time = lambda: now() + 30.0
runpy.run_module("controller", run_name="__main__", alter_sys=True)
"""


async def test_the_times_of_a_job_are_all_by_the_earlier_clock(
    cluster: EmbeddedCluster, redis_server: RedisServer, tmp_path: Path
) -> None:
    controller = Controller(
        tmp_path, kubeconfig=cluster.kubeconfig("controller"), redis_url=redis_server.url
    )
    controller.program, controller.spawn = (sys.executable, "-c", AHEAD), subprocess.Popen
    async with running(controller):
        await controller.submit("early")
        job = await controller.until("early", "RUNNING")
    assert job["submitted_at"] < job["started_at"] + 5.0
