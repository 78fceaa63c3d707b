"""Tests which connections NetworkPolicies allow, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.local.cluster.kubelet.policies import allows, matches

Object = dict[str, Any]
NAMESPACES = {"n": {"team": "a"}, "m": {"team": "b"}}
EVERYBODY: Object = {"podSelector": {}}


def pod(app: str, namespace: str = "n", **ports: int) -> Object:
    """Return a Pod labelled *app* with named ports."""
    named = [{"name": name, "containerPort": number} for name, number in ports.items()]
    return {
        "metadata": {"namespace": namespace, "labels": {"app": app}},
        "spec": {"containers": [{"ports": named}]},
    }


def policy(app: str, namespace: str = "n", **spec: Any) -> Object:
    """Return a policy for the Pods labelled *app*."""
    selector = {"matchLabels": {"app": app}} if app else {}
    return {"metadata": {"namespace": namespace}, "spec": {"podSelector": selector, **spec}}


def to_app(app: str) -> Object:
    """Return a peer."""
    return {"podSelector": {"matchLabels": {"app": app}}}


IN: Object = {"policyTypes": ["Ingress"]}
OUT: Object = {"policyTypes": ["Egress"]}
FROM_A: Object = {"ingress": [{"from": [to_app("a")]}], **IN}
TEAM_B: Object = {"namespaceSelector": {"matchLabels": {"team": "b"}}}


@pytest.mark.parametrize(
    ("policies", "source", "expected"),
    [
        ([], pod("a"), True),
        ([policy("x", **IN)], pod("a"), True),
        ([policy("b", **IN)], pod("a"), False),
        ([policy("", **IN)], pod("a"), False),
        ([policy("b", "m", **IN)], pod("a"), True),
        ([policy("b", **FROM_A)], pod("a"), True),
        ([policy("b", **FROM_A)], pod("c"), False),
        ([policy("b", **FROM_A)], pod("a", "m"), False),
        ([policy("b", **IN), policy("b", **FROM_A)], pod("a"), True),
        ([policy("b", ingress=[{}])], pod("c", "m"), True),
        ([policy("b", ingress=[{"from": [EVERYBODY]}])], pod("c"), True),
        ([policy("b", ingress=[{"from": [EVERYBODY]}])], pod("c", "m"), False),
        ([policy("b", ingress=[{"from": [TEAM_B]}])], pod("c", "m"), True),
        ([policy("b", ingress=[{"from": [TEAM_B]}])], pod("c"), False),
        # Both selectors of one peer have to match; two peers are alternatives.
        ([policy("b", ingress=[{"from": [{**TEAM_B, **to_app("a")}]}])], pod("c", "m"), False),
        ([policy("b", ingress=[{"from": [TEAM_B, to_app("a")]}])], pod("a"), True),
        ([policy("b", ingress=[{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}])], pod("a"), False),
        ([policy("a", **OUT)], pod("a"), False),
        ([policy("a", egress=[{"to": [to_app("b")]}], **OUT)], pod("a"), True),
        ([policy("a", egress=[{"to": [to_app("c")]}], **OUT)], pod("a"), False),
        ([policy("a", egress=[{"to": [to_app("b")]}], **OUT), policy("b", **IN)], pod("a"), False),
        # Without policyTypes, egress rules make it an egress policy too.
        ([policy("a", egress=[{"to": [to_app("c")]}])], pod("a"), False),
        ([{"metadata": {"namespace": "n"}}], pod("a"), False),
        ([policy("b", **IN)], None, True),
        ([policy("b", **IN)], pod("b"), False),
    ],
)
def test_a_network_policy_decides_which_pods_may_connect(
    policies: list[Object], source: Object | None, expected: bool
) -> None:
    allowed = allows(policies, NAMESPACES, source, pod("b"), protocol="TCP", port=80)
    assert allowed == expected


@pytest.mark.parametrize(
    ("ports", "protocol", "port", "expected"),
    [
        ([{"port": 80}], "TCP", 80, True),
        ([{"port": 80}], "TCP", 81, False),
        ([{"port": 80}], "UDP", 80, False),
        ([{"protocol": "UDP"}], "UDP", 9, True),
        ([{"port": 80, "endPort": 90}], "TCP", 85, True),
        ([{"port": 80, "endPort": 90}], "TCP", 91, False),
        ([{"port": "web"}], "TCP", 8000, True),
        ([{"port": "web"}], "TCP", 80, False),
        ([{"port": "none"}], "TCP", 80, False),
        ([{"port": 1}, {"port": 2}], "TCP", 2, True),
    ],
)
def test_a_network_policy_decides_which_ports_are_open(
    ports: list[Object], protocol: str, port: int, expected: bool
) -> None:
    rules = [policy("b", ingress=[{"ports": ports}])]
    target = pod("b", web=8000)
    assert allows(rules, {}, pod("a"), target, protocol=protocol, port=port) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"key": "a", "operator": "In", "values": ["1", "2"]}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "z", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "a", "operator": "DoesNotExist"}, False),
        ({"key": "a", "operator": "Like", "values": ["1"]}, False),
    ],
)
def test_label_selectors_may_use_expressions(expression: Object, expected: bool) -> None:
    assert matches({"matchExpressions": [expression]}, {"a": "1"}) == expected
