"""Tests plugins' settings: read at start, with every problem named by its setting."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from controller.__main__ import PREFIXES
from controller.configuration import Configuration, read_configuration
from controller.jobs.pipeline.plugin_loading import make_loaded
from shared.settings import EXIT_BAD_SETTINGS, Environment, or_exit
from tests.controller.samples import make_context

SOURCE = """
import enum
from typing import ClassVar
from pydantic import HttpUrl, SecretStr, field_validator, model_validator
from controller.plugin_api import JobFields, JobPlugin, PluginSettings

class Mode(enum.Enum):
    SOFT = "soft"

class Settings(PluginSettings):
    url: HttpUrl
    tries: int = 3
    mode: Mode = Mode.SOFT
    strict: bool = False
    centres: tuple[str, ...] = ()
    prices: dict[str, float] = {}
    token: SecretStr | None = None

    @field_validator("token")
    @classmethod
    def _long(cls, value):
        if value is not None and len(value.get_secret_value()) < 4:
            raise ValueError(f"{value.get_secret_value()} is too short")
        return value

    @model_validator(mode="after")
    def _fits(self):
        if self.tries == 99:
            raise ValueError("too much altogether")
        if self.tries == 98:
            raise RuntimeError("no")
        return self

class Accounts(JobPlugin):
    name = "accounts"
    api_version = "1.0"
    settings_model = Settings
"""
READ = {
    "FUMAROLE_CONTROLLER_STATE_FOLDER": "/tmp",
    "FUMAROLE_CONTROLLER_TOKEN_ISSUER": "x",
    "FUMAROLE_CONTROLLER_TOKEN_JWKS": "https://x/jwks",
    "FUMAROLE_CONTROLLER_PUBLIC_URL": "https://apps.example.com",
    "FUMAROLE_CONTROLLER_HUB_ADVERTISE": "10.0.0.1:8082",
    "FUMAROLE_CONTROLLER_EXTRA_PLUGINS": "accounts",
    "FUMAROLE_PLUGIN_ACCOUNTS_URL": "https://accounts.example.com/",
}


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "accounts_plugin", raising=False)
    about = tmp_path / "accounts-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: accounts\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[fumarole.plugins]\naccounts=accounts_plugin:Accounts")
    (tmp_path / "accounts_plugin.py").write_text(SOURCE)
    (tmp_path / "link.key").write_text("MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3BxcnN0dXY=")
    return READ | {"FUMAROLE_LINK_KEY_FILE": str(tmp_path / "link.key")}


def configured(values: dict[str, str]) -> tuple[Configuration, list[str]]:
    environment = Environment(values)
    return read_configuration(environment), environment.problems


def test_plugin_settings_are_parsed_by_field_type(values: dict[str, str]) -> None:
    prefix = "FUMAROLE_PLUGIN_ACCOUNTS_"
    configuration, problems = configured(
        values
        | {
            f"{prefix}TRIES": "7",
            f"{prefix}MODE": "soft",
            f"{prefix}STRICT": "yes",
            f"{prefix}CENTRES": "a, b",
            f"{prefix}PRICES": '{"a": 1.5}',
            f"{prefix}TOKEN": "canary",
        }
    )
    assert problems == []
    plugins = make_loaded(configuration.plugins, make_context())
    (accounts,) = [one for one in plugins if one.name == "accounts"]
    settings = accounts.context.settings
    assert settings is not None
    assert accounts.own_settings(type(settings)) is settings
    read = settings.model_dump(mode="json")
    assert (read["tries"], read["strict"], read["mode"]) == (7, True, "soft")
    assert (read["centres"], read["prices"]) == (["a", "b"], {"a": 1.5})
    assert "canary" not in repr(settings) + str(settings) + str(read)
    with pytest.raises(TypeError, match="is not the settings_model of the plugin task"):
        plugins[0].own_settings(type(settings))


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("URL", "", "FUMAROLE_PLUGIN_ACCOUNTS_URL is not set"),
        ("URL", "ftp://x", "FUMAROLE_PLUGIN_ACCOUNTS_URL is wrong: URL scheme should be"),
        ("TRIES", "many", "FUMAROLE_PLUGIN_ACCOUNTS_TRIES is wrong: Input should be a valid int"),
        ("PRICES", '{"a": "x"}', "FUMAROLE_PLUGIN_ACCOUNTS_PRICES is wrong: a: Input should be"),
        ("PRICES", "{", "FUMAROLE_PLUGIN_ACCOUNTS_PRICES is wrong: should be an object"),
        ("TOKEN", "can", "FUMAROLE_PLUGIN_ACCOUNTS_TOKEN is wrong: *** is too short"),
        ("TRIES", "99", "FUMAROLE_PLUGIN_ACCOUNTS_* is wrong: too much altogether"),
        ("TRIES", "98", "FUMAROLE_PLUGIN_ACCOUNTS_* cannot be read: RuntimeError"),
    ],
)
def test_an_invalid_plugin_setting_is_named(
    values: dict[str, str], name: str, value: str, problem: str
) -> None:
    _, problems = configured(values | {f"FUMAROLE_PLUGIN_ACCOUNTS_{name}": value})
    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_a_misspelt_plugin_setting_is_detected(
    values: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    or_exit(read_configuration, values | {"FUMAROLE_PLUGIN_ACCOUNTS_TRYS": "1"}, prefix=PREFIXES)
    output = capsys.readouterr().err
    assert "FUMAROLE_PLUGIN_ACCOUNTS_TRYS is no setting; FUMAROLE_PLUGIN_ACCOUNTS_TRIES" in output


def test_all_plugin_and_setting_problems_are_reported_together(
    values: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    values |= {
        "FUMAROLE_CONTROLLER_EXTRA_PLUGINS": "accounts,absent",
        "FUMAROLE_CONTROLLER_DISABLED_PLUGINS": "proxy,task",
        "FUMAROLE_CONTROLLER_NAMESPACE": "kube_system",
    }
    with pytest.raises(SystemExit) as caught:
        or_exit(read_configuration, values, prefix=PREFIXES)
    assert caught.value.code == EXIT_BAD_SETTINGS
    output = capsys.readouterr().err
    assert "error: FUMAROLE_CONTROLLER_NAMESPACE" in output
    named = "error: FUMAROLE_CONTROLLER_DISABLED_PLUGINS: the plugin task makes the pods"
    assert named in output


def test_a_limit_of_a_disabled_plugin_is_reported(values: dict[str, str]) -> None:
    _, problems = configured(values | {"FUMAROLE_CONTROLLER_HOOK_SECONDS": "30,acounts=5"})
    assert problems == ["FUMAROLE_CONTROLLER_HOOK_SECONDS names plugins that do not run: acounts"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("settings_model = Settings", "settings_model = Mode", "no subclass of PluginSettings"),
        ("settings_model = Settings", "settings_model = Settings()", "no subclass of Plugin"),
        (
            "settings_model = Settings",
            "class F(JobFields):\n        key: list[SecretStr]\n    job_fields_model = F",
            "has the secret job field key",
        ),
        (
            "tries: int",
            "tries: __import__('typing').Callable[[], int]",
            "has a settings_model that no JSON schema describes",
        ),
    ],
)
def test_an_invalid_settings_model_is_reported(
    values: dict[str, str], tmp_path: Path, old: str, new: str, message: str
) -> None:
    text = SOURCE.replace(old, new).replace("settings_model = Settings()", "settings_model = 5")
    (tmp_path / "accounts_plugin.py").write_text(text)
    _, problems = configured(values)
    assert len(problems) == 1
    assert problems[0].startswith("the plugin accounts of accounts ")
    assert message in problems[0]
