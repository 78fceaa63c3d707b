"""The gateways' side of the bus: reads the head, the log and the table; marks tokens as used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError

from shared.bus.connection import check_master, is_sharded
from shared.bus.keys import CALL_SECONDS, LOG_LENGTH, Keys, bytes_of, text_of
from shared.bus.translation import translated
from shared.errors import BusUnavailable, MalformedEvent, SnapshotRefused
from shared.events import (
    Event,
    GrantRevoked,
    Head,
    RouteRemoved,
    RouteUpserted,
    decode_event,
)

LOG_PART: Final = 250
"""The maximum number of events in one read of the log."""
_IN_ONE_PIECE: Final = 500
"""A table of up to this size is read in one transaction, a larger one in pages. Of the longest
routes that is half of what a response may have."""
_PAGE: Final = 500


def parse_head(fields: Mapping[bytes, bytes]) -> Head | None:
    """Return the head in the fields of its hash; None if it is missing or malformed."""
    values: dict[str, Any] = {text_of(name): text_of(value) for name, value in fields.items()}
    try:
        return msgspec.convert(values, Head, strict=False)
    except msgspec.ValidationError:
        return None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent copy of the table."""

    head: Head
    routes: Mapping[str, bytes]
    revoked: Mapping[str, float]
    passed_unknown: bool = False
    """Whether it may lack the effect of an event of an unknown version or type."""


@dataclass(frozen=True, slots=True)
class LogPart:
    """The head, and the events after a ``seq`` that the log holds, read in one transaction."""

    head: Head | None
    events: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """The earlier use of a token (None: never), and the head, read in one transaction.

    ``sure`` is false if the head's epoch began on another Redis process than the one that
    responded: that process may have lost earlier marks.
    """

    before: str | None
    head: Head | None
    sure: bool = True


@dataclass(frozen=True, slots=True)
class ServedHead:
    """The head, and the ``run_id`` of the Redis process that responded."""

    head: Head | None
    run_id: str

    @property
    def is_where_it_began(self) -> bool:
        """Whether the head's epoch began on this Redis process."""
        return self.head is None or not self.head.moved


def _served_head(fields: Mapping[bytes, bytes], info: Mapping[str, Any]) -> ServedHead:
    """Return the head in *fields* and the process that *info* describes.

    Raises:
        BusUnavailable: If the process is a replica.
    """
    if info.get("role", "master") != "master":
        raise BusUnavailable("a replica answered")
    run_id, head = str(info.get("run_id", "")), parse_head(fields)
    if head is not None:
        # Overwrites a field ``moved`` in Redis, too.
        head = msgspec.structs.replace(head, moved=head.server not in (None, run_id))
    return ServedHead(head, run_id)


