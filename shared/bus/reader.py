"""The gateways' side of the bus: the head, the log, the table; and the marks of used tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError

from shared.bus.connection import check_master, is_sharded, translated
from shared.bus.keys import CALL_SECONDS, LOG_LENGTH, Keys, text_of
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
"""The most events that are read from the log at once."""
_IN_ONE_PIECE: Final = 2000
"""A table up to this size is read in one transaction, a larger one in pages."""
_PAGE: Final = 500


def parse_head(fields: Mapping[bytes, bytes]) -> Head | None:
    """Return the head in the fields of its hash; None where it is missing or no head."""
    values: dict[str, Any] = {text_of(name): text_of(value) for name, value in fields.items()}
    try:
        return msgspec.convert(values, Head, strict=False)
    except msgspec.ValidationError:
        return None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The table as one server held it at one moment."""

    head: Head
    routes: Mapping[str, bytes]
    revoked: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LogPart:
    """The head, and the events after a ``seq`` that the log still held at that moment."""

    head: Head | None
    events: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """How a token was used before (None: never), and the head at that moment.

    ``sure`` is false where another process answered than the one on which the head's epoch
    began: it may have lost earlier marks, whatever its table says.
    """

    before: str | None
    head: Head | None
    sure: bool = True


@dataclass(frozen=True, slots=True)
class ServedHead:
    """The head, and which process answered."""

    head: Head | None
    run_id: str

    @property
    def is_where_it_began(self) -> bool:
        """Whether this process is the one on which the head's epoch began."""
        return self.head is None or not self.head.moved


def _served_head(fields: Mapping[bytes, bytes], info: Mapping[str, Any]) -> ServedHead:
    """Return the head in *fields* and the process that *info* is of.

    Raises:
        BusUnavailable: If it is a replica.
    """
    run_id, head = _run_id(info), parse_head(fields)
    if head is not None:
        # Whatever stands in Redis under that name.
        head = msgspec.structs.replace(head, moved=head.server not in (None, run_id))
    return ServedHead(head, run_id)


