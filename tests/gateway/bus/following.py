"""Runs a publisher and a follower on a real Redis, with a clock that tests can advance."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from redis.asyncio import Redis

from gateway.bus.follower import Follower
from gateway.bus.head_policy import HeadPolicy, accept_unsigned
from gateway.core.bus_state import Bus, BusClock
from shared.bus import BusReader, Keys, Publisher
from shared.routes.route import RouteReader
from shared.routes.table import RouteTable
from tests.waiting import until

KEYS = Keys("test")
BASE = "apps.example.com"


def sid_of(number: int) -> str:
    """Return a session identifier made from *number*."""
    letters = "abcdefghijklmnopqrstuvwxyz234567"
    text = ""
    for _ in range(26):
        number, digit = divmod(number, 32)
        text += letters[digit]
    return text


ONE, TWO = sid_of(1), sid_of(2)


def held(table: RouteTable | None) -> set[str]:
    """Return the sessions in *table*, which must exist."""
    assert table is not None
    return set(table)


class Unheard(Keys):
    """Keys whose events go to a channel without subscribers, so every follower misses them."""

    def __init__(self, instance: str) -> None:
        super().__init__(instance)
        self.events = "nobody-listens"


def make_route(sid: str, **changes: Any) -> dict[str, Any]:
    """Return a ready web route."""
    route: dict[str, Any] = {
        "sid": sid,
        "rev": 1,
        "job": "j1",
        "rank": 0,
        "kind": "web",
        "owner": "ada",
        "hosts": [f"{sid}.{BASE}"],
        "target": {
            "scheme": "http",
            "host": "127.0.0.1",
            "port": 8888,
            "base_path": "/",
            "id": "pod-1",
        },
        "state": "ready",
        "message": None,
        "expires_at": None,
        "public": False,
        "sealed": None,
    }
    return route | changes


def encode(route: dict[str, Any]) -> bytes:
    """Return *route* encoded as in Redis."""
    return msgspec.json.encode(route)


class Clock:
    """Monotonic seconds that a test can advance."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


class Following:
    """A running follower, and its notifications."""

    def __init__(
        self,
        redis: Redis,
        clock: Clock,
        *,
        grace: float,
        spread: float,
        policy: HeadPolicy | None = None,
    ) -> None:
        self.changes: list[tuple[str, ...] | None] = []
        self.closed = 0
        self.clock = clock
        self.follower = Follower(
            BusReader(redis, KEYS),
            RouteReader(),
            clock=BusClock(bus_grace_seconds=grace, controller_grace_seconds=grace),
            monotonic=clock,
            wall=time.time,
            random=lambda: spread,
            on_change=self._changed,
            on_closed=self._closed,
            policy=policy or accept_unsigned(),
        )

    def _changed(self, sids: Iterable[str] | None) -> None:
        self.changes.append(None if sids is None else tuple(sids))

    def _closed(self) -> None:
        self.closed += 1

    def bus(self) -> Bus:
        """Return the bus state."""
        return self.follower.bus

    def dialling(self) -> bool:
        """Return whether the follower hears the controller."""
        return self.follower.dialling

    def stale(self) -> bool:
        """Return whether the follower has to poll the head before it serves on."""
        return self.follower.stale

    async def until_equal(self, publisher: Publisher) -> None:
        """Wait until the table is at the position of *publisher*."""
        await until(lambda: self.position() == (publisher.epoch, publisher.seq))

    def position(self) -> tuple[str, int]:
        """Return epoch and seq of the table in use."""
        table = self.follower.table
        return (table.epoch, table.seq) if table is not None else ("", -1)


@asynccontextmanager
async def following(
    redis: Redis, *, grace: float = 300.0, spread: float = 0.0, policy: HeadPolicy | None = None
) -> AsyncIterator[Following]:
    """Run a follower."""
    seen = Following(redis, Clock(), grace=grace, spread=spread, policy=policy)
    task = asyncio.create_task(seen.follower.run())
    try:
        yield seen
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def published(redis: Redis, *routes: dict[str, Any], epoch: str = "e1") -> Publisher:
    """Return a publisher that has rebuilt Redis with *routes*."""
    publisher = Publisher(redis, KEYS, term=1)
    await publisher.rebuild(
        {route["sid"]: encode(route) for route in routes}, {}, epoch=epoch, now=time.time()
    )
    return publisher
