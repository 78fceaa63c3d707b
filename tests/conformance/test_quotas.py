"""Tests ResourceQuotas: limits on the objects of a namespace."""

from __future__ import annotations

from typing import Any

from tests.conformance.calls import Kube, Object, eventually, make_pod


async def _set_quota(kube: Kube, namespace: str, **hard: str) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
    await kube.core.create_namespaced_resource_quota(namespace, quota)

    async def is_known() -> bool:
        # A real quota counts once its controller has looked at it.
        code, found = await kube.call("GET", f"/api/v1/namespaces/{namespace}/resourcequotas/q")
        return code == 200 and bool((found.get("status") or {}).get("hard"))

    await eventually(is_known)


async def _create(kube: Kube, namespace: str, plural: str, value: Object) -> tuple[int, str]:
    path = f"/api/v1/namespaces/{namespace}/{plural}"
    code, said = await kube.call("POST", path, value)
    return code, str(said)


def _asking(name: str, **resources: Any) -> Object:
    container = {"name": "main", "image": "busybox", "resources": resources}
    return make_pod(name, containers=[container])


async def test_pods_beyond_the_quota_are_refused_until_quota_is_free(
    kube: Kube, namespace: str
) -> None:
    await _set_quota(kube, namespace, **{"requests.cpu": "1", "pods": "2"})
    small, large = {"requests": {"cpu": "600m"}}, {"requests": {"cpu": "500m"}}
    assert (await _create(kube, namespace, "pods", _asking("a", **small)))[0] == 201
    code, said = await _create(kube, namespace, "pods", _asking("b", **large))
    assert code == 403
    assert "exceeded quota: q" in said
    await kube.core.delete_namespaced_pod("a", namespace, grace_period_seconds=0)

    async def fits() -> bool:
        return (await _create(kube, namespace, "pods", _asking("b", **large)))[0] == 201

    await eventually(fits)


async def test_a_pod_must_specify_the_resources_of_the_quota(kube: Kube, namespace: str) -> None:
    await _set_quota(kube, namespace, **{"limits.memory": "1Gi"})
    code, said = await _create(kube, namespace, "pods", _asking("a"))
    assert code == 403
    assert "failed quota: q: must specify limits.memory for: main" in said


def _service(name: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}


async def test_other_objects_are_counted_and_storage_is_summed(kube: Kube, namespace: str) -> None:
    # No cluster puts a Service into each namespace, unlike ConfigMaps and Secrets.
    await _set_quota(kube, namespace, **{"count/services": "1", "requests.storage": "3Gi"})
    assert (await _create(kube, namespace, "services", _service("a")))[0] == 201
    assert (await _create(kube, namespace, "services", _service("b")))[0] == 403

    def claim(name: str) -> Object:
        asked = {"requests": {"storage": "2Gi"}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": asked, "storageClassName": "none"}
        return {"metadata": {"name": name}, "spec": spec}

    assert (await _create(kube, namespace, "persistentvolumeclaims", claim("a")))[0] == 201
    assert (await _create(kube, namespace, "persistentvolumeclaims", claim("b")))[0] == 403
