"""Tests creating, reading, listing and changing objects."""

from __future__ import annotations

import base64
from typing import Any

from tests.conformance.calls import JSON, MERGE, Kube, make_config_map, make_pod, refused


async def test_the_server_sets_identity_time_and_revision(kube: Kube, namespace: str) -> None:
    made = await kube.core.create_namespaced_config_map(namespace, make_config_map("a"))
    assert made.metadata.uid
    assert made.metadata.creation_timestamp
    assert int(made.metadata.resource_version) > 0
    assert made.metadata.namespace == namespace


async def test_a_pod_is_completed_with_defaults(kube: Kube, namespace: str) -> None:
    pod = make_pod("a")
    del pod["spec"]["restartPolicy"]
    made = await kube.core.create_namespaced_pod(namespace, pod)
    assert made.spec.restart_policy == "Always"
    assert made.spec.service_account_name == "default"
    assert made.spec.termination_grace_period_seconds == 30
    assert made.status.phase == "Pending"


async def test_creating_in_a_missing_namespace_is_refused(kube: Kube) -> None:
    call = kube.core.create_namespaced_config_map("no-such", make_config_map("a"))
    await refused("create in a missing namespace", call, name="no-such")


async def test_a_duplicate_name_is_409(kube: Kube, namespace: str) -> None:
    await kube.core.create_namespaced_config_map(namespace, make_config_map("a"))
    again = kube.core.create_namespaced_config_map(namespace, make_config_map("a"))
    await refused("create a duplicate", again)


async def test_an_invalid_object_is_refused_with_the_field(kube: Kube, namespace: str) -> None:
    bare = kube.core.create_namespaced_pod(namespace, make_pod("a", containers=[]))
    await refused("create without containers", bare)
    named = kube.core.create_namespaced_config_map(namespace, make_config_map("Not_a_name"))
    await refused("create with a bad name", named)
    labelled = make_config_map("a", labels={"a": "not a value"})
    call = kube.core.create_namespaced_config_map(namespace, labelled)
    await refused("create with a bad label", call)
    typed = kube.core.create_namespaced_pod(namespace, make_pod("a", containers="none"))
    await refused("create with a wrong type", typed)


async def test_a_generated_name_is_the_prefix_and_five_characters(
    kube: Kube, namespace: str
) -> None:
    body = {"metadata": {"generateName": "made-"}}
    made = await kube.core.create_namespaced_config_map(namespace, body)
    assert made.metadata.name.startswith("made-")
    assert len(made.metadata.name) == len("made-") + 5


async def test_a_missing_object_is_404(kube: Kube, namespace: str) -> None:
    await refused("get what is missing", kube.core.read_namespaced_pod("no-such", namespace))
    status, response = await kube.call(
        "GET", f"/apis/no.such.group/v1/namespaces/{namespace}/things"
    )
    assert status == 404
    assert "404 page not found" in str(response)


async def test_a_list_selects_by_labels_and_fields(kube: Kube, namespace: str) -> None:
    for name, tier in (("a", "front"), ("b", "back"), ("c", "")):
        labels = {"tier": tier} if tier else {}
        body = make_config_map(name, labels=labels)
        await kube.core.create_namespaced_config_map(namespace, body)

    async def names(**selectors: str) -> set[str]:
        found = await kube.core.list_namespaced_config_map(namespace, **selectors)
        assert found.metadata.resource_version.isdigit()
        # Clusters put ConfigMaps of their own into each namespace.
        return {item.metadata.name for item in found.items} & {"a", "b", "c"}

    assert await names(label_selector="tier=front") == {"a"}
    assert await names(label_selector="tier") == {"a", "b"}
    assert await names(label_selector="tier!=front") == {"b", "c"}
    assert await names(label_selector="tier in (front, back)") == {"a", "b"}
    assert await names(label_selector="tier notin (front)") == {"b", "c"}
    assert await names(label_selector="tier") == {"a", "b"}
    assert await names(label_selector="!tier") == {"c"}
    assert await names(field_selector="metadata.name=b") == {"b"}
    assert await names(field_selector="metadata.name!=b") == {"a", "c"}
    bad = kube.core.list_namespaced_config_map(namespace, label_selector="a in b")
    await refused("a bad label selector", bad)
    bad = kube.core.list_namespaced_config_map(namespace, field_selector="data.a=1")
    await refused("an unsupported field selector", bad)


async def test_pods_are_selected_by_phase(kube: Kube, namespace: str) -> None:
    await kube.core.create_namespaced_pod(namespace, make_pod("a"))
    for phase, expected in (("Pending", ["a"]), ("Running", [])):
        selector = f"status.phase={phase}"
        found = await kube.core.list_namespaced_pod(namespace, field_selector=selector)
        assert [pod.metadata.name for pod in found.items] == expected


