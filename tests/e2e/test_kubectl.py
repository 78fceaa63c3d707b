"""Tests the output of kubectl on the running system."""

from __future__ import annotations

import asyncio
import os

import aiohttp
import pytest

from deploy.local.system import LocalSystem
from tests.e2e.sessions import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.needs("kubectl"),
    pytest.mark.timeout(120),
]


async def kubectl(system: LocalSystem, *arguments: str) -> str:
    environment = os.environ | {"KUBECONFIG": str(system.kubeconfig_of("admin"))}
    process = await asyncio.create_subprocess_exec(
        "kubectl", *arguments, env=environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


def _runs(text: str, job: str) -> bool:
    rows = [line.split() for line in text.splitlines() if f"pod/j-{job}-job-0" in line]
    return [row[2:4] for row in rows] == [["1/1", "Running"]]


async def test_a_job_is_listed_whether_or_not_it_runs(system: LocalSystem) -> None:
    async with aiohttp.ClientSession(system.address) as ada:
        await ada.post("/api/login", json={"user": "ada"})
        async with ada.post("/api/jobs", json={"app": "shell"}) as response:
            job = (await response.json())["id"]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while f"j-{job}" not in (text := await kubectl(system, "get", "vcjob", "-A")):
                await asyncio.sleep(0.3)
        head, *rows = text.splitlines()
        assert head.split()[:3] == ["NAMESPACE", "NAME", "STATUS"]
        (row,) = [line.split() for line in rows if f"j-{job}" in line]
        assert row[1] == f"j-{job}"
        assert system.job_namespace in (None, row[0])
        described = await kubectl(system, "describe", "vcjob", "-n", row[0], row[1])
        assert "fumarole.dev/job" in described
        async with ada.post(f"/api/jobs/{job}/stop", json={}) as response:
            assert response.status == 200


@pytest.mark.usefixtures("shells")
async def test_jobs_and_pods_are_listed_as_on_any_cluster(system: LocalSystem) -> None:
    async with aiohttp.ClientSession(system.address) as ada:
        await ada.post("/api/login", json={"user": "ada"})
        async with ada.post("/api/jobs", json={"app": "shell"}) as response:
            job = (await response.json())["id"]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not _runs(text := await kubectl(system, "get", "vcjob,pods", "-A"), job):
                await asyncio.sleep(0.3)
        tables = [table.splitlines() for table in text.strip().split("\n\n")]
        jobs, pods = tables
        assert jobs[0].split()[:3] == ["NAMESPACE", "NAME", "STATUS"]
        assert any(f"job.batch.volcano.sh/j-{job}" in line for line in jobs), text
        assert pods[0].split()[:5] == ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS"]
        (row,) = [line.split() for line in pods if f"pod/j-{job}-job-0" in line]
        assert row[2:4] == ["1/1", "Running"]
        described = await kubectl(system, "describe", "pod", "-n", row[0], f"j-{job}-job-0")
        assert "fumarole.dev/job" in described
        async with ada.post(f"/api/jobs/{job}/stop", json={}) as response:
            assert response.status == 200
