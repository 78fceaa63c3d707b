"""Tests a controller after a rollback: it parks the jobs of the newer version."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controller.kube.client import Kube
from controller.kube.errors import NotFound
from controller.kube.kinds import VCJOBS
from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import Controller, eventually, running
from tests.programs import RedisServer

pytestmark = pytest.mark.timeout(300)


def rewrite(folder: Path, job_id: str, spec: str, **columns: Any) -> None:
    """Replace the job's stored spec, as another version would write it."""
    with closing(sqlite3.connect(folder / "state" / "store.db")) as store, store:
        store.execute("UPDATE jobs SET spec = ? WHERE id = ?", (spec, job_id))
        for name, value in columns.items():
            store.execute(f"UPDATE jobs SET {name} = ? WHERE id = ?", (value, job_id))


def kept(folder: Path, job_id: str) -> str:
    with closing(sqlite3.connect(folder / "state" / "store.db")) as store:
        (spec,) = store.execute("SELECT spec FROM jobs WHERE id = ?", (job_id,)).fetchone()
    found: str = spec
    return found


async def metric(one: Controller, name: str) -> float:
    url = f"http://{one.addresses['ops']}/metrics"
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        lines = (await response.text()).splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


async def test_jobs_of_a_newer_version_are_parked_ended_in_time_and_resumed(
    own_cluster: EmbeddedCluster, redis_server: RedisServer, tmp_path: Path
) -> None:
    one = Controller(
        tmp_path, kubeconfig=own_cluster.kubeconfig("controller"), redis_url=redis_server.url,
        instance="parked",
    )  # fmt: skip
    async with running(one), Kube.connect(own_cluster.kubeconfig("admin")) as admin:
        for job_id in ("fine", "runs", "broken"):
            await one.submit(job_id, time_allocation_seconds=3600)
            await one.until(job_id, "RUNNING")
        await one.call("POST", "/v1/maintenance", {"action": "pause"})
        await one.submit("waits")
        started = (await one.job("runs"))["started_at"]
        await one.stop()
        newer = {
            job_id: json.dumps(json.loads(kept(tmp_path, job_id)) | {"colour": {"of": "2028"}})
            for job_id in ("runs", "waits")
        }
        allocated = time.time() - started + 15
        rewrite(tmp_path, "runs", newer["runs"], allocated_seconds=allocated)
        rewrite(tmp_path, "waits", newer["waits"])
        rewrite(tmp_path, "broken", "{this is no JSON", state="HIBERNATED")
        await one.start()
        await one.call("POST", "/v1/maintenance", {"action": "resume"})

        async def parked() -> bool:
            return await metric(one, "fumarole_controller_parked_jobs") == 3

        await eventually(parked, seconds=30, what="they are not parked")
        # Shown with the reason; no read of them is an error.
        assert "colour: unknown field" in (await one.job("runs"))["parked"]

        async def told() -> bool:
            return bool((await one.job("waits"))["reason"] == "parked")

        await eventually(told, seconds=30, what="its reason is another one")
        job = await one.until("waits", "IN_QUEUE")
        assert job["colour"] == {"of": "2028"}
        listed = (await one.call("GET", "/v1/jobs"))["items"]
        assert {item["id"] for item in listed if item["parked"]} == {"runs", "waits", "broken"}
        for path in ("", "/tasks", "/history"):
            for job_id in ("runs", "waits", "broken"):
                await one.call("GET", f"/v1/jobs/{job_id}{path}")
        # A parked job ends at its deadline and on request, whatever its stored spec is.
        await one.until("runs", "EXPIRED", seconds=60)
        await one.call("DELETE", "/v1/jobs/broken", expect=202)
        await one.until("broken", "SUCCESS", seconds=60)
        for job_id in ("runs", "broken"):
            with pytest.raises(NotFound):
                await admin.get(VCJOBS, f"j-{job_id}", "jobs")
        page = await one.call("GET", "/v1/usage?after=0")
        assert {item["job"] for item in page["items"] if item["final"]} == {"runs", "broken"}
        assert await one.is_ready()
        assert (await one.job("fine"))["state"] == "RUNNING"
        assert json.loads(kept(tmp_path, "runs")) == json.loads(newer["runs"])
        # The version that can read the spec continues the job.
        assert kept(tmp_path, "waits") == newer["waits"]
        await one.stop()
        spec = {k: v for k, v in json.loads(newer["waits"]).items() if k != "colour"}
        rewrite(tmp_path, "waits", json.dumps(spec))
        await one.start()
        job = await one.until("waits", "RUNNING", seconds=60)
        assert job["parked"] is None
