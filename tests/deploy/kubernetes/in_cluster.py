"""Runs a process as in a pod: account files where a kubelet mounts them, and no kubeconfig."""

from __future__ import annotations

import base64
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import yaml

from controller.kube.client import Kube

ROOT = Path(__file__).parents[3]
ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
SYSTEM = "fumarole-system"


class Account:
    """The files of a pod's ServiceAccount, replaced as a kubelet replaces them.

    A kubelet writes a new folder and moves a link to it, so readers see either all old or all new
    files (kubernetes/pkg/volume/util/atomic_writer.go).
    """

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self.folder = folder
        folder.mkdir()
        given = yaml.safe_load(kubeconfig.read_text())
        cluster = given["clusters"][0]["cluster"]
        self.server = urlsplit(cluster["server"])
        self._authority = base64.b64decode(cluster["certificate-authority-data"])
        self._number = 0

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that Kubernetes sets in every container."""
        return {
            "KUBERNETES_SERVICE_HOST": str(self.server.hostname),
            "KUBERNETES_SERVICE_PORT": str(self.server.port),
        }

    def write(self, token: str) -> None:
        """Write *token* and the constant files."""
        self._number += 1
        data = self.folder / f"..{self._number}"
        data.mkdir()
        (data / "token").write_text(token)
        (data / "ca.crt").write_bytes(self._authority)
        (data / "namespace").write_text(SYSTEM)
        link = self.folder / "..data_tmp"
        link.symlink_to(data.name)
        link.replace(self.folder / "..data")
        for name in ("token", "ca.crt", "namespace"):
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")


def start(
    command: list[str], account: Account | None, environment: Mapping[str, str], log: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start *command* in a mount namespace of its own, with the account's files mounted."""
    whole = {"PATH": os.environ["PATH"], **environment}
    words = [sys.executable, *command]
    if account is not None:
        whole |= account.environment
        mounted = shlex.quote(str(account.folder))
        script = (
            f"mount -t tmpfs tmpfs /run && mkdir -p {ACCOUNT} && mount --bind {mounted} {ACCOUNT}"
            f' && exec "$@"'
        )
        words = ["unshare", "-Urm", "sh", "-c", script, "pod", *words]
    return subprocess.Popen(words, cwd=ROOT, env=whole, stdout=log, stderr=log)


async def request_token(admin: Kube, account: str) -> str:
    """Return a new token of a ServiceAccount (TokenRequest)."""
    path = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = await admin._transport.call("POST", path, body=body)
    token: str = made["status"]["token"]
    return token


def read_addresses(path: Path) -> dict[str, str] | None:
    """Return a process' listening addresses once it has written them."""
    try:
        found: dict[str, str] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found
