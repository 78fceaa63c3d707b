"""Tests that the Redis in memory behaves as a real one for any sequence of operations."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

from redis.asyncio import Redis

from shared.bus import BusReader, Keys, Publisher, connect
from shared.errors import PublishRefused
from shared.events import GrantRevoked, event_time
from tests.gateway.bus.following import encode, make_route, sid_of
from tests.programs import RedisServer
from tests.protocol.memory import Client, Server

KEYS = Keys("test")
NOW = 1_800_000_000.0


class Pair:
    """A publisher and a reader on one server."""

    def __init__(self, client: Any) -> None:
        self.publishers = {term: Publisher(client, KEYS, term=term) for term in (1, 2)}
        self.reader = BusReader(client, KEYS)

    async def do(self, term: int, what: str, number: int) -> str:
        """Do one operation, and return its result."""
        bus, sid = self.publishers[term], sid_of(number)
        calls: dict[str, Any] = {
            "upsert": lambda: bus.upsert(sid, encode(make_route(sid)), now=NOW),
            "remove": lambda: bus.remove(sid, "ended", now=NOW),
            "revoke": lambda: bus.revoke(at=NOW + number, sid=sid, sub="ada"),
            "beat": lambda: bus.beat(now=NOW),
            "again": lambda: self._again(bus, sid),
            "forget": lambda: self._forget(bus),
            "follow": lambda: self._follow(bus),
            "notice": lambda: bus.notice(
                GrantRevoked(epoch="-", seq=0, at=event_time(NOW), sid=sid)
            ),
            "rebuild": lambda: bus.rebuild(
                {sid: encode(make_route(sid))}, {"kid:k": NOW}, epoch=f"e{number}", now=NOW
            ),
        }
        try:
            await calls[what]()
        except PublishRefused as refused:
            return refused.reason
        return "done"

    async def _again(self, bus: Publisher, sid: str) -> None:
        """Lose a reply, and send the request once more."""
        await bus.upsert(sid, encode(make_route(sid)), now=NOW)
        bus.seq -= 1
        await bus.upsert(sid, encode(make_route(sid)), now=NOW)

    async def _forget(self, bus: Publisher) -> None:
        bus.seq = max(0, bus.seq - 1)

    async def _follow(self, bus: Publisher) -> None:
        head = await bus.head()
        if head is not None:
            bus.follow(head)

    async def state(self) -> Any:
        """Return all data that a gateway could read."""
        snapshot = await self.reader.snapshot()
        if snapshot is None:
            return None
        part = await self.reader.log_after(0)
        mark = await self.reader.mark_used("t", "open", kept_until=NOW + 60, now=NOW)
        head = snapshot.head
        place = (head.epoch, head.seq, head.term, head.build, head.routes, head.revoked)
        return place, snapshot.routes, snapshot.revoked, part.events, mark.before, mark.sure


async def test_the_in_memory_redis_responds_like_a_real_one(
    redis: Redis, redis_server: RedisServer
) -> None:
    whats = ["upsert", "remove", "revoke", "beat", "again", "forget", "follow", "notice", "rebuild"]
    other = connect(redis_server.url)
    for seed in range(12):
        await redis.flushall()
        random = Random(seed)
        real, made = Pair(other), Pair(cast(Any, Client(Server(Random(0)))))
        done = []
        for _ in range(60):
            one = (random.choice((1, 1, 2)), random.choice(whats), random.randint(1, 4))
            done.append(one)
            assert await made.do(*one) == await real.do(*one), (seed, done)
            assert await made.state() == await real.state(), (seed, done)
    await other.aclose()


async def test_messages_reach_subscribers() -> None:
    pair = Pair(cast(Any, Client(Server(Random(0)))))
    async with pair.reader.subscribe() as messages:
        await pair.do(1, "rebuild", 1)
        await pair.do(1, "upsert", 2)
        await pair.do(1, "notice", 2)
        received = [await asyncio.wait_for(anext(messages), 5) for _ in range(3)]
    assert [
        b"Heartbeat" in received[0],
        b"RouteUpserted" in received[1],
        b"GrantRevoked" in received[2],
    ] == [True] * 3
