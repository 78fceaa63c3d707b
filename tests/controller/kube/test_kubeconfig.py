"""Tests what is found wrong with a kubeconfig, and that no credential is in the words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.kube import kubeconfig
from controller.kube.client import Kube
from controller.kube.errors import Unavailable
from controller.kube.kubeconfig import check_kubeconfig, problem_without_kubeconfig

SECRET = "canary-token"


def content(**user: Any) -> dict[str, Any]:
    """Return a kubeconfig whose user has these fields."""
    return {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user or {"token": SECRET}}],
    }


def refusal(tmp_path: Path, given: Mapping[str, Any] | str | bytes) -> str:
    """Return why a kubeconfig is refused."""
    file = tmp_path / "config"
    text = given if isinstance(given, str | bytes) else yaml.safe_dump(dict(given))
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ValueError, match=str(file)) as refused:
        check_kubeconfig(str(file))
    return str(refused.value)


def test_a_good_kubeconfig_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "config"
    for user in ({"token": SECRET}, {"exec": {"command": "cat"}}, {"client-key-data": "eA=="}):
        file.write_text(yaml.safe_dump(content(**user)))
        check_kubeconfig(str(file))
    (tmp_path / "token").write_text(SECRET)
    file.write_text(yaml.safe_dump(content(tokenFile="token")))
    check_kubeconfig(f"/no/file:{file}")


def test_a_program_is_looked_for_in_the_path_that_the_kubeconfig_gives_it(tmp_path: Path) -> None:
    program = tmp_path / "give-credentials"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    env = [{"name": "HOME", "value": "/"}, {"name": "PATH", "value": f"/no/folder:{tmp_path}"}]
    file = tmp_path / "config"
    for given in (env, None, []):
        run = {"command": str(program), "env": given}
        file.write_text(yaml.safe_dump(content(exec=run)))
        check_kubeconfig(str(file))
    file.write_text(yaml.safe_dump(content(exec={"command": program.name, "env": env})))
    check_kubeconfig(str(file))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "it is empty, or not a kubeconfig"),
        ("a word", "it is empty, or not a kubeconfig"),
        (b"\xff\xfe", "it is not a text file"),
        (f"users: [{{name: u, token: {SECRET}", "it is not YAML in line 1"),
        ("{}", "current-context"),
        (content() | {"current-context": "d"}, "name d"),
        (content() | {"clusters": []}, "name c"),
        (content() | {"clusters": [{"name": "c", "cluster": {"server": "x"}}]}, "https URL"),
        (content() | {"contexts": [{"name": "c", "token": SECRET}]}, "key context"),
        (content() | {"users": [{"name": "u", "token": SECRET}]}, "key user"),
        (content(tokenFile="missing"), "missing"),
        (content(exec={"command": "no-such-program"}), "its program no-such-program"),
    ],
)
def test_what_is_wrong_is_one_line_without_credentials(
    tmp_path: Path, given: Mapping[str, Any] | str | bytes, why: str
) -> None:
    text = refusal(tmp_path, given)
    assert why in text
    assert "\n" not in text
    assert SECRET not in text


@pytest.mark.parametrize(
    "given",
    [
        f"users: [{{name: u, token: {SECRET}",
        yaml.safe_dump(content() | {"contexts": [{"name": "c", "token": SECRET}]}),
    ],
)
async def test_no_credential_is_in_the_error_of_a_malformed_kubeconfig(
    tmp_path: Path, given: str
) -> None:
    file = tmp_path / "config"
    file.write_text(given)
    with pytest.raises(Unavailable) as refused:
        async with Kube.connect(file):
            pass
    assert SECRET not in str(refused.value)


def test_a_process_without_any_credentials_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = tmp_path / "default"
    monkeypatch.setattr(kubeconfig, "DEFAULT", default)
    monkeypatch.setattr(kubeconfig, "TOKEN", tmp_path / "token")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert "is not set, this is not a pod" in str(problem_without_kubeconfig())
    default.write_text("- a")
    assert "not a kubeconfig" in str(problem_without_kubeconfig())
    default.write_text(yaml.safe_dump(content()))
    assert problem_without_kubeconfig() is None
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    assert "this pod has no" in str(problem_without_kubeconfig())
    (tmp_path / "token").write_text(SECRET)
    assert problem_without_kubeconfig() is None
