from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
import sqlalchemy as sa

from controller.jobs.history.job_record import TRANSITIONS, JobEvent, State
from controller.settings import ControllerSettings, read_settings
from shared.errors import SettingsError
from shared.settings import Environment
from tests.controller.running import NOWHERE, SIGNER
from tests.shared.samples import key_set_of

DOCS = (Path(__file__).parents[2] / "docs" / "controller.md").read_text()
SETTINGS = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()


@pytest.fixture
def values(tmp_path: Path) -> dict[str, str]:
    key = tmp_path / "link"
    key.write_text(base64.b64encode(os.urandom(32)).decode())
    return {
        "FUMAROLE_LINK_KEY_FILE": str(key),
        "FUMAROLE_CONTROLLER_STATE_FOLDER": str(tmp_path / "state"),
        "FUMAROLE_CONTROLLER_TOKEN_ISSUER": "https://orchestrator.example.com",
        "FUMAROLE_CONTROLLER_TOKEN_JWKS": "https://orchestrator.example.com/jwks",
        "FUMAROLE_CONTROLLER_PUBLIC_URL": "https://apps.example.com",
        "FUMAROLE_CONTROLLER_HUB_ADVERTISE": "10.0.0.1:8082",
    }


def read(values: dict[str, str]) -> ControllerSettings:
    environment = Environment(values)
    settings = read_settings(environment)
    environment.check()
    return settings


def test_the_required_settings_suffice(values: dict[str, str], tmp_path: Path) -> None:
    settings = read(values)
    assert settings.roles == {"api", "reconciler", "hub"}
    assert settings.base_domain == "apps.example.com"
    assert sa.make_url(settings.store_url).database == str(tmp_path / "state" / "store.db")
    assert settings.jobs.namespace == "fumarole-jobs"


def test_all_missing_settings_are_reported_together() -> None:
    with pytest.raises(SettingsError) as caught:
        read({})
    assert {problem.split()[0] for problem in caught.value.problems} == {
        "FUMAROLE_LINK_KEY_FILE",
        "FUMAROLE_CONTROLLER_STATE_FOLDER",
        "FUMAROLE_CONTROLLER_TOKEN_ISSUER",
        "FUMAROLE_CONTROLLER_TOKEN_JWKS",
        "FUMAROLE_CONTROLLER_PUBLIC_URL",
        "FUMAROLE_CONTROLLER_HUB_ADVERTISE",
    }


def test_a_hub_needs_no_orchestrator_settings(values: dict[str, str]) -> None:
    for name in ("TOKEN_ISSUER", "TOKEN_JWKS", "PUBLIC_URL"):
        del values[f"FUMAROLE_CONTROLLER_{name}"]
    assert read(values | {"FUMAROLE_CONTROLLER_ROLES": "hub"}).roles == {"hub"}
    with pytest.raises(SettingsError):
        read(values | {"FUMAROLE_CONTROLLER_ROLES": "api"})


