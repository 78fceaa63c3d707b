"""Tests the Kubernetes manifests: accounts, rights, pod security, network policies, settings."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from kubernetes_asyncio import client

from controller.app import STOP_SECONDS
from controller.jobs.pipeline.plugin_models import NAMESPACED_VERBS
from controller.settings import read_settings
from controller.volcano.names import INSTANCE_LABEL
from deploy.kubernetes.overlays.trial.keys import USERS, secrets_of, tls
from gateway.settings import read_settings as read_gateway_settings
from shared.settings import Environment
from tests.deploy.kubernetes.manifests import (
    FOLDER,
    Object,
    build,
    grants,
    of_kind,
    pods_of,
    read,
    settings_of,
)
from tests.gateway.relay.authorities import Authority

pytestmark = pytest.mark.needs("kubectl")

OLDER = "overlays/no-admission-policy"
OVERLAYS = ("overlays/production", "overlays/one-namespace", "overlays/trial", OLDER)
BUILT = ("base", *OVERLAYS)
SECRETS = {
    "fumarole-link-key", "fumarole-grant-key", "fumarole-controller", "fumarole-gateway",
    "fumarole-redis-users",
}  # fmt: skip
DOCS = FOLDER.parents[1] / "docs"


@pytest.fixture(params=BUILT)
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> list[Object]:
    return build(request.param, tmp_path)


def is_trial(objects: list[Object]) -> bool:
    return bool(of_kind(objects, "Job"))


def test_every_process_has_an_account_of_its_own(objects: list[Object]) -> None:
    accounts = {one["metadata"]["name"] for one in of_kind(objects, "ServiceAccount")}
    used = {
        name: pod["serviceAccountName"]
        for name, pod in pods_of(objects).items()
        if name != "fumarole-redis"
    }
    # The Job that makes a trial's keys is no Deployment.
    assert set(used.values()) == accounts - {"fumarole-keys"}
    assert len(set(used.values())) == len(used)
    tokens = {name for name, pod in pods_of(objects).items() if pod["automountServiceAccountToken"]}
    assert tokens == used.keys() - {"fumarole-gateway"}


def test_only_the_controller_has_rights_in_the_whole_cluster(objects: list[Object]) -> None:
    (binding,) = of_kind(objects, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == "fumarole-controller"
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "fumarole-controller", "namespace": "fumarole-system"}
    ]


def test_no_role_reads_secrets_or_changes_namespaces_or_says_all(objects: list[Object]) -> None:
    for role in of_kind(objects, "ClusterRole", "Role"):
        for verb, group, resource in grants(role):
            assert "*" not in (verb, group, resource), role["metadata"]["name"]
            assert verb not in ("escalate", "impersonate", "deletecollection")
            if resource == "secrets" and role["metadata"]["name"] != "fumarole-keys":
                assert verb in ("create", "patch", "delete")
            if resource == "namespaces":
                assert verb in ("get", "create")
            if verb == "bind":
                assert group == "rbac.authorization.k8s.io"
    whole = next(
        one
        for one in of_kind(objects, "ClusterRole")
        if one["metadata"]["name"] == "fumarole-controller"
    )
    for rule in whole["rules"]:
        if "bind" in rule["verbs"]:
            assert rule["resourceNames"] == ["fumarole-jobs", "fumarole-terminals"]


def test_every_pod_meets_the_restricted_pod_security_standard(objects: list[Object]) -> None:
    for name, pod in pods_of(objects).items():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "readinessProbe" in container
        if name != "fumarole-redis":
            # Liveness probes begin after the start: two minutes allow for an import on a full node.
            startup, liveness = container["startupProbe"], container["livenessProbe"]
            assert startup["httpGet"] == liveness["httpGet"]
            assert startup["periodSeconds"] * startup["failureThreshold"] >= 120


def test_a_controller_that_ends_serves_until_its_service_has_forgotten_it(
    objects: list[Object],
) -> None:
    """Kubernetes sends SIGTERM and removes the endpoint at the same time; removal takes seconds."""
    pod = pods_of(objects)["fumarole-controller"]
    (container,) = pod["containers"]
    # A command, since older clusters do not have the action "sleep".
    program, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert (program, int(seconds)) == ("sleep", 5)
    assert int(seconds) + STOP_SECONDS < pod.get("terminationGracePeriodSeconds", 30)


def test_every_process_can_write_temporary_files(objects: list[Object]) -> None:
    """SQLite sorts, indexes and rolls back in files; without a folder for them no store opens."""
    for name, pod in pods_of(objects).items():
        (container,) = pod["containers"]
        mounted = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
        if name != "fumarole-redis":  # Redis writes no files
            assert {"name": mounted["/tmp"], "emptyDir": {}} in pod["volumes"]


def test_objects_named_by_a_pod_exist_or_are_documented_secrets(objects: list[Object]) -> None:
    maps = {one["metadata"]["name"] for one in of_kind(objects, "ConfigMap")}
    text = (DOCS / "kubernetes.md").read_text()
    for pod in pods_of(objects).values():
        (container,) = pod["containers"]
        secrets = {one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
        for source in container.get("envFrom", ()):
            if "secretRef" in source:
                secrets.add(source["secretRef"]["name"])
            else:
                assert source["configMapRef"]["name"] in maps
        assert secrets <= (secrets_of(bytes(32)).keys() if is_trial(objects) else SECRETS)
        made = secrets - secrets_of(bytes(32)).keys() if is_trial(objects) else secrets
        assert all(f"secret generic {name}" in text for name in made)
        volumes = {one["name"] for one in pod["volumes"]}
        assert {one["name"] for one in container.get("volumeMounts", ())} <= volumes
    # The repository contains no Secret.
    assert of_kind(objects, "Secret") == []


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


def test_every_object_names_its_namespace(objects: list[Object]) -> None:
    # An object without a namespace would land in kubectl's current one.
    whole = {"Namespace", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy",
             "ValidatingAdmissionPolicyBinding"}  # fmt: skip
    for one in objects:
        assert (one["kind"] in whole) != ("namespace" in one["metadata"]), one["metadata"]["name"]


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


def test_gateways_reach_jobs_also_in_a_single_namespace(tmp_path: Path) -> None:
    objects = build("overlays/one-namespace", tmp_path)
    (more,) = [one["spec"] for one in of_kind(objects, "NetworkPolicy")
               if one["metadata"]["name"] == "fumarole-gateway-to-jobs"]  # fmt: skip
    (rule,) = more["egress"]
    settings = settings_of(objects, pods_of(objects)["fumarole-controller"])
    where = {"kubernetes.io/metadata.name": settings["FUMAROLE_CONTROLLER_NAMESPACE"]}
    assert rule == {"to": [{"namespaceSelector": {"matchLabels": where}}]}
    assert more["podSelector"] == policies_of(objects)["fumarole-gateway"]["podSelector"]


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
    # Without these kinds, production is the same.
    older = build(OLDER, tmp_path)
    production = build("overlays/production", tmp_path)
    assert older == [one for one in production if one["kind"] not in kinds]


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


def test_the_settings_in_manifests_exist(objects: list[Object], tmp_path: Path) -> None:
    documented = set(re.findall(r"`(FUMAROLE_\w+)`", (DOCS / "settings.md").read_text()))
    pods = [one for one in pods_of(objects).values() if "envFrom" in one["containers"][0]]
    assert len(pods) >= 2
    for pod in pods:
        names = {name for name in settings_of(objects, pod) if name.startswith("FUMAROLE_")}
        assert names
        assert names <= documented


def test_the_production_processes_start_with_their_secrets(tmp_path: Path) -> None:
    objects = build("overlays/production", tmp_path)
    key = tmp_path / "key"
    key.write_text("q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k=\n")
    other = tmp_path / "other"
    other.write_text("mrze8BI0VniavN7wEjRWeJq83vASNFZ4iavN7wEjRWc=\n")
    secret = {
        "FUMAROLE_REDIS_URL": "rediss://controller:x@redis.example.com:6379/0",
        "FUMAROLE_CONTROLLER_STORE_URL": "postgresql://fumarole:x@db.example.com/fumarole",
        "POD_ADDRESS": "10.0.0.1",
        "FUMAROLE_LINK_KEY_FILE": str(key),
        "FUMAROLE_GATEWAY_GRANT_KEY_FILE": str(other),
    }
    for name, pod in pods_of(objects).items():
        values = settings_of(objects, pod) | secret
        values = {n: v.replace("$(POD_ADDRESS)", "10.0.0.1") for n, v in values.items()}
        if name == "fumarole-gateway":
            read_gateway_settings(values)
            continue
        environment = Environment(values)
        share = read_settings(environment).jobs.fair_share
        environment.check()
        assert share is not None
        assert len(share.grants) == 2


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


def test_server_side_defaults_are_written_explicitly() -> None:
    # Without these fields, each apply removes them, reports "configured", and the server fills them
    # in
    # again (k8s.io/kubernetes/pkg/apis/admissionregistration/v1/defaults.go).
    for policy in of_kind(read("base/containment.yaml"), "ValidatingAdmissionPolicy"):
        assert policy["spec"]["failurePolicy"] == "Fail"
        constraints = policy["spec"]["matchConstraints"]
        assert constraints["matchPolicy"] == "Equivalent"
        assert constraints["namespaceSelector"] == constraints["objectSelector"] == {}
        assert all(rule["scope"] == "*" for rule in constraints["resourceRules"])


def test_every_image_names_its_registry_and_version(tmp_path: Path) -> None:
    for overlay in OVERLAYS:
        for pod in pods_of(build(overlay, tmp_path)).values():
            for container in pod["containers"]:
                host, slash, _ = container["image"].partition("/")
                assert slash, container["image"]
                assert "." in host or ":" in host, container["image"]
                assert not container["image"].endswith(":latest")
    for name in ("Dockerfile.controller", "Dockerfile.gateway"):
        (base,) = re.findall(r"^ARG BASE=(\S+)$", (DOCS.parent / name).read_text(), re.MULTILINE)
        assert base.startswith("docker.io/library/")


def test_sample_upstream_networks_exclude_services_and_nodes(tmp_path: Path) -> None:
    for overlay in ("overlays/production", "overlays/one-namespace"):
        objects = build(overlay, tmp_path)
        settings = settings_of(objects, pods_of(objects)["fumarole-gateway"])
        (network,) = settings["FUMAROLE_GATEWAY_UPSTREAM_NETWORKS"].split(",")
        assert ip_network(network).prefixlen >= 16
        assert not ip_network(network).overlaps(ip_network("10.96.0.0/12"))


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


def test_documented_manifests_apply_without_warnings() -> None:
    text = (DOCS / "kubernetes.md").read_text()
    # An object made by create lacks the annotation that a client-side apply looks for. A
    # client-side
    # apply also reports a disruption budget as configured every time, because the selector's patch
    # strategy is "replace".
    for line in re.findall(r"^kubectl apply .*$|\| kubectl apply .*$", text, re.MULTILINE):
        assert "--server-side" in line, line
    assert "kubectl create namespace" not in text


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


def unknown_fields(value: object, model: str, path: str) -> Iterator[str]:
    """Yield the fields of *value* that the client library's model of a type does not have."""
    if inner := re.fullmatch(r"list\[(\w+)\]", model):
        assert isinstance(value, list), path
        for index, one in enumerate(value):
            yield from unknown_fields(one, inner[1], f"{path}[{index}]")
    elif inner := re.fullmatch(r"dict\(str, (\w+)\)", model):
        assert isinstance(value, dict), path
        for key, one in value.items():
            yield from unknown_fields(one, inner[1], f"{path}.{key}")
    elif hasattr(client, model):
        assert isinstance(value, dict), path
        kind = getattr(client, model)
        names = {json_name: name for name, json_name in kind.attribute_map.items()}
        for key, one in value.items():
            if key not in names:
                yield f"{path}.{key}"
            else:
                yield from unknown_fields(one, kind.openapi_types[names[key]], f"{path}.{key}")
    elif model in SCALARS:
        assert isinstance(value, SCALARS[model]), (path, value)


SCALARS: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "bool": bool}


def test_every_field_exists_in_its_kind(objects: list[Object]) -> None:
    # All kinds, including those that the embedded cluster does not serve.
    for one in objects:
        version = one["apiVersion"].rpartition("/")[2].capitalize()
        found = [*unknown_fields(one, f"{version}{one['kind']}", one["kind"])]
        assert found == [], one["metadata"]["name"]


def test_a_misspelt_field_is_detected() -> None:
    (deployment,) = of_kind(read("base/gateway.yaml"), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container["startUpProbe"] = container.pop("startupProbe")
    assert [*unknown_fields(deployment, "V1Deployment", "Deployment")] == [
        "Deployment.spec.template.spec.containers[0].startUpProbe"
    ]
