"""Provides a publisher with a real Redis and store; the test supplies the cluster's objects."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.spec.accepted import Vault
from controller.sessions.desired import DesiredRoutes
from controller.sessions.gateways import Notices, PublishedRoutes
from controller.sessions.publisher import RoutePublisher
from controller.sessions.service import SessionService
from controller.sessions.session_requests import SessionItem
from controller.store.database import Store
from controller.store.instance import (
    Hub,
    raise_term,
    read_store_metadata,
)
from shared.bus import BusReader, Keys, Publisher
from shared.link import Seal
from tests.clock import Clock
from tests.controller.running import eventually
from tests.controller.samples import make_job, relist

LINK_KEY = os.urandom(32)
HUB = Hub(id="hub-1", host="10.9.0.1", port=8082)
JOB = make_job(
    interactive={
        "lab": {"kind": "web", "port": 8888},
        "desk": {"kind": "vnc", "port": 5900, "password": {"parameter": "p"}},
    },
    parameters={"p": {"type": "secret", "value": "canary"}},
)


@dataclass
class World:
    """A store, an informer cache and a Redis, and the publisher from the first two to Redis."""

    store: Store
    redis: Redis
    clock: Clock
    informer: InformerCache
    publisher: RoutePublisher
    sessions: SessionService
    reader: BusReader
    task: asyncio.Task[None]

    async def open(self, **wanted: Any) -> str:
        (view,) = (await self.sessions.open([SessionItem(job="j1", rank=0, **wanted)])).views
        return view.sid

    async def route(self, sid: str) -> dict[str, Any] | None:
        snapshot = await self.reader.snapshot()
        raw = snapshot.routes.get(sid) if snapshot else None
        return json.loads(raw) if raw else None

    async def until(self, sid: str, check: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            route = await self.route(sid)
            return route if route is not None and check(route) else None

        return await eventually(look, seconds=8.0)

    async def until_ready(self, sid: str) -> dict[str, Any]:
        return await self.until(sid, lambda route: route["state"] == "ready")

    async def until_gone(self, sid: str) -> None:
        async def look() -> bool:
            return await self.route(sid) is None

        await eventually(look, seconds=8.0)

    async def last_removed(self, sid: str) -> dict[str, Any]:
        """Return the session's removal event, as gateways received it."""
        logged: Any = await self.redis.xrevrange(Keys("test").log)
        events = [json.loads(fields[b"event"]) for _, fields in logged]
        (removed,) = [one for one in events if one["type"] == "RouteRemoved" and one["sid"] == sid]
        assert removed["reason"] == "ended"
        status: dict[str, Any] = removed["status"]
        return status

    def show(self, *pods: Any) -> None:
        relist(self.informer.pods, *pods)


class Silent:
    """Wraps the publisher's script: responses are lost, and the calls after them too."""

    def __init__(self, script: Any, answers: list[bool]) -> None:
        self.script = script
        self.answers = answers

    async def __call__(self, **call: Any) -> Any:
        arrives = self.answers.pop(0) if self.answers else None
        if arrives is False:
            raise RedisConnectionError("lost on the way there")
        response = await self.script(**call)
        if arrives:
            raise RedisConnectionError("lost on the way back")
        return response


class Sleep:
    """Records the publisher's sleeps. While *held*, a sleep lasts until it is woken."""

    def __init__(self, *, held: bool = False) -> None:
        self.held = held
        self.asked: list[float] = []
        self._over = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        self._over.clear()
        if self.held:
            await self._over.wait()

    def end(self) -> None:
        """Wake the publisher."""
        self._over.set()

    async def until_asked(self, times: int) -> None:
        """Wait until the publisher has started *times* sleeps."""
        async with asyncio.timeout(8):
            while len(self.asked) < times:
                await asyncio.sleep(0.005)

    async def until_idle(self) -> None:
        """Wait until the publisher has started no sleep for a while."""
        before = -1
        while len(self.asked) != before:
            before = len(self.asked)
            await asyncio.sleep(0.25)


LETTERS = str.maketrans("0189", "abcd")
Start = Callable[[], Awaitable[World]]


@asynccontextmanager
async def publishing(
    store: Store,
    redis: Redis,
    clock: Clock,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[World]:
    enqueue: list[Callable[[str], None]] = []
    informer = InformerCache(None, instance="test", changed=lambda job: [w(job) for w in enqueue])  # type: ignore[arg-type]  # no cluster here
    async with store.write() as transaction:
        term = await raise_term(transaction)
        revision = (await read_store_metadata(transaction)).revision
    if meanwhile is not None:
        await meanwhile()
    keys = Keys("test")
    publisher = RoutePublisher(
        store=store.fenced(term),
        bus=Publisher(redis, keys, term=term),
        desired=DesiredRoutes(
            store.fenced(term),
            informer=informer,
            vault=Vault([LINK_KEY]),
            base_domain="apps.example.com",
            rank_services=False,
            positions={},
        ),
        seal=Seal(LINK_KEY),
        clock=clock,
        random=os.urandom,
        revision=revision,
        monotonic=monotonic,
        sleep=sleep,
    )
    enqueue.append(publisher.job_changed)
    published = PublishedRoutes(BusReader(redis, keys), lambda: publisher)
    sessions = SessionService(
        store=store,
        base_domain="apps.example.com",
        clock=clock,
        random=os.urandom,
        states_of=published.states_of,
        until_published=published.until_published,
        enqueue=publisher.enqueue,
        tell=Notices(redis, keys).tell,
    )
    task = asyncio.create_task(publisher.run())
    try:
        yield World(
            store, redis, clock, informer, publisher, sessions, BusReader(redis, keys), task
        )
    finally:
        task.cancel()
        await asyncio.wait([task])
