"""Tests the key source: keys rotate without a restart, and the last good set outlives failures."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from shared.jose.jwks import MAX_BYTES, REFRESH_SECONDS, UNKNOWN_KID_SECONDS, KeySource, key_source
from tests.clock import Clock
from tests.gateway.relay.authorities import Authority, server_context
from tests.shared.samples import SIGNERS, Signer, key_set_of

OLD, NEW = SIGNERS["EdDSA"], SIGNERS["ES256"]


class Issuer:
    """Serves a key set, and counts its requests."""

    def __init__(self) -> None:
        self.answer = web.Response(body=key_set_of(OLD))
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def handle(self, _request: web.Request) -> web.StreamResponse:
        self.asked += 1
        await self.may_answer.wait()
        return web.Response(
            body=self.answer.body, status=self.answer.status, headers=self.answer.headers
        )

    def serve(self, *signers: Signer) -> None:
        self.answer = web.Response(body=key_set_of(*signers))


@pytest.fixture
async def issuer(aiohttp_server: AiohttpServer) -> tuple[Issuer, str]:
    issuer = Issuer()
    app = web.Application()
    app.router.add_get("/keys", issuer.handle)
    server = await aiohttp_server(app)
    return issuer, str(server.make_url("/keys"))


async def test_an_unknown_kid_fetches_the_keys_at_most_every_ten_seconds(
    issuer: tuple[Issuer, str],
) -> None:
    served, url = issuer
    clock = Clock()
    source = KeySource(url, clock=clock)
    assert OLD.kid in await source.keys_for(OLD.kid)
    served.serve(NEW, OLD)
    assert NEW.kid not in await source.keys_for(NEW.kid)
    clock.now += UNKNOWN_KID_SECONDS
    found = await asyncio.gather(*(source.keys_for(NEW.kid) for _ in range(50)))
    # Also the callers that arrived during the request.
    assert all(NEW.kid in keys for keys in found)
    assert set(source.keys) == {OLD.kid, NEW.kid}
    assert served.asked == 2
    await source.keys_for(OLD.kid)
    assert served.asked == 2


async def test_a_cancelled_caller_does_not_cancel_the_fetch_for_others(
    issuer: tuple[Issuer, str],
) -> None:
    served, url = issuer
    source = KeySource(url, clock=Clock())
    served.may_answer.clear()
    leaves = asyncio.create_task(source.keys_for(OLD.kid))
    async with asyncio.timeout(30):
        while not served.asked:
            await asyncio.sleep(0.01)
    stays = asyncio.create_task(source.keys_for(OLD.kid))
    await asyncio.sleep(0)
    leaves.cancel()
    await asyncio.wait([leaves])
    assert leaves.cancelled()
    served.may_answer.set()
    # The next request is allowed after ten seconds only.
    assert OLD.kid in await stays
    assert OLD.kid in await source.keys_for(OLD.kid)
    assert served.asked == 1


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_the_last_good_set_is_kept_while_the_source_is_down(
    issuer: tuple[Issuer, str], status: int
) -> None:
    served, url = issuer
    clock = Clock()
    source = KeySource(url, clock=clock)
    await source.keys_for(OLD.kid)
    served.answer = web.Response(status=status, headers={"Location": "/elsewhere"}, body=b"{}")
    clock.now += REFRESH_SECONDS
    assert set(await source.keys_for("other")) == {OLD.kid}


async def test_a_removed_key_is_unknown_after_the_next_fetch(issuer: tuple[Issuer, str]) -> None:
    served, url = issuer
    clock = Clock()
    source = KeySource(url, clock=clock)
    await source.keys_for(OLD.kid)
    served.serve(NEW)
    clock.now += UNKNOWN_KID_SECONDS
    assert set(await source.keys_for(NEW.kid)) == {NEW.kid}


@pytest.mark.usefixtures("strict_by_default")
async def test_a_private_issuer_may_have_an_authority_without_key_identifiers(
    aiohttp_server: AiohttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, issuer, app = Authority(tmp_path, "ours"), Issuer(), web.Application()
    app.router.add_get("/keys", issuer.handle)
    server = await aiohttp_server(app, ssl=server_context(authority.vouch("127.0.0.1")))
    url = str(server.make_url("/keys"))
    assert not await KeySource(url, clock=Clock()).keys_for(OLD.kid)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    assert OLD.kid in await KeySource(url, clock=Clock()).keys_for(OLD.kid)


async def test_a_key_set_over_one_mebibyte_is_refused(issuer: tuple[Issuer, str]) -> None:
    served, url = issuer
    served.answer = web.Response(body=key_set_of(OLD) + b" " * MAX_BYTES)
    assert not await KeySource(url, clock=Clock()).keys_for(OLD.kid)


async def test_a_key_set_file_is_read_again(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys.json", Clock()
    source = KeySource(str(path), clock=clock)
    assert not await source.keys_for(OLD.kid)
    path.write_bytes(key_set_of(OLD))
    clock.now += UNKNOWN_KID_SECONDS
    assert set(await source.keys_for(OLD.kid)) == {OLD.kid}


async def test_keys_are_fetched_at_start(issuer: tuple[Issuer, str]) -> None:
    source = KeySource(issuer[1], clock=Clock())
    task = asyncio.create_task(source.keep_fresh())
    async with asyncio.timeout(5):
        while not source.keys:
            await asyncio.sleep(0.01)
    task.cancel()


def test_plain_http_is_allowed_only_for_loopback() -> None:
    assert key_source("http://127.0.0.1:1/keys")
    assert key_source("/etc/fumarole/jwks.json")
    with pytest.raises(ValueError, match="loopback"):
        key_source("http://cloud.example.com/keys")
