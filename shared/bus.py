"""Redis between controller and gateways: where the route table lives and its events travel.

A :class:`Publisher` changes the table and announces the change in one script, which refuses when
Redis holds anything else than the publisher believes. A :class:`BusReader` reads the head, takes
snapshots, subscribes, and marks tokens as used. docs/proxy-events.md is the contract.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.errors import BusUnavailable, PublishRefused
from shared.events import (
    GrantRevoked,
    Head,
    Heartbeat,
    RouteRemoved,
    RouteUpserted,
    event_time,
)

HEARTBEAT_SECONDS: Final = 2.0
LOG_LENGTH: Final = 16384
CALL_SECONDS: Final = 5.0
_PIECE: Final = 1000


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of one installation's keys; all are in one slot of a Redis Cluster."""

    instance: str

    def _key(self, name: str) -> str:
        return f"fumarole:{{{self.instance}}}:{name}"

    @property
    def routes(self) -> str:
        """Hash: sid to route."""
        return self._key("routes")

    @property
    def revoked(self) -> str:
        """Sorted set of revocations."""
        return self._key("revoked")

    @property
    def head(self) -> str:
        """Hash: where the table stands."""
        return self._key("head")

    @property
    def log(self) -> str:
        """Stream of the last events."""
        return self._key("log")

    @property
    def events(self) -> str:
        """The channel."""
        return self._key("events")

    def used(self, jti: str) -> str:
        """How a token was first used."""
        return self._key(f"used:{jti}")


def connect(url: str) -> Redis:
    """Return a client of the Redis at *url*; nothing is sent yet.

    RESP2, since RESP3 begins with HELLO, which the gateways' Redis user need not be allowed.
    """
    return Redis.from_url(
        url, socket_timeout=CALL_SECONDS, socket_connect_timeout=CALL_SECONDS, protocol=2
    )


def parse_head(fields: Mapping[bytes, bytes]) -> Head | None:
    """Return the head in the fields of its hash; None where it is missing or no head."""
    values: dict[str, Any] = {name.decode(): value.decode() for name, value in fields.items()}
    try:
        return msgspec.convert(values, Head, strict=False)
    except msgspec.ValidationError:
        return None


# The publisher's side

# KEYS: routes, revoked, head, log. ARGV: epoch, seq, term, channel, verb, field, value, event.
# Nothing is written unless Redis holds exactly what the publisher last saw. A head that is one
# ahead is this publisher's own call whose answer was lost: it is not done again.
_PUBLISH = """
local head = redis.call('HMGET', KEYS[3], 'epoch', 'seq', 'term', 'routes', 'revoked')
if not head[1] then return 'missing' end
local seq, term = tonumber(ARGV[2]), tonumber(ARGV[3])
if tonumber(head[3]) > term then return 'term' end
if head[1] ~= ARGV[1] then return 'epoch' end
if redis.call('HLEN', KEYS[1]) ~= tonumber(head[4])
  or redis.call('ZCARD', KEYS[2]) ~= tonumber(head[5]) then return 'counts' end
local verb = ARGV[5]
if verb == 'beat' then
  if tonumber(head[2]) ~= seq then return 'seq' end
  local dropped = redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. ARGV[7])
  if dropped > 0 then redis.call('HINCRBY', KEYS[3], 'revoked', -dropped) end
else
  if tonumber(head[2]) == seq + 1 then return 'done' end
  if tonumber(head[2]) ~= seq then return 'seq' end
  if verb == 'upsert' then redis.call('HSET', KEYS[1], ARGV[6], ARGV[7])
  elseif verb == 'remove' then redis.call('HDEL', KEYS[1], ARGV[6])
  else redis.call('ZADD', KEYS[2], 'GT', ARGV[7], ARGV[6]) end
  redis.call('HSET', KEYS[3], 'seq', seq + 1, 'term', term,
    'routes', redis.call('HLEN', KEYS[1]), 'revoked', redis.call('ZCARD', KEYS[2]))
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[9], (seq + 1) .. '-0', 'event', ARGV[8])
end
redis.call('PUBLISH', ARGV[4], ARGV[8])
return 'done'
"""

# KEYS: routes, revoked, head, log, routes:next, revoked:next.
# ARGV: term, channel, event, routes, revoked, then the fields of the new head.
_SWAP = """
local term = redis.call('HGET', KEYS[3], 'term')
if term and tonumber(term) > tonumber(ARGV[1]) then return 'term' end
if redis.call('HLEN', KEYS[5]) ~= tonumber(ARGV[4])
  or redis.call('ZCARD', KEYS[6]) ~= tonumber(ARGV[5]) then return 'counts' end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
if redis.call('EXISTS', KEYS[5]) == 1 then redis.call('RENAME', KEYS[5], KEYS[1]) end
if redis.call('EXISTS', KEYS[6]) == 1 then redis.call('RENAME', KEYS[6], KEYS[2]) end
redis.call('HSET', KEYS[3], unpack(ARGV, 6))
redis.call('PUBLISH', ARGV[2], ARGV[3])
return 'done'
"""


