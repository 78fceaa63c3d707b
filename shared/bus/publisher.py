"""The controller's side of the bus: publishes changes of the table as the leader of one term."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from shared.bus.connection import is_sharded
from shared.bus.keys import HEARTBEAT_SECONDS, LOG_LENGTH, Keys, text_of
from shared.bus.reader import BusReader, read_served_head
from shared.bus.scripts import NOTICE, PUBLISH, SWAP
from shared.bus.signing import Signing
from shared.bus.translation import translated
from shared.errors import MalformedEvent, PublishRefused
from shared.events import (
    GrantRevoked,
    Head,
    Heartbeat,
    RouteRemoved,
    RouteUpserted,
    decode_event,
    event_time,
)
from shared.routes.signed_table import TableDigest, TableSigner
from shared.routes.statuses import Status
from shared.text import whole_number

LISTEN_SECONDS: Final = 5 * HEARTBEAT_SECONDS
"""Another publisher without a heartbeat for this time counts as gone."""
_encode: Final = msgspec.json.Encoder().encode
_PIECE: Final = 1000
_MOST_REVISION: Final = (1 << 62) - 1
_PENDING_SECONDS: Final = 3600
"""The time to live of pending keys, which a publisher that died leaves behind."""


class Recalled(NamedTuple):
    """The store that was last published from, and all revocations, as Redis holds them."""

    identity: str
    revision: int
    revoked: Mapping[str, float]


class Publisher:
    """Changes the table in Redis, one call at a time, as the leader of *term*.

    - After :class:`PublishRefused` nothing was written. With reason ``term`` another publisher
      leads and this one must stop. With any other reason it must call :meth:`rebuild`.
    - After :class:`BusUnavailable` it is not known whether the change was made. The caller must
      call :meth:`settle` or :meth:`rebuild` before it publishes anything else.

    With a *signer*, each change and each heartbeat carries the signed head that results from it.
    """

    def __init__(
        self, redis: Redis, keys: Keys, *, term: int, signer: TableSigner | None = None
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._lock = asyncio.Lock()
        self._publish = redis.register_script(PUBLISH)
        self._swap = redis.register_script(SWAP)
        self._notice = redis.register_script(NOTICE)
        self._verb = "SPUBLISH" if is_sharded(redis) else "PUBLISH"
        self._unconfirmed: list[str | int | bytes] | None = None
        self._builds = 0
        self._signing = None if signer is None else Signing(signer)
        self.term = term
        self.epoch = ""
        self.seq = 0

    @property
    def is_signing(self) -> bool:
        """Whether heads and revocations are signed."""
        return self._signing is not None

    async def head(self) -> Head | None:
        """Return the head in Redis."""
        return (await read_served_head(self._redis, self._keys)).head

    async def has_lost(self) -> bool:
        """Return whether another Redis process responds than the one on which the epoch began.

        That process may have lost marks of used tokens, which the table does not show.
        """
        return not (await read_served_head(self._redis, self._keys)).is_where_it_began

    async def hears_another(self) -> bool:
        """Return whether another publisher sends heartbeats of the epoch in Redis."""
        if (head := await self.head()) is None:
            return False
        with suppress(TimeoutError):
            async with (
                asyncio.timeout(LISTEN_SECONDS),
                BusReader(self._redis, self._keys).subscribe() as messages,
            ):
                async for data in messages:
                    if _is_heartbeat(data, head.epoch):
                        return True
        return False

    async def note_store(self, identity: str, revision: int) -> None:
        """Write the identity and the revision of the store that the table is published from."""
        with translated():
            await self._redis.set(self._keys.store, f"{identity} {revision}")

    async def noted_store(self) -> str:
        """Return the identity of the store that the table was published from; empty if unknown."""
        with translated():
            try:
                noted: Any = await self._redis.get(self._keys.store)
            except ResponseError:
                return ""  # the key is no string
        return text_of(noted or b"").partition(" ")[0]

    async def recall(self) -> Recalled:
        """Return the state that earlier publishers have left; it is not verified."""
        with translated():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.get(self._keys.store)
                pipe.zrange(self._keys.revoked, 0, -1, withscores=True)
                # Keys of a wrong type are ignored; a rebuild replaces them.
                noted, revoked = await pipe.execute(raise_on_error=False)
            scores = revoked if isinstance(revoked, list) else []
            at = {text_of(member): float(score) for member, score in scores}
        identity, _, revision = text_of(noted if isinstance(noted, bytes) else b"").partition(" ")
        return Recalled(identity, whole_number(revision, most=_MOST_REVISION) or 0, at)

    async def routed(self, sids: Collection[str]) -> set[str]:
        """Return those of *sids* that have a route."""
        names = list(sids)
        with translated():
            try:
                found: list[Any] = await self._redis.hmget(self._keys.routes, names)
            except ResponseError:
                # The key is no hash, so it says nothing about any session.
                return set(names)
            return {sid for sid, raw in zip(names, found, strict=True) if raw is not None}

    def follow(self, head: Head) -> None:
        """Continue from *head*, which must match what this publisher would publish."""
        self.epoch, self.seq = head.epoch, head.seq

    # One change

    async def upsert(self, sid: str, route: bytes, *, now: float) -> None:
        """Publish that the route of *sid* is now *route* (JSON)."""
        async with self._lock:
            event = RouteUpserted(
                epoch=self.epoch,
                seq=self.seq + 1,
                at=event_time(now),
                sid=sid,
                route=msgspec.Raw(route),
                head=self._signed(lambda digest: digest.put_route(sid, route), now=now),
            )
            await self._change("upsert", sid, route, event.encode())

    async def remove(
        self, sid: str, reason: str, *, now: float, status: Status | None = None
    ) -> None:
        """Publish that the session *sid* has ended, and how: *status*, for people."""
        async with self._lock:
            event = RouteRemoved(
                epoch=self.epoch,
                seq=self.seq + 1,
                at=event_time(now),
                sid=sid,
                reason=reason,
                status=msgspec.UNSET if status is None else msgspec.Raw(_encode(status)),
                head=self._signed(lambda digest: digest.set_route(sid, None), now=now),
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
            signed = self._signed(
                lambda digest: digest.put_revocation(entry.member, entry.score), now=None
            )
            event = msgspec.structs.replace(self._proven(event), head=signed)
            await self._change("revoke", entry.member, repr(entry.score).encode(), event.encode())

    async def beat(self, *, now: float) -> None:
        """Publish a heartbeat, and check that Redis still holds what this publisher expects."""
        async with self._lock:
            signed = self._signed(lambda _: None, now=now, ahead=0)
            event = Heartbeat(epoch=self.epoch, seq=self.seq, at=event_time(now), head=signed)
            await self._call("beat", "", repr(now).encode(), event.encode())

    async def settle(self) -> None:
        """Repeat the change without a response, unless it was made; without one, do nothing.

        Raises:
            BusUnavailable: If Redis does not respond again.
            PublishRefused: As for the change itself.
        """
        async with self._lock:
            if self._unconfirmed is not None:
                await self._send(self._unconfirmed)
                self.seq += 1

    async def notice(self, revocation: GrantRevoked) -> None:
        """Publish a revocation out of order, without a sequence number of its own.

        For controllers that do not lead. It reaches only gateways that are subscribed. The leader
        publishes the revocation from the store in order, which brings it into the table.

        Raises:
            PublishRefused: If there is no table, or a later term leads than this one knows.
            BusUnavailable: If Redis does not respond.
        """
        proven = self._proven(revocation).encode()
        with translated():
            result = await self._notice(
                keys=[self._keys.head],
                args=[self.term, self._keys.events, self._verb, proven],
            )
        _expect_done(result)

    # Rebuilding the table

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
            since: If this epoch replaces a lost one, the time at which the loss was noticed.

        Raises:
            PublishRefused: ``term`` if another publisher leads.
            BusUnavailable: If Redis does not respond.
        """
        async with self._lock:
            pending = self._keys.pending(epoch)
            self._builds += 1
            head = Head(
                epoch=epoch,
                seq=0,
                term=self.term,
                routes=len(routes),
                revoked=len(revoked),
                since=since,
                build=self._builds,
            )
            with translated():
                await self._fill(pending, routes, revoked)
            if self._signing is not None:
                run_id = (await read_served_head(self._redis, self._keys)).run_id
                head = msgspec.structs.replace(head, server=run_id)
                await self._signing.begin(head, routes, revoked)
            await self._finish(pending, head, now)
            self.epoch, self.seq, self._unconfirmed = epoch, 0, None

    async def _fill(
        self, pending: tuple[str, str], routes: Mapping[str, bytes], revoked: Mapping[str, float]
    ) -> None:
        for piece in _pieces(routes.items()):
            items = [part for item in piece for part in item]
            await self._redis.hset(pending[0], items=items)
            await self._redis.expire(pending[0], _PENDING_SECONDS)
        for piece in _pieces(revoked.items()):
            await self._redis.zadd(pending[1], dict(piece))
            await self._redis.expire(pending[1], _PENDING_SECONDS)

    async def _finish(self, pending: tuple[str, str], head: Head, now: float) -> None:
        keys = self._keys
        signed = UNSET if self._signing is None else self._signing.sign(at=now)
        beat = Heartbeat(epoch=head.epoch, seq=0, at=event_time(now), head=signed).encode()
        fields: list[str | int] = ["epoch", head.epoch, "seq", 0, "term", head.term]
        fields += ["routes", head.routes, "revoked", head.revoked, "build", head.build]
        fields += ["since", repr(head.since)] if head.since is not None else []
        if head.server is not None and signed is not UNSET:
            fields += ["server", head.server, "signed", signed]
        names = [keys.routes, keys.revoked, keys.head, keys.log, *pending]
        counts = (head.routes, head.revoked)
        with translated():
            result = await self._swap(
                keys=names, args=[self.term, keys.events, beat, self._verb, *counts, *fields]
            )
        _expect_done(result)

    # Signing

    def _signed(
        self, change: Callable[[TableDigest], object], *, now: float | None, ahead: int = 1
    ) -> str | UnsetType:
        """Apply *change* to the digest and return the signed head; unset without a signer.

        If *now* is None, the time of the signature stays that of the last one. The digest is then
        ahead of Redis: until the result of the change is known, only that change may be repeated,
        or the table rebuilt.
        """
        if self._signing is None:
            return UNSET
        return self._signing.follow(change, epoch=self.epoch, seq=self.seq + ahead, at=now)

    def _proven(self, event: GrantRevoked) -> GrantRevoked:
        if self._signing is None:
            return event
        proof = self._signing.signer.sign_revocation(event.revocation())
        return msgspec.structs.replace(event, proof=proof)

    async def _change(self, verb: str, field: str, value: bytes, event: bytes) -> None:
        await self._call(verb, field, value, event)
        self.seq += 1

    async def _call(self, verb: str, field: str, value: bytes, event: bytes) -> None:
        args: list[str | int | bytes] = [self.epoch, self.seq, self.term, self._keys.events]
        args += [verb, field, value, event, LOG_LENGTH, self._verb]
        if self._signing is not None:
            args += self._signing.said
        if verb != "beat":
            self._unconfirmed = args
        await self._send(args)

    async def _send(self, args: list[str | int | bytes]) -> None:
        keys = self._keys
        with translated():
            try:
                result = await self._publish(
                    keys=[keys.routes, keys.revoked, keys.head, keys.log], args=args
                )
            except ResponseError as error:
                if not str(error).startswith("WRONGTYPE"):
                    raise
                raise PublishRefused("damaged") from error
        _expect_done(result)
        self._unconfirmed = None


def _expect_done(result: object) -> None:
    word = text_of(result) if isinstance(result, bytes) else str(result)
    if word != "done":
        raise PublishRefused(word)


def _pieces(items: Iterable[tuple[str, Any]]) -> Iterator[list[tuple[str, Any]]]:
    left = iter(items)
    while piece := list(islice(left, _PIECE)):
        yield piece


def _is_heartbeat(data: bytes, epoch: str) -> bool:
    try:
        event = decode_event(data)
    except MalformedEvent:
        return False
    return isinstance(event, Heartbeat) and event.epoch == epoch
