"""Tests structural schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deploy.local.cluster.apiserver.make_models import make_models
from deploy.local.cluster.apiserver.models import PATH, schema_of
from deploy.local.cluster.apiserver.schema import (
    fill_defaults,
    pruned,
    unknown_fields,
    violations,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
        "count": {"type": "integer", "minimum": 0, "maximum": 9, "default": 1},
        "mode": {"type": "string", "enum": ["soft", "hard"]},
        "amount": {"x-kubernetes-int-or-string": True},
        "items": {"type": "array", "minItems": 1, "items": {"type": "object", "properties": {}}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "maybe": {"type": "string", "nullable": True},
    },
}


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({}, "name"),
        ({"name": 1}, "name"),
        ({"name": "A"}, "name"),
        ({"name": "abcdef"}, "name"),
        ({"name": "a", "count": -1}, "count"),
        ({"name": "a", "count": 10}, "count"),
        ({"name": "a", "count": True}, "count"),
        ({"name": "a", "count": 1.5}, "count"),
        ({"name": "a", "mode": "other"}, "mode"),
        ({"name": "a", "amount": []}, "amount"),
        ({"name": "a", "items": []}, "items"),
        ({"name": "a", "items": ["x"]}, "items[0]"),
        ({"name": "a", "labels": {"k": 1}}, "labels.k"),
        ({"name": None}, "name"),
    ],
)
def test_a_violation_names_its_field(value: Any, field: str) -> None:
    assert [problem.field for problem in violations(SCHEMA, value)] == [field]


def test_a_valid_object_has_no_violation() -> None:
    value = {"name": "a", "count": 3, "amount": "2Gi", "items": [{}], "maybe": None}
    assert list(violations(SCHEMA, value)) == []


def test_unknown_fields_are_named_and_dropped() -> None:
    value = {
        "apiVersion": "v1",
        "name": "a",
        "other": 1,
        "items": [{"x": 1}],
        "free": {"anything": {"goes": 1}},
        "labels": {"k": "v"},
    }
    assert sorted(unknown_fields(SCHEMA, value)) == ["items[0].x", "other"]
    kept = pruned(SCHEMA, value)
    assert kept == {
        "apiVersion": "v1",
        "name": "a",
        "items": [{}],
        "free": {"anything": {"goes": 1}},
        "labels": {"k": "v"},
    }


def test_defaults_replace_omitted_and_null_values() -> None:
    value: dict[str, Any] = {"name": "a"}
    fill_defaults(SCHEMA, value)
    assert value["count"] == 1
    value = {"name": "a", "count": None, "maybe": None}
    fill_defaults(SCHEMA, value)
    assert (value["count"], value["maybe"]) == (1, None)


def test_the_model_table_matches_the_client_library() -> None:
    """Fails when `kubernetes_asyncio` is raised: run ``make_models`` then."""
    assert json.loads(PATH.read_text()) == make_models()


def test_a_pods_quantities_and_ports_may_be_numbers_or_texts() -> None:
    schema = schema_of("Pod")
    assert schema is not None
    for amount, port in ((1, 80), ("500m", "http")):
        container = {
            "name": "a",
            "resources": {"limits": {"cpu": amount}},
            "readinessProbe": {"httpGet": {"port": port}},
        }
        value = {"metadata": {}, "spec": {"containers": [container]}}
        assert list(violations(schema, value)) == []