class Publisher:
    """Changes the table in Redis, one call at a time, as the leader of *term*.

    After :class:`PublishRefused` nothing was written: with reason ``term`` another publisher
    leads and this one must stop; with any other it must :meth:`rebuild`. After
    :class:`BusUnavailable` the same call may be made again and has its effect once.
    """

    def __init__(self, redis: Redis, keys: Keys, *, term: int) -> None:
        self._redis = redis
        self._keys = keys
        self._lock = asyncio.Lock()
        self._publish = redis.register_script(_PUBLISH)
        self._swap = redis.register_script(_SWAP)
        self.term = term
        self.epoch = ""
        self.seq = 0

    async def head(self) -> Head | None:
        """Return the head in Redis.

        Raises:
            BusUnavailable: If Redis does not answer.
        """
        return await _head(self._redis, self._keys)

    def follow(self, head: Head) -> None:
        """Go on from *head*, which fits what this publisher knows."""
        self.epoch, self.seq = head.epoch, head.seq

    async def upsert(self, sid: str, route: bytes, *, now: float) -> None:
        """Publish that the route of *sid* is now *route* (JSON)."""
        async with self._lock:
            event = RouteUpserted(
                epoch=self.epoch,
                seq=self.seq + 1,
                at=event_time(now),
                sid=sid,
                route=msgspec.Raw(route),
            )
            await self._change("upsert", sid, route, event.encode())

    async def remove(self, sid: str, reason: str, *, now: float) -> None:
        """Publish that the session *sid* has ended."""
        async with self._lock:
            event = RouteRemoved(
                epoch=self.epoch, seq=self.seq + 1, at=event_time(now), sid=sid, reason=reason
            )
            await self._change("remove", sid, b"", event.encode())

    async def revoke(
        self,
        *,
        at: float,
        sid: str | None = None,
        jti: str | None = None,
        sub: str | None = None,
        kid: str | None = None,
    ) -> None:
        """Publish a revocation that happened *at* (unix seconds)."""
        async with self._lock:
            event = GrantRevoked(
                epoch=self.epoch,
                seq=self.seq + 1,
                at=event_time(at),
                sid=sid,
                jti=jti,
                sub=sub,
                kid=kid,
            )
            entry = event.revocation()
            await self._change("revoke", entry.member, repr(entry.score).encode(), event.encode())

    async def beat(self, *, now: float) -> None:
        """Publish that nothing changed, and find out whether Redis still holds what it should."""
        async with self._lock:
            event = Heartbeat(epoch=self.epoch, seq=self.seq, at=event_time(now))
            await self._call("beat", "", repr(now).encode(), event.encode())

    async def rebuild(
        self,
        routes: Mapping[str, bytes],
        revoked: Mapping[str, float],
        *,
        epoch: str,
        now: float,
        since: float | None = None,
    ) -> None:
        """Replace everything in Redis by *routes* and *revoked* under the new *epoch*.

        Args:
            routes: Each session's route as JSON.
            revoked: Members and scores of the revoked set.
            epoch: A fresh random name.
            now: Unix seconds.
            since: When this epoch replaces one that was lost: the time of the loss's discovery.

        Raises:
            PublishRefused: ``term`` when another publisher leads by now.
            BusUnavailable: If Redis does not answer.
        """
        async with self._lock:
            pending = [f"{self._keys.routes}:next", f"{self._keys.revoked}:next"]
            with _translated():
                await self._redis.delete(*pending)
                for piece in _pieces(routes.items()):
                    await self._hset(pending[0], dict(piece))
                for piece in _pieces(revoked.items()):
                    await self._redis.zadd(pending[1], dict(piece))
            await self._finish(pending, (len(routes), len(revoked)), epoch, now, since)
            self.epoch, self.seq = epoch, 0

    async def _finish(
        self,
        pending: list[str],
        counts: tuple[int, int],
        epoch: str,
        now: float,
        since: float | None,
    ) -> None:
        keys = self._keys
        beat = Heartbeat(epoch=epoch, seq=0, at=event_time(now)).encode()
        head: list[str | int] = ["epoch", epoch, "seq", 0, "term", self.term]
        head += ["routes", counts[0], "revoked", counts[1]]
        head += ["since", repr(since)] if since is not None else []
        names = [keys.routes, keys.revoked, keys.head, keys.log, *pending]
        with _translated():
            answer = await self._swap(
                keys=names, args=[self.term, keys.events, beat, *counts, *head]
            )
        _expect_done(answer)

    async def _hset(self, key: str, fields: Mapping[str, bytes]) -> None:
        await self._redis.hset(key, items=[part for item in fields.items() for part in item])

    async def _change(self, verb: str, field: str, value: bytes, event: bytes) -> None:
        await self._call(verb, field, value, event)
        self.seq += 1

    async def _call(self, verb: str, field: str, value: bytes, event: bytes) -> None:
        keys = self._keys
        args: list[str | int | bytes] = [
            self.epoch,
            self.seq,
            self.term,
            keys.events,
            verb,
            field,
            value,
            event,
            LOG_LENGTH,
        ]
        with _translated():
            answer = await self._publish(
                keys=[keys.routes, keys.revoked, keys.head, keys.log], args=args
            )
        _expect_done(answer)