async def test_a_long_list_is_paginated(kube: Kube, namespace: str) -> None:
    for number in range(5):
        await kube.core.create_namespaced_secret(namespace, {"metadata": {"name": f"s{number}"}})
    names: list[str] = []
    token = None
    left: list[int | None] = []
    while token != "":
        more: dict[str, Any] = {"_continue": token} if token else {}
        page = await kube.core.list_namespaced_secret(namespace, limit=2, **more)
        names += [item.metadata.name for item in page.items]
        left.append(page.metadata.remaining_item_count)
        token = page.metadata._continue or ""
    assert names == [f"s{number}" for number in range(5)]
    assert left == [3, 1, None]
    bad = kube.core.list_namespaced_secret(namespace, limit=2, _continue="nonsense")
    await refused("a bad continue token", bad)


async def test_all_pages_show_the_state_of_the_first(kube: Kube, namespace: str) -> None:
    secrets = kube.core.list_namespaced_secret
    for name in "bdf":
        body = {"metadata": {"name": name, "labels": {"listed": "yes"}}}
        await kube.core.create_namespaced_secret(namespace, body)
    first = await secrets(namespace, limit=1, label_selector="listed=yes")
    for name in "ae":
        body = {"metadata": {"name": name, "labels": {"listed": "yes"}}}
        await kube.core.create_namespaced_secret(namespace, body)
    await kube.core.delete_namespaced_secret("d", namespace)
    change = {"metadata": {"labels": {"listed": "no"}}}
    await kube.core.patch_namespaced_secret("f", namespace, change)
    token = first.metadata._continue
    rest = await secrets(namespace, limit=5, label_selector="listed=yes", _continue=token)
    assert [item.metadata.name for item in first.items + rest.items] == ["b", "d", "f"]
    assert rest.items[-1].metadata.labels == {"listed": "yes"}
    assert rest.metadata.resource_version == first.metadata.resource_version
    now = await secrets(namespace, label_selector="listed=yes")
    assert [item.metadata.name for item in now.items] == ["a", "b", "e"]


async def test_a_put_with_an_old_resource_version_is_409(kube: Kube, namespace: str) -> None:
    old = await kube.core.create_namespaced_config_map(namespace, make_config_map("a"))
    body = {**make_config_map("a", resourceVersion=old.metadata.resource_version)}
    body["data"] = {"a": "2"}
    await kube.core.replace_namespaced_config_map("a", namespace, body)
    body["data"] = {"a": "3"}
    again = kube.core.replace_namespaced_config_map("a", namespace, body)
    await refused("PUT with a stale resourceVersion", again)
    stale = {"metadata": {"resourceVersion": old.metadata.resource_version}, "data": {"a": "3"}}
    patch = kube.core.patch_namespaced_config_map("a", namespace, stale, _content_type=MERGE)
    await refused("merge patch with a stale resourceVersion", patch)
    found = await kube.core.read_namespaced_config_map("a", namespace)
    assert found.data == {"a": "2"}


async def test_a_put_of_a_lease_with_an_old_resource_version_is_409(
    kube: Kube, namespace: str
) -> None:
    body: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "one"}}
    lease = await kube.leases.create_namespaced_lease(namespace, body)
    body["metadata"]["resourceVersion"] = lease.metadata.resource_version
    await kube.leases.replace_namespaced_lease(
        "a", namespace, {**body, "spec": {"holderIdentity": "two"}}
    )
    late = kube.leases.replace_namespaced_lease(
        "a", namespace, {**body, "spec": {"holderIdentity": "three"}}
    )
    await refused("PUT with a stale resourceVersion", late)


async def test_a_merge_patch_deletes_by_null_and_an_empty_one_changes_nothing(
    kube: Kube, namespace: str
) -> None:
    body = {**make_config_map("a"), "data": {"a": "1", "b": "2"}}
    await kube.core.create_namespaced_config_map(namespace, body)

    async def patch(change: Any) -> Any:
        return await kube.core.patch_namespaced_config_map(
            "a", namespace, change, _content_type=MERGE
        )

    changed = await patch({"data": {"a": None, "c": "3"}})
    assert changed.data == {"b": "2", "c": "3"}
    same = await patch({"data": {"c": "3"}})
    assert same.metadata.resource_version == changed.metadata.resource_version


async def test_a_json_patch_is_atomic(kube: Kube, namespace: str) -> None:
    await kube.core.create_namespaced_config_map(namespace, make_config_map("a"))

    def patch(*operations: Any) -> Any:
        return kube.core.patch_namespaced_config_map(
            "a", namespace, list(operations), _content_type=JSON
        )

    good = {"op": "test", "path": "/data/a", "value": "1"}
    changed = await patch(good, {"op": "add", "path": "/data/b", "value": "2"})
    assert changed.data == {"a": "1", "b": "2"}
    bad = {"op": "test", "path": "/data/a", "value": "9"}
    await refused("JSON patch whose test fails", patch({"op": "remove", "path": "/data/b"}, bad))
    found = await kube.core.read_namespaced_config_map("a", namespace)
    assert found.data == {"a": "1", "b": "2"}


