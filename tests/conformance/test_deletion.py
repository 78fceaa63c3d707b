"""Tests deletion: finalizers, preconditions, grace periods, garbage collection, namespaces."""

from __future__ import annotations

import asyncio
from typing import Any

from kubernetes_asyncio.client.exceptions import ApiException

from tests.conformance.calls import (
    JSON,
    MERGE,
    Kube,
    eventually,
    make_config_map,
    make_pod,
    refused,
)


async def _is_gone(call: Any) -> bool:
    try:
        await call
    except ApiException as error:
        return bool(error.status == 404)
    return False


def _owned(owner: Any, name: str, **rest: Any) -> dict[str, Any]:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        **rest,
    }
    return make_config_map(name, ownerReferences=[reference])


async def test_an_object_stays_until_its_last_finalizer_is_removed(
    kube: Kube, namespace: str
) -> None:
    core = kube.core
    body = make_config_map("a", finalizers=["example.com/one"])
    await core.create_namespaced_config_map(namespace, body)
    await core.delete_namespaced_config_map("a", namespace)
    kept = await core.read_namespaced_config_map("a", namespace)
    assert kept.metadata.deletion_timestamp
    more = [{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/two"}]
    call = core.patch_namespaced_config_map("a", namespace, more, _content_type=JSON)
    await refused("add a finalizer while deleting", call)
    none = {"metadata": {"finalizers": None}}
    await core.patch_namespaced_config_map("a", namespace, none, _content_type=MERGE)
    assert await _is_gone(core.read_namespaced_config_map("a", namespace))


async def test_a_uid_precondition_protects_a_newer_object_of_the_same_name(
    kube: Kube, namespace: str
) -> None:
    await kube.core.create_namespaced_config_map(namespace, make_config_map("a"))
    wish = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    call = kube.core.delete_namespaced_config_map("a", namespace, body=wish)
    await refused("delete with another uid", call)
    assert await kube.core.read_namespaced_config_map("a", namespace)


async def test_an_unscheduled_pod_is_deleted_at_once(kube: Kube, namespace: str) -> None:
    await kube.core.create_namespaced_pod(namespace, make_pod("a"))
    await kube.core.delete_namespaced_pod("a", namespace)
    assert await _is_gone(kube.core.read_namespaced_pod("a", namespace))


async def test_a_bound_pod_is_deleted_by_its_kubelet_or_with_grace_period_zero(
    kube: Kube, namespace: str
) -> None:
    pod = make_pod("a", nodeName="a-node-that-is-dead", schedulingGates=None)
    await kube.core.create_namespaced_pod(namespace, pod)
    deleted = await kube.core.delete_namespaced_pod("a", namespace)
    assert deleted.metadata.deletion_grace_period_seconds == 30
    await asyncio.sleep(0.3)
    assert await kube.core.read_namespaced_pod("a", namespace)
    await kube.core.delete_namespaced_pod("a", namespace, grace_period_seconds=0)
    assert await _is_gone(kube.core.read_namespaced_pod("a", namespace))


async def test_background_deletion_removes_dependents_afterwards(
    kube: Kube, namespace: str
) -> None:
    core = kube.core
    owner = await core.create_namespaced_config_map(namespace, make_config_map("owner"))
    await core.create_namespaced_config_map(namespace, _owned(owner, "owned"))
    await core.delete_namespaced_config_map("owner", namespace)
    assert await _is_gone(core.read_namespaced_config_map("owner", namespace))
    await eventually(lambda: _is_gone(core.read_namespaced_config_map("owned", namespace)))


async def test_foreground_deletion_removes_dependents_first(kube: Kube, namespace: str) -> None:
    core = kube.core
    owner = await core.create_namespaced_config_map(namespace, make_config_map("owner"))
    owned = _owned(owner, "owned", blockOwnerDeletion=True)
    owned["metadata"]["finalizers"] = ["example.com/held"]
    await core.create_namespaced_config_map(namespace, owned)
    wish = {"propagationPolicy": "Foreground"}
    await core.delete_namespaced_config_map("owner", namespace, body=wish)
    kept = await core.read_namespaced_config_map("owner", namespace)
    assert kept.metadata.finalizers == ["foregroundDeletion"]

    async def is_going() -> bool:
        found = await core.read_namespaced_config_map("owned", namespace)
        return found.metadata.deletion_timestamp is not None

    await eventually(is_going)
    none = {"metadata": {"finalizers": None}}
    await core.patch_namespaced_config_map("owned", namespace, none, _content_type=MERGE)
    await eventually(lambda: _is_gone(core.read_namespaced_config_map("owner", namespace)))


async def test_orphaned_dependents_stay(kube: Kube, namespace: str) -> None:
    core = kube.core
    owner = await core.create_namespaced_config_map(namespace, make_config_map("owner"))
    await core.create_namespaced_config_map(namespace, _owned(owner, "owned"))
    wish = {"propagationPolicy": "Orphan"}
    await core.delete_namespaced_config_map("owner", namespace, body=wish)
    await eventually(lambda: _is_gone(core.read_namespaced_config_map("owner", namespace)))
    left = await core.read_namespaced_config_map("owned", namespace)
    assert left.metadata.owner_references is None


async def test_a_deleted_namespace_removes_its_objects(kube: Kube, namespace: str) -> None:
    core = kube.core
    name = f"{namespace}-more"
    await core.create_namespace({"metadata": {"name": name}})
    body = make_config_map("a", finalizers=["example.com/held"])
    await core.create_namespaced_config_map(name, body)
    await core.create_namespaced_secret(name, {"metadata": {"name": "b"}})
    await core.delete_namespace(name)
    going = await core.read_namespace(name)
    assert going.status.phase == "Terminating"
    call = core.create_namespaced_config_map(name, make_config_map("late"))
    await refused("create in a namespace that goes", call)
    await eventually(lambda: _is_gone(core.read_namespaced_secret("b", name)))
    none = {"metadata": {"finalizers": None}}
    await core.patch_namespaced_config_map("a", name, none, _content_type=MERGE)
    await eventually(lambda: _is_gone(core.read_namespace(name)), seconds=30)
