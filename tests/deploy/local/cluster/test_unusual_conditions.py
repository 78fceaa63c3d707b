"""Tests the embedded cluster in unusual conditions: disturbed, without namespaces, cut off."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.local.cluster import EmbeddedCluster
from deploy.local.cluster.apiserver.faults import FAULTS
from deploy.local.cluster.client import (
    CONFIG_MAPS,
    NAMESPACES,
    PODS,
    Client,
    Object,
    Refused,
    Resource,
)
from deploy.local.cluster.kubeconfig import read_kubeconfig
from deploy.local.cluster.volcano.definitions import JOBS

QUOTAS = Resource("v1", "resourcequotas")


@asynccontextmanager
async def started(
    folder: Path, *, tries: int = 6, **rest: Any
) -> AsyncIterator[tuple[EmbeddedCluster, Client]]:
    """Run a cluster; return it and the administrator's client."""
    async with (
        EmbeddedCluster(folder=folder, **rest) as cluster,
        Client(read_kubeconfig(cluster.kubeconfig()), tries=tries) as client,
    ):
        yield cluster, client


def make_job(name: str, script: str, **spec: Any) -> Object:
    """Return a job of one pod that runs *script*."""
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    task = {"name": "job", "replicas": 1, "template": {"spec": pod}}
    return {
        "apiVersion": JOBS.api_version,
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"tasks": [task], **spec},
    }


async def _phase(client: Client, name: str) -> str:
    job = await client.get(JOBS, "default", name) or {}
    return str(((job.get("status") or {}).get("state") or {}).get("phase", ""))


async def _until(client: Client, name: str, phase: str) -> None:
    async with asyncio.timeout(40):
        while await _phase(client, name) != phase:
            await asyncio.sleep(0.1)


async def test_jobs_end_despite_refused_calls(tmp_path: Path) -> None:
    async with started(tmp_path / "c", seed=11, disturb=True) as (_, client):
        names = [f"j{number}" for number in range(8)]
        for name in names:
            await client.create(JOBS, "default", make_job(name, "exit 0"))
        for name in names:
            await _until(client, name, "Completed")


async def test_disturbance_answers_429_with_retry_after_and_409(tmp_path: Path) -> None:
    codes: set[int] = set()
    async with started(tmp_path / "c", tries=1, seed=11, disturb=True) as (_, client):
        for _ in range(400):
            try:
                await client.patch(PODS, "default", "none", {})
            except Refused as error:
                codes.add(error.code)
    assert codes == {404, 409, 429}


async def _outcome(client: Client) -> str:
    """Return the error of a patch or of a watch from now; an empty string without an error."""
    try:
        await client.patch(NAMESPACES, "", "default", {"metadata": {"labels": {"a": "b"}}})
        _, revision = await client.list_objects(NAMESPACES, {})
        query = {"resourceVersion": str(int(revision) - 1)}
        async with asyncio.timeout(0.5):
            async for _ in client.watch(NAMESPACES, query):
                pass
    except Refused as error:
        return str(error.code)
    except ConnectionError:
        return "cut"
    except TimeoutError:
        return ""
    return "ended"


async def test_faults_affect_only_the_product(tmp_path: Path) -> None:
    async with started(tmp_path / "c", tries=1) as (cluster, admin):
        access = read_kubeconfig(cluster.kubeconfig("controller"))
        async with Client(access, tries=1) as client:
            seen: dict[str, str] = {}
            for fault in FAULTS:
                cluster.set_faults({fault: 1.0})
                async with asyncio.timeout(10):
                    while not (seen.get(fault) and seen[fault] != "ended"):
                        # A new value each time, so that the watch has an event in which it can be
                        # cut.
                        change = {"metadata": {"annotations": {"now": secrets.token_hex(4)}}}
                        await admin.patch(NAMESPACES, "", "default", change)
                        seen[fault] = await _outcome(client)
            cluster.set_faults({})
            async with asyncio.timeout(10):
                while await _outcome(client) not in ("", "ended"):
                    await asyncio.sleep(0.05)
    assert seen == {fault: "cut" if fault == "lost" else fault for fault in FAULTS}


async def test_refusals_have_the_forms_of_a_real_server(tmp_path: Path) -> None:
    async with started(tmp_path / "c", tries=1) as (cluster, admin):
        access = read_kubeconfig(cluster.kubeconfig("controller"))
        await admin.create(QUOTAS, "default", {"metadata": {"name": "q"}, "spec": {"hard": {}}})
        async with Client(access, tries=1) as client:

            async def refusal(code: int) -> Refused:
                cluster.set_faults({str(code): 1.0})
                async with asyncio.timeout(10):
                    while True:
                        try:
                            value = {"metadata": {"name": secrets.token_hex(4)}}
                            await client.create(CONFIG_MAPS, "default", value)
                        except Refused as error:
                            if error.code == code:
                                return error

            busy, race = await refusal(429), await refusal(409)
    assert (busy.reason, str(busy)) == ("", "Too many requests, please try again later.\n")
    assert race.reason == "Conflict"
    assert str(race).startswith('Operation cannot be fulfilled on resourcequotas "q": the object')


def test_unknown_faults_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="teapot"):
        EmbeddedCluster(folder=tmp_path / "c").set_faults({"teapot": 1.0})


async def test_without_namespaces_pods_are_plain_processes(tmp_path: Path) -> None:
    async with started(tmp_path / "c", plain=True) as (cluster, client):
        assert "no namespaces here" in cluster.log("kubelet").read_text()
        await client.create(JOBS, "default", make_job("a", "echo $((6*7)); exit 3"))
        await _until(client, "a", "Failed")
        assert await client.text(PODS.path("default", "a-job-0", "log")) == "42\n"
        await client.create(JOBS, "default", make_job("b", "sleep 60"))
        await _until(client, "b", "Running")
        await client.delete(JOBS, "default", "b")
        async with asyncio.timeout(10):
            while await client.get(PODS, "default", "b-job-0"):
                await asyncio.sleep(0.05)


async def test_volcano_continues_after_being_killed(tmp_path: Path) -> None:
    async with started(tmp_path / "c") as (cluster, client):
        await client.create(JOBS, "default", make_job("a", "sleep 2"))
        await _until(client, "a", "Running")
        await cluster.kill_program("volcano")
        await cluster.start_program("volcano")
        await _until(client, "a", "Completed")
        await client.create(JOBS, "default", make_job("b", "exit 0"))
        await _until(client, "b", "Completed")


async def test_a_restarted_kubelet_ends_pods_of_the_killed_one(tmp_path: Path) -> None:
    async with started(tmp_path / "c") as (cluster, client):
        await client.create(JOBS, "default", make_job("a", "sleep 60"))
        await _until(client, "a", "Running")
        await cluster.kill_program("kubelet")
        await cluster.start_program("kubelet")
        await _until(client, "a", "Failed")
