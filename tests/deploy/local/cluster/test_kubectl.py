"""Tests common kubectl commands on the embedded cluster."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from ipaddress import ip_address
from typing import Any

import pytest

from deploy.local.cluster import EmbeddedCluster
from deploy.local.cluster.apiserver.blocks import SERVICE_NETWORK

pytestmark = pytest.mark.needs("kubectl", "namespaces")

JOB = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": {"name": "a"},
    "spec": {
        "tasks": [
            {
                "name": "job",
                "replicas": 1,
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [
                            {
                                "name": "main",
                                "image": "busybox",
                                "command": ["sh", "-c", "echo hello; sleep 60"],
                            }
                        ],
                        "terminationGracePeriodSeconds": 0,
                    }
                },
            }
        ]
    },
}


class Kubectl:
    """Calls of kubectl in one namespace."""

    def __init__(self, cluster: EmbeddedCluster, namespace: str) -> None:
        self._environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig("admin"))}
        self._namespace = namespace

    async def __call__(self, *words: str, given: Any = None) -> str:
        """Return kubectl's output."""
        run = await asyncio.to_thread(
            subprocess.run,
            ["kubectl", "-n", self._namespace, *words],
            env=self._environment,
            input=json.dumps(given) if given else "",
            capture_output=True,
            text=True,
            timeout=30,
        )
        return run.stdout + run.stderr


@pytest.fixture
def kubectl(cluster: EmbeddedCluster, namespace: str) -> Kubectl:
    """Provide kubectl in this test's namespace."""
    return Kubectl(cluster, namespace)


async def _until_running(kubectl: Kubectl) -> None:
    async with asyncio.timeout(20):
        while "Running" not in await kubectl("get", "pods"):
            await asyncio.sleep(0.1)


async def test_kubectl_get_prints_jobs_and_pods(kubectl: Kubectl, namespace: str) -> None:
    assert "job.batch.volcano.sh/a created" in await kubectl("create", "-f", "-", given=JOB)
    await _until_running(kubectl)
    async with asyncio.timeout(10):
        while "Running" not in (shown := await kubectl("get", "vcjob", "-A")):
            await asyncio.sleep(0.1)
    header, *rows = shown.splitlines()
    assert header.split()[:4] == ["NAMESPACE", "NAME", "STATUS", "MINAVAILABLE"]
    assert any(row.split()[:4] == [namespace, "a", "Running", "1"] for row in rows)
    header, row = (await kubectl("get", "pods")).splitlines()
    assert header.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["a-job-0", "1/1", "Running", "0"]
    assert "hello" in await kubectl("logs", "a-job-0")
    wide = await kubectl("get", "pods", "-o", "wide")
    assert "127." in wide
    assert "embedded" in wide


async def test_exec_logs_describe_and_delete_work(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", given=JOB)
    await _until_running(kubectl)
    assert await kubectl("exec", "a-job-0", "--", "sh", "-c", "echo $((6*7))") == "42\n"
    failed = await kubectl("exec", "a-job-0", "--", "sh", "-c", "exit 4")
    assert "command terminated with exit code 4" in failed
    described = await kubectl("describe", "pod", "a-job-0")
    assert "Started container main" in described
    assert "volcano.sh/job-name=a" in described
    assert "deleted" in await kubectl("delete", "vcjob", "a")
    async with asyncio.timeout(10):
        while "a-job-0" in await kubectl("get", "pods"):
            await asyncio.sleep(0.1)


async def test_kinds_are_listed_and_explained(kubectl: Kubectl) -> None:
    listed = await kubectl("api-resources")
    assert any(line.split()[:2] == ["jobs", "vcjob,vj"] for line in listed.splitlines())
    explained = await kubectl("explain", "vcjob.spec.tasks")
    assert "minAvailable" in explained


async def test_a_second_apply_updates_the_object(kubectl: Kubectl) -> None:
    service: Any = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"selector": {"a": "b"}, "ports": [{"name": "x", "port": 80}]},
    }
    assert "service/s created" in await kubectl("apply", "-f", "-", given=service)
    assert "service/s unchanged" in await kubectl("apply", "-f", "-", given=service)
    service["spec"]["ports"] = [{"name": "y", "port": 81}, {"name": "x", "port": 80}]
    service["metadata"]["labels"] = {"tier": "one"}
    assert "service/s configured" in await kubectl("apply", "-f", "-", given=service)
    service["spec"]["ports"].pop()
    del service["metadata"]["labels"]
    assert "service/s configured" in await kubectl("apply", "-f", "-", given=service)
    shown = json.loads(await kubectl("get", "service", "s", "-o", "json"))
    assert [port["port"] for port in shown["spec"]["ports"]] == [81]
    assert "labels" not in shown["metadata"]
    assert ip_address(shown["spec"]["clusterIP"]) in SERVICE_NETWORK
    assert "labeled" in await kubectl("label", "service", "s", "tier=two")


async def test_jobs_can_be_applied_awaited_and_deleted(kubectl: Kubectl) -> None:
    assert "job.batch.volcano.sh/a created" in await kubectl("apply", "-f", "-", given=JOB)
    met = await kubectl(
        "wait", "vcjob/a", "--for=jsonpath={.status.state.phase}=Running", "--timeout=20s"
    )
    assert "condition met" in met
    assert "condition met" in await kubectl(
        "wait", "pod", "-l", "volcano.sh/job-name=a", "--for=condition=Ready", "--timeout=20s"
    )
    described = await kubectl("describe", "vcjob", "a")
    assert "Phase:" in described
    queues = (await kubectl("get", "queues")).splitlines()
    assert any(row.startswith("default") for row in queues)
    assert "deleted" in await kubectl("delete", "vcjob", "a", "--wait=true", "--timeout=20s")
    gone = await kubectl("wait", "pod/a-job-0", "--for=delete", "--timeout=20s")
    assert "timed out" not in gone
    assert "NotFound" in await kubectl("get", "vcjob", "a")


async def test_label_and_merge_patch_work_and_server_side_apply_is_refused(
    kubectl: Kubectl,
) -> None:
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    assert "configmap/c created" in await kubectl("create", "-f", "-", given=made)
    patch = '{"data":{"a":"2"}}'
    assert "patched" in await kubectl("patch", "cm", "c", "--type=merge", "-p", patch)
    applied = await kubectl("apply", "--server-side", "-f", "-", given=made)
    assert "unknown format" in applied or "UnsupportedMediaType" in applied
