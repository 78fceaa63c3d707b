"""Tests the command line: help, version, check and errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared.runtime.process import settings_from_command
from shared.version import VERSION
from tests import warm

ROOT = Path(__file__).parents[3]
PROGRAMS = ("gateway", "controller")


def run(module: str, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    known = {k: v for k, v in os.environ.items() if not k.startswith("FUMAROLE_")}
    command = [sys.executable, "-m", module, *arguments]
    return warm.run(command, cwd=ROOT, env=known | settings)


@pytest.mark.parametrize("module", PROGRAMS)
def test_the_version_is_printed_without_settings(module: str) -> None:
    done = run(module, "--version")
    assert (done.returncode, done.stdout) == (0, f"fumarole-{module} {VERSION}\n")


@pytest.mark.parametrize("module", PROGRAMS)
def test_help_names_the_page_that_lists_the_settings(module: str) -> None:
    done = run(module, "--help")
    assert done.returncode == 0
    page = done.stdout.partition("environment: ")[2].split()[0]
    text = (ROOT / page).read_text()
    assert f"FUMAROLE_{module.upper()}_LISTEN" in text


@pytest.mark.parametrize("module", PROGRAMS)
def test_a_check_lists_every_problem_and_starts_nothing(module: str) -> None:
    done = run(module, "--check", FUMAROLE_INSTANCE="Not A Name", FUMAROLE_GATEWAY_TOKEN_ISUER="x")
    assert done.returncode == 2
    assert not done.stdout
    problems = [one for one in done.stderr.splitlines() if one.startswith("error: ")]
    assert len(problems) > 2
    assert any("FUMAROLE_INSTANCE" in one for one in problems)
    if module == "gateway":
        # The hint adds to the problem and does not replace it: the name is misspelt.
        assert "error: FUMAROLE_GATEWAY_TOKEN_ISSUER is not set" in problems
        assert "TOKEN_ISUER is no setting; FUMAROLE_GATEWAY_TOKEN_ISSUER is one" in done.stderr


def test_a_check_of_valid_settings_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        settings_from_command("x", lambda: 1, summary="", reference="", arguments=["--check"])
    assert end.value.code == 0
    assert capsys.readouterr().out == "the settings are good\n"
    assert settings_from_command("x", lambda: 7, summary="", reference="", arguments=[]) == 7


def test_an_unknown_argument_exits_with_2() -> None:
    with pytest.raises(SystemExit) as end:
        settings_from_command("x", lambda: 1, summary="", reference="", arguments=["--port"])
    assert end.value.code == 2
