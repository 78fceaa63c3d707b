"""Tests the responses at each limit of a gateway with small limits."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shared.bus import Publisher, connect
from tests.gateway.bus.following import published
from tests.gateway.conftest import World
from tests.gateway.http import make_request
from tests.gateway.process import GatewayProcess
from tests.gateway.signing import Signer
from tests.gateway.upstreams import web_app
from tests.programs import RedisServer, redis_program

pytestmark = pytest.mark.asyncio(loop_scope="module")

SMALL = {
    "FUMAROLE_GATEWAY_ADDRESS_OPENS_PER_MINUTE": "6",
    "FUMAROLE_GATEWAY_USER_OPENS_PER_MINUTE": "3",
    "FUMAROLE_GATEWAY_ADDRESS_CHECKS_PER_SECOND": "1",
    "FUMAROLE_GATEWAY_ADDRESS_REFUSALS_PER_SECOND": "1",
    "FUMAROLE_GATEWAY_TRUSTED_PROXIES": "127.0.0.1/32",
    "FUMAROLE_GATEWAY_CONTROLLER_GRACE_SECONDS": "86400",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("limits")
    with RedisServer(redis_program(), folder) as server:
        client = connect(server.url)
        publisher: Publisher = await published(client)
        async with GatewayProcess(folder, server.url, **SMALL) as gateway:
            yield World(gateway, publisher)
        await client.aclose()


async def opened(
    world: World, sid: str, *, source: str, token: str | None = None, **claims: object
) -> tuple[int, str | None, str]:
    """Open *sid* from the address *source*; return status, Retry-After and code."""
    token = token or world.gateway.signer.token(sid, **claims)
    response = await world.gateway.post_token(sid, token, headers={"X-Forwarded-For": source})
    return response.status, response.headers.get("retry-after"), response.text


async def test_an_address_that_opens_too_often_gets_429(world: World) -> None:
    sid = await world.publish(port=1)
    for number in range(6):
        status, _, _ = await opened(world, sid, source="192.0.2.1", sub=f"u{number}")
        assert status == 303
    status, again, text = await opened(world, sid, source="192.0.2.1", sub="u7")
    assert status == 429
    assert "too_many_opens" in text
    assert again is not None
    assert 1 <= int(again) <= 11
    assert (await opened(world, sid, source="192.0.2.2", sub="u8"))[0] == 303


async def test_an_exhausted_address_does_not_block_other_sessions(world: World) -> None:
    source, tried, other = "192.0.2.90", await world.publish(port=1), await world.publish(port=1)
    for _ in range(7):
        status, _, _ = await opened(world, tried, source=source, token="nonsense")
    assert status == 429
    for number in range(3):
        assert (await opened(world, other, source=source, sub=f"neighbour{number}"))[0] == 303
    assert (await opened(world, other, source=source, sub="neighbour4"))[0] == 429
    assert (await opened(world, tried, source=source, sub="neighbour5"))[0] == 429
    assert (await opened(world, "z" * 26, source=source, sub="neighbour6"))[0] == 429


async def test_failed_attempts_count_and_an_ipv6_64_counts_as_one(world: World) -> None:
    sid = await world.publish(port=1)
    for number in range(6):
        source = f"2001:db8:7:7::{number}"
        assert (await opened(world, sid, source=source, token="nonsense"))[0] == 401
    assert (await opened(world, sid, source="2001:db8:7:7:ffff::1"))[0] == 429
    assert (await opened(world, sid, source="2001:db8:7:8::1"))[0] == 303


async def test_a_user_who_opens_too_often_gets_429_and_the_token_is_not_spent(world: World) -> None:
    sid = await world.publish(port=1)
    for number in range(3):
        status, _, _ = await opened(world, sid, source=f"192.0.2.{10 + number}", sub="eager")
        assert status == 303
    token = world.gateway.signer.token(sid, sub="eager")
    status, again, _ = await opened(world, sid, source="192.0.2.13", token=token)
    assert (status, bool(again)) == (429, True)
    # The rate-limited attempt did not spend the token: it is still valid as a bearer token.
    response = await world.gateway.ask(sid, "GET", "/", {"Fumarole-Token": token})
    assert response.status == 502


async def test_a_user_cannot_exhaust_the_limit_of_another(world: World) -> None:
    sid = await world.publish(port=1)
    for number in range(5):
        forged = Signer().token(sid, sub="victim")
        source = f"192.0.2.{20 + number}"
        assert (await opened(world, sid, source=source, token=forged))[0] == 401
    assert (await opened(world, sid, source="192.0.2.30", sub="victim"))[0] == 303


async def test_a_flood_of_tokens_delays_no_other_client(world: World) -> None:
    """Tokens with an invalid signature are checked in the thread, while others are served."""
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        cookie = (
            (await world.gateway.post_token(sid, world.gateway.signer.token(sid)))
            .headers["set-cookie"]
            .partition(";")[0]
        )
        forger = Signer()
        flood = [await world.gateway.connect() for _ in range(40)]
        head = {"Host": world.gateway.host(sid), "X-Forwarded-For": "192.0.2.99"}
        for connection in flood:
            credential = {"Fumarole-Token": forger.token(sid)}
            await connection.send(make_request("GET", "/", head | credential))
        began = time.monotonic()
        response = await world.gateway.ask(sid, "GET", "/", {"Cookie": cookie})
        assert response.status == 200
        assert time.monotonic() - began < 5
        statuses = {(await connection.answer()).status for connection in flood}
        assert statuses <= {401, 429}
        for connection in flood:
            await connection.close()


async def test_an_address_that_is_refused_too_often_gets_429(world: World) -> None:
    """Refusals by the gateway's own pages count as those of the data path do."""
    sid = await world.publish(port=1)
    client = {"X-Forwarded-For": "192.0.2.50"}
    for number in range(10):
        path = "/.fumarole/nothing" if number % 2 else "/"
        assert (await world.gateway.ask(sid, "GET", path, client)).status == 401
    for path in ("/.fumarole/nothing", "/"):
        response = await world.gateway.ask(sid, "GET", path, client)
        assert (response.status, response.headers["retry-after"]) == (429, "1")
        assert "too_many_refusals" in response.text
    other = {"X-Forwarded-For": "192.0.2.51"}
    assert (await world.gateway.ask(sid, "GET", "/", other)).status == 401


async def test_a_gateway_short_of_memory_is_unready_and_sheds_requests(
    tmp_path: Path,
) -> None:
    with RedisServer(redis_program(), tmp_path) as server:
        client = connect(server.url)
        publisher = await published(client)
        settings = {"FUMAROLE_GATEWAY_WORKER_MEMORY_BYTES": str(8 << 20)}
        gateway = GatewayProcess(tmp_path, server.url, **settings)
        try:
            await gateway.start(ready=False)
            sid = await World(gateway, publisher).publish(port=1)
            ready = await gateway.ask_ops("/readyz")
            assert ready.status == 503
            assert "short of memory" in ready.text
            assert (await gateway.ask_ops("/healthz")).status == 200
            response = await gateway.ask(sid, "GET", "/", {})
            assert response.status == 503
            assert "gateway_overloaded" in response.text
            metrics = (await gateway.ask_ops("/metrics")).text
            assert 'fumarole_gateway_shedding{step="requests"} 1.0' in metrics
        finally:
            gateway.kill()
            await client.aclose()


async def test_refusals_are_counted_without_address_label(world: World) -> None:
    metrics = (await world.gateway.ask_ops("/metrics")).text
    assert "192.0.2." not in metrics
    assert "2001:db8" not in metrics
