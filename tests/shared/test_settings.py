"""Tests settings: all problems are reported together, and weak keys are refused."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from shared import settings
from shared.errors import SettingsError
from shared.settings import Environment


def test_all_problems_are_reported_together() -> None:
    environment = Environment({"A": "x", "C": "70000"})
    environment.value("A", settings.seconds, 1.0)
    environment.required("B", settings.text, "")
    environment.value("C", settings.count(0, 65535), 1)
    with pytest.raises(SettingsError) as error:
        environment.check()
    assert [problem.split()[0] for problem in error.value.problems] == ["A", "B", "C"]


def test_bad_settings_end_the_process_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    def read(environment: Environment) -> str:
        return environment.required("A", settings.text, "") + environment.required(
            "B", settings.text, ""
        )

    with pytest.raises(SystemExit) as end:
        settings.or_exit(read, {"B": " "}, prefix="X_")
    assert end.value.code == 2
    assert capsys.readouterr().err == "error: A is not set\nerror: B is not set\n"


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("0.0.0.0", "127.0.0.1", True),
        ("0.0.0.0", "localhost", True),
        ("0.0.0.0", "::", True),
        ("::", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::1", "127.0.0.1", False),
        ("0.0.0.0", "::1", False),
        ("10.0.0.1", "10.0.0.2", False),
    ],
)
def test_listeners_that_cannot_share_a_port_are_a_problem(
    one: str, other: str, overlap: bool
) -> None:
    for hosts in ((one, other), (other, one)):
        environment = Environment({})
        environment.check_addresses({"A": (hosts[0], 80), "B": (hosts[1], 80)})
        assert bool(environment.problems) is overlap


def test_a_problem_is_one_line() -> None:
    def parse(_raw: str) -> str:
        raise ValueError("it is wrong\n  in line 2:\n    here")

    environment = Environment({"A": "x"})
    environment.optional("A", parse)
    assert environment.problems == ["A is wrong: it is wrong in line 2: here"]


def test_a_key_file_that_is_no_text_is_refused_without_its_content(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\xf7" * 40)
    with pytest.raises(ValueError, match="not a text file") as refused:
        settings.key_file(str(file))
    assert "f7" not in str(refused.value)


def test_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # the tests' user may write anywhere
    with pytest.raises(ValueError, match="cannot write in"):
        settings.writable_folder(tmp_path)


def test_a_missing_file_of_authorities_is_warned_about(tmp_path: Path) -> None:
    for file, warned in ((tmp_path / "no.pem", True), (Path("/dev/null"), False)):
        environment = Environment({"SSL_CERT_FILE": str(file)})
        environment.check_authorities()
        assert any(str(file) in one for one in environment.warnings) is warned
    environment = Environment({})
    environment.check_authorities()
    assert not environment.warnings


def test_a_misspelt_setting_is_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    def read(environment: Environment) -> str | None:
        return environment.optional("X_ROUTE_KEYS", settings.text)

    given = {"X_ROUTE_KEY": "a", "X_ROUTE_KEYS": "b", "X_ZZZ": "", "Y_ROUTE_KEY": "c"}
    links = {"X_SERVICE_HOST": "d", "X_OPS_SERVICE_PORT_HTTP": "1", "X_PORT_8080_TCP_ADDR": "e"}
    assert settings.or_exit(read, given | links | {"X_PORT": "f"}, prefix="X_") == "b"
    assert capsys.readouterr().err == (
        "warning: X_ROUTE_KEY is no setting; X_ROUTE_KEYS is one\nwarning: X_ZZZ is no setting\n"
    )


def test_a_misspelt_name_without_program_prefix_is_warned_about_if_similar_to_a_setting(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def read(environment: Environment) -> str | None:
        environment.optional("FUMAROLE_GATEWAY_LISTEN", settings.text)
        return environment.optional("FUMAROLE_REDIS_URL", settings.text)

    misspelt = dict.fromkeys(("FUMAROLE_REDIS_URI", "FUMAROLE_GATEWY_LISTEN"), "a")
    others = ("FUMAROLE_CLUSTER_SEED", "FUMAROLE_CONTROLLER_LISTEN", "FUMAROLE_REDIS_PORT")
    prefix = "FUMAROLE_GATEWAY_"
    assert settings.or_exit(read, misspelt | dict.fromkeys(others, "b"), prefix=prefix) is None
    assert capsys.readouterr().err.splitlines() == [
        "warning: FUMAROLE_GATEWY_LISTEN is no setting; FUMAROLE_GATEWAY_LISTEN is one",
        "warning: FUMAROLE_REDIS_URI is no setting; FUMAROLE_REDIS_URL is one",
    ]


def test_the_same_problem_is_reported_once() -> None:
    environment = Environment({"A": "x"})
    for _ in range(2):
        environment.optional("A", settings.seconds)
    assert environment.problems == ["A is wrong: not a number of seconds, 0 or more"]


def test_an_empty_setting_counts_as_unset() -> None:
    environment = Environment({"A": "", "B": "  "})
    assert environment.value("A", settings.seconds, 3.0) == 3.0
    assert environment.optional("B", settings.seconds) is None
    environment.check()


@pytest.mark.parametrize(
    ("parse", "raw", "value"),
    [
        (settings.seconds, "0.5", 0.5),
        (settings.yes_or_no, "Yes", True),
        (settings.yes_or_no, "true", True),
        (settings.yes_or_no, "0", False),
        (settings.on_or_off, "On", True),
        (settings.on_or_off, "off", False),
        (settings.listen_address, "0.0.0.0:80", ("0.0.0.0", 80)),
        (settings.listen_address, "[::1]:0", ("::1", 0)),
        (settings.listen_address, "my_hub.jobs:8082", ("my_hub.jobs", 8082)),
        (settings.issuer_identifier, "https://a.example/b c", "https://a.example/b c"),
        (settings.issuer_identifier, "realm-7", "realm-7"),
        (settings.origin, "https://a.example/", "https://a.example"),
        (settings.origin, "https://a.example:443", "https://a.example"),
        (settings.origin, "http://x.localhost:8080", "http://x.localhost:8080"),
        (settings.origin, "http://[::1]:81", "http://[::1]:81"),
        (
            settings.origins,
            "https://a.example, https://b.example",
            ("https://a.example", "https://b.example"),
        ),
    ],
)
def test_valid_values_are_accepted(parse: Any, raw: str, value: Any) -> None:
    assert parse(raw) == value


def test_networks_are_read_from_a_list() -> None:
    assert [str(net) for net in settings.networks("10.0.0.0/8, fd00::/8")] == [
        "10.0.0.0/8",
        "fd00::/8",
    ]


@pytest.mark.parametrize(
    ("parse", "raw"),
    [
        (settings.seconds, "-1"),
        (settings.seconds, "nan"),
        (settings.seconds, "inf"),
        (settings.seconds, "soon"),
        (settings.count(1, 64), "0"),
        (settings.seconds, "1_0"),
        (settings.count(1, 64), "²"),
        (settings.count(1, 64), "٥"),
        (settings.count(1, 64), "5_0"),
        (settings.yes_or_no, "on"),
        (settings.on_or_off, "yes"),
        (settings.listen_address, "localhost:٨٠"),
        (settings.listen_address, "8080"),
        (settings.listen_address, ":8080"),
        (settings.listen_address, "localhost:x"),
        (settings.listen_address, "localhost:70000"),
        (settings.listen_address, "[::1"),
        (settings.listen_address, "[::1:80"),
        (settings.listen_address, "a b:80"),
        (settings.issuer_identifier, "https://[::1"),
        (settings.issuer_identifier, "a\x01b"),
        (settings.networks, "10.0.0.1/8"),
        (settings.networks, "everything"),
        (settings.web_url, "http://apps.example.com"),
        (settings.web_url, "http://localhost.example.com"),
        (settings.web_url, "ftp://localhost"),
        (settings.web_url, "https://user:secret@apps.example.com"),
        (settings.web_url, "https://apps.example.com/?token=x"),
        (settings.web_url, "https://apps.example.com:port"),
        (settings.web_url, "https://"),
        (settings.origin, "https://*.example.com"),
        (settings.origin, "https://a.example.com;frame-ancestors"),
        (settings.origin, "https://a.example.com b.example.com"),
        (settings.origin, "https://apps.example.com/path"),
    ],
)
def test_invalid_values_are_refused(parse: Any, raw: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(raw)


# Key files


def key(size: int = 32) -> str:
    return base64.b64encode(os.urandom(size)).decode()


def test_a_key_file_holds_one_key_a_line(tmp_path: Path) -> None:
    lines = [key(), key(48)]
    path = tmp_path / "keys"
    path.write_text("\n".join(["", *lines, ""]))
    assert settings.key_file(str(path)) == tuple(base64.b64decode(line) for line in lines)


@pytest.mark.parametrize(
    "text",
    [
        "",
        key(31),
        "changeme",
        base64.b64encode(bytes(32)).decode(),
        base64.b64encode(b"secret" * 6).decode(),
        "not base64 at all!",
        f"{key()}\n{key(16)}",
        f"{key()}\nAAAA",
    ],
    ids=["empty", "short", "a word", "zeros", "a word again", "no base64", "one short", "one tiny"],
)
def test_a_short_empty_or_guessable_key_is_refused_without_being_printed(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    environment = Environment({"KEY": str(path)})
    environment.optional("KEY", settings.key_file)
    assert len(environment.problems) == 1
    assert not any(line and line in environment.problems[0] for line in text.split("\n"))


def test_a_duplicate_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("\n".join([key()] * 2))
    with pytest.raises(ValueError, match="twice"):
        settings.key_file(str(path))


def test_a_key_file_that_is_missing_is_a_problem_that_names_the_setting() -> None:
    environment = Environment({"KEY": "/does/not/exist"})
    environment.optional("KEY", settings.key_file)
    assert environment.problems[0].startswith("KEY is wrong")
