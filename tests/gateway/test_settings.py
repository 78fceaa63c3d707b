"""Tests the gateway's settings, and the messages for wrong ones."""

from __future__ import annotations

import base64
import os
from ipaddress import ip_network
from pathlib import Path

import pytest

from gateway.core.limits.values import ADJUSTABLE, Limits
from gateway.settings import Settings, read_settings, settings_from
from shared.errors import SettingsError
from shared.settings import Environment

DURATIONS = {name for name in ADJUSTABLE if isinstance(getattr(Limits(), name), float)}


def write_key(folder: Path, name: str, *keys: bytes) -> str:
    path = folder / name
    lines = [base64.b64encode(key).decode() for key in keys or (os.urandom(32),)]
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture
def values(tmp_path: Path) -> dict[str, str]:
    return {
        "FUMAROLE_LINK_KEY_FILE": write_key(tmp_path, "link"),
        "FUMAROLE_GATEWAY_GRANT_KEY_FILE": write_key(tmp_path, "grant"),
        "FUMAROLE_GATEWAY_PUBLIC_URL": "https://apps.example.com",
        "FUMAROLE_GATEWAY_TOKEN_ISSUER": "https://orchestrator.example.org/realm",
        "FUMAROLE_GATEWAY_TOKEN_JWKS": "https://orchestrator.example.org/jwks",
        "FUMAROLE_GATEWAY_UPSTREAM_NETWORKS": "10.0.0.0/8, fd00::/8",
    }


def read(values: dict[str, str]) -> Settings:
    environment = Environment(values)
    settings = settings_from(environment)
    environment.check()
    return settings


