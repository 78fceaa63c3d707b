"""Tests a container's environment, its command, and the downward API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from deploy.local.cluster.kubelet.environment import (
    Unresolved,
    expand,
    field_value,
    make_command,
    make_environment,
    resource_value,
)
from deploy.local.cluster.quantities import quantity

POD: dict[str, Any] = {
    "metadata": {
        "name": "a",
        "namespace": "n",
        "uid": "u",
        "labels": {"x": "1"},
        "annotations": {"q": 'say "hi"\n'},
    },
    "spec": {
        "nodeName": "node",
        "containers": [
            {"name": "main", "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}
        ],
    },
    "status": {"podIP": "127.64.0.2"},
}
TEXTS = {("configMap", "c"): {"k": "v"}, ("secret", "s"): {"p": "hush"}}


def lookup(kind: str, name: str) -> Mapping[str, str] | None:
    """Return the data of a ConfigMap or Secret of the table above."""
    return TEXTS.get((kind, name))


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(A)", "x1y1"),
        ("$(NONE)", "$(NONE)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$A $ $(", "$A $ $("),
        ("$()", "$()"),
    ],
)
def test_variable_references_are_expanded_as_in_kubernetes(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1"}) == expanded


def test_variables_expand_only_earlier_variables() -> None:
    env = [
        {"name": "A", "value": "$(B)"},
        {"name": "B", "value": "2"},
        {"name": "C", "value": "$(B)"},
    ]
    assert make_environment({"env": env}, POD, lookup) == {"A": "$(B)", "B": "2", "C": "2"}


def test_values_come_from_every_documented_source() -> None:
    env = [
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}},
        {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    ]
    container = {
        **POD["spec"]["containers"][0],
        "env": env,
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "c"}}],
    }
    made = make_environment(container, POD, lookup)
    assert made == {"P_k": "v", "A": "v", "B": "hush", "C": "2"}


@pytest.mark.parametrize(
    "source",
    [
        {"configMapKeyRef": {"name": "none", "key": "k"}},
        {"configMapKeyRef": {"name": "c", "key": "none"}},
        {"fieldRef": {"fieldPath": "spec.nothing"}},
    ],
)
def test_a_missing_reference_blocks_the_start_unless_optional(source: dict[str, Any]) -> None:
    container = {"env": [{"name": "A", "valueFrom": source}]}
    with pytest.raises(LookupError):
        make_environment(container, POD, lookup)
    if reference := source.get("configMapKeyRef"):
        reference["optional"] = True
        assert make_environment(container, POD, lookup) == {}


def test_command_and_args_override_the_image() -> None:
    def made(**container: Any) -> list[str]:
        return make_command(container, ("run",), ("default",), {"A": "1"})

    assert made() == ["run", "default"]
    assert made(args=["x"]) == ["run", "x"]
    assert made(command=["c"]) == ["c"]
    assert made(command=["c"], args=["$(A)"]) == ["c", "1"]


def test_pod_fields_are_available_by_downward_api() -> None:
    assert field_value(POD, "metadata.labels") == 'x="1"'
    assert field_value(POD, "metadata.annotations") == 'q="say \\"hi\\"\\n"'
    assert field_value(POD, "metadata.labels['x']") == "1"
    assert field_value(POD, "status.podIP") == "127.64.0.2"


def test_resources_are_rounded_up_to_their_divisor() -> None:
    container = POD["spec"]["containers"][0]
    assert resource_value({"resource": "limits.memory", "divisor": "1Mi"}, POD, container) == "1024"
    assert resource_value({"resource": "limits.cpu"}, POD, container) == "2"
    assert resource_value({"resource": "limits.cpu", "divisor": "1m"}, POD, container) == "1500"


def test_quantities_are_parsed_as_in_kubernetes() -> None:
    assert [quantity(t) for t in ("1", "500m", "2Ki", "1e3", "0.5G")] == [1, 0.5, 2048, 1000, 5e8]
    with pytest.raises(ValueError, match="not a quantity"):
        quantity("many")


def test_an_unresolved_reference_is_a_lookup_error() -> None:
    assert issubclass(Unresolved, LookupError)
