"""Kubeconfigs: written by the API server, read by the two clients."""

import base64
import json
import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True, slots=True)
class Access:
    """The parts of a kubeconfig that a client needs."""

    server: str
    token: str | None = field(repr=False)
    tls: ssl.SSLContext | None


def write_kubeconfig(path: Path, server: str, authority: bytes, user: str, token: str) -> None:
    """Write a kubeconfig that only its owner can read; it appears complete or not at all."""
    cluster = {
        "server": server,
        "certificate-authority-data": base64.b64encode(authority).decode(),
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "embedded", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": user}}],
        "current-context": "embedded",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file, indent=1)  # JSON is YAML
    new.replace(path)


def read_kubeconfig(path: Path) -> Access:
    """Return the address and credentials of *path*'s current context.

    Raises:
        ValueError: If it has no such context, or names credentials other than tokens and
            certificates.
    """
    content = yaml.safe_load(path.read_text())
    context = _named(content, "contexts", content.get("current-context"))["context"]
    cluster = _named(content, "clusters", context["cluster"])["cluster"]
    user = _named(content, "users", context["user"])["user"]
    if not cluster["server"].startswith("https:"):
        return Access(cluster["server"], user.get("token"), None)
    authority = _data(cluster, "certificate-authority")
    tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    certificate, key = user.get("client-certificate"), user.get("client-key")
    if certificate and key:
        tls.load_cert_chain(path.parent / certificate, path.parent / key)
    elif not user.get("token"):
        raise ValueError(f"{path}: the user has neither a token nor a certificate in files")
    return Access(cluster["server"], user.get("token"), tls)


def _named(content: dict[str, Any], section: str, name: object) -> dict[str, Any]:
    for entry in content.get(section) or []:
        if entry.get("name") == name:
            found: dict[str, Any] = entry
            return found
    raise ValueError(f"the kubeconfig has no {name!r} among its {section}")


def _data(section: dict[str, Any], name: str) -> bytes | None:
    if f"{name}-data" in section:
        return base64.b64decode(section[f"{name}-data"])
    return Path(section[name]).read_bytes() if name in section else None
