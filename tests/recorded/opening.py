"""Restores a recording: first the cluster's objects, then Redis and the store with their UIDs.

The cluster's only kubelet is the test's fake. Pods that ran at the time of the recording appear to
run on, and end when the test says so.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import time
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from controller.kube.client import Kube
from controller.kube.errors import AlreadyExists, Forbidden, KubeError
from controller.kube.kinds import (
    COMMANDS,
    CONFIG_MAPS,
    LEASES,
    NAMESPACES,
    NETWORK_POLICIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_GROUPS,
    PODS,
    QUEUES,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VCJOBS,
    Kind,
)
from deploy.local.cluster import EmbeddedCluster
from deploy.local.cluster.identities import IDENTITIES
from shared.bus import Keys
from tests.controller.postgres import Postgres
from tests.recorded.recording import INSTANCE, Object, Recording

BY_NAME: Final[dict[str, Kind]] = {
    one.kind if one is not VCJOBS else "VolcanoJob": one
    for one in (
        COMMANDS, CONFIG_MAPS, LEASES, NAMESPACES, NETWORK_POLICIES, NODES,
        PERSISTENT_VOLUME_CLAIMS, POD_GROUPS, PODS, QUEUES, RESOURCE_QUOTAS, ROLE_BINDINGS, SECRETS,
        SERVICE_ACCOUNTS, SERVICES, VCJOBS,
    )
}  # fmt: skip
WITH_STATUS: Final = (NODES, QUEUES, VCJOBS, PODS)
_WEBHOOKS: Final = (
    Kind("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations",
         "MutatingWebhookConfiguration", namespaced=False),
    Kind("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations",
         "ValidatingWebhookConfiguration", namespaced=False),
)  # fmt: skip
ACCOUNT_SECONDS: Final = 30.0
_SERVER_WRITES: Final = (
    "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields",
    "deletionTimestamp", "deletionGracePeriodSeconds",
)  # fmt: skip


def kind_of(value: Object) -> Kind:
    """Return the kind of a recorded object."""
    return BY_NAME[
        "VolcanoJob" if value["apiVersion"].startswith("batch.volcano") else value["kind"]
    ]


async def start_without_nodes(cluster: EmbeddedCluster) -> None:
    """Start API server and Volcano, then end Volcano: it must not act on an incomplete cluster."""
    for name in ("kubeconfig", "log", "pods"):
        (cluster.folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
    (cluster.folder / "identities.json").write_text(json.dumps(IDENTITIES))
    await cluster.start_program("apiserver")
    await cluster.start_program("volcano")
    await cluster.kill_program("volcano")
    async with Kube.connect(cluster.kubeconfig("admin")) as admin:
        for kind in _WEBHOOKS:
            for one in await admin.list(kind):
                await admin.delete(kind, one["metadata"]["name"])


async def restore_cluster(recording: Recording, admin: Kube) -> Recording:
    """Create the recorded objects; return the recording with the new UIDs and addresses."""
    words: dict[str, str] = {}
    # Objects of one kind together; each kind after the kinds that own its objects.
    for kind, objects in groupby(recording.objects, kind_of):
        some = list(objects)
        wanted = [recording_of(one, words) for one in some]
        for recorded, made in zip(
            some, await asyncio.gather(*(_make(admin, kind, one) for one in wanted)), strict=True
        ):
            words[recorded["metadata"]["uid"]] = made["metadata"]["uid"]
            was = recorded.get("spec", {}).get("clusterIP")
            now_is = made.get("spec", {}).get("clusterIP")
            if was and was != now_is:
                words[was] = now_is
    return recording.with_replaced(words)


def recording_of(value: Object, words: dict[str, str]) -> Object:
    """Return the object with the new cluster's words, as far as they are known."""
    text = Recording("", "", json.dumps(value), "{}").with_replaced(words).cluster
    found: Object = json.loads(text)
    return found


async def _make(admin: Kube, kind: Kind, wanted: Object) -> Object:
    metadata = wanted["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace")
    body = {k: v for k, v in wanted.items() if k != "status" or kind is POD_GROUPS}
    body["metadata"] = {k: v for k, v in metadata.items() if k not in _SERVER_WRITES}
    if kind is SERVICES and wanted["spec"].get("clusterIP") not in (None, "None"):
        body["spec"] = {
            k: v for k, v in wanted["spec"].items() if k not in ("clusterIP", "clusterIPs")
        }
    try:
        made = await _create(admin, kind, body, namespace)
    except AlreadyExists:
        made = await admin.get(kind, name, namespace)
    if kind in WITH_STATUS and "status" in wanted:
        status = {"status": wanted["status"]}
        made = await admin.merge(kind, name, status, namespace, subresource="status")
    if "deletionTimestamp" in metadata:
        await admin.delete(kind, name, namespace, uid=made["metadata"]["uid"])
    return made