class BusReader:
    """Reads the table and its changes; writes nothing but the marks of used tokens.

    Whatever a replica answers is taken for no answer: it may be behind.
    """

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    async def head(self) -> Head | None:
        """Return the head, None where there is none.

        Raises:
            BusUnavailable: If Redis does not answer.
        """
        with translated():
            await check_master(self._redis)
        return (await read_served_head(self._redis, self._keys)).head

    async def log_after(self, seq: int, *, most: int = LOG_PART) -> LogPart:
        """Return the head and the events after *seq*, at most *most*, of one moment.

        What the log does not hold is missing: it is for the caller to see where it begins.

        Raises:
            BusUnavailable: If Redis does not answer.
        """
        fields, entries, info = await _of_one_moment(
            self._redis,
            self._keys,
            lambda pipe: pipe.xrange(self._keys.log, min=f"({seq}-0", count=most),
        )
        events = (content.get(b"event") for _, content in entries)
        found = tuple(event for event in events if event is not None)
        return LogPart(_served_head(fields, info).head, found)

    async def snapshot(self, believe: Callable[[Head], None] | None = None) -> Snapshot | None:
        """Return the whole table, as it was at one moment; None where there is no head.

        A large one is read in pages, and brought to one moment by the events that came
        meanwhile: a whole reply of many megabytes would hold up everything else.

        Args:
            believe: Raises for a head whose table need not be read.

        Raises:
            BusUnavailable: If Redis does not answer.
            SnapshotRefused: If the table changed too much under the reading, or is larger than
                its head says.
        """
        head = (await read_served_head(self._redis, self._keys)).head
        if head is None:
            return None
        if believe is not None:
            believe(head)
        if head.routes + head.revoked <= _IN_ONE_PIECE:
            return await self._in_one_piece()
        with translated():
            routes = await self._pages(self._redis.hscan, self._keys.routes, head.routes)
            revoked = await self._pages(self._redis.zscan, self._keys.revoked, head.revoked)
        table = _Paged(head, dict(routes), {member: float(at) for member, at in revoked.items()})
        while await self._bring_up(table):
            pass
        return Snapshot(table.head, table.routes, table.revoked)

    async def _in_one_piece(self) -> Snapshot | None:
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
            {text_of(sid): route for sid, route in routes.items()},
            {text_of(member): float(score) for member, score in revoked},
        )

    async def _pages(self, scan: Any, key: str, expected: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        cursor = 0
        # More can come meanwhile than the log keeps, but then it could not be brought up anyway.
        most = expected + 2 * LOG_LENGTH
        while True:
            cursor, page = await scan(key, cursor, count=_PAGE)
            found.update((text_of(name), value) for name, value in dict(page).items())
            if not cursor:
                return found
            if len(found) > most:
                raise SnapshotRefused("the table is far larger than its head says")

    async def _bring_up(self, table: _Paged) -> bool:
        """Apply what the log holds after the table's seq; say whether there may be more."""
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
        """Return the routes in the table of those of *sids* that have one; it may be a replica's.

        Raises:
            BusUnavailable: If Redis does not answer.
        """
        names = list(sids)
        with translated():
            found: list[Any] = await self._redis.hmget(self._keys.routes, names) if names else []
        return {sid: raw for sid, raw in zip(names, found, strict=True) if raw is not None}

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """Subscribe, wait for the confirmation, and give the messages as they come.

        Whatever is published after this has been entered is among them, as long as the
        connection holds.

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
        with translated():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.set(self._keys.used(jti), use, nx=True, get=True, ex=kept_seconds)
                pipe.hgetall(self._keys.head)
                pipe.info("server", "replication")
                before, fields, info = await pipe.execute()
        served = _served_head(fields, info)
        return Mark(
            text_of(before) if before is not None else None, served.head, served.is_where_it_began
        )


@dataclass(slots=True)
class _Paged:
    """A table that was read in pages, on its way to being as it was at one moment.

    Pages that were read later hold some changes already: to make them again changes nothing.
    """

    head: Head
    routes: dict[str, bytes]
    revoked: dict[str, float]
    seq: int = -1

    def __post_init__(self) -> None:
        self.seq = self.head.seq

    def apply(self, raw: bytes) -> None:
        """Make the change in *raw*, which must be the next one."""
        event: Event
        try:
            event = decode_event(raw)
        except MalformedEvent as error:
            raise SnapshotRefused(f"the log holds what is no event: {error}") from error
        if (event.epoch, event.seq) != (self.head.epoch, self.seq + 1):
            raise SnapshotRefused("the log does not go on where the table was read")
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
                raise SnapshotRefused("what happened while the table was read is not known here")

    def head_at_seq(self) -> Head:
        """Return the head as far as events were applied."""
        return msgspec.structs.replace(self.head, seq=self.seq)


async def read_served_head(redis: Redis, keys: Keys) -> ServedHead:
    """Return the head and who answered, in one transaction.

    Raises:
        BusUnavailable: If Redis does not answer, or a replica does.
    """
    fields, info = await _of_one_moment(redis, keys)
    return _served_head(fields, info)


async def _of_one_moment(redis: Redis, keys: Keys, *asked: Callable[[Any], object]) -> list[Any]:
    """Return the head's fields, what is *asked* of a pipeline, and which process answered.

    A Redis that is out of memory takes no command into a transaction, but can be read, and may be
    told of revocations. There these are read one after the other, and count where the head was the
    same before and after.

    Raises:
        BusUnavailable: If Redis does not answer, or changed meanwhile.
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
    """Return the answers in their order; without a *transaction* the head stands last, too."""
    async with redis.pipeline(transaction=transaction) as pipe:
        pipe.hgetall(keys.head)
        for ask in asked:
            ask(pipe)
        pipe.info("server", "replication")
        if not transaction:
            pipe.hgetall(keys.head)
        found: list[Any] = await pipe.execute()
    return found


def _run_id(info: Mapping[str, Any]) -> str:
    """Return which process answered.

    Raises:
        BusUnavailable: If it is a replica.
    """
    if info.get("role", "master") != "master":
        raise BusUnavailable("a replica answered")
    return str(info.get("run_id", ""))


async def _messages(pubsub: Any) -> AsyncIterator[bytes]:
    while True:
        with translated():
            message = await pubsub.get_message(timeout=1.0)
        if message is None:
            continue
        if message["type"] in ("message", "smessage"):
            yield message["data"]
        else:
            # A second confirmation: the connection was lost, and with it messages. An end of the
            # subscription: a cluster's slot went to another node.
            raise BusUnavailable("the subscription was broken")
