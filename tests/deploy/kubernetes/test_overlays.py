"""Tests what overlays and components add to the manifests, and leave out."""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from controller.jobs.pipeline.plugin_models import NAMESPACED_VERBS
from deploy.kubernetes.overlays.trial.keys import USERS, tls
from tests.deploy.kubernetes.manifests import (
    BUILT,
    DOCS,
    FOLDER,
    OLDER,
    build,
    grants,
    of_kind,
    pods_of,
    read,
    settings_of,
)
from tests.gateway.relay.authorities import Authority

pytestmark = pytest.mark.needs("kubectl")


def test_in_one_namespace_the_controller_has_fewer_write_rights_and_the_same_read_rights(
    tmp_path: Path,
) -> None:
    granted = [
        grants(one)
        for name in ("base", "overlays/one-namespace")
        for one in of_kind(build(name, tmp_path), "ClusterRole")
        if one["metadata"]["name"] == "fumarole-controller"
    ]
    assert {verb for verb, _, _ in granted[0] - granted[1]} == {"create", "bind"}
    assert granted[1] <= granted[0]


def test_containment_is_in_every_overlay_but_those_for_older_clusters(tmp_path: Path) -> None:
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    wanted = {(one["kind"], one["metadata"]["name"]) for one in read("base/containment.yaml")}
    assert len(wanted) == 4
    for name in BUILT:
        found = {
            (one["kind"], one["metadata"]["name"]) for one in of_kind(build(name, tmp_path), *kinds)
        }
        assert found == (set() if name == OLDER else wanted), name
    # Without these kinds, and a field that Kubernetes 1.25 refuses, production is the same.
    older = build(OLDER, tmp_path)
    production = build("overlays/production", tmp_path)
    for budget in of_kind(production, "PodDisruptionBudget"):
        assert budget["spec"].pop("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    assert older == [one for one in production if one["kind"] not in kinds]


def test_production_spreads_each_programs_replicas_over_nodes_and_zones(tmp_path: Path) -> None:
    pods = pods_of(build("overlays/production", tmp_path))
    assert len(pods) == 3
    for name, pod in pods.items():
        constraints = pod["topologySpreadConstraints"]
        keys = {one.pop("topologyKey") for one in constraints}
        assert keys == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
        for one in constraints:
            assert one == {
                "maxSkew": 1,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
                "matchLabelKeys": ["pod-template-hash"],
            }


@pytest.mark.parametrize(
    ("component", "contained"), [("containment", True), ("no-admission-policy", False)]
)
def test_components_can_be_added_to_a_copied_overlay(
    tmp_path: Path, component: str, contained: bool
) -> None:
    wanted = {
        "resources": [os.path.relpath(FOLDER / "overlays" / "one-namespace", tmp_path)],
        "components": [os.path.relpath(FOLDER / "components" / component, tmp_path)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(wanted))
    objects = build(str(tmp_path), tmp_path)
    assert bool(of_kind(objects, "ValidatingAdmissionPolicy")) is contained


def test_webhook_receivers_and_secrets_are_mounted_only_in_the_controller(tmp_path: Path) -> None:
    wanted = {
        "resources": [os.path.relpath(FOLDER / "overlays" / "production", tmp_path)],
        "components": [os.path.relpath(FOLDER / "components" / "webhooks", tmp_path)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(wanted))
    objects = build(str(tmp_path), tmp_path)
    for name, pod in pods_of(objects).items():
        holds = {"name": "webhooks", "secret": {"secretName": "fumarole-webhooks"}} in pod[
            "volumes"
        ]
        assert holds is (name == "fumarole-controller"), name
        values = settings_of(objects, pod)
        file = values.get("FUMAROLE_CONTROLLER_WEBHOOKS_FILE")
        mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
        if holds:
            assert file == f"{mounts['webhooks']}/receivers.yaml"
        elif file is not None:  # the hub has the controller's settings, and never leads
            assert values["FUMAROLE_CONTROLLER_ROLES"] == "hub"


def test_the_containment_policies_name_existing_accounts_and_roles() -> None:
    policies = read("base/containment.yaml")
    text = str([one["spec"] for one in policies])
    roles = [one["metadata"]["name"] for one in read("base/rbac-owners.yaml")]
    assert sorted(roles) == ["fumarole-jobs", "fumarole-terminals"]
    for name in (*roles, "fumarole-controller", "fumarole-hub", "fumarole-system"):
        assert f"'{name}'" in text


@pytest.mark.parametrize("overlay", ["production", "one-namespace"])
def test_rank_services_need_the_setting_and_one_right(tmp_path: Path, overlay: str) -> None:
    wanted = {
        "resources": [os.path.relpath(FOLDER / "overlays" / overlay, tmp_path)],
        "components": [os.path.relpath(FOLDER / "components" / "rank-services", tmp_path)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(wanted))
    objects = build(str(tmp_path), tmp_path)
    settings = settings_of(objects, pods_of(objects)["fumarole-controller"])
    assert settings["FUMAROLE_CONTROLLER_RANK_SERVICES"] == "yes"
    bindings = {one["roleRef"]["name"]: one for one in of_kind(objects, "ClusterRoleBinding")}
    assert bindings.keys() == {"fumarole-controller", "fumarole-rank-services"}
    subjects = [one["subjects"] for one in bindings.values()]
    assert subjects[0] == subjects[1]
    roles = {one["metadata"]["name"]: one for one in of_kind(objects, "ClusterRole")}
    assert grants(roles["fumarole-rank-services"]) == {("watch", "", "services")}


def test_resource_metrics_need_one_right_and_access_to_prometheus(tmp_path: Path) -> None:
    wanted = {
        "resources": [os.path.relpath(FOLDER / "overlays" / "production", tmp_path)],
        "components": [
            os.path.relpath(FOLDER / "components" / name, tmp_path)
            for name in ("metrics", "prometheus")
        ],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(wanted))
    objects = build(str(tmp_path), tmp_path)
    settings = settings_of(objects, pods_of(objects)["fumarole-controller"])
    assert settings["FUMAROLE_CONTROLLER_METRICS_SECONDS"] == "30"
    server = urlsplit(settings["FUMAROLE_CONTROLLER_PROMETHEUS_URL"])
    roles = {one["metadata"]["name"]: one for one in of_kind(objects, "ClusterRole")}
    assert grants(roles["fumarole-metrics"]) == {("list", "metrics.k8s.io", "pods")}
    bindings = {one["metadata"]["name"]: one for one in of_kind(objects, "ClusterRoleBinding")}
    assert bindings["fumarole-metrics"]["subjects"] == bindings["fumarole-controller"]["subjects"]
    (policy,) = [
        one["spec"]
        for one in of_kind(objects, "NetworkPolicy")
        if one["metadata"]["name"] == "fumarole-controller-to-prometheus"
    ]
    (rule,) = policy["egress"]
    # The rule allows the address that the setting names.
    assert [port["port"] for port in rule["ports"]] == [server.port]
    (peer,) = rule["to"]
    namespace = peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
    assert namespace in (server.hostname or "").split(".")


@pytest.mark.parametrize("overlay", ["production", "one-namespace", "trial"])
def test_the_openshift_overlay_allows_groups_and_finds_name_servers(
    tmp_path: Path, overlay: str
) -> None:
    wanted = {
        "resources": [os.path.relpath(FOLDER / "overlays" / overlay, tmp_path)],
        "components": [os.path.relpath(FOLDER / "components" / "openshift", tmp_path)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(wanted))
    objects = build(str(tmp_path), tmp_path)
    settings = settings_of(objects, pods_of(objects)["fumarole-controller"])
    assert settings["FUMAROLE_CONTROLLER_DNS_NAMESPACES"] == "openshift-dns"
    assert settings["FUMAROLE_CONTROLLER_DNS_PORTS"] == "5353"
    roles = {one["metadata"]["name"]: one for one in of_kind(objects, "ClusterRole")}
    (rule,) = roles["fumarole-nonroot"]["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == (["nonroot-v2"], ["use"])
    bindings = {one["metadata"]["name"]: one for one in of_kind(objects, "RoleBinding")}
    (subject,) = bindings["fumarole-nonroot"]["subjects"]
    # The subject covers every pod of ours, whichever account it has.
    assert subject["name"] == "system:serviceaccounts:fumarole-system"


@pytest.mark.parametrize("overlay", ["production", "one-namespace"])
def test_rights_for_companions_of_plugins_are_granted_where_jobs_run(
    tmp_path: Path, overlay: str
) -> None:
    wanted = {
        "resources": [os.path.relpath(FOLDER / "overlays" / overlay, tmp_path)],
        "components": [os.path.relpath(FOLDER / "components" / "plugin-companions", tmp_path)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(wanted))
    objects = build(str(tmp_path), tmp_path)
    roles = {one["metadata"]["name"]: one for one in of_kind(objects, "ClusterRole")}
    bindings = {one["metadata"]["name"]: one for one in of_kind(objects, "ClusterRoleBinding")}
    what = ("policy", "poddisruptionbudgets")
    assert {(verb, *what) for verb in NAMESPACED_VERBS} <= grants(roles["fumarole-jobs"])
    assert grants(roles["fumarole-plugin-companions"]) == {("list", *what)}
    subjects = [bindings[name]["subjects"] for name in
                ("fumarole-controller", "fumarole-plugin-companions")]  # fmt: skip
    assert subjects[0] == subjects[1]


def test_each_containment_expression_matches_the_kinds_of_its_policy() -> None:
    policies = of_kind(read("base/containment.yaml"), "ValidatingAdmissionPolicy")
    for policy in policies:
        constraints = policy["spec"]["matchConstraints"]
        resources = {name for rule in constraints["resourceRules"] for name in rule["resources"]}
        for one in policy["spec"]["validations"]:
            # A server checks the field types of each expression against each resource. A field that
            # only one
            # resource has would cause a warning for the others.
            fields = set(re.findall(r"\bobject\.(\w+)", one["expression"]))
            assert fields <= {"metadata"} or resources == {"rolebindings"}
            assert "dyn(" not in one["expression"]
    bindings = of_kind(read("base/containment.yaml"), "ValidatingAdmissionPolicyBinding")
    assert {one["spec"]["policyName"] for one in bindings} == {
        one["metadata"]["name"] for one in policies
    }


def test_the_trial_uses_the_documented_redis_users() -> None:
    users = (FOLDER.parent / "redis" / "users.acl").read_text()
    assert users == USERS


def test_the_trial_trusts_an_authority_without_key_identifiers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = ssl.create_default_context

    def as_of_python_3_13(**rest: Any) -> ssl.SSLContext:
        context = make(**rest)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", as_of_python_3_13)
    context = tls(Authority(tmp_path, "plain").path)
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_the_first_upgrade_step_excludes_only_the_hub() -> None:
    text = (DOCS / "how-to/upgrade.md").read_text()
    (selector,) = re.findall(r"^kubectl apply --server-side -k \S+ -l '(\S+)'$", text, re.MULTILINE)
    label, _, name = selector.partition("!=")
    for overlay in ("overlays/production", "overlays/one-namespace"):
        objects = build(overlay, FOLDER)
        left = [one for one in objects if one["metadata"].get("labels", {}).get(label) == name]
        assert [(one["kind"], one["metadata"]["name"]) for one in left] == [
            ("Deployment", "fumarole-hub")
        ]