class BusReader:
    """Reads the table and its changes; writes nothing but marks of used tokens.

    Responses of a replica are refused, since a replica may lag.
    """

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    async def head(self) -> Head | None:
        """Return the head; None if there is none."""
        with translated():
            await check_master(self._redis)
        return (await read_served_head(self._redis, self._keys)).head

    async def log_after(self, seq: int, *, most: int = LOG_PART) -> LogPart:
        """Return the head and at most *most* events after *seq*, read in one transaction.

        The log may have dropped the first of them: the caller must check the first ``seq``.
        """
        with translated():
            fields, entries, info = await _of_one_moment(
                self._redis,
                self._keys,
                lambda pipe: pipe.xrange(self._keys.log, min=f"({seq}-0", count=most),
            )
            events = (content.get(b"event") for _, content in entries)
            found = tuple(bytes_of(event) for event in events if event is not None)
            return LogPart(_served_head(fields, info).head, found)

    async def snapshot(self, check_head: Callable[[Head], None] | None = None) -> Snapshot | None:
        """Return a consistent copy of the table; None if there is no head.

        A large table is read in pages, to which the events from the meantime are applied. One
        response of many megabytes would block both Redis and the loop.

        Args:
            check_head: Raises if the table of a head need not be read.

        Raises:
            BusUnavailable: If Redis does not respond.
            SnapshotRefused: If the table changed too much during the read, or is larger than its
                head says.
        """
        head = (await read_served_head(self._redis, self._keys)).head
        if head is None:
            return None
        if check_head is not None:
            check_head(head)
        if head.routes + head.revoked <= _IN_ONE_PIECE:
            return await self._in_one_piece()
        with translated():
            routes = await self._pages(self._redis.hscan, self._keys.routes, head.routes)
            revoked = await self._pages(self._redis.zscan, self._keys.revoked, head.revoked)
            scores = {member: float(at) for member, at in revoked.items()}
            table = _Paged(head, {sid: bytes_of(raw) for sid, raw in routes.items()}, scores)
        while await self._bring_up(table):
            pass
        return Snapshot(table.head, table.routes, table.revoked, table.passed_unknown)

    async def _in_one_piece(self) -> Snapshot | None:
        with translated():
            fields, routes, revoked, info = await _of_one_moment(
                self._redis,
                self._keys,
                lambda pipe: pipe.hgetall(self._keys.routes),
                lambda pipe: pipe.zrange(self._keys.revoked, 0, -1, withscores=True),
            )
            head = _served_head(fields, info).head
            if head is None:
                return None
            return Snapshot(
                head,
                {text_of(sid): bytes_of(route) for sid, route in routes.items()},
                {text_of(member): float(score) for member, score in revoked},
            )

    async def _pages(self, scan: Any, key: str, expected: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        cursor = 0
        # If more is added during the read than the log holds, the pages cannot be used anyway.
        most = expected + 2 * LOG_LENGTH
        while True:
            cursor, page = await scan(key, cursor, count=_PAGE)
            found.update((text_of(name), value) for name, value in dict(page).items())
            if not cursor:
                return found
            if len(found) > most:
                raise SnapshotRefused("the table is far larger than its head says")

    async def _bring_up(self, table: _Paged) -> bool:
        """Apply the log after the table's seq; return whether there may be more."""
        part = await self.log_after(table.head.seq)
        if part.head is None or part.head.epoch != table.head.epoch:
            raise SnapshotRefused("another epoch began while the table was read")
        for raw in part.events:
            table.apply(raw)
        behind = part.head.seq - table.seq
        if behind < 0 or (behind > 0 and not part.events):
            raise SnapshotRefused("the log does not hold what happened while the table was read")
        table.head = part.head if behind == 0 else table.head_at_seq()
        return behind > 0

    async def routes_of(self, sids: Collection[str]) -> dict[str, bytes]:
        """Return the routes of those of *sids* that have one; a replica may respond."""
        names = list(sids)
        with translated():
            found: list[Any] = await self._redis.hmget(self._keys.routes, names) if names else []
            pairs = zip(names, found, strict=True)
            return {sid: bytes_of(raw) for sid, raw in pairs if raw is not None}

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """Subscribe, wait for the confirmation, and yield an iterator of messages.

        It has every message published after the context was entered, until the connection fails.

        Raises:
            BusUnavailable: On entering or while iterating, if the connection is lost.
        """
        sharded = is_sharded(self._redis)
        pubsub = self._redis.pubsub()
        try:
            with translated():
                await (pubsub.ssubscribe if sharded else pubsub.subscribe)(self._keys.events)
                confirmation = await pubsub.get_message(timeout=CALL_SECONDS)
                if confirmation is None or not confirmation["type"].endswith("subscribe"):
                    raise BusUnavailable("the subscription was not confirmed")
            yield _messages(pubsub)
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call]  # redis leaves it untyped

    async def mark_used(self, jti: str, use: str, *, kept_until: float, now: float) -> Mark:
        """Mark *jti* as used unless it is; return its earlier use and the head, atomically.

        Args:
            jti: The token's identifier.
            use: ``open`` or ``bearer``.
            kept_until: Unix seconds until which the mark is kept.
            now: Unix seconds.

        Raises:
            BusUnavailable: If Redis does not respond; the mark may have been set.
        """
        kept_seconds = max(1, int(kept_until - now + 0.999))
        with translated():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.set(self._keys.used(jti), use, nx=True, get=True, ex=kept_seconds)
                pipe.hgetall(self._keys.head)
                pipe.info("server", "replication")
                before, fields, info = await pipe.execute()
            served = _served_head(fields, info)
            use_before = None if before is None else text_of(before)
        return Mark(use_before, served.head, served.is_where_it_began)


