"""Tests watches."""

from __future__ import annotations

from typing import Any

from tests.conformance.calls import MERGE, Kube, make_config_map, watched, within
from tests.conformance.responses import REFUSALS


async def _take(stream: Any, count: int) -> list[tuple[str, str]]:
    """Return type and name of the first *count* events."""
    seen: list[tuple[str, str]] = []
    async with within(15):
        async for change, item in stream:
            seen.append((change, item.metadata.name))
            if len(seen) == count:
                break
    await stream.aclose()
    return seen


async def test_a_watch_sends_only_events_after_its_resource_version(
    kube: Kube, namespace: str
) -> None:
    core = kube.core
    await core.create_namespaced_secret(namespace, {"metadata": {"name": "before"}})
    listed = await core.list_namespaced_secret(namespace)
    await core.create_namespaced_secret(namespace, {"metadata": {"name": "a"}})
    change = {"metadata": {"labels": {"a": "1"}}}
    await core.patch_namespaced_secret("a", namespace, change, _content_type=MERGE)
    await core.delete_namespaced_secret("a", namespace)
    revision = listed.metadata.resource_version
    stream = watched(core.list_namespaced_secret, namespace, resource_version=revision)
    assert await _take(stream, 3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_watch_without_resource_version_starts_with_existing_objects(
    kube: Kube, namespace: str
) -> None:
    for name in ("a", "b"):
        await kube.core.create_namespaced_secret(namespace, {"metadata": {"name": name}})
    stream = watched(kube.core.list_namespaced_secret, namespace)
    assert sorted(await _take(stream, 2)) == [("ADDED", "a"), ("ADDED", "b")]


async def test_an_object_that_leaves_the_selector_is_sent_as_deleted(
    kube: Kube, namespace: str
) -> None:
    core = kube.core
    listed = await core.list_namespaced_config_map(namespace)
    await core.create_namespaced_config_map(namespace, make_config_map("a", labels={"in": "yes"}))
    for value in ("no", "yes"):
        change = {"metadata": {"labels": {"in": value}}}
        await core.patch_namespaced_config_map("a", namespace, change, _content_type=MERGE)
    stream = watched(
        core.list_namespaced_config_map,
        namespace,
        label_selector="in=yes",
        resource_version=listed.metadata.resource_version,
    )
    assert await _take(stream, 3) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]


async def test_a_watch_ends_after_its_timeout_seconds(kube: Kube, namespace: str) -> None:
    query = {"watch": "true", "timeoutSeconds": "1"}
    async with within(10):
        status, _ = await kube.call("GET", f"/api/v1/namespaces/{namespace}/pods", query=query)
    assert status == 200


async def test_a_watch_from_a_future_resource_version_sends_no_object(
    kube: Kube, namespace: str
) -> None:
    await kube.core.create_namespaced_secret(namespace, {"metadata": {"name": "a"}})
    listed = await kube.core.list_namespaced_secret(namespace)
    future = str(int(listed.metadata.resource_version) + 100_000)
    query = {"watch": "true", "timeoutSeconds": "1", "resourceVersion": future}
    path = f"/api/v1/namespaces/{namespace}/secrets"
    status, response = await kube.call("GET", path, query=query)
    # A newer server may answer "too large" instead of waiting; it sends no other event.
    assert status == 200
    assert "ADDED" not in str(response)


async def test_a_watch_from_an_expired_resource_version_sends_an_error_event(
    kube: Kube, namespace: str
) -> None:
    refusal = REFUSALS["watch from a revision that is too old"]
    query = {"watch": "true", "timeoutSeconds": "2", "resourceVersion": "1"}
    path = f"/api/v1/namespaces/{namespace}/secrets"
    status, response = await kube.call("GET", path, query=query)
    assert status == 200
    # A server whose cache of the kind holds no change yet has nothing to miss, and sends no event.
    if response:
        assert (response["type"], response["object"]["code"]) == ("ERROR", refusal.code)
        assert response["object"]["reason"] == refusal.reason
        assert refusal.says in response["object"]["message"]


async def test_bookmarks_carry_a_revision_and_nothing_else(kube: Kube, namespace: str) -> None:
    query = {"watch": "true", "timeoutSeconds": "2", "allowWatchBookmarks": "true"}
    path = f"/api/v1/namespaces/{namespace}/secrets"
    status, response = await kube.call("GET", path, query=query)
    assert status == 200
    lines = [response] if isinstance(response, dict) else []
    for line in lines:
        assert line["type"] == "BOOKMARK"
        assert line["object"]["metadata"]["resourceVersion"].isdigit()
