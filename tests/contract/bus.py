"""Publishes as the controller does, by docs/proxy-events.md, with plain Redis commands."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from redis.asyncio import Redis

REVOKED_SECONDS = 86400


class Raw:
    """A text that stands in an event unchanged, whether it is JSON or not."""

    def __init__(self, text: str) -> None:
        self.text = text


def encode(value: Any) -> str:
    """Return *value* as JSON, with each Raw unchanged."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{encode(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)


class Bus:
    """Keeps routes and revocations in Redis, and announces each change.

    It keeps a copy of the desired state, so that tests can empty Redis and fill it again. It can
    also produce every fault of the contract: ``change`` without ``announce`` is a lost message,
    ``announce`` without ``change`` is a false message.
    """

    def __init__(self, redis: Redis, instance: str) -> None:
        self.redis = redis
        self.instance = instance
        self.epoch = secrets.token_hex(8)
        self.seq = 0
        self.term = 1
        self.routes: dict[Any, Any] = {}
        self.revoked: dict[str, float] = {}
        self.sign: Callable[[dict[str, Any]], str] | None = None
        self._turn = asyncio.Lock()

    def key(self, name: str) -> str:
        """Return the Redis key *name* of this instance."""
        return f"fumarole:{{{self.instance}}}:{name}"

    # The controller's operations

    async def rebuild(self, *, since: float | None = None, epoch: str | None = None) -> None:
        """Write the whole desired state under a new epoch, and announce the epoch."""
        async with self._turn:
            self.epoch, self.seq = epoch or secrets.token_hex(8), 0
            pipe = self.redis.pipeline(transaction=True)
            pipe.delete(*(self.key(name) for name in ("routes", "revoked", "log", "head")))
            if self.routes:
                pipe.hset(self.key("routes"), mapping={**self.routes})
            if self.revoked:
                pipe.zadd(self.key("revoked"), dict(self.revoked))
            pipe.hset(self.key("head"), mapping=self._head(since))
            pipe.publish(self.key("events"), encode(self.event("Heartbeat")))
            await pipe.execute()

    async def upsert(self, sid: str, route: dict[str, Any] | str | Raw) -> dict[str, Any]:
        """Publish *route*: an object, a string if it is signed, or any text."""
        if self.sign is not None and isinstance(route, dict):
            route = self.sign(route)
        async with self._turn:
            event = await self.change("RouteUpserted", sid=sid, route=route)
            return await self.announce(event)

    async def remove(self, sid: str, reason: str = "the job ended") -> dict[str, Any]:
        """Remove the route of *sid*."""
        async with self._turn:
            return await self.announce(await self.change("RouteRemoved", sid=sid, reason=reason))

    async def revoke(self, **what: str) -> dict[str, Any]:
        """Publish a GrantRevoked: for a sid with jti or sub, for a sid alone, or for a kid."""
        async with self._turn:
            return await self.announce(await self.change("GrantRevoked", **what))

    async def is_used(self, jti: str) -> bool:
        """Return whether a gateway has marked the token *jti* as used."""
        return bool(await self.redis.exists(self.key(f"used:{jti}")))

    async def beat(self) -> None:
        """Publish a Heartbeat."""
        async with self._turn:
            await self.announce(self.event("Heartbeat"))

    def event(self, kind: str, *, seq: int | None = None, **fields: Any) -> dict[str, Any]:
        """Return an event in the contract's format."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        shell = {"v": 1, "epoch": self.epoch, "seq": self.seq if seq is None else seq, "at": at}
        return {**shell, "type": kind, **fields}

    async def change(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Change the data in Redis, and return the event without publishing it."""
        self.seq += 1
        event = self.event(kind, **fields)
        pipe = self.redis.pipeline(transaction=True)
        match kind:
            case "RouteUpserted":
                text = encode(fields["route"])
                self.routes[fields["sid"]] = text
                pipe.hset(self.key("routes"), fields["sid"], text)
            case "RouteRemoved":
                self.routes.pop(fields["sid"], None)
                pipe.hdel(self.key("routes"), fields["sid"])
            case "GrantRevoked":
                member, score = _revocation(fields), time.time() + REVOKED_SECONDS
                self.revoked[member] = score
                pipe.zadd(self.key("revoked"), {member: score})
        pipe.hset(self.key("head"), mapping=self._head())
        pipe.xadd(self.key("log"), {"event": encode(event)}, id=f"{self.seq}-0")
        await pipe.execute()
        return event

    async def announce(self, event: dict[str, Any]) -> dict[str, Any]:
        """Publish the event to all subscribers."""
        await self.redis.publish(self.key("events"), encode(event))
        return event

    def _head(self, since: float | None = None) -> dict[Any, Any]:
        head: dict[Any, Any] = {"epoch": self.epoch, "seq": self.seq, "term": self.term}
        head |= {"routes": len(self.routes), "revoked": len(self.revoked)}
        return head | ({} if since is None else {"since": int(since)})


def _revocation(fields: dict[str, Any]) -> str:
    if "kid" in fields:
        return f"kid:{fields['kid']}"
    if "jti" in fields:
        return f"jti:{fields['jti']}"
    if "sub" in fields:
        return f"sub:{fields['sid']}:{fields['sub']}"
    return f"all:{fields['sid']}"
