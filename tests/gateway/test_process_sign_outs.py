"""Tests that a gateway sends its pending sign-outs to the controller before it exits."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from tests.gateway.bus.following import KEYS
from tests.gateway.conftest import rebuilt, world_of
from tests.gateway.process import GatewayProcess
from tests.programs import RedisServer, redis_program


async def test_a_sign_out_is_sent_before_shutdown(tmp_path: Path) -> None:
    with RedisServer(redis_program(), tmp_path) as server:
        await rebuilt(server.url)
        async with GatewayProcess(tmp_path, server.url) as gateway, world_of(gateway) as world:
            sid = await world.publish()
            cookie = await gateway.open(sid, jti="t1")
            redis = world.publisher._redis
            await redis.client_pause(1500, all=False)
            sent = {"Cookie": cookie, "Origin": gateway.origin(sid), "Accept": "application/json"}
            response = await gateway.ask(sid, "POST", "/.fumarole/sign-out", sent)
            assert (response.status, '"everywhere": false' in response.text) == (200, True)
            gateway.signal(signal.SIGTERM)
            assert await gateway.wait() == 0
            await asyncio.sleep(1)
            found = await redis.xrange(KEYS.asks) or []
            # At least once.
            assert {(fields or {}).get(b"jti") for _, fields in found} == {b"t1"}