def _expect_done(answer: bytes | str) -> None:
    word = answer.decode() if isinstance(answer, bytes) else answer
    if word != "done":
        raise PublishRefused(word)


def _pieces(items: Iterable[tuple[str, Any]]) -> Iterable[list[tuple[str, Any]]]:
    piece: list[tuple[str, Any]] = []
    for item in items:
        piece.append(item)
        if len(piece) == _PIECE:
            yield piece
            piece = []
    if piece:
        yield piece


# The gateway's side


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The table as one server held it at one moment."""

    head: Head
    routes: Mapping[str, bytes]
    revoked: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Mark:
    """How a token was used before (None: never), and the head at that moment."""

    before: str | None
    head: Head | None


class BusReader:
    """Reads the table and its changes; writes nothing but the marks of used tokens."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    async def head(self) -> Head | None:
        """Return the head, None where there is none.

        Raises:
            BusUnavailable: If Redis does not answer.
        """
        return await _head(self._redis, self._keys)

    async def snapshot(self) -> Snapshot | None:
        """Return the whole table, read in one transaction; None where there is no head.

        Raises:
            BusUnavailable: If Redis does not answer.
        """
        with _translated():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.hgetall(self._keys.head)
                pipe.hgetall(self._keys.routes)
                pipe.zrange(self._keys.revoked, 0, -1, withscores=True)
                fields, routes, revoked = await pipe.execute()
        head = parse_head(fields)
        if head is None:
            return None
        return Snapshot(
            head,
            {sid.decode(): route for sid, route in routes.items()},
            {member.decode(): float(score) for member, score in revoked},
        )

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """Subscribe, wait for the confirmation, and give the messages as they come.

        Whatever is published after this has been entered is among them, as long as the
        connection holds.

        Raises:
            BusUnavailable: On entering or while iterating, if the connection is lost.
        """
        pubsub = self._redis.pubsub()
        try:
            with _translated():
                await pubsub.subscribe(self._keys.events)
                confirmation = await pubsub.get_message(timeout=CALL_SECONDS)
            if confirmation is None or confirmation["type"] != "subscribe":
                raise BusUnavailable("the subscription was not confirmed")
            yield _messages(pubsub)
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call]  # redis leaves it untyped

    async def mark_used(self, jti: str, use: str, *, kept_until: float, now: float) -> Mark:
        """Mark *jti* as used, unless it has been; return how it was and the head, in one step.

        Args:
            jti: The token's identifier.
            use: ``open`` or ``bearer``.
            kept_until: Unix seconds until which the mark is kept.
            now: Unix seconds.

        Raises:
            BusUnavailable: If Redis does not answer; the mark may have been made.
        """
        kept_seconds = max(1, int(kept_until - now + 0.999))
        with _translated():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.set(self._keys.used(jti), use, nx=True, get=True, ex=kept_seconds)
                pipe.hgetall(self._keys.head)
                before, fields = await pipe.execute()
        return Mark(before.decode() if before is not None else None, parse_head(fields))


async def _messages(pubsub: Any) -> AsyncIterator[bytes]:
    while True:
        with _translated():
            message = await pubsub.get_message(timeout=1.0)
        if message is not None and message["type"] == "message":
            yield message["data"]


async def _head(redis: Redis, keys: Keys) -> Head | None:
    with _translated():
        fields: Any = await redis.hgetall(keys.head)
    return parse_head(fields)


class _translated:  # noqa: N801  # reads as a statement
    """Turns what redis raises into BusUnavailable, without what was sent.

    And lets no cancellation be lost: redis sends with ``asyncio.wait_for``, which before Python
    3.12 returns as if nothing had happened when it is cancelled just as it is done.
    """

    def __enter__(self) -> None:
        self._cancelling = _cancel_requests()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if _cancel_requests() > self._cancelling and not isinstance(error, asyncio.CancelledError):
            raise asyncio.CancelledError from error
        if isinstance(error, RedisError | OSError | TimeoutError):
            raise BusUnavailable(f"Redis did not answer: {type(error).__name__}") from error


def _cancel_requests() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
