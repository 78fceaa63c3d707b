"""Tests the network policies of Fumarole's own pods."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest

from controller.settings import read_settings
from controller.volcano.names import INSTANCE_LABEL
from shared.settings import Environment
from tests.deploy.kubernetes.manifests import DOCS, Object, build, of_kind, pods_of, settings_of

pytestmark = pytest.mark.needs("kubectl")


def test_services_and_policies_select_the_intended_pods(objects: list[Object]) -> None:
    labels = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in of_kind(objects, "Deployment")
    }
    for one in of_kind(objects, "Service", "NetworkPolicy", "PodDisruptionBudget"):
        name, spec = one["metadata"]["name"], one["spec"]
        if one["metadata"].get("namespace") == "fumarole-jobs":
            continue
        wanted = spec.get("podSelector") or spec["selector"]
        wanted = wanted.get("matchLabels", wanted)
        (meant,) = [each for each in labels if wanted.items() <= labels[each].items()]
        assert name.startswith(meant)
        ports = {port["name"] for port in pods_of(objects)[meant]["containers"][0]["ports"]}
        for port in spec.get("ports", ()):
            assert port["targetPort"] in ports


def policies_of(objects: list[Object]) -> dict[str, Object]:
    """Return the NetworkPolicies of Fumarole's own pods, by Deployment."""
    return {
        one["metadata"]["name"]: one["spec"]
        for one in of_kind(objects, "NetworkPolicy")
        if one["metadata"]["namespace"] == "fumarole-system"
        and one["metadata"]["name"] in pods_of(objects)
    }


def test_ops_listeners_are_closed_to_other_pods(objects: list[Object]) -> None:
    policies = policies_of(objects)
    assert set(policies) == set(pods_of(objects))
    for spec in policies.values():
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        for rule in spec["ingress"]:
            assert rule["ports"]
            assert all(port["port"] != "ops" for port in rule["ports"])


def test_the_controllers_api_admits_only_labelled_pods(objects: list[Object]) -> None:
    rules = policies_of(objects)["fumarole-controller"]["ingress"]
    (api,) = [one for one in rules if {"protocol": "TCP", "port": "api"} in one["ports"]]
    # Two alternative peers: a labelled namespace, or a labelled pod in ours.
    wanted = {"matchLabels": {"fumarole.dev/controller-client": "yes"}}
    assert api["from"] == [{"namespaceSelector": wanted}, {"podSelector": wanted}]
    text = (DOCS / "kubernetes.md").read_text()
    assert "kubectl label namespace orchestrator fumarole.dev/controller-client=yes" in text


NAMES = {53, 5353}
API_SERVER = {443, 6443, 8443, 16443}
REDIS = {6379, 6380, 26379}
DATABASE = {5432, 6432}
REACHED = {
    "fumarole-controller": NAMES | API_SERVER | REDIS | DATABASE,
    "fumarole-hub": NAMES | API_SERVER | DATABASE,
    "fumarole-gateway": NAMES | REDIS | {443},
    "fumarole-redis": set(),
}


def test_each_process_may_only_connect_to_what_it_needs(objects: list[Object]) -> None:
    for name, spec in policies_of(objects).items():
        anywhere, named = set(), []
        for rule in spec.get("egress") or []:
            ports = {port["port"] for port in rule.get("ports", ())}
            if "to" in rule:
                named.append((rule["to"], ports))
            else:
                # Every rule names its ports.
                assert ports, name
                anywhere |= ports
        assert anywhere == REACHED[name], name
        if name != "fumarole-gateway":
            assert named == [], name
            continue
        instance = {"matchExpressions": [{"key": INSTANCE_LABEL, "operator": "Exists"}]}
        assert ([{"namespaceSelector": instance}], set()) in named
        (hubs,) = [ports for (peer,), ports in named if "podSelector" in peer]
        listed = [
            port
            for pod in pods_of(objects).values()
            for port in pod["containers"][0].get("ports", ())
        ]
        assert hubs == {port["containerPort"] for port in listed if port["name"] == "hub"}


def test_redis_admits_exactly_the_processes_that_may_connect_to_it(tmp_path: Path) -> None:
    policies = policies_of(build("overlays/one-namespace", tmp_path))
    (rule,) = policies["fumarole-redis"]["ingress"]
    (peer,) = rule["from"]
    (names,) = peer["podSelector"]["matchExpressions"]
    assert set(names["values"]) == {name for name, ports in REACHED.items() if ports >= REDIS}


def test_gateways_reach_jobs_also_in_a_single_namespace(tmp_path: Path) -> None:
    objects = build("overlays/one-namespace", tmp_path)
    (more,) = [one["spec"] for one in of_kind(objects, "NetworkPolicy")
               if one["metadata"]["name"] == "fumarole-gateway-to-jobs"]  # fmt: skip
    (rule,) = more["egress"]
    settings = settings_of(objects, pods_of(objects)["fumarole-controller"])
    where = {"kubernetes.io/metadata.name": settings["FUMAROLE_CONTROLLER_NAMESPACE"]}
    assert rule == {"to": [{"namespaceSelector": {"matchLabels": where}}]}
    assert more["podSelector"] == policies_of(objects)["fumarole-gateway"]["podSelector"]


def test_the_gateway_labels_match_the_jobs_network_policy(tmp_path: Path) -> None:
    (gateway,) = [
        one
        for one in of_kind(build("base", tmp_path), "Deployment")
        if one["metadata"]["name"] == "fumarole-gateway"
    ]
    jobs = read_settings(Environment({})).jobs
    labels = gateway["spec"]["template"]["metadata"]["labels"]
    assert dict(jobs.gateway_labels).items() <= labels.items()
    assert gateway["metadata"]["namespace"] == jobs.gateway_namespace


def test_sample_upstream_networks_exclude_services_and_nodes(tmp_path: Path) -> None:
    for overlay in ("overlays/production", "overlays/one-namespace"):
        objects = build(overlay, tmp_path)
        settings = settings_of(objects, pods_of(objects)["fumarole-gateway"])
        (network,) = settings["FUMAROLE_GATEWAY_UPSTREAM_NETWORKS"].split(",")
        assert ip_network(network).prefixlen >= 16
        assert not ip_network(network).overlaps(ip_network("10.96.0.0/12"))