async def _create(admin: Kube, kind: Kind, body: Object, namespace: str | None) -> Object:
    """Create an object; a new namespace gets its ServiceAccount only after a moment."""
    deadline = time.monotonic() + ACCOUNT_SECONDS
    while True:
        try:
            return await admin.create(kind, body, namespace)
        except Forbidden as error:
            if "service account" not in str(error) or time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.1)


async def restore_redis(recording: Recording, redis: Any) -> None:
    """Fill an empty Redis with the recorded content."""
    await redis.flushall()
    for command in recording.commands:
        await redis.execute_command(*command)
    keys, run_id = Keys(INSTANCE), (await redis.info("server"))["run_id"]
    await redis.hset(keys.head, "server", run_id)


def restore_sqlite(recording: Recording, path: Path) -> str:
    """Create the database at *path*; return its URL."""
    connection = sqlite3.connect(path)
    try:
        connection.executescript(recording.store)
    finally:
        connection.close()
    return f"sqlite:///{path}"


def restore_postgres(recording: Recording, server: Postgres) -> str:
    """Create a database; return its URL."""
    url = server.new_database()
    name = url.partition("@/")[2].partition("?")[0]
    subprocess.run(
        [server.programs / "psql", "-h", str(server.folder), "-U", "fumarole", "-q", "-v",
         "ON_ERROR_STOP=1", "-d", name],
        input=recording.store, text=True, check=True, timeout=60, capture_output=True,
    )  # fmt: skip
    return url


class Kubelet:
    """Plays the node: pods run as soon as they are bound, and end as *ends* says."""

    def __init__(self, admin: Kube, *, address: str) -> None:
        self._admin = admin
        self._address = address
        self._number = 10
        self.paused: set[str] = set()
        self.ends: dict[str, int] = {}
        """Exit codes by job: its pods end with it, now and later."""

    async def run(self) -> None:
        """Poll the pods until cancelled."""
        while True:
            with suppress(KubeError):
                for pod in await self._admin.list(PODS):
                    with suppress(KubeError):
                        await self._look(pod)
            await asyncio.sleep(0.1)

    async def _look(self, pod: Object) -> None:
        metadata, phase = pod["metadata"], pod.get("status", {}).get("phase", "Pending")
        name, namespace = metadata["name"], metadata["namespace"]
        job = metadata.get("labels", {}).get("fumarole.dev/job", "")
        if metadata.get("labels", {}).get("fumarole.dev/instance") == "another":
            return
        if metadata.get("deletionTimestamp"):
            uid = metadata["uid"]
            await self._admin.delete(PODS, name, namespace, uid=uid, grace_seconds=0)
        elif phase == "Pending" and pod["spec"].get("nodeName"):
            self._number += 1
            status = running_status(pod, f"{self._address}.{self._number}")
            await self._admin.merge(PODS, name, {"status": status}, namespace, subresource="status")
        elif phase == "Running" and job in self.ends:
            status = ended_status(pod, self.ends[job])
            await self._admin.merge(PODS, name, {"status": status}, namespace, subresource="status")


def now() -> str:
    """Return the current time as the cluster formats it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def running_status(pod: Object, address: str) -> Object:
    """Return the status of a pod with all containers running and ready."""
    at = now()
    started: Any = {"running": {"startedAt": at}}
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": "127.0.0.1",
        "startTime": at,
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": at}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ],
        "containerStatuses": [
            {"name": one["name"], "image": one["image"], "imageID": "", "ready": True,
             "started": True, "restartCount": 0, "state": started}
            for one in pod["spec"]["containers"]
        ],
    }  # fmt: skip


def ended_status(pod: Object, exit_code: int) -> Object:
    """Return the status of a pod whose program has ended."""
    status, at = pod["status"], now()
    ended = []
    for one in status["containerStatuses"]:
        began = one["state"].get("running", {}).get("startedAt", at)
        state = {"exitCode": exit_code, "reason": "Completed" if exit_code == 0 else "Error",
                 "startedAt": began, "finishedAt": at}  # fmt: skip
        ended.append({**one, "ready": False, "state": {"running": None, "terminated": state}})
    return {
        "phase": "Failed" if exit_code else "Succeeded",
        "containerStatuses": ended,
        "conditions": [
            {**one, "status": "False" if one["type"] in ("Ready", "ContainersReady") else "True"}
            for one in status.get("conditions", [])
        ],
    }