@dataclass(slots=True)
class _Paged:
    """A table that was read in pages, to which the events since its head are applied.

    Later pages already contain some of these changes; applying a change again has no effect.
    """

    head: Head
    routes: dict[str, bytes]
    revoked: dict[str, float]
    passed_unknown: bool = False
    seq: int = -1

    def __post_init__(self) -> None:
        self.seq = self.head.seq

    def apply(self, raw: bytes) -> None:
        """Apply the event *raw*, which must be the next one."""
        event: Event
        try:
            event = decode_event(raw)
        except MalformedEvent as error:
            raise SnapshotRefused(f"the log holds a malformed event: {error}") from error
        if (event.epoch, event.seq) != (self.head.epoch, self.seq + 1):
            raise SnapshotRefused("the log has a gap after the head of the table")
        self.seq = event.seq
        match event:
            case RouteUpserted(sid=sid, route=route):
                self.routes[sid] = bytes(route)
            case RouteRemoved(sid=sid):
                self.routes.pop(sid, None)
            case GrantRevoked():
                entry = event.revocation()
                self.revoked[entry.member] = max(entry.score, self.revoked.get(entry.member, 0.0))
            case _:
                self.passed_unknown = True

    def head_at_seq(self) -> Head:
        """Return the head at the last applied event."""
        return msgspec.structs.replace(self.head, seq=self.seq)


async def read_served_head(redis: Redis, keys: Keys) -> ServedHead:
    """Return the head and the process that responded, in one transaction.

    Raises:
        BusUnavailable: If Redis does not respond, or a replica does.
    """
    with translated():
        return _served_head(*await _of_one_moment(redis, keys))


async def _of_one_moment(redis: Redis, keys: Keys, *asked: Callable[[Any], object]) -> list[Any]:
    """Return the head's fields, the results of *asked* on a pipeline, and the server's info.

    A Redis that is out of memory refuses transactions, but can be read and can accept revocations.
    The commands are then sent without a transaction, and the result counts only if the head is the
    same before and after.

    Raises:
        BusUnavailable: If Redis does not respond, or the head changed meanwhile.
    """
    with translated():
        try:
            return await _read(redis, keys, asked, transaction=True)
        except OutOfMemoryError:
            *found, after = await _read(redis, keys, asked, transaction=False)
    if after != found[0]:
        raise BusUnavailable("Redis is out of memory, and changed while it was read")
    return found


async def _read(
    redis: Redis, keys: Keys, asked: Iterable[Callable[[Any], object]], *, transaction: bool
) -> list[Any]:
    """Return the results in order; without a *transaction* the head is read again at the end."""
    async with redis.pipeline(transaction=transaction) as pipe:
        pipe.hgetall(keys.head)
        for ask in asked:
            ask(pipe)
        pipe.info("server", "replication")
        if not transaction:
            pipe.hgetall(keys.head)
        found: list[Any] = await pipe.execute()
    return found


async def _messages(pubsub: Any) -> AsyncIterator[bytes]:
    while True:
        with translated():
            message = await pubsub.get_message(timeout=1.0)
            if message is None:
                continue
            if message["type"] not in ("message", "smessage"):
                # A second confirmation means that redis-py has reconnected, and messages were lost.
                # An unsubscription means that the cluster's slot has moved to another node.
                raise BusUnavailable("the subscription was broken")
            content = bytes_of(message["data"])
        yield content
