"""Tests that readiness gives the reason when the gateway does not trust Redis' certificate."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from shared.bus import Publisher, connect
from tests.gateway.bus.following import KEYS
from tests.gateway.process import GatewayProcess
from tests.redis_tls import Authority, tls_redis

pytestmark = pytest.mark.needs("redis-tls")


async def until_said(gateway: GatewayProcess, *words: str) -> None:
    """Wait until readiness contains all of *words*."""
    while True:
        state = (await gateway.ask_ops("/readyz")).text
        if all(word in state for word in words):
            return
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_an_untrusted_redis_is_reported_until_it_is_trusted(
    tmp_path: Path, workers: str
) -> None:
    async with tls_redis(tmp_path, "test") as server:
        client = connect(server.url("controller"))
        await Publisher(client, KEYS, term=1).rebuild({}, {}, epoch="e1", now=time.time())
        await client.aclose()
        others = Authority(tmp_path / "others")
        url = server.url("gateway", authority=others)
        gateway = GatewayProcess(tmp_path, url, FUMAROLE_GATEWAY_WORKERS=workers)
        try:
            await gateway.start(ready=False)
            await until_said(
                gateway, "no route table could be read yet", "not trusted: self-signed"
            )
            # Authorities are read with each connection, so they can be renewed meanwhile.
            others.file.write_bytes(server.authority.file.read_bytes())
            await until_said(gateway, '"ok"')
        finally:
            gateway.kill()
        assert server.passwords["gateway"] not in gateway.log()
