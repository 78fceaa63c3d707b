"""Reads the manifests of deploy/kubernetes, as files or as kubectl builds them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from controller.kube.client import Kube
from controller.kube.kinds import ROLE_BINDINGS, Kind

Object = dict[str, Any]
FOLDER = Path(__file__).parents[3] / "deploy" / "kubernetes"
DOCS = FOLDER.parents[1] / "docs"
OLDER = "overlays/no-admission-policy"
OVERLAYS = ("overlays/production", "overlays/one-namespace", "overlays/trial", OLDER)
BUILT = ("base", *OVERLAYS)
RBAC = "rbac.authorization.k8s.io"
RIGHTS = ("base/namespace.yaml", "base/accounts.yaml", "base/rbac-cluster.yaml",
         "base/rbac-owners.yaml", "base/rbac-own.yaml")  # fmt: skip
PLURALS = {
    "Namespace": Kind("v1", "namespaces", "Namespace", namespaced=False),
    "ServiceAccount": Kind("v1", "serviceaccounts", "ServiceAccount"),
    "ClusterRole": Kind(f"{RBAC}/v1", "clusterroles", "ClusterRole", namespaced=False),
    "ClusterRoleBinding": Kind(
        f"{RBAC}/v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
    ),
    "Role": Kind(f"{RBAC}/v1", "roles", "Role"),
    "RoleBinding": ROLE_BINDINGS,
}


def read(*names: str) -> list[Object]:
    """Return the objects in these files."""
    found: list[Object] = []
    for name in names:
        found += [one for one in yaml.safe_load_all((FOLDER / name).read_text()) if one]
    return found


def build(name: str, home: Path) -> list[Object]:
    """Return the output of ``kubectl kustomize`` for a folder; kubectl contacts no server."""
    # Many tests build the repository's overlays, and these do not change.
    return _kustomize(name, home) if Path(name).is_absolute() else deepcopy(_overlay(name))


@cache
def _overlay(name: str) -> list[Object]:
    with tempfile.TemporaryDirectory() as home:
        return _kustomize(name, Path(home))


def _kustomize(name: str, home: Path) -> list[Object]:
    done = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER / name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"HOME": str(home), "PATH": os.environ["PATH"], "KUBECONFIG": str(home / "none")},
    )
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr.lower()
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    """Return the objects of these kinds."""
    return [one for one in objects if one["kind"] in kinds]


def pods_of(objects: list[Object]) -> dict[str, Any]:
    deployments = of_kind(objects, "Deployment")
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in deployments}


def settings_of(objects: list[Object], pod: dict[str, Any]) -> dict[str, str]:
    """Return a pod's environment variables, except those from Secrets."""
    maps = {one["metadata"]["name"]: one["data"] for one in of_kind(objects, "ConfigMap")}
    found: dict[str, str] = {}
    (container,) = pod["containers"]
    for source in container["envFrom"]:
        if "configMapRef" in source:
            found |= maps[source["configMapRef"]["name"]]
    return found | {
        one["name"]: one.get("value", "")
        for one in container.get("env", ())
        if "secretKeyRef" not in one.get("valueFrom", ())
    }


def grants(role: Object) -> set[tuple[str, str, str]]:
    """Return the rights of a role as (verb, group, resource)."""
    return {
        (verb, group, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


async def apply_rights(admin: Kube, *more: str) -> None:
    """Create the namespace, the accounts and their rights; also the objects in *more* files."""
    for wanted in read(*RIGHTS, *more):
        kind = PLURALS[wanted["kind"]]
        await admin.create(kind, wanted, "fumarole-system" if kind.namespaced else None)


def settings_of_controller() -> dict[str, str]:
    """Return the settings in the controller's ConfigMap."""
    lines = (FOLDER / "base" / "controller.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)
