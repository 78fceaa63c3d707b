"""Fixtures: one gateway process for each test worker, and fakes around it for each test."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from shared.bus import Publisher, connect
from shared.routes.statuses import Status
from tests.gateway.bus.following import KEYS, encode, make_route, published, sid_of
from tests.gateway.process import GatewayProcess
from tests.programs import RedisServer, redis_program

_numbers = itertools.count(1)


class World:
    """A running gateway, and a publisher that plays the controller."""

    def __init__(self, gateway: GatewayProcess, publisher: Publisher) -> None:
        self.gateway = gateway
        self.publisher = publisher

    async def publish(self, *, port: int = 1, **changes: Any) -> str:
        """Publish a new session whose app is at *port*; return its sid."""
        sid = sid_of(next(_numbers) * 1_000_003)
        await self.change(sid, port=port, **changes)
        return sid

    async def change(self, sid: str, *, port: int = 1, **changes: Any) -> None:
        """Publish *sid* again with these changes."""
        target = {
            "scheme": {"web": "http", "vnc": "tcp", "terminal": "ws"}[changes.get("kind", "web")],
            "host": "127.0.0.1",
            "port": port,
            "base_path": "/",
            "id": "pod-1",
            **changes.pop("target", {}),
        }
        hosts = [f"{sid}.apps.localhost", *changes.pop("links", [])]
        route = make_route(sid, hosts=hosts, target=target, **changes)
        await self.publisher.upsert(sid, encode(route), now=time.time())
        await self.settled()

    async def remove(self, sid: str, status: Status | None = None) -> None:
        """Publish the end of *sid* and its cause."""
        await self.publisher.remove(sid, "ended", now=time.time(), status=status)
        await self.settled()

    async def revoke(self, **what: str) -> None:
        """Publish a revocation."""
        await self.publisher.revoke(at=time.time(), **what)
        await self.settled()

    async def settled(self) -> None:
        """Wait until the gateway has applied everything that was published."""
        async with asyncio.timeout(5):
            while True:
                state = (await self.gateway.ask_ops("/debug/routes")).text
                if f'"seq": {self.publisher.seq},' in state and self.publisher.epoch in state:
                    return
                await asyncio.sleep(0.005)


@pytest.fixture(scope="session")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Provide a gateway that no test may harm."""
    with running_gateway(tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


@contextmanager
def running_gateway(folder: Path, **settings: str) -> Iterator[GatewayProcess]:
    """Run a gateway, and a Redis with an empty table."""
    with RedisServer(redis_program(), folder) as server:
        asyncio.run(rebuilt(server.url))
        gateway = GatewayProcess(
            folder,
            server.url,
            FUMAROLE_GATEWAY_CONTROLLER_GRACE_SECONDS="86400",
            FUMAROLE_GATEWAY_ORCHESTRATOR_URL="https://cloud.example.org/jobs/{job}?from={sid}",
            **settings,
        )
        try:
            asyncio.run(gateway.start())
            yield gateway
        finally:
            gateway.kill()


async def rebuilt(url: str) -> None:
    client = connect(url)
    await published(client)
    await client.aclose()


@pytest.fixture
async def world(shared_gateway: GatewayProcess) -> AsyncIterator[World]:
    """Provide the shared gateway with a publisher of this test's own."""
    async with world_of(shared_gateway) as world:
        yield world


@asynccontextmanager
async def world_of(gateway: GatewayProcess) -> AsyncIterator[World]:
    """Return a world of *gateway* with a publisher."""
    client = connect(gateway.settings["FUMAROLE_REDIS_URL"])
    publisher = Publisher(client, KEYS, term=1)
    head = await publisher.head()
    assert head is not None
    publisher.follow(head)
    yield World(gateway, publisher)
    await client.aclose()