def problems(values: dict[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        read(values)
    return list(refused.value.problems)


def test_an_unset_setting_has_its_documented_default(values: dict[str, str]) -> None:
    settings = read(values)
    assert (settings.instance, settings.redis_url) == ("default", "redis://127.0.0.1:6379/0")
    assert (settings.listen, settings.ops_listen) == (("0.0.0.0", 8080), ("127.0.0.1", 8090))
    graces = (settings.bus_grace_seconds, settings.controller_grace_seconds)
    assert (*graces, settings.drain_seconds) == (300.0, 300.0, 30.0)
    assert settings.drain_delay_seconds == 0.0
    assert settings.open_origins == ("https://orchestrator.example.org",)
    assert (settings.site.embed_origins, settings.site.trusted_proxies) == ((), ())
    assert settings.route_keys is None


def test_an_empty_environment_lists_every_missing_setting_and_exits_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        read_settings({})
    assert ended.value.code == 2
    said = capsys.readouterr().err
    for name in (
        "FUMAROLE_LINK_KEY_FILE",
        "FUMAROLE_GATEWAY_GRANT_KEY_FILE",
        "FUMAROLE_GATEWAY_PUBLIC_URL",
        "FUMAROLE_GATEWAY_TOKEN_ISSUER",
        "FUMAROLE_GATEWAY_TOKEN_JWKS",
        "FUMAROLE_GATEWAY_UPSTREAM_NETWORKS",
    ):
        assert f"error: {name} is not set" in said


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("FUMAROLE_INSTANCE", "a b"),
        ("FUMAROLE_INSTANCE", "{x}"),
        ("FUMAROLE_REDIS_URL", "http://127.0.0.1"),
        ("FUMAROLE_GATEWAY_LISTEN", "8080"),
        ("FUMAROLE_GATEWAY_LISTEN", "0.0.0.0:70000"),
        ("FUMAROLE_GATEWAY_PUBLIC_URL", "http://apps.example.com"),
        ("FUMAROLE_GATEWAY_PUBLIC_URL", "https://apps.example.com/path"),
        ("FUMAROLE_GATEWAY_PUBLIC_URL", "https://10.1.2.3"),
        ("FUMAROLE_GATEWAY_PUBLIC_URL", "https://[fd00::1]"),
        ("FUMAROLE_GATEWAY_PUBLIC_URL", "https://apps.example.com."),
        ("FUMAROLE_GATEWAY_TOKEN_JWKS", "http://orchestrator.example.org/jwks"),
        ("FUMAROLE_GATEWAY_UPSTREAM_NETWORKS", "10.0.0.1/8"),
        ("FUMAROLE_GATEWAY_UPSTREAM_NETWORKS", ","),
        ("FUMAROLE_GATEWAY_ROUTE_KEYS", "/does/not/exist"),
        ("FUMAROLE_GATEWAY_TRUSTED_PROXIES", "nobody"),
        ("FUMAROLE_GATEWAY_OPEN_ORIGINS", "https://a.example/path"),
        ("FUMAROLE_GATEWAY_EMBED_ORIGINS", "*"),
        ("FUMAROLE_GATEWAY_ORCHESTRATOR_URL", "jobs/{job}"),
        ("FUMAROLE_GATEWAY_ORCHESTRATOR_URL", "javascript:alert('{job}')"),
        ("FUMAROLE_GATEWAY_ORCHESTRATOR_URL", "https://{job}.example.org/"),
        ("FUMAROLE_GATEWAY_ORCHESTRATOR_URL", "https://a.example/{user}"),
        ("FUMAROLE_GATEWAY_ORCHESTRATOR_URL", "https://me:x@a.example/{job}"),
        ("FUMAROLE_GATEWAY_ORCHESTRATOR_URL", "http://a.example/{job}"),
        ("FUMAROLE_GATEWAY_WORKERS", "257"),
        ("FUMAROLE_GATEWAY_WORKERS", "0"),
        ("FUMAROLE_GATEWAY_DRAIN_SECONDS", "-1"),
        ("FUMAROLE_GATEWAY_BUS_GRACE_SECONDS", "nan"),
        ("FUMAROLE_GATEWAY_TLS_CERT_FILE", "/does/not/exist"),
        ("FUMAROLE_GATEWAY_UPSTREAM_CA_FILE", "/does/not/exist"),
        ("FUMAROLE_GATEWAY_UPSTREAM_CA_FILE", __file__),
        ("FUMAROLE_GATEWAY_REFUSED_NETWORKS", "the API server"),
        ("FUMAROLE_GATEWAY_CONNECTIONS", "-1"),
        ("FUMAROLE_GATEWAY_USER_OPENS_PER_MINUTE", "1.5"),
        ("FUMAROLE_GATEWAY_HEAD_SECONDS", "0"),
        ("FUMAROLE_GATEWAY_SLOW_BODY_SECONDS", "inf"),
    ],
)
def test_a_bad_value_is_named(values: dict[str, str], name: str, bad: str) -> None:
    found = problems(values | {name: bad})
    assert any(problem.startswith(f"{name} is wrong") for problem in found), found


def test_the_job_url_may_have_path_query_or_fragment(
    values: dict[str, str],
) -> None:
    assert read(values).orchestrator_url is None
    for url in ("https://a.example/j/{job}", "https://a.example/?s={sid}", "https://a/#/{job}"):
        found = read(values | {"FUMAROLE_GATEWAY_ORCHESTRATOR_URL": url})
        assert found.orchestrator_url == url


@pytest.mark.parametrize("name", sorted(ADJUSTABLE.keys() - DURATIONS))
def test_each_number_is_a_setting_and_may_be_without_limit(
    values: dict[str, str], name: str
) -> None:
    setting = f"FUMAROLE_GATEWAY_{name.upper()}"
    assert getattr(read(values).limits, name) == getattr(Limits(), name)
    assert getattr(read(values | {setting: "0"}).limits, name) == 0
    assert getattr(read(values | {setting: "77"}).limits, name) == 77


@pytest.mark.parametrize("name", sorted(DURATIONS))
def test_each_duration_is_a_setting(values: dict[str, str], name: str) -> None:
    setting = f"FUMAROLE_GATEWAY_{name.upper()}"
    assert getattr(read(values | {setting: "12.5"}).limits, name) == 12.5
    least = ADJUSTABLE[name]
    assert getattr(read(values | {setting: str(least)}).limits, name) == least