async def test_a_running_pods_command_cannot_be_changed(kube: Kube, namespace: str) -> None:
    await kube.core.create_namespaced_pod(namespace, make_pod("a"))
    change = [{"op": "replace", "path": "/spec/containers/0/command", "value": ["true"]}]
    call = kube.core.patch_namespaced_pod("a", namespace, change, _content_type=JSON)
    await refused("change an immutable pod field", call)


async def test_spec_and_status_are_written_separately(kube: Kube, namespace: str) -> None:
    made = await kube.core.create_namespaced_pod(namespace, make_pod("a"))
    body: dict[str, Any] = {"status": {"message": "here"}, "spec": {"nodeName": "nowhere"}}
    changed = await kube.core.patch_namespaced_pod_status("a", namespace, body, _content_type=MERGE)
    assert changed.status.message == "here"
    assert changed.spec.node_name is None
    body = {"status": {"message": "no"}, "metadata": {"labels": {"a": "1"}}}
    changed = await kube.core.patch_namespaced_pod("a", namespace, body, _content_type=MERGE)
    assert changed.status.message == "here"
    assert changed.metadata.labels["a"] == "1"
    assert changed.metadata.uid == made.metadata.uid


async def test_a_dry_run_stores_nothing(kube: Kube, namespace: str) -> None:
    body = make_config_map("a")
    made = await kube.core.create_namespaced_config_map(namespace, body, dry_run="All")
    assert made.metadata.uid
    await refused("get what is missing", kube.core.read_namespaced_config_map("a", namespace))


async def test_strict_validation_names_the_unknown_field(kube: Kube, namespace: str) -> None:
    body = {**make_config_map("a"), "extra": 1}
    call = kube.core.create_namespaced_config_map(namespace, body, field_validation="Strict")
    await refused("strict validation of an unknown field", call)
    made = await kube.core.create_namespaced_config_map(namespace, body)
    assert made.data == {"a": "1"}


async def test_string_data_of_a_secret_is_encoded_and_may_be_immutable(
    kube: Kube, namespace: str
) -> None:
    body = {"metadata": {"name": "a"}, "stringData": {"key": "value"}, "immutable": True}
    made = await kube.core.create_namespaced_secret(namespace, body)
    assert made.data == {"key": base64.b64encode(b"value").decode()}
    assert made.string_data is None
    change = {"stringData": {"key": "other"}}
    call = kube.core.patch_namespaced_secret("a", namespace, change, _content_type=MERGE)
    await refused("change an immutable Secret", call)


async def test_a_service_keeps_its_cluster_ip(kube: Kube, namespace: str) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}
    made = await kube.core.create_namespaced_service(namespace, body)
    assert made.spec.cluster_ip
    assert made.spec.ports[0].target_port == 80
    change = {"metadata": {"labels": {"a": "1"}}}
    changed = await kube.core.patch_namespaced_service("a", namespace, change, _content_type=MERGE)
    assert changed.spec.cluster_ip == made.spec.cluster_ip


async def test_a_pod_needs_its_service_account(kube: Kube, namespace: str) -> None:
    pod = make_pod("a", serviceAccountName="no-such")
    row = "a pod without its ServiceAccount"
    await refused(row, kube.core.create_namespaced_pod(namespace, pod))


async def test_a_metadata_list_omits_spec_and_status(kube: Kube, namespace: str) -> None:
    await kube.core.create_namespaced_config_map(namespace, make_config_map("a"))
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    query = {"fieldSelector": "metadata.name=a"}
    status, found = await kube.call("GET", path, query=query, headers={"Accept": accept})
    assert status == 200
    assert (found["kind"], found["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert found["metadata"]["resourceVersion"].isdigit()
    (item,) = found["items"]
    assert (item["kind"], item["metadata"]["name"]) == ("PartialObjectMetadata", "a")
    assert "data" not in item


async def test_an_empty_list_of_metadata_may_have_null_for_items(
    kube: Kube, namespace: str
) -> None:
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
    query = {"labelSelector": "no=such"}
    for path in (f"/api/v1/namespaces/{namespace}/configmaps", "/api/v1/pods"):
        status, found = await kube.call("GET", path, query=query, headers={"Accept": accept})
        assert (status, found["items"]) == (200, None)
        _, plain = await kube.call("GET", path, query=query)
        assert plain["items"] == []