@pytest.mark.parametrize(
    "name",
    [
        "LOGS_FOLDER",
        "LOGS_S3_CREDENTIALS_FILE",
        "BUS_SIGNING_KEY_FILE",
        "WEBHOOKS_FILE",
        "OWNERS_FILE",
        "KINDS_FILE",
        "TOOLS_FILE",
        "PRODUCTS_FILE",
    ],
)
def test_a_hub_needs_no_files_that_only_controllers_use(values: dict[str, str], name: str) -> None:
    # One ConfigMap is for hubs, too, which mount neither the volumes nor the Secrets.
    values |= {f"FUMAROLE_CONTROLLER_{name}": "/dev/null/no/such/place",
               "FUMAROLE_CONTROLLER_FAIR_SHARE": "on"}  # fmt: skip
    environment = Environment(values | {"FUMAROLE_CONTROLLER_ROLES": "hub"})
    settings = read_settings(environment)
    assert (environment.problems, settings.logs, settings.bus_signer) == ([], None, None)
    assert environment.unknown("FUMAROLE_CONTROLLER_") == []
    with pytest.raises(SettingsError):
        read(values)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FUMAROLE_INSTANCE", "Not A Label"),
        ("FUMAROLE_INSTANCE", "a{b}"),
        ("FUMAROLE_REDIS_URL", "http://redis"),
        ("FUMAROLE_CONTROLLER_ROLES", "api,cook"),
        ("FUMAROLE_CONTROLLER_ROLES", "api,api"),
        ("FUMAROLE_CONTROLLER_ROLES", ","),
        ("FUMAROLE_CONTROLLER_LISTEN", "8081"),
        ("FUMAROLE_CONTROLLER_STORE_URL", "mysql://x"),
        ("FUMAROLE_CONTROLLER_TOKEN_ISSUER", "https://[::1"),
        ("FUMAROLE_CONTROLLER_TOKEN_JWKS", "http://orchestrator.example.com/jwks"),
        ("FUMAROLE_CONTROLLER_TOKEN_JWKS", "/keys" * 2000),
        ("FUMAROLE_CONTROLLER_GPU_RESOURCE", "nvidia.com/a gpu"),
        ("FUMAROLE_CONTROLLER_PUBLIC_URL", "http://apps.example.com"),
        ("FUMAROLE_CONTROLLER_PUBLIC_URL", "https://apps.example.com/path"),
        ("FUMAROLE_CONTROLLER_NAMESPACE", "kube_system"),
        ("FUMAROLE_CONTROLLER_DEFAULT_CPU", "0"),
        ("FUMAROLE_CONTROLLER_DEFAULT_MEMORY", "lots"),
        ("FUMAROLE_CONTROLLER_WORKING_DIRECTORY", "work"),
        ("FUMAROLE_CONTROLLER_WORKING_DIRECTORY", "/work/../etc"),
        ("FUMAROLE_CONTROLLER_RUN_AS_NON_ROOT", "maybe"),
        ("FUMAROLE_CONTROLLER_RUN_AS_USER", "root"),
        ("FUMAROLE_CONTROLLER_RETENTION_SECONDS", "0"),
        ("FUMAROLE_CONTROLLER_HISTORY_SECONDS", "-1"),
        ("FUMAROLE_CONTROLLER_GATEWAY_LABELS", "app"),
        ("FUMAROLE_CONTROLLER_GATEWAY_NETWORKS", "192.0.2.7/24"),
        ("FUMAROLE_CONTROLLER_PLUGINS", "task,task"),
        ("FUMAROLE_CONTROLLER_METRICS_SECONDS", "0.5"),
        ("FUMAROLE_CONTROLLER_PROMETHEUS_URL", "prometheus:9090"),
        ("FUMAROLE_CONTROLLER_PROMETHEUS_URL", "http://user:word@prometheus:9090"),
    ],
)
def test_an_invalid_value_is_named(values: dict[str, str], name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(values | {name: value})
    assert [problem.split()[0] for problem in caught.value.problems] == [name]


@pytest.mark.parametrize(
    ("url", "fits"),
    [
        ("https://prometheus.example.com/select/0/prometheus", True),
        ("http://127.0.0.1:9090", True),
        ("http://prometheus.monitoring.svc:9090", False),
    ],
)
def test_a_token_for_prometheus_is_sent_over_tls_alone(
    values: dict[str, str], url: str, fits: bool
) -> None:
    name = "FUMAROLE_CONTROLLER_PROMETHEUS_URL"
    without = read(values | {name: url}).prometheus
    assert without is not None
    assert (without.url, without.token_file) == (url, None)
    token = {"FUMAROLE_CONTROLLER_PROMETHEUS_TOKEN_FILE": "/run/token"}
    if fits:
        with_token = read(values | token | {name: url}).prometheus
        assert with_token is not None
        assert with_token.token_file == Path("/run/token")
    else:
        with pytest.raises(SettingsError, match=name):
            read(values | token | {name: url})


def test_rank_services_need_their_plugin(values: dict[str, str]) -> None:
    values |= {"FUMAROLE_CONTROLLER_RANK_SERVICES": "yes"}
    assert read(values).jobs.rank_services
    assert read(values | {"FUMAROLE_CONTROLLER_PLUGINS": "task,proxy"}).jobs.rank_services
    with pytest.raises(SettingsError, match="needs the plugin proxy"):
        read(values | {"FUMAROLE_CONTROLLER_PLUGINS": "task"})


def test_no_secret_is_in_a_repr(values: dict[str, str]) -> None:
    settings = read(
        values
        | {
            "FUMAROLE_REDIS_URL": "redis://:canary@redis/0",
            "FUMAROLE_CONTROLLER_STORE_URL": "postgresql://u:canary@db/x",
        }
    )
    assert "canary" not in repr(settings)
    assert repr(settings.link_keys[0]) not in repr(settings)


def test_a_folder_with_special_characters_is_used(values: dict[str, str], tmp_path: Path) -> None:
    strange = tmp_path / "a?b#c%20"
    url = read(values | {"FUMAROLE_CONTROLLER_STATE_FOLDER": str(strange)}).store_url
    assert sa.make_url(url).database == str(strange / "store.db")


def test_the_docs_match_the_state_table() -> None:
    header = "| state | " + " | ".join(JobEvent) + " |"
    assert header in DOCS
    for state in State:
        row = [TRANSITIONS.get((state, one)) for one in JobEvent]
        drawn = f"| `{state}` | " + " | ".join(f"`{one}`" for one in row) + " |"
        assert (drawn in DOCS) == all(row), state


def test_name_servers_come_from_the_settings(values: dict[str, str]) -> None:
    usual = read(values).jobs.dns
    assert (usual.namespaces, usual.ports) == (("kube-system",), (53,))
    assert [str(one) for one in usual.networks] == ["169.254.20.10/32"]
    values |= {
        "FUMAROLE_CONTROLLER_DNS_NAMESPACES": "openshift-dns,kube-system",
        "FUMAROLE_CONTROLLER_DNS_NETWORKS": "none",
        "FUMAROLE_CONTROLLER_DNS_PORTS": "53,5353",
    }
    there = read(values).jobs.dns
    assert there.namespaces == ("openshift-dns", "kube-system")
    assert (there.networks, there.ports) == ((), (53, 5353))


@pytest.mark.parametrize(
    "changed",
    [
        {"FUMAROLE_CONTROLLER_DNS_NAMESPACES": "none", "FUMAROLE_CONTROLLER_DNS_NETWORKS": "none"},
        {"FUMAROLE_CONTROLLER_DNS_PORTS": "none"},
        {"FUMAROLE_CONTROLLER_DNS_NAMESPACES": "not a name"},
    ],
)
def test_a_dns_rule_that_allows_everything_is_refused(
    values: dict[str, str], changed: dict[str, str]
) -> None:
    with pytest.raises(SettingsError, match="DNS"):
        read(values | changed)


def test_a_folder_that_cannot_be_created_is_one_problem(values: dict[str, str]) -> None:
    with pytest.raises(SettingsError) as error:
        read(values | {"FUMAROLE_CONTROLLER_STATE_FOLDER": "/dev/null/no"})
    [problem] = error.value.problems
    assert problem == "FUMAROLE_CONTROLLER_STATE_FOLDER is wrong: /dev/null is no folder"


@pytest.mark.parametrize(
    "url", ["sqlite://store.db", "sqlite://", "sqlite:///", "sqlite:x", "sqlite:///:memory:"]
)
def test_a_url_of_sqlite_without_a_file_is_refused(values: dict[str, str], url: str) -> None:
    with pytest.raises(SettingsError, match="STORE_URL is wrong: names no file"):
        read(values | {"FUMAROLE_CONTROLLER_STORE_URL": url})


def test_reading_settings_makes_no_folder(values: dict[str, str], tmp_path: Path) -> None:
    """Somebody else than the controller's user may check them."""
    there = tmp_path / "there"
    state, logs = there / "state", there / "more/logs"
    for more in ({}, {"FUMAROLE_CONTROLLER_LOGS_FOLDER": str(logs)}):
        settings = read(values | {"FUMAROLE_CONTROLLER_STATE_FOLDER": str(state)} | more)
        assert not there.exists()
    settings.make_folders()
    assert [one.stat().st_mode & 0o777 for one in (state, logs)] == [0o700, 0o700]
    settings.make_folders()


def test_kubeconfig_is_a_file_or_a_list_with_one_file(
    values: dict[str, str], tmp_path: Path
) -> None:
    there = tmp_path / "config"
    there.write_text(NOWHERE)
    for given in (f"{there}", f"/no/file:{there}"):
        assert read(values | {"KUBECONFIG": given}).kubeconfig == Path(given)
    for given in ("/no/file", "/no/file:/no/other", str(tmp_path)):
        with pytest.raises(SettingsError, match="KUBECONFIG is wrong: "):
            read(values | {"KUBECONFIG": given})


def test_a_missing_key_set_is_warned_about(values: dict[str, str], tmp_path: Path) -> None:
    keys, name = tmp_path / "keys.json", "FUMAROLE_CONTROLLER_TOKEN_JWKS"
    for there in (False, True):
        environment = Environment(values | {name: str(keys)})
        read_settings(environment)
        environment.check()
        assert any(name in one for one in environment.warnings) is not there
        keys.write_bytes(key_set_of(SIGNER))


def test_a_key_set_file_without_a_usable_key_is_warned_about(
    values: dict[str, str], tmp_path: Path
) -> None:
    keys, name = tmp_path / "keys.json", "FUMAROLE_CONTROLLER_TOKEN_JWKS"
    keys.write_text('{"keys":[]}')
    environment = Environment(values | {name: str(keys)})
    read_settings(environment)
    environment.check()
    assert [one for one in environment.warnings if one.startswith(f"{name} holds no key")]


def test_a_kubeconfig_is_checked_before_the_start(values: dict[str, str], tmp_path: Path) -> None:
    there = tmp_path / "config"
    there.write_text("users: [{name: u, token: canary")
    with pytest.raises(SettingsError) as refused:
        read(values | {"KUBECONFIG": str(there)})
    assert refused.value.problems == (f"KUBECONFIG is wrong: {there}: it is not YAML in line 1",)


def test_two_listeners_at_one_address_are_refused(values: dict[str, str]) -> None:
    both = {
        "FUMAROLE_CONTROLLER_LISTEN": "0.0.0.0:8081",
        "FUMAROLE_CONTROLLER_OPS_LISTEN": "127.0.0.1:8081",
    }
    with pytest.raises(SettingsError, match="has the same address and port"):
        read(values | both)
    read(values | both | {"FUMAROLE_CONTROLLER_ROLES": "reconciler"})
    read(values | dict.fromkeys(both, "127.0.0.1:0"))


def test_a_state_folder_that_is_a_file_is_one_problem(
    values: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(SettingsError) as refused:
        read(values | {"FUMAROLE_CONTROLLER_STATE_FOLDER": str(file)})
    assert len(refused.value.problems) == 1


def test_an_address_file_that_cannot_be_written_is_refused(
    values: dict[str, str], tmp_path: Path
) -> None:
    for given in (tmp_path, tmp_path / "no" / "file"):
        with pytest.raises(SettingsError, match="FUMAROLE_CONTROLLER_ADDRESS_FILE is wrong"):
            read(values | {"FUMAROLE_CONTROLLER_ADDRESS_FILE": str(given)})


def test_a_missing_prometheus_token_is_warned_about(values: dict[str, str]) -> None:
    name = "FUMAROLE_CONTROLLER_PROMETHEUS_TOKEN_FILE"
    given = {name: "/no/token", "FUMAROLE_CONTROLLER_PROMETHEUS_URL": "https://p.example.com"}
    environment = Environment(values | given)
    read_settings(environment)
    environment.check()
    assert [one for one in environment.warnings if one.startswith(f"{name} names no file")]


def test_wrong_roles_are_the_only_problem_of_settings_that_depend_on_them() -> None:
    environment = Environment({"FUMAROLE_CONTROLLER_ROLES": "hubs"})
    read_settings(environment)
    assert {one.split()[0] for one in environment.problems} == {
        "FUMAROLE_CONTROLLER_ROLES",
        "FUMAROLE_CONTROLLER_STATE_FOLDER",
        "FUMAROLE_LINK_KEY_FILE",
    }


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://apps.example.com", "http is for localhost and names below it only"),
        ("http://192.0.2.1:8080", "http is for localhost and names below it only"),
        ("https://apps.example.com/path", "the public URL must have no path"),
    ],
)
def test_a_public_url_is_http_on_localhost_only(
    values: dict[str, str], url: str, problem: str
) -> None:
    name = "FUMAROLE_CONTROLLER_PUBLIC_URL"
    with pytest.raises(SettingsError, match=f"{name} is wrong: {problem}$"):
        read(values | {name: url})
    read(values | {name: "http://apps.localhost:8080"})


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "https://[::1]"])
def test_an_address_as_public_url_is_warned_about(values: dict[str, str], url: str) -> None:
    environment = Environment(values | {"FUMAROLE_CONTROLLER_PUBLIC_URL": url})
    read_settings(environment)
    assert not environment.problems
    assert "so it must be a name" in "".join(environment.warnings)


@pytest.mark.parametrize("advertised", ["", "0.0.0.0:8082", "[::]:8082"])
def test_an_undialable_hub_address_is_refused(values: dict[str, str], advertised: str) -> None:
    name = "FUMAROLE_CONTROLLER_HUB_ADVERTISE"
    with pytest.raises(SettingsError, match=f"{name} must be the address"):
        read(values | {name: advertised})
    read(
        values
        | {name: advertised, "FUMAROLE_CONTROLLER_HUB_LISTEN": "10.0.0.1:8082"}
        | ({} if not advertised else {name: ""})
    )
    read(values | {name: advertised, "FUMAROLE_CONTROLLER_ROLES": "api,reconciler"})