def test_upstream_networks_must_not_contain_the_api_server(values: dict[str, str]) -> None:
    assert read(values).refused_networks == ()
    environment = {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "FUMAROLE_GATEWAY_REFUSED_NETWORKS": "192.0.2.0/24",
    }
    networks = tuple(map(ip_network, ("192.0.2.0/24", "10.96.0.1/32")))
    assert read(values | environment).refused_networks == networks
    assert read(values | {"KUBERNETES_SERVICE_HOST": "fd00::1"}).refused_networks
    assert read(values | {"KUBERNETES_SERVICE_HOST": "api.example.com"}).refused_networks == ()


def test_a_password_in_a_bad_redis_url_is_not_repeated(values: dict[str, str]) -> None:
    found = problems(values | {"FUMAROLE_REDIS_URL": "http://user:hunter2@127.0.0.1"})
    assert "hunter2" not in str(found)


def test_a_grant_key_that_the_controller_knows_is_refused(
    values: dict[str, str], tmp_path: Path
) -> None:
    key = os.urandom(32)
    values["FUMAROLE_LINK_KEY_FILE"] = write_key(tmp_path, "link", key)
    values["FUMAROLE_GATEWAY_GRANT_KEY_FILE"] = write_key(tmp_path, "grant", os.urandom(32), key)
    assert "shares a key" in str(problems(values))


def test_two_link_keys_are_taken_while_one_is_rotated(
    values: dict[str, str], tmp_path: Path
) -> None:
    keys = os.urandom(32), os.urandom(32)
    values["FUMAROLE_LINK_KEY_FILE"] = write_key(tmp_path, "l", *keys)
    assert read(values).link_keys == keys
    values["FUMAROLE_GATEWAY_GRANT_KEY_FILE"] = write_key(tmp_path, "grant", keys[1])
    assert "shares a key" in str(problems(values))


def test_a_certificate_without_its_key_is_refused(values: dict[str, str], tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    certificate.write_text("")
    values["FUMAROLE_GATEWAY_TLS_CERT_FILE"] = str(certificate)
    assert "FUMAROLE_GATEWAY_TLS_KEY_FILE is not set" in str(problems(values))


def test_keys_do_not_show_in_the_representation(values: dict[str, str]) -> None:
    settings = read(values | {"FUMAROLE_REDIS_URL": "redis://:hunter2@127.0.0.1"})
    shown = repr(settings)
    assert "hunter2" not in shown
    assert repr(settings.link_keys[0]) not in shown
    assert repr(settings.grant_keys[0]) not in shown


def test_with_a_non_url_issuer_no_origin_may_post(values: dict[str, str]) -> None:
    assert read(values | {"FUMAROLE_GATEWAY_TOKEN_ISSUER": "realm-7"}).open_origins == ()


def test_the_site_is_read_from_public_url_and_embed_origins(values: dict[str, str]) -> None:
    url = {"FUMAROLE_GATEWAY_PUBLIC_URL": "http://Localhost:8080/"}
    embed = {"FUMAROLE_GATEWAY_EMBED_ORIGINS": "https://portal.example.org"}
    site = read(values | url).site
    assert (site.scheme, site.base, site.port) == ("http", "localhost", 8080)
    site = read(values | {"FUMAROLE_GATEWAY_PUBLIC_URL": "https://Apps.Example.com"}).site
    assert (site.scheme, site.base, site.port) == ("https", "apps.example.com", 443)
    assert read(values | embed).site.embed_origins == ("https://portal.example.org",)


@pytest.mark.parametrize(
    ("issuer", "origins", "home"),
    [
        ("https://id.example.com/realm", None, "https://id.example.com"),
        ("https://ID.example.com:443", None, "https://id.example.com"),
        ("https://id.example.com", "https://id.example.co, https://id.example.com", "https://id.example.com"),
        ("https://id.example.com:8443/", "https://id.example.com", None),
        ("https://id.example.com", "https://portal.example.com", None),
        ("an issuer", None, None),
    ],
)  # fmt: skip
def test_pages_link_only_to_the_exact_origin_of_the_issuer(
    values: dict[str, str], issuer: str, origins: str | None, home: str | None
) -> None:
    values["FUMAROLE_GATEWAY_TOKEN_ISSUER"] = issuer
    if origins is not None:
        values["FUMAROLE_GATEWAY_OPEN_ORIGINS"] = origins
    assert read(values).home == home
