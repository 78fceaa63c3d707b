"""Tests the start and the end of the embedded cluster: what it provides, and what remains."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from deploy.local.cluster import EmbeddedCluster
from deploy.local.cluster.client import NODES, PODS, Client
from deploy.local.cluster.kubeconfig import read_kubeconfig

POD = {
    "metadata": {"name": "a"},
    "spec": {"containers": [{"name": "main", "image": "shell"}], "restartPolicy": "Never"},
}


@pytest.fixture(autouse=True)
def _started_for_real(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmbeddedCluster, "spawn", subprocess.Popen)


def _processes(folder: Path) -> list[psutil.Process]:
    """Return the processes of the cluster in *folder*, Pods among them."""
    own = [p for p in psutil.process_iter(["cmdline"]) if _names(p, folder)]
    return [*own, *(child for process in own for child in process.children(recursive=True))]


def _names(process: psutil.Process, folder: Path) -> bool:
    return any(str(folder) in argument for argument in process.info["cmdline"] or [])


async def _ended(processes: list[psutil.Process]) -> bool:
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, 10)
    return not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


async def _run_a_pod(cluster: EmbeddedCluster) -> None:
    async with Client(read_kubeconfig(cluster.kubeconfig())) as client:
        await client.create(PODS, "default", POD)
        async with asyncio.timeout(10):
            while True:
                pod = await client.get(PODS, "default", "a")
                if pod and pod.get("status", {}).get("phase") == "Running":
                    return
                await asyncio.sleep(0.05)


async def test_the_cluster_starts_fast_and_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    started = time.monotonic()
    async with EmbeddedCluster(folder=folder) as cluster:
        assert time.monotonic() - started < 10  # under two seconds on a quiet machine
        async with Client(read_kubeconfig(cluster.kubeconfig())) as client:
            nodes, _ = await client.list_objects(NODES, {})
        assert [node["metadata"]["name"] for node in nodes] == ["embedded"]
        await _run_a_pod(cluster)
        processes = _processes(folder)
        assert len(processes) >= 3
    assert await _ended(processes)
    assert not folder.exists()


async def test_kubeconfigs_are_private_and_unknown_identities_refused(tmp_path: Path) -> None:
    async with EmbeddedCluster(folder=tmp_path / "cluster") as cluster:
        for identity in ("admin", "controller"):
            assert cluster.kubeconfig(identity).stat().st_mode & 0o077 == 0
        with pytest.raises(KeyError, match="no identity 'mallory'"):
            cluster.kubeconfig("mallory")


@pytest.mark.needs("namespaces")
async def test_a_killed_kubelet_ends_its_pods(tmp_path: Path) -> None:
    async with EmbeddedCluster(folder=tmp_path / "cluster") as cluster:
        await _run_a_pod(cluster)
        kubelet = [p for p in _processes(cluster.folder) if _is_program(p, "kubelet")]
        pods = [child for process in kubelet for child in process.children(recursive=True)]
        assert pods
        await cluster.kill_program("kubelet")
        assert not cluster.alive("kubelet")
        assert await _ended(pods)


@pytest.mark.needs("namespaces")
async def test_a_killed_launcher_ends_every_process(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    script = (
        "import asyncio, sys, pathlib\n"
        "from deploy.local.cluster import EmbeddedCluster\n"
        "from tests.deploy.local.cluster.test_launch import _run_a_pod\n"
        "async def main():\n"
        "    cluster = EmbeddedCluster(folder=pathlib.Path(sys.argv[1]))\n"
        "    await cluster.start(); await _run_a_pod(cluster); print('up', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[4],
    )
    with launcher:
        assert launcher.stdout is not None
        line = await asyncio.to_thread(launcher.stdout.readline)
        assert line == b"up\n"
        processes = [p for p in _processes(folder) if p.pid != launcher.pid]
        os.kill(launcher.pid, signal.SIGKILL)
    assert await _ended(processes)
    async with asyncio.timeout(5):
        while folder.exists():
            await asyncio.sleep(0.05)


def _is_program(process: psutil.Process, name: str) -> bool:
    return f"deploy.local.cluster.{name}" in process.cmdline()


async def test_clusters_run_side_by_side(tmp_path: Path) -> None:
    folders = tmp_path / "one", tmp_path / "two"
    async with EmbeddedCluster(folder=folders[0], seed=1) as one:
        async with EmbeddedCluster(folder=folders[1], seed=1) as two:
            await _run_a_pod(one)
            await _run_a_pod(two)
        await asyncio.sleep(0)
        assert one.alive("apiserver")
        assert one.seed == two.seed == 1


async def test_the_seed_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUMAROLE_CLUSTER_SEED", "42")
    cluster = EmbeddedCluster()
    assert cluster.seed == 42
    await cluster.stop()
    assert EmbeddedCluster(folder=cluster.folder, seed=7).seed == 7
