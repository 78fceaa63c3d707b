"""ProxyEvents: the changes of the route table, as published over Redis.

Every version of an event has ``v``, ``epoch``, ``seq`` and ``type``. A message without them is
malformed. An event with an unknown ``v`` or ``type`` is an :class:`UnknownEvent`, which still takes
its place in the order. The contract is docs/proxy-events.md.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias

import msgspec

from shared.errors import MalformedEvent

SCHEMA_VERSION = 1
REVOCATION_KEPT_SECONDS = 86400
"""How long a revocation is kept: the longest time that a grant can last."""
MOST_EVENT_BYTES = 1 << 18
"""Longer events are refused: decoding 10 MB of hosts blocks the loop for a third of a second."""
MOST_ROUTE_BYTES = 1 << 17
"""The limits of its fields, without ``message``, bound a route to a quarter of this."""

_Sid = Annotated[str, msgspec.Meta(pattern=r"^[a-z2-7]{26}$")]
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""An integer that Redis, Lua and the store can all hold."""


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The position of the table in Redis.

    - ``routes``, ``revoked``: the number of routes and of revocations.
    - ``term``: the publisher's fencing token. ``build`` counts the epochs of one term. A head of
      another epoch with a lower (``term``, ``build``) was brought back by a failover.
    - ``since``: the unix time at which this epoch replaced a lost one. Marks of tokens used before
      it may be lost.
    - ``server``: the ``run_id`` of the Redis process on which the epoch began.
    - ``signed``: the controller's signature of all this and of the table's content
      (:mod:`shared.routes.signed_table`).
    - ``moved``: not in Redis; the reader sets it if another Redis process than ``server`` responds.
    """

    epoch: _Text
    seq: _Count
    term: _Count
    routes: _Count
    revoked: _Count
    since: float | None = None
    server: str | None = None
    build: _Count = 0
    signed: str | None = None
    moved: bool = False

    def is_older_than(self, other: Head) -> bool:
        """Return whether *other* is later than this head."""
        if self.epoch == other.epoch:
            return self.seq < other.seq
        return (self.term, self.build) < (other.term, other.build)


class Revocation(msgspec.Struct, frozen=True, gc=False):
    """A member of the revoked set; it may be dropped at the unix time ``score``."""

    member: str
    score: float


class _Envelope(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=True):
    """The fields of every event; its ``type`` is the name of its class."""

    epoch: _Text
    seq: _Count
    at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    # A factory, because omit_defaults would leave a plain default out.
    v: Annotated[int, msgspec.Meta(ge=SCHEMA_VERSION, le=SCHEMA_VERSION)] = msgspec.field(
        default_factory=lambda: SCHEMA_VERSION
    )
    head: str | msgspec.UnsetType = msgspec.UNSET
    """The signed head after this event, if the controller signs."""

    def encode(self) -> bytes:
        """Return the event as published."""
        return _encoder.encode(self)


class RouteUpserted(_Envelope, frozen=True, kw_only=True):
    """The route of ``sid`` is now ``route``: an object, or a string with a signed one."""

    sid: _Sid
    route: msgspec.Raw


class RouteRemoved(_Envelope, frozen=True, kw_only=True):
    """The session ``sid`` has ended and never comes back.

    ``status`` says how, for people (:mod:`shared.routes.statuses`). It is decoded separately, so
    that a malformed status does not keep the session.
    """

    sid: _Sid
    reason: str = ""
    status: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class GrantRevoked(_Envelope, frozen=True, kw_only=True, omit_defaults=True):
    """The grants of one ``jti``, of one ``sub``, of all users of ``sid``, or of one ``kid`` ended.

    ``at`` is the time of the revocation; only tokens issued up to it are affected. ``proof`` is the
    controller's signature of this revocation alone.
    """

    sid: _Sid | None = None
    jti: _Text | None = None
    sub: _Text | None = None
    kid: _Text | None = None
    proof: str | None = None

    def __post_init__(self) -> None:
        """Refuse an event without a time, or that does not name exactly one kind of grants."""
        if self.at is None:
            raise ValueError("a revocation needs its time")
        if (self.sid is None) == (self.kid is None):
            raise ValueError("exactly one of sid and kid must be given")
        if self.kid is not None and (self.jti or self.sub):
            raise ValueError("a kid is revoked alone")
        if self.jti is not None and self.sub is not None:
            raise ValueError("at most one of jti and sub can be given")

    def revocation(self) -> Revocation:
        """Return the entry of the revoked set that this event adds."""
        if self.at is None:  # excluded by __post_init__
            raise MalformedEvent("a revocation needs its time")
        score = self.at.timestamp() + REVOCATION_KEPT_SECONDS
        member = self.member_of(sid=self.sid, jti=self.jti, sub=self.sub, kid=self.kid)
        return Revocation(member, score)

    @staticmethod
    def member_of(
        *,
        sid: str | None = None,
        jti: str | None = None,
        sub: str | None = None,
        kid: str | None = None,
    ) -> str:
        """Return the member of the revoked set that revokes these grants."""
        if kid is not None:
            return f"kid:{kid}"
        if jti is not None:
            return f"jti:{jti}"
        return f"all:{sid}" if sub is None else f"sub:{sid}:{sub}"


class Heartbeat(_Envelope, frozen=True, kw_only=True):
    """The publisher is alive and nothing changed: ``seq`` is that of the last event."""


class UnknownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of an unknown version or type."""

    v: int
    epoch: _Text
    seq: _Count
    type: str


Event: TypeAlias = RouteUpserted | RouteRemoved | GrantRevoked | Heartbeat | UnknownEvent

KNOWN_TYPES = frozenset({"RouteUpserted", "RouteRemoved", "GrantRevoked", "Heartbeat"})


class _Any(msgspec.Struct):
    v: int
    epoch: _Text
    seq: _Count
    type: str


_encoder = msgspec.json.Encoder()
_decode_envelope = msgspec.json.Decoder(_Any).decode
_decode_known: Any = msgspec.json.Decoder(
    RouteUpserted | RouteRemoved | GrantRevoked | Heartbeat
).decode


def decode_event(data: bytes) -> Event:
    """Return the event in *data*; unknown fields are ignored.

    Raises:
        MalformedEvent: If it is too long, lacks the fields of every version, or does not fit its
            version and type.
    """
    if len(data) > MOST_EVENT_BYTES:
        raise MalformedEvent(f"not a ProxyEvent: longer than {MOST_EVENT_BYTES} bytes")
    try:
        envelope = _decode_envelope(data)
        if envelope.v != SCHEMA_VERSION or envelope.type not in KNOWN_TYPES:
            return UnknownEvent(
                v=envelope.v, epoch=envelope.epoch, seq=envelope.seq, type=envelope.type[:64]
            )
        event: Event = _decode_known(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise MalformedEvent(f"not a ProxyEvent: {error}") from None
    return event


def revoked_at(score: float) -> float:
    """Return the unix time of the revocation with this *score*."""
    return score - REVOCATION_KEPT_SECONDS


def event_time(unix_seconds: float) -> datetime:
    """Return *unix_seconds* as the ``at`` of an event: UTC, to the millisecond."""
    return datetime.fromtimestamp(round(unix_seconds, 3), UTC)
