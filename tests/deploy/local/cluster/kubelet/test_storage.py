"""Tests claims, their folders, and volumes that change under a running Pod."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Any

import pytest

from deploy.local.cluster import EmbeddedCluster
from deploy.local.cluster.client import (
    CLAIMS,
    CONFIG_MAPS,
    PERSISTENT_VOLUMES,
    PODS,
    Client,
    Object,
)
from deploy.local.cluster.kubelet.storage import choose_volume
from tests.deploy.local.cluster.kubelet.test_pods import make_claim, make_pod, output, until

pytestmark = pytest.mark.needs("namespaces")


def mounting(name: str, script: str, claim: str, **mount: Any) -> Object:
    """Return a Pod that mounts *claim* at /data."""
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    mounts = [{"name": "v", "mountPath": "/data", **mount}]
    command = ["sh", "-c", script]
    return make_pod(name, command, volumes=[volume], container={"volumeMounts": mounts})


async def gone(path: Path) -> None:
    """Return as soon as *path* does not exist."""
    async with asyncio.timeout(10):
        while path.exists():
            await asyncio.sleep(0.05)


async def test_a_claim_is_a_folder_that_is_deleted_with_it(
    client: Client, namespace: str, cluster: EmbeddedCluster
) -> None:
    await client.create(CLAIMS, namespace, make_claim("data"))
    await output(client, namespace, mounting("a", "echo kept > /data/f", "data"))
    claim = await client.get(CLAIMS, namespace, "data")
    assert claim is not None
    assert (claim["status"]["phase"], claim["spec"]["storageClassName"]) == ("Bound", "standard")
    folder = cluster.claim_folder(namespace, "data")
    assert (folder / "f").read_text() == "kept\n"
    await client.delete(CLAIMS, namespace, "data")
    await gone(folder)


async def test_a_pod_waits_for_a_claim_that_is_not_there(client: Client, namespace: str) -> None:
    await client.create(PODS, namespace, mounting("a", "true", "late"))
    await asyncio.sleep(0.5)
    waiting = await client.get(PODS, namespace, "a")
    assert waiting is not None
    assert waiting["status"]["phase"] == "Pending"
    await client.create(CLAIMS, namespace, make_claim("late"))
    await until(client, namespace, "a", "Succeeded")


async def test_a_pre_provisioned_volume_is_bound_and_keeps_its_data(
    client: Client, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "f").write_text("mine\n")
    name = f"made-{secrets.token_hex(4)}"
    spec = {
        "capacity": {"storage": "5Gi"},
        "accessModes": ["ReadWriteMany"],
        "storageClassName": name,
        "hostPath": {"path": str(tmp_path)},
    }
    await client.create(PERSISTENT_VOLUMES, "", {"metadata": {"name": name}, "spec": spec})
    await client.create(CLAIMS, namespace, make_claim("data", storageClassName=name))
    script = "cat /data/f; touch /data/g 2>/dev/null || echo read-only"
    pod = mounting("a", script, "data", subPath="input", readOnly=True)
    assert await output(client, namespace, pod) == "mine\nread-only\n"
    await client.delete(PODS, namespace, "a")
    await client.delete(CLAIMS, namespace, "data")
    async with asyncio.timeout(10):
        while (volume := await client.get(PERSISTENT_VOLUMES, "", name)) is not None:
            if volume["status"]["phase"] == "Released":
                break
            await asyncio.sleep(0.05)
    assert (tmp_path / "input" / "f").exists()


async def test_a_missing_sub_path_is_created_and_may_use_a_variable(
    client: Client, namespace: str
) -> None:
    await client.create(CLAIMS, namespace, make_claim("data"))
    pod = mounting("a", "echo x > /data/f", "data", subPathExpr="runs/$(POD)")
    own = {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    pod["spec"]["containers"][0]["env"] = [own]
    await output(client, namespace, pod)
    assert await output(client, namespace, mounting("b", "cat /data/runs/a/f", "data")) == "x\n"


async def test_a_config_map_update_reaches_a_running_pod_atomically(
    client: Client, namespace: str
) -> None:
    data = {"one": "1", "two": "1"}
    await client.create(CONFIG_MAPS, namespace, {"metadata": {"name": "c"}, "data": data})
    field = {"path": "notes", "fieldRef": {"fieldPath": "metadata.annotations['note']"}}
    volumes: list[Object] = [
        {"name": "c", "configMap": {"name": "c"}},
        {"name": "d", "downwardAPI": {"items": [field]}},
    ]
    mounts = [
        {"name": "c", "mountPath": "/c"},
        {"name": "c", "mountPath": "/fixed", "subPath": "one"},
        {"name": "d", "mountPath": "/d"},
    ]
    script = (
        "until [ -e /c/three ] && [ -s /d/notes ]; do sleep 0.05; done;"
        "cat /c/one /c/three /fixed /d/notes; ls /c"
    )
    pod = make_pod("a", ["sh", "-c", script], volumes=volumes, container={"volumeMounts": mounts})
    await client.create(PODS, namespace, pod)
    await until(client, namespace, "a", "Running")
    changed = {"data": {"one": "2", "two": None, "three": "2"}}
    await client.patch(CONFIG_MAPS, namespace, "c", changed)
    await client.patch(PODS, namespace, "a", {"metadata": {"annotations": {"note": "seen"}}})
    await until(client, namespace, "a", "Succeeded")
    said = await client.text(PODS.path(namespace, "a", "log"))
    assert said == "221seenone\nthree\n"


async def test_the_termination_message_of_a_container_is_kept(
    client: Client, namespace: str
) -> None:
    script = "echo first; echo because > /dev/termination-log; exit 3"
    first = make_pod("first", ["sh", "-c", script])
    later: dict[str, Any] = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    logged = make_pod("logged", ["sh", "-c", "echo said it; exit 4"], container=later)
    init = make_pod("init", ["true"])
    init["spec"]["initContainers"] = [
        {"name": "look", "image": "busybox", "command": ["sh", "-c", script]}
    ]
    for pod in (first, logged, init):
        await client.create(PODS, namespace, pod)
    found = {}
    for name, kind in (("first", ""), ("logged", ""), ("init", "init")):
        ended = await until(client, namespace, name, "Failed")
        statuses = ended["status"]["initContainerStatuses" if kind else "containerStatuses"]
        state = statuses[0]["state"]["terminated"]
        found[name] = (state["exitCode"], state["reason"], state["message"])
    assert found == {
        "first": (3, "Error", "because\n"),
        "logged": (4, "Error", "said it\n"),
        "init": (3, "Error", "because\n"),
    }


def test_the_smallest_free_fitting_volume_is_chosen() -> None:
    claim = {**make_claim("c"), "metadata": {"name": "c", "namespace": "n", "uid": "u"}}

    def volume(name: str, size: str, **more: Any) -> Object:
        spec = {"capacity": {"storage": size}, "accessModes": ["ReadWriteMany"], **more}
        return {"metadata": {"name": name}, "spec": {"storageClassName": "x", **spec}}

    volumes = [
        volume("small", "1Mi"),
        volume("large", "5Gi"),
        volume("fits", "2Gi"),
        volume("taken", "1Gi", claimRef={"namespace": "n", "name": "other", "uid": "o"}),
        volume("once", "1Gi", accessModes=["ReadWriteOnce"]),
        volume("other", "1Gi", storageClassName="y"),
    ]
    chosen = choose_volume(claim, "x", volumes)
    assert chosen is not None
    assert chosen["metadata"]["name"] == "fits"
    assert choose_volume(claim, "z", volumes) is None
