"""Tests each list that the product requests, with the product's client: empty, and with one item.

A real server answers an empty list of metadata with ``"items": null``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from controller.jobs.cluster.companion_sweep import SWEPT_KINDS
from controller.kube.client import Kube, Object, Objects
from controller.kube.kinds import (
    COMMANDS,
    CONFIG_MAPS,
    EVENTS,
    NETWORK_POLICIES,
    NODES,
    PODS,
    SERVICES,
    VCJOBS,
    Kind,
)
from tests.conformance.calls import Kube as Apis
from tests.conformance.calls import make_config_map, make_job, make_pod

LABEL = "example.com/case"
WATCHED_KINDS = (VCJOBS, PODS, SERVICES)
ALL_NAMESPACES = tuple(dict.fromkeys((*SWEPT_KINDS, *WATCHED_KINDS)))

Make = Callable[[str], Object]
OBJECTS: dict[Kind, Make] = {
    CONFIG_MAPS: lambda _: make_config_map("a"),
    SERVICES: lambda _: {
        "metadata": {"name": "a"},
        "spec": {"clusterIP": "None", "selector": {"a": "b"}},
    },
    NETWORK_POLICIES: lambda _: {"metadata": {"name": "a"}, "spec": {"podSelector": {}}},
    # Volcano carries out no Command without a target.
    COMMANDS: lambda _: {"metadata": {"name": "a"}, "action": "SyncJob"},
    PODS: lambda _: make_pod("a"),
    VCJOBS: lambda _: make_job("a", script="sleep 60"),
}


@pytest.fixture
async def product(kubeconfig: Path) -> AsyncIterator[Kube]:
    """Provide the product's client."""
    async with Kube.connect(kubeconfig) as kube:
        yield kube


async def _typed(kube: Kube, kind: Kind, labels: str) -> Objects:
    return await kube.list(kind, labels=labels)


async def _metadata(kube: Kube, kind: Kind, labels: str) -> Objects:
    return [one async for page in kube.metadata(kind, labels=labels) for one in page]


@pytest.mark.parametrize("ask", [_typed, _metadata])
@pytest.mark.parametrize("kind", ALL_NAMESPACES, ids=lambda kind: kind.plural)
async def test_a_list_in_all_namespaces_returns_items_or_an_empty_list(
    product: Kube,
    namespace: str,
    kind: Kind,
    ask: Callable[[Kube, Kind, str], Awaitable[Objects]],
) -> None:
    labels = f"{LABEL}={namespace}"
    assert await ask(product, kind, labels) == []
    body = OBJECTS[kind](namespace)
    body["metadata"]["labels"] = {**body["metadata"].get("labels", {}), LABEL: namespace}
    made = await product.create(kind, body, namespace)
    try:
        found = await ask(product, kind, labels)
    finally:
        await product.delete(kind, "a", namespace, grace_seconds=0)
    # Volcano deletes a Command before it carries the Command out.
    if kind is not COMMANDS or found:
        (one,) = found
        assert one["metadata"]["uid"] == made["metadata"]["uid"]


async def test_nodes_are_listed(product: Kube) -> None:
    names = [one["metadata"]["name"] for one in await product.list(NODES)]
    assert names
    assert all(names)


async def test_events_are_selected_by_involved_object(product: Kube, namespace: str) -> None:
    """The product lists Events in this way to learn why a VolcanoJob's pods are not created."""
    uid, other = str(uuid4()), str(uuid4())
    fields = f"involvedObject.uid={uid}"
    assert await product.list(EVENTS, namespace, fields=fields) == []
    for number, (about, reason) in enumerate([(uid, "FailedCreate"), (other, "FailedCreate")]):
        body = {
            "metadata": {"name": f"a.{number}"},
            "involvedObject": {
                "apiVersion": VCJOBS.api,
                "kind": VCJOBS.kind,
                "name": "a",
                "namespace": namespace,
                "uid": about,
            },
            "reason": reason,
            "message": "exceeded quota",
            "type": "Warning",
        }
        await product.create(EVENTS, body, namespace)
    (found,) = await product.list(EVENTS, namespace, fields=fields)
    shown = (found["involvedObject"]["uid"], found["reason"], found["message"])
    assert shown == (uid, "FailedCreate", "exceeded quota")
    both = f"{fields},reason=Pulled"
    assert await product.list(EVENTS, namespace, fields=both) == []


async def test_an_empty_list_of_metadata_is_null_in_json(kube: Apis, namespace: str) -> None:
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
    path = f"/api/v1/namespaces/{namespace}/services"
    status, found = await kube.call("GET", path, headers={"Accept": accept})
    assert (status, found["items"]) == (200, None)
    _, plain = await kube.call("GET", path)
    assert plain["items"] == []


async def test_a_list_has_a_version_and_no_token_when_it_is_whole(
    product: Kube, namespace: str
) -> None:
    for kind in WATCHED_KINDS:
        (part,) = [one async for one in product.parts(kind, namespace)]
        assert (part.objects, part.is_last) == ([], True), kind
        assert part.version.isdigit()


def test_every_kind_that_is_listed_has_an_object() -> None:
    assert set(OBJECTS) == set(ALL_NAMESPACES)
