"""Tests custom resources: schema, defaults, pruning, generation, content types."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes_asyncio.client.exceptions import ApiException

from tests.conformance.calls import (
    BATCH,
    MERGE,
    REAL,
    SCHEDULING,
    Kube,
    eventually,
    make_job,
    refused,
)


async def _patch_job(kube: Kube, namespace: str, name: str, change: Any, kind: str) -> Any:
    return await kube.custom.patch_namespaced_custom_object(
        *BATCH, namespace, "jobs", name, change, _content_type=kind
    )


async def test_a_schema_violation_is_refused_with_the_field(kube: Kube, namespace: str) -> None:
    job = make_job("a")
    job["spec"]["tasks"] = []
    row, older = "a custom resource that breaks its schema", "a job without tasks, before 1.14"
    await refused(row, kube.create_job(namespace, job), older=older)


@pytest.mark.parametrize(
    ("field", "items", "key"),
    [
        ("ports", [{"containerPort": 80, "name": "a"}, {"containerPort": 80, "name": "b"}],
         '{"containerPort":80,"protocol":"TCP"}'),
        ("volumeMounts", [{"mountPath": "/a", "name": "v"}, {"mountPath": "/a", "name": "w"}],
         '{"mountPath":"/a"}'),
    ],
)  # fmt: skip
async def test_duplicate_keys_in_template_lists_are_refused(
    kube: Kube, namespace: str, field: str, items: list[Any], key: str
) -> None:
    job = make_job("a")
    spec = job["spec"]["tasks"][0]["template"]["spec"]
    spec["containers"][0][field] = items
    spec["volumes"] = [{"name": name, "emptyDir": {}} for name in ("v", "w")]
    with pytest.raises(ApiException) as caught:
        await kube.create_job(namespace, job)
    if REAL and field == "volumeMounts" and caught.value.status == 400:
        # A schema from before Kubernetes 1.31 has no keys for them; Volcano's webhook checks them.
        assert "must be unique" in str(caught.value.body)
        return
    assert caught.value.status == 422
    path = f"spec.tasks[0].template.spec.containers[0].{field}[1]"
    assert f"{path}: Duplicate value: {key}" in json.loads(caught.value.body or b"")["message"]


async def test_defaults_are_filled_and_unknown_fields_dropped(kube: Kube, namespace: str) -> None:
    job = make_job("a")
    job["spec"]["noSuchField"] = 1
    job["spec"]["tasks"][0]["template"]["metadata"] = {"labels": {"a": "1"}, "uid": "x"}
    made = await kube.create_job(namespace, job)
    assert made["spec"]["queue"] == "default"
    assert "noSuchField" not in made["spec"]
    assert made["spec"]["tasks"][0]["template"]["metadata"] == {"labels": {"a": "1"}}


@pytest.mark.usefixtures("kubelet")
async def test_generation_counts_changes_of_the_spec_only(kube: Kube, namespace: str) -> None:
    made = await kube.create_job(namespace, make_job("a", script="sleep 60", minAvailable=1))
    assert made["metadata"]["generation"] == 1
    labelled = await _patch_job(kube, namespace, "a", {"metadata": {"labels": {"a": "1"}}}, MERGE)
    assert labelled["metadata"]["generation"] == 1

    async def runs() -> bool:
        return await kube.phase(namespace, "a") == "Running"

    await eventually(runs)
    assert (await kube.job(namespace, "a"))["metadata"]["generation"] == 1
    tasks = (await kube.job(namespace, "a"))["spec"]["tasks"]
    tasks[0]["replicas"] = 2
    scaled = await _patch_job(kube, namespace, "a", {"spec": {"tasks": tasks}}, MERGE)
    assert scaled["metadata"]["generation"] == 2


async def test_a_strategic_merge_patch_of_a_custom_resource_is_refused(
    kube: Kube, namespace: str
) -> None:
    await kube.create_job(namespace, make_job("a"))
    kind = "application/strategic-merge-patch+json"
    row = "strategic merge patch of a custom resource"
    await refused(row, _patch_job(kube, namespace, "a", {"spec": {}}, kind))


async def test_a_dictionary_sent_as_a_json_patch_is_refused(kube: Kube, namespace: str) -> None:
    await kube.create_job(namespace, make_job("a"))
    with pytest.raises(ApiException) as caught:
        await kube.custom.patch_namespaced_custom_object(
            *BATCH, namespace, "jobs", "a", {"metadata": {"labels": {"a": "1"}}}
        )
    assert caught.value.status == 400


async def test_a_pod_group_has_no_status_subresource(kube: Kube, namespace: str) -> None:
    group = {
        "apiVersion": "/".join(SCHEDULING),
        "kind": "PodGroup",
        "metadata": {"name": "a"},
        "spec": {"minMember": 1, "queue": "default"},
        "status": {"phase": "Inqueue"},
    }
    made = await kube.custom.create_namespaced_custom_object(
        *SCHEDULING, namespace, "podgroups", group
    )
    assert made["status"]["phase"] == "Inqueue"
    path = f"/apis/{'/'.join(SCHEDULING)}/namespaces/{namespace}/podgroups/a/status"
    status, _ = await kube.call("GET", path)
    assert status == 404
