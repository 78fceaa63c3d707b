"""Tests Redis over TLS from both sides of the bus: trust, and the reasons for failures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.bus import BusReader, Keys, Publisher, connect
from shared.errors import BusUnavailable
from shared.events import RouteUpserted, decode_event
from tests.redis_tls import Authority, TlsRedis, tls_redis
from tests.shared.samples import SID, encode, make_route

pytestmark = pytest.mark.needs("redis-tls")

KEYS = Keys("test")
ROUTE = encode(make_route())


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[TlsRedis]:
    async with tls_redis(tmp_path, "test") as server:
        yield server


async def refusal(url: str) -> str:
    """Return the error message for a Redis that cannot be used."""
    client = connect(url)
    try:
        with pytest.raises(BusUnavailable) as refused:
            await BusReader(client, KEYS).head()
        return str(refused.value)
    finally:
        await client.aclose()


async def publish_and_follow(publishing: str, following: str) -> None:
    """Publish a table, an event and a mark, and read them, each as its own user."""
    client, other = connect(publishing), connect(following)
    try:
        publisher, reader = Publisher(client, KEYS, term=1), BusReader(other, KEYS)
        await publisher.rebuild({}, {}, epoch="e1", now=time.time())
        async with reader.subscribe() as messages:
            await publisher.upsert(SID, ROUTE, now=time.time())
            async with asyncio.timeout(20):
                event = decode_event(await anext(messages))
        assert isinstance(event, RouteUpserted)
        snapshot = await reader.snapshot()
        assert snapshot is not None
        assert set(snapshot.routes) == {SID}
        mark = await reader.mark_used("t", "open", kept_until=time.time() + 60, now=time.time())
        assert (mark.before, mark.sure) == (None, True)
    finally:
        await client.aclose()
        await other.aclose()


async def test_controller_and_gateway_connect_as_their_users(server: TlsRedis) -> None:
    await publish_and_follow(server.url("controller"), server.url("gateway"))


@pytest.mark.usefixtures("strict_by_default")
async def test_an_authority_without_key_identifiers_is_trusted(server: TlsRedis) -> None:
    await publish_and_follow(server.url("controller"), server.url("gateway"))


async def test_the_client_certificate_is_named_in_the_url(tmp_path: Path) -> None:
    async with tls_redis(tmp_path, "test", clients_show=True) as server:
        pair = server.authority.make("fumarole")
        urls = (server.url(user, pair=pair) for user in ("controller", "gateway"))
        await publish_and_follow(*urls)
        await refusal(server.url("gateway"))


async def test_an_untrusted_server_receives_nothing_and_the_reason_is_reported(
    server: TlsRedis, tmp_path: Path
) -> None:
    others = Authority(tmp_path / "others")
    said = await refusal(server.url("gateway", authority=others))
    assert "its certificate is not trusted: " in said
    said = await refusal(server.url("gateway", host="localhost"))
    assert "its certificate is not trusted: Hostname mismatch" in said


async def test_a_file_that_cannot_be_used_is_named(server: TlsRedis, tmp_path: Path) -> None:
    absent, empty = tmp_path / "absent.pem", tmp_path / "empty.pem"
    empty.touch()
    url = server.url("gateway")
    authorities = str(server.authority.file)
    said = await refusal(url.replace(authorities, str(absent)))
    assert said == f"Redis did not answer: {absent} cannot be used: No such file or directory"
    assert f"{empty} cannot be used: " in await refusal(url.replace(authorities, str(empty)))
    said = await refusal(server.url("gateway", pair=(absent, empty)))
    assert f"{absent} or {empty} cannot be used: " in said


async def test_a_wrong_password_is_reported_without_being_printed(server: TlsRedis) -> None:
    said = await refusal(server.url("gateway", password="canary-8f2c"))
    assert said == "Redis did not answer: it does not take this user with this password"


async def test_over_tls_a_gateway_must_not_write_the_table(server: TlsRedis) -> None:
    client = connect(server.url("gateway"))
    with pytest.raises(BusUnavailable, match="may not"):
        await Publisher(client, KEYS, term=1).rebuild({SID: ROUTE}, {}, epoch="e1", now=time.time())
    await client.aclose()


async def test_a_tls_redis_is_not_reachable_without_tls(server: TlsRedis) -> None:
    url = server.url("gateway").replace("rediss:", "redis:").partition("?")[0]
    assert "canary" not in await refusal(url)
