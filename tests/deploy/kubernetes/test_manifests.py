"""Tests the Kubernetes manifests: pods, what they name, settings, and fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_asyncio import client

from controller.app import STOP_SECONDS
from controller.settings import read_settings
from deploy.kubernetes.overlays.trial.keys import secrets_of
from gateway.settings import read_settings as read_gateway_settings
from shared.settings import Environment
from tests.deploy.kubernetes.manifests import (
    DOCS,
    OVERLAYS,
    Object,
    build,
    grants,
    of_kind,
    pods_of,
    read,
    settings_of,
)

pytestmark = pytest.mark.needs("kubectl")

SECRETS = {
    "fumarole-link-key", "fumarole-grant-key", "fumarole-controller", "fumarole-gateway",
    "fumarole-redis-users",
}  # fmt: skip


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


def test_a_hub_gets_only_the_store_of_the_controllers_secret(objects: list[Object]) -> None:
    for name, pod in pods_of(objects).items():
        if name != "fumarole-hub":
            continue
        (container,) = pod["containers"]
        assert all("configMapRef" in source for source in container["envFrom"])
        taken = [one["valueFrom"]["secretKeyRef"]["key"] for one in container["env"]
                 if "secretKeyRef" in one.get("valueFrom", ())]  # fmt: skip
        assert taken == ["FUMAROLE_CONTROLLER_STORE_URL"]


def test_every_object_names_its_namespace(objects: list[Object]) -> None:
    # An object without a namespace would land in kubectl's current one.
    whole = {"Namespace", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy",
             "ValidatingAdmissionPolicyBinding"}  # fmt: skip
    for one in objects:
        assert (one["kind"] in whole) != ("namespace" in one["metadata"]), one["metadata"]["name"]


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


def test_documented_manifests_apply_without_warnings() -> None:
    text = (DOCS / "kubernetes.md").read_text()
    # An object made by create lacks the annotation that a client-side apply looks for. A
    # client-side
    # apply also reports a disruption budget as configured every time, because the selector's patch
    # strategy is "replace".
    for line in re.findall(r"^kubectl apply .*$|\| kubectl apply .*$", text, re.MULTILINE):
        assert "--server-side" in line, line
    assert "kubectl create namespace" not in text


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
