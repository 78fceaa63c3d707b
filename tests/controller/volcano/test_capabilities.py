from __future__ import annotations

import copy
from typing import Any

import pytest

from controller.volcano.preflight import Capabilities, read_openapi
from deploy.local.cluster.volcano.definitions import make_definitions
from tests.controller.plugins.plans import plan_of

SINCE: dict[str, tuple[str, ...]] = {
    # The release that introduced each part of a VolcanoJob's schema.
    "1.12": ("spec.networkTopology",),
    "1.14": ("spec.networkTopology.highestTierName", "spec.tasks.partitionPolicy"),
}
KIND = {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"}
VERSIONS = ["1.11", "1.13", "1.15"]


def schema_of(version: str) -> dict[str, Any]:
    """Return the schema of a release: that of 1.15, without the parts added after *version*."""
    (definition,) = [one for one in make_definitions() if one["spec"]["names"]["kind"] == "Job"]
    versions = definition["spec"]["versions"]
    schema: dict[str, Any] = copy.deepcopy(versions[0]["schema"]["openAPIV3Schema"])
    for since, paths in SINCE.items():
        if tuple(map(int, since.split("."))) > tuple(map(int, version.split("."))):
            for path in paths:
                _remove(schema, path.split("."))
    return schema


def _remove(schema: dict[str, Any], path: list[str]) -> None:
    *parents, last = path
    for name in parents:
        schema = schema.get("items", schema).get("properties", {}).get(name, {})
    schema.get("items", schema).get("properties", {}).pop(last, None)


JOBS: list[tuple[dict[str, Any], dict[str, list[str]]]] = [
    ({}, {}),
    ({"replicas": 3, "max_retry": 2, "min_success": 1}, {}),
    ({"tasks": [{"name": "a"}, {"name": "b", "depends_on": ["a"]}]}, {}),
    ({"policies": [{"event": "PodEvicted", "action": "RestartPod"}]}, {}),
    ({"topology": {"numa": "restricted"}, "resources": {"cpu": 1}}, {}),
    ({"topology": {"network": {"mode": "hard", "tier": 1}}}, {"1.11": ["spec.networkTopology"]}),
    ({"topology": {"network": {"mode": "soft"}}}, {"1.11": ["spec.networkTopology"]}),
    ({"framework": "pytorch", "tasks": [{"name": "master"}]}, {}),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("fields", "lacking"), JOBS, ids=[str(i) for i in range(len(JOBS))])
async def test_only_fields_missing_in_a_release_are_refused(
    version: str, fields: dict[str, Any], lacking: dict[str, list[str]]
) -> None:
    manifest = (await plan_of(**fields)).volcano_job.manifest()
    found = Capabilities(schema_of(version)).lacks(manifest)
    assert [path for path, _ in found] == lacking.get(version, [])


@pytest.mark.parametrize(
    ("schema", "value", "path"),
    [
        ({"properties": {"a": {}}}, {"b": 1}, "spec.b"),
        ({"properties": {"a": {"enum": ["x"]}}}, {"a": "y"}, "spec.a"),
        ({"properties": {"a": {"maximum": 3}}}, {"a": 4}, "spec.a"),
        ({"properties": {"a": {"minimum": 3}}}, {"a": 2}, "spec.a"),
        ({"properties": {"a": {"pattern": "^x"}}}, {"a": "y"}, "spec.a"),
        ({"properties": {"a": {"maxLength": 1}}}, {"a": "yy"}, "spec.a"),
        ({"properties": {"a": {"items": {"properties": {"b": {}}}}}}, {"a": [{"c": 1}]},
         "spec.a[0].c"),
        ({"additionalProperties": {"enum": ["x"]}}, {"any": "y"}, "spec.any"),
        ({"properties": {"a": {}}, "additionalProperties": True}, {"b": 1}, None),
        ({"properties": {}, "x-kubernetes-preserve-unknown-fields": True}, {"b": 1}, None),
        ({}, {"b": {"c": 1}}, None),
        ({"properties": {"a": {"pattern": "("}}}, {"a": "y"}, None),
        ({"properties": {"a": {"maximum": 3}}}, {"a": True}, None),
    ],
)  # fmt: skip
def test_a_schema_is_interpreted_as_by_an_api_server(
    schema: dict[str, Any], value: dict[str, Any], path: str | None
) -> None:
    whole = {"properties": {"spec": schema}}
    found = [where for where, _ in Capabilities(whole).lacks({"spec": value})]
    assert found == ([path] if path else [])


def test_without_a_schema_nothing_is_refused() -> None:
    assert Capabilities().lacks({"spec": {"any": 1}}) == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_trimmed_schema_refuses_like_the_whole_one(version: str) -> None:
    schema = schema_of(version) | {"x-kubernetes-group-version-kind": [KIND]}
    kept = read_openapi({"components": {"schemas": {"job": schema}}})
    for fields, lacking in JOBS:
        manifest = (await plan_of(**fields)).volcano_job.manifest()
        assert [path for path, _ in kept.lacks(manifest)] == lacking.get(version, [])
    assert kept.lacks({"spec": {"queue": "A B", "schedulerName": "x" * 64}})


def test_the_schema_of_the_right_kind_is_used() -> None:
    kind = KIND
    fields = {"queue": {"type": "string", "description": "long", "maxLength": 63}}
    schema = {"x-kubernetes-group-version-kind": [kind],
              "properties": {"spec": {"properties": fields}, "status": {}}}  # fmt: skip
    other = {"x-kubernetes-group-version-kind": [{**kind, "kind": "JobList"}]}
    document = {"components": {"schemas": {"a": other, "b": schema, "c": {}}}}
    found = read_openapi(document)
    # Unread parts are dropped: they are most of the document, and the result is kept.
    assert found.schema == {"properties": {"spec": {"properties": {"queue": {"maxLength": 63}}}}}
    assert found.digest == read_openapi(document).digest
    fields["queue"]["maxLength"] = 64
    assert found.digest != read_openapi(document).digest
    with pytest.raises(ValueError, match="no VolcanoJob"):
        read_openapi({})
