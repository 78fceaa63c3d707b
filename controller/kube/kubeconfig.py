"""Checks a kubeconfig without starting its programs, and words problems without its content."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from controller.kube.library import ConfigException, KubeConfigMerger

DEFAULT: Final = Path("~/.kube/config")
TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")

MALFORMED: Final = (
    *(ConfigException, yaml.YAMLError, OSError, ValueError, TypeError),
    *(AssertionError, AttributeError, LookupError),
)
"""Errors of the library for a malformed kubeconfig, which it does not validate."""

_FILES: Final = (
    ("certificate-authority", "certificate-authority-data"),
    ("client-certificate", "client-certificate-data"),
    ("client-key", "client-key-data"),
    ("tokenFile", "token"),
)
"""Keys that name files, and those whose content takes precedence."""


def check_kubeconfig(raw: str) -> None:
    """Check the current context of a kubeconfig, or of a list of them as ``kubectl`` takes it.

    Raises:
        ValueError: If it cannot be used. The message names the file and holds no credential.
    """
    try:
        _check(raw)
    except MALFORMED as error:
        raise ValueError(cause_of(error, raw)) from None


def problem_without_kubeconfig() -> str | None:
    """Return why the API server cannot be reached without a kubeconfig; None if it can."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return None if TOKEN.is_file() else f"is not set, and this pod has no {TOKEN}"
    file = DEFAULT.expanduser()
    if not file.exists():
        return f"is not set, this is not a pod, and {DEFAULT} does not exist"
    try:
        check_kubeconfig(str(file))
    except ValueError as error:
        return f"is not set, and {error}"
    return None


def cause_of(error: Exception, file: str) -> str:
    """Return why *file* cannot be used: one line without its content, which holds credentials."""
    if isinstance(error, yaml.YAMLError):
        mark = getattr(error, "problem_mark", None)
        return f"{file}: it is not YAML" + (f" in line {mark.line + 1}" if mark else "")
    if isinstance(error, UnicodeError):
        return f"{file}: it is not a text file"
    if isinstance(error, TypeError | AttributeError):  # YAML of another structure, or empty
        return f"{file}: it is empty, or not a kubeconfig"
    # The library names an entry of a list by the whole of it.
    text = " ".join(str(error).partition("/{")[0].split())
    return f"{file}: {text or type(error).__name__}"


def _check(raw: str) -> None:
    config: Any = KubeConfigMerger(raw).config
    named = config["contexts"].get_with_name(config["current-context"])["context"]
    cluster = config["clusters"].get_with_name(named["cluster"])["cluster"]
    server = urlsplit(str(cluster["server"]))
    if server.scheme not in ("http", "https") or not server.hostname:
        raise ValueError("the server of the current context's cluster is no http or https URL")
    users, user = config.safe_get("users"), named.safe_get("user")
    found = config["users"].get_with_name(user, safe=True) if user and users else None
    for node in (cluster, *([found["user"]] if found else ())):
        for file in _files_of(node):
            with file.open("rb"):
                pass
        _check_program(node)


def _files_of(node: Any) -> Iterator[Path]:
    folder = Path(node.path or "").absolute().parent
    for key, content in _FILES:
        if content not in node and key in node:
            yield folder / str(node[key])


def _check_program(node: Any) -> None:
    if "exec" not in node:
        return
    command, given = str(node["exec"]["command"]), node["exec"].safe_get("env") or ()
    # The program is looked for in the PATH that it is given.
    path = next((one["value"] for one in given if one["name"] == "PATH"), None)
    if command and not shutil.which(command, path=path):
        raise ValueError(f"its program {command} for credentials cannot be executed")
