"""Tests the readiness of a gateway with route keys while the controller does not sign."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.bus import Publisher, connect
from shared.jose.signing_keys import public_key_set
from tests.gateway.bus.following import (
    KEYS,
    ONE,
)
from tests.gateway.bus.signing import KEY, leading, routes
from tests.gateway.process import GatewayProcess
from tests.programs import RedisServer, redis_program


@pytest.fixture
def route_keys(tmp_path: Path) -> Path:
    path = tmp_path / "route-keys.json"
    path.write_text(json.dumps(public_key_set([KEY])))
    return path


@asynccontextmanager
async def gateway_process(
    tmp_path: Path, url: str, keys: Path, workers: int = 1
) -> AsyncIterator[GatewayProcess]:
    gateway = GatewayProcess(
        tmp_path,
        url,
        FUMAROLE_GATEWAY_ROUTE_KEYS=str(keys),
        FUMAROLE_GATEWAY_WORKERS=str(workers),
    )
    try:
        await gateway.start(ready=False)
        yield gateway
    finally:
        gateway.kill()


async def until_ready_says(gateway: GatewayProcess, what: str) -> None:
    """Wait until readiness reports *what*; with an empty *what*, until the gateway is ready."""
    async with asyncio.timeout(20):
        while True:
            ready = await gateway.ask_ops("/readyz")
            if what in ready.text and (ready.status == 200) == (not what):
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("workers", [1, 2])
async def test_route_keys_set_before_the_controller_signs_are_reported_by_readiness(
    tmp_path: Path, route_keys: Path, workers: int
) -> None:
    with RedisServer(redis_program(), tmp_path) as server:
        client = connect(server.url)
        try:
            unsigned = Publisher(client, KEYS, term=1)
            await unsigned.rebuild(routes(ONE), {}, epoch="e1", now=time.time())
            async with gateway_process(tmp_path, server.url, route_keys, workers) as gateway:
                await until_ready_says(gateway, "FUMAROLE_CONTROLLER_BUS_SIGNING_KEY_FILE")
                assert (await gateway.ask(ONE, "GET", "/")).status == 503
                await leading(client, ONE, term=2, epoch="e2")
                await until_ready_says(gateway, "")
                body = json.loads((await gateway.ask_ops("/debug/routes")).text)
                assert (body["epoch"], body["states"]["ready"]) == ("e2", 1)
        finally:
            await client.aclose()
