"""Tests assertion keys: reloaded from a file that is rotated in place, served without a grant."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from prometheus_client import CollectorRegistry, generate_latest

from gateway.assertion_keys import AssertionKeyFile
from shared.bus import Publisher, connect
from tests.gateway.bus.following import published, sid_of
from tests.gateway.conftest import World
from tests.gateway.process import ROOT, GatewayProcess
from tests.gateway.test_tls import replace
from tests.gateway.upstreams import web_app
from tests.programs import RedisServer, redis_program

DOCS = (ROOT / "docs" / "session-token.md").read_text()
NOBODYS = "a" * 26
ISSUER = "http://apps.localhost:18080"


def pem() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def rest(keys: AssertionKeyFile) -> None:
    """Poll the file as often as it must stay unchanged after a change."""
    keys.look(keys.look(False))


def kids(jwks: bytes) -> list[str]:
    return [member["kid"] for member in json.loads(jwks)["keys"]]


def test_a_new_key_file_is_loaded_and_an_invalid_one_keeps_the_last_valid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, old, new = tmp_path / "keys.pem", pem(), pem()
    path.write_bytes(old)
    keys = AssertionKeyFile(path, issuer=ISSUER)
    (first,) = kids(keys.assertions.jwks)
    replace(path, old + new)
    rest(keys)
    assert kids(keys.assertions.jwks)[0] == first
    assert len(kids(keys.assertions.jwks)) == 2
    for bad in (b"", old[: len(old) // 2], b"secret"):
        replace(path, bad)
        rest(keys)
    path.unlink()
    rest(keys)
    assert len(kids(keys.assertions.jwks)) == 2
    assert (keys.reloads, keys.failures) == (1, 4)
    assert "secret" not in caplog.text
    replace(path, new)
    rest(keys)
    assert first not in kids(keys.assertions.jwks)
    registry = CollectorRegistry()
    registry.register(keys)
    exported = generate_latest(registry).decode()
    assert 'fumarole_gateway_assertion_key_reloads_total{result="taken"} 2.0' in exported
    assert "fumarole_gateway_assertions_signed_total 0.0" in exported


def printed(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway.assertion_keys", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_public_keys_are_printed_for_apps_without_a_network(tmp_path: Path) -> None:
    path = tmp_path / "keys.pem"
    path.write_bytes(pem())
    done = printed(str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.encode().strip() == AssertionKeyFile(path, issuer="x").assertions.jwks
    path.write_bytes(b"secret")
    refused = printed(str(path))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "secret" not in refused.stderr
    assert printed().returncode == 2


# A running gateway


@pytest.fixture
async def asserting(tmp_path: Path) -> AsyncIterator[World]:
    """Provide a gateway that signs assertions."""
    key_file = tmp_path / "keys.pem"
    key_file.write_bytes(pem())
    with RedisServer(redis_program(), tmp_path) as server:
        client = connect(server.url)
        publisher: Publisher = await published(client)
        gateway = GatewayProcess(
            tmp_path, server.url, FUMAROLE_GATEWAY_ASSERTION_KEY_FILE=str(key_file)
        )
        try:
            await gateway.start()
            yield World(gateway, publisher)
        finally:
            gateway.kill()
            await client.aclose()


def documented() -> Callable[..., str]:
    """Return the function that the docs show to app developers."""
    (code,) = re.findall(r"```python\n(import jwt.*?)```", DOCS, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/session-token.md", "exec"), names)
    user_of: Callable[..., str] = names["user_of"]
    return user_of


async def test_an_app_verifies_an_assertion_as_documented(asserting: World) -> None:
    user_of = documented()
    async with web_app() as app:
        sid = await asserting.publish(port=app.port)
        cookie = await asserting.gateway.open(sid, sub="ada lövelace")
        sent = {"Cookie": cookie, "Fumarole-Assertion": "root"}
        for _ in range(20):
            assert (await asserting.gateway.ask(sid, "GET", "/", sent)).status == 200
        (value,) = re.findall(rb"\r\nFumarole-Assertion: (\S+)\r\n", app.heads[-1])
        served = await asserting.gateway.ask(NOBODYS, "GET", "/.fumarole/jwks.json")
        keys = jwt.PyJWKSet.from_json(served.text)
        good = {"keys": keys, "issuer": ISSUER, "job": "j1"}
        assert user_of(value.decode(), **good) == "ada lövelace"
        for wrong in ({"issuer": "http://other.localhost"}, {"job": "j2"}):
            with pytest.raises(jwt.InvalidTokenError):
                user_of(value.decode(), **(good | wrong))
        other = jwt.PyJWKSet.from_json(printed_keys(pem(), asserting.gateway.folder))
        with pytest.raises(jwt.InvalidTokenError):
            user_of(value.decode(), **(good | {"keys": other}))
        metrics = (await asserting.gateway.ask_ops("/metrics")).text
        assert "fumarole_gateway_assertions_signed_total 1.0" in metrics


def printed_keys(content: bytes, folder: Path) -> str:
    path = folder / "other.pem"
    path.write_bytes(content)
    return printed(str(path)).stdout


async def test_the_public_keys_are_served_without_credential_on_every_session_host(
    asserting: World,
) -> None:
    sid = await asserting.publish(port=1, state="starting")
    for host in (sid, NOBODYS):
        got = await asserting.gateway.ask(host, "GET", "/.fumarole/jwks.json")
        assert (got.status, got.headers["content-type"]) == (200, "application/jwk-set+json")
        assert got.headers["cache-control"] == "public, max-age=300"
        assert len(kids(got.body)) == 1
        assert b'"d"' not in got.body
    bad = {"Cookie": "fumarole=x", "Origin": "https://evil.example"}
    assert (await asserting.gateway.ask(sid, "GET", "/.fumarole/jwks.json", bad)).status == 200
    posted = await asserting.gateway.ask(sid, "POST", "/.fumarole/jwks.json")
    assert (posted.status, posted.headers["allow"]) == (405, "GET, HEAD")
    beside = await asserting.gateway.ask(sid, "GET", "/.fumarole/jwks.json/x")
    assert beside.status == 401


async def test_a_rotation_needs_no_restart(asserting: World) -> None:
    path = Path(asserting.gateway.settings["FUMAROLE_GATEWAY_ASSERTION_KEY_FILE"])
    replace(path, path.read_bytes() + pem())
    async with asyncio.timeout(30):
        while True:
            got = await asserting.gateway.ask(sid_of(1), "GET", "/.fumarole/jwks.json")
            if len(kids(got.body)) == 2:
                break
            await asyncio.sleep(0.1)


async def test_without_a_key_no_assertion_and_no_key_set_is_served(world: World) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        cookie = await world.gateway.open(sid)
        sent = {"Cookie": cookie, "Fumarole-Assertion": "root"}
        assert (await world.gateway.ask(sid, "GET", "/", sent)).status == 200
        assert b"assertion" not in app.heads[-1].lower()
        path = "/.fumarole/jwks.json"
        assert (await world.gateway.ask(sid, "GET", path, {"Cookie": cookie})).status == 404
        assert (await world.gateway.ask(NOBODYS, "GET", path)).status == 404
