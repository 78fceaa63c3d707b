"""Tests that a sign-out at one gateway reaches another, through controller and Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from redis.asyncio import Redis

from deploy.local.cluster import EmbeddedCluster
from shared.bus import connect
from tests.controller.running import Controller, running
from tests.gateway.process import GatewayProcess
from tests.programs import RedisServer

pytestmark = pytest.mark.timeout(300)

INSTANCE = "sign-outs"
PATH = "/.fumarole/sign-out"
WAIT_SECONDS = 60.0


@asynccontextmanager
async def two_gateways(
    folder: Path, redis_url: str
) -> AsyncIterator[tuple[Controller, GatewayProcess, GatewayProcess]]:
    """Run a controller and two gateways with the same keys."""
    (folder / "two").mkdir()
    one = GatewayProcess(folder, redis_url, FUMAROLE_INSTANCE=INSTANCE)
    two = GatewayProcess(
        folder / "two",
        redis_url,
        FUMAROLE_INSTANCE=INSTANCE,
        FUMAROLE_LINK_KEY_FILE=one.settings["FUMAROLE_LINK_KEY_FILE"],
        FUMAROLE_GATEWAY_GRANT_KEY_FILE=one.settings["FUMAROLE_GATEWAY_GRANT_KEY_FILE"],
        FUMAROLE_GATEWAY_TOKEN_JWKS=one.settings["FUMAROLE_GATEWAY_TOKEN_JWKS"],
    )
    async with EmbeddedCluster() as cluster:
        controller = Controller(
            folder / "controller",
            kubeconfig=cluster.kubeconfig("controller"),
            redis_url=redis_url,
            instance=INSTANCE,
            FUMAROLE_LINK_KEY_FILE=one.settings["FUMAROLE_LINK_KEY_FILE"],
            FUMAROLE_CONTROLLER_PUBLIC_URL=one.settings["FUMAROLE_GATEWAY_PUBLIC_URL"],
        )
        async with running(controller), one, two:
            yield controller, one, two


async def state(gateway: GatewayProcess, sid: str, cookie: str) -> int:
    """Return the status for the cookie, or 0 if its right ended during the request."""
    with suppress(ConnectionError, EOFError):
        response = await gateway.ask(sid, "GET", "/.fumarole/state", {"Cookie": cookie})
        return response.status
    return 0


async def sign_out(gateway: GatewayProcess, sid: str, cookie: str) -> None:
    sent = {"Cookie": cookie, "Origin": gateway.origin(sid)}
    response = await gateway.ask(sid, "POST", PATH, sent)
    assert response.status == 200, response


async def measured(folder: Path, redis_server: RedisServer, times: int) -> list[float]:
    """Return the seconds until the other gateway knew each of *times* sign-outs."""
    found: list[float] = []
    async with two_gateways(folder, redis_server.url) as (controller, one, two):
        await controller.submit("j1")
        sid = await controller.open("j1", kind="terminal")
        for gateway in (one, two):
            async with asyncio.timeout(WAIT_SECONDS):
                while (await gateway.ask(sid, "GET", "/.fumarole/state")).status != 401:
                    await asyncio.sleep(0.05)
        for number in range(times):
            cookie = await one.open(sid, kind="terminal", sub=f"user-{number % 50}")
            assert await state(two, sid, cookie) == 200
            began = time.monotonic()
            await sign_out(one, sid, cookie)
            assert await state(one, sid, cookie) == 401
            async with asyncio.timeout(WAIT_SECONDS):
                while await state(two, sid, cookie) != 401:
                    await asyncio.sleep(0.005)
            found.append(time.monotonic() - began)
        redis: Redis = connect(redis_server.url)
        # A gateway that starts now learns all of them from Redis alone.
        assert await redis.zcard(f"fumarole:{{{INSTANCE}}}:revoked") == times
        await redis.aclose()
    return sorted(found)


async def test_a_sign_out_reaches_another_gateway(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    assert len(await measured(tmp_path, redis_server, 3)) == 3


@pytest.mark.long
async def test_each_of_fifty_sign_outs_is_applied_within_a_second(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    # As many as one session may have in a minute.
    found = await measured(tmp_path, redis_server, 50)
    print(f"median {found[25]:.3f} s, worst {found[-1]:.3f} s")
    assert found[-1] <= 1.0
