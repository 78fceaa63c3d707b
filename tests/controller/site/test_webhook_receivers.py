"""Tests the file of webhook receivers: errors name the path, and contain no secret."""

from __future__ import annotations

import base64
import json
from ipaddress import ip_network
from pathlib import Path
from typing import Any, get_args

import pytest

from controller.jobs.history.job_record import State
from controller.settings import read_settings
from controller.site.webhook_receivers import Receiver, StateName, read_receivers
from shared.settings import Environment
from tests.gateway.relay.authorities import Authority

SECRET = bytes(range(32))
OLDER = bytes(range(100, 124))
CANARY = "canary+canary+canary+canary+cana"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good").write_text(f"whsec_{base64.b64encode(SECRET).decode()}\n")
    (tmp_path / "two").write_text(
        f"{base64.b64encode(SECRET).decode()}\n\nwhsec_{base64.b64encode(OLDER).decode()}\n"
    )
    (tmp_path / "short").write_text(base64.b64encode(SECRET[:23]).decode())
    (tmp_path / "long").write_text(base64.b64encode(SECRET * 3).decode())
    (tmp_path / "same").write_text(base64.b64encode(b"x" * 32).decode())
    (tmp_path / "twice").write_text(f"{base64.b64encode(SECRET).decode()}\n" * 2)
    (tmp_path / "plain").write_text(CANARY + "!")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    return tmp_path


def read(folder: Path, *rows: dict[str, Any]) -> tuple[Receiver, ...]:
    least = {"name": "one", "url": "https://hooks.example.com/a", "secret_file": "good"}
    path = folder / "webhooks.yaml"
    path.write_text(json.dumps({"receivers": [least | row for row in rows]}))
    return read_receivers(str(path))


def test_a_receiver_is_read_from_the_file(folder: Path) -> None:
    authority = Authority(folder, "ours")
    (folder / "third").write_text(base64.b64encode(SECRET[::-1]).decode())
    plain, full = read(
        folder,
        {"secret_file": "two"},
        {
            "name": "two", "url": "http://10.0.0.5:8080/hook", "http": True,
            "secret_file": str(folder / "third"), "networks": ["10.0.0.0/24", "fd00::5"],
            "ca_file": authority.path.name, "states": ["SUCCESS", "FAILURE"],
        },
    )  # fmt: skip
    assert plain == Receiver(name="one", url="https://hooks.example.com/a", secrets=(SECRET, OLDER))
    assert full.networks == (ip_network("10.0.0.0/24"), ip_network("fd00::5"))
    assert (full.authorities, full.states) == (authority.path, frozenset({"SUCCESS", "FAILURE"}))
    assert base64.b64encode(SECRET).decode() not in repr(plain)
    assert repr(SECRET) not in repr(plain)


