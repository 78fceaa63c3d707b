"""Tests that a missing or bad setting ends the process with all problems listed and exit code 2."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.contract.process import ROOT
from tests.contract.rig import make_settings
from tests.contract.tokens import Orchestrator

REQUIRED = (
    "FUMAROLE_LINK_KEY_FILE",
    "FUMAROLE_GATEWAY_PUBLIC_URL",
    "FUMAROLE_GATEWAY_TOKEN_ISSUER",
    "FUMAROLE_GATEWAY_TOKEN_JWKS",
    "FUMAROLE_GATEWAY_GRANT_KEY_FILE",
    "FUMAROLE_GATEWAY_UPSTREAM_NETWORKS",
)


async def ended(settings: dict[str, str]) -> tuple[int | None, str]:
    """Return exit code and output of a gateway that must not start."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [sys.executable, "-m", "gateway"]
    try:
        done = await asyncio.to_thread(
            warm.run, command, cwd=ROOT, env=environment | settings, seconds=60.0
        )
    except subprocess.TimeoutExpired:
        return None, "it started"
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def good(tmp_path: Path) -> dict[str, str]:
    """Return settings with which a gateway starts (its Redis may come later)."""
    return make_settings(tmp_path, Orchestrator(), f"unix://{tmp_path}/redis.sock")


async def test_all_missing_settings_are_listed_together() -> None:
    code, output = await ended({})
    assert code == 2
    assert [name for name in REQUIRED if name not in output] == []
    assert "Traceback" not in output


@pytest.mark.parametrize("name", REQUIRED)
async def test_each_missing_required_setting_is_named(good: dict[str, str], name: str) -> None:
    code, output = await ended({key: value for key, value in good.items() if key != name})
    assert code == 2
    assert name in output
    assert [other for other in REQUIRED if other != name and other in output] == []


# Bad values by setting: each of them alone is wrong.
BAD = {
    "FUMAROLE_GATEWAY_PUBLIC_URL": (
        "http://apps.example.com", "ftp://localhost", "https://apps.example.com/?x", "apps",
        "https://user:pw@apps.example.com",
    ),
    "FUMAROLE_GATEWAY_TOKEN_JWKS": ("http://keys.example.com/jwks", "ftp://keys.example.com/jwks"),
    "FUMAROLE_GATEWAY_UPSTREAM_NETWORKS": ("10.0.0.0/8,nonsense", "10.0.0.1/8", "10.0.0.0/33"),
    "FUMAROLE_GATEWAY_TRUSTED_PROXIES": ("nonsense", "10.0.0.0/8;11.0.0.0/8"),
    "FUMAROLE_GATEWAY_LISTEN": ("nonsense", "127.0.0.1:70000", "127.0.0.1:", "8080"),
    "FUMAROLE_GATEWAY_OPS_LISTEN": ("127.0.0.1", "127.0.0.1:http"),
    "FUMAROLE_GATEWAY_OPEN_ORIGINS": ("https://a.example/path", "a.example", "null"),
    "FUMAROLE_GATEWAY_EMBED_ORIGINS": ("*", "https://*.example", "https://a.example;x"),
    "FUMAROLE_GATEWAY_BUS_GRACE_SECONDS": ("soon", "-1", "nan", "inf"),
    "FUMAROLE_GATEWAY_CONTROLLER_GRACE_SECONDS": ("-1", "5m"),
    "FUMAROLE_GATEWAY_WORKERS": ("0", "-1", "1.5", "many"),
    "FUMAROLE_GATEWAY_ROUTE_KEYS": ("/nonexistent/keys.json",),
    "FUMAROLE_GATEWAY_TLS_CERT_FILE": ("/nonexistent/cert.pem",),
    "FUMAROLE_LINK_KEY_FILE": ("/nonexistent/link.key",),
    "FUMAROLE_GATEWAY_GRANT_KEY_FILE": ("/nonexistent/grant.key",),
}  # fmt: skip


@pytest.mark.parametrize("turn", range(5))
async def test_all_invalid_settings_are_listed_together(good: dict[str, str], turn: int) -> None:
    wrong = {name: values[turn] for name, values in BAD.items() if turn < len(values)}
    code, output = await ended(good | wrong)
    assert code == 2
    assert {name: value for name, value in wrong.items() if name not in output} == {}
    assert [name for name in REQUIRED if name not in wrong and name in output] == []
    assert "Traceback" not in output


KEYS = {
    "short": base64.b64encode(secrets.token_bytes(31)),
    "zeros": base64.b64encode(bytes(32)),
    "one byte again and again": base64.b64encode(b"a" * 32),
    "no base64": b"not base64 at all, however long it may be!",
    "empty": b"",
    "one good, one short": base64.b64encode(secrets.token_bytes(32)) + b"\nc2hvcnQ=",
}


@pytest.mark.parametrize("what", KEYS)
async def test_a_weak_key_is_refused_without_being_printed(good: dict[str, str], what: str) -> None:
    names = ("FUMAROLE_GATEWAY_GRANT_KEY_FILE", "FUMAROLE_LINK_KEY_FILE")
    for name in names:
        Path(good[name]).write_bytes(KEYS[what] + b"\n")
    code, output = await ended(good)
    assert code == 2
    assert [name for name in names if name not in output] == []
    assert not any(line and line.decode() in output for line in KEYS[what].split(b"\n"))


async def test_one_key_for_two_uses_is_refused(good: dict[str, str]) -> None:
    link = Path(good["FUMAROLE_LINK_KEY_FILE"]).read_bytes()
    grant = Path(good["FUMAROLE_GATEWAY_GRANT_KEY_FILE"])
    for text in (link, grant.read_bytes() + link):
        grant.write_bytes(text)
        code, output = await ended(good)
        assert code == 2
        assert "KEY_FILE" in output
        assert link.decode().strip() not in output
