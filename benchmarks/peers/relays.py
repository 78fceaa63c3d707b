"""Relays in Python: a plain aiohttp relay, and the minimal one."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from benchmarks.peers import Ground, Peer, Proxy, free_port, proxy_of


@asynccontextmanager
async def _start(name: str, module: str, ground: Ground) -> AsyncIterator[Proxy]:
    port = free_port()
    command = [sys.executable, "-m", f"benchmarks.peers.{module}"]
    command += [str(port), str(ground.backend.port)]
    async with proxy_of(name, ground, command, port) as proxy:
        yield proxy


def _aiohttp(ground: Ground) -> AbstractAsyncContextManager[Proxy]:
    return _start("aiohttp", "aiohttp_relay", ground)


def _bare(ground: Ground) -> AbstractAsyncContextManager[Proxy]:
    return _start("protocol", "protocol_relay", ground)


AIOHTTP = Peer(
    name="aiohttp",
    label="aiohttp handler and client",
    program="python",
    start=_aiohttp,
    notes="uvloop; how such a gateway is usually begun in Python",
)
PROTOCOL = Peer(
    name="protocol",
    label="bare `asyncio.Protocol` relay",
    program="python",
    start=_bare,
    notes="uvloop; reads nothing and asks nobody: the floor in Python",
)