@pytest.mark.parametrize(
    ("row", "path"),
    [
        ({"url": "http://hooks.example.com/"}, "receivers[0]: http is for localhost"),
        ({"url": "http://localhost/"}, "receivers[0]: url: must be https"),
        ({"url": "https://ada:pw@hooks.example.com/"}, "receivers[0]: a URL here has no"),
        ({"url": "https://hooks.example.com/?token=x"}, "receivers[0]: a URL here has no"),
        ({"url": "file:///etc/passwd"}, "receivers[0]: not an http"),
        ({"name": "One/Two"}, "receivers[0].name"),
        ({"networks": ["10.0.0.1/8"]}, "receivers[0]: networks"),
        ({"networks": "10.0.0.0/8"}, "receivers[0].networks"),
        ({"states": ["DONE"]}, "receivers[0].states[0]"),
        ({"states": []}, "receivers[0].states"),
        ({"secret": "x"}, "receivers[0].secret: unknown field"),
        ({"secret_file": "nowhere"}, "receivers[0]: secret_file"),
        ({"secret_file": "short"}, "receivers[0]: secret_file: line 1 has 23 bytes"),
        ({"secret_file": "long"}, "receivers[0]: secret_file: line 1 has 96 bytes"),
        ({"secret_file": "same"}, "receivers[0]: secret_file: line 1 is not random"),
        ({"secret_file": "plain"}, "receivers[0]: secret_file: line 1 is not base64"),
        ({"secret_file": "twice"}, "receivers[0]: secret_file"),
        ({"secret_file": "empty"}, "receivers[0]: secret_file"),
        ({"secret_file": "bytes"}, "receivers[0]: secret_file"),
        ({"secret_file": CANARY}, "receivers[0]: secret_file: No such file"),
        ({"secret_file": f"{CANARY}\0"}, "receivers[0]: secret_file: not a text file"),
        ({"secret": CANARY}, "receivers[0].secret: unknown field"),
        ({"url": f"https://ada:{CANARY}@hooks.example.com/"}, "receivers[0]: a URL here has no"),
        ({"ca_file": "good"}, "receivers[0]: ca_file"),
    ],
)
def test_an_error_is_reported_with_its_path_and_without_secrets(
    folder: Path, row: dict[str, Any], path: str
) -> None:
    with pytest.raises(ValueError, match=r"^receivers\[0\]") as caught:
        read(folder, row)
    assert str(caught.value).startswith(path)
    assert CANARY not in str(caught.value)
    for name in ("short", "long", "same", "plain", "twice"):
        assert (folder / name).read_text()[:20] not in str(caught.value)


def test_malformed_yaml_is_not_quoted(folder: Path) -> None:
    path = folder / "webhooks.yaml"
    path.write_text(f"receivers:\n  - secret: {CANARY}: [\n")
    with pytest.raises(ValueError, match=r"^is not YAML: line [0-9]+$"):
        read_receivers(str(path))


def test_receivers_have_unique_names_and_secrets(folder: Path) -> None:
    with pytest.raises(ValueError, match="two receivers are named one"):
        read(folder, {}, {})
    with pytest.raises(ValueError, match="share a secret"):
        read(folder, {}, {"name": "two", "secret_file": "two"})


def test_every_state_can_be_selected() -> None:
    assert set(get_args(StateName)) == set(State)


def test_a_receivers_secret_differs_from_the_link_key_and_only_leaders_need_it(
    folder: Path,
) -> None:
    read(folder, {})
    values = {
        "FUMAROLE_LINK_KEY_FILE": str(folder / "link"),
        "FUMAROLE_CONTROLLER_STATE_FOLDER": str(folder),
        "FUMAROLE_CONTROLLER_TOKEN_ISSUER": "https://orchestrator.example.com",
        "FUMAROLE_CONTROLLER_TOKEN_JWKS": "https://orchestrator.example.com/jwks",
        "FUMAROLE_CONTROLLER_PUBLIC_URL": "https://apps.example.com",
        "FUMAROLE_CONTROLLER_HUB_ADVERTISE": "10.0.0.1:8082",
        "FUMAROLE_CONTROLLER_WEBHOOKS_FILE": str(folder / "webhooks.yaml"),
    }
    (folder / "link").write_text(base64.b64encode(SECRET[::-1]).decode())
    environment = Environment(values)
    assert [one.name for one in read_settings(environment).webhooks] == ["one"]
    assert environment.problems == []
    (folder / "link").write_text(base64.b64encode(SECRET).decode())
    environment = Environment(values)
    read_settings(environment)
    assert environment.problems == [
        "FUMAROLE_CONTROLLER_WEBHOOKS_FILE gives a receiver the link key as its secret"
    ]
    # The secret files may be missing where only the API or the hub runs.
    (folder / "good").unlink()
    environment = Environment(values | {"FUMAROLE_CONTROLLER_ROLES": "api,hub"})
    assert read_settings(environment).webhooks == ()
    assert environment.problems == environment.unknown("FUMAROLE_CONTROLLER_") == []
