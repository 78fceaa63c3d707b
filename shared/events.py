"""ProxyEvents: the change notices of the route table, as they travel over Redis.

Every version of an event has ``v``, ``epoch``, ``seq`` and ``type``. A message without them is
malformed; one with an unknown ``v`` or ``type`` is an :class:`UnknownEvent` that still takes its
place in the order. docs/proxy-events.md is their contract.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, TypeAlias

import msgspec

from shared.errors import MalformedEvent

SCHEMA_VERSION = 1
REVOCATION_KEPT_SECONDS = 86400
"""How long a revocation matters: no grant can last longer than this after it was issued."""
MOST_EVENT_BYTES = 1 << 18
"""A longer one is not read: of a list of hosts, 10 MB keep a loop for a third of a second."""
MOST_ROUTE_BYTES = 1 << 17
"""The bounds of its fields leave a route a quarter of that, its message aside."""

_Sid = Annotated[str, msgspec.Meta(pattern=r"^[a-z2-7]{26}$")]
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""What any of those who pass it on can write down; Redis' own counters end there, too."""


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where the table in Redis stands.

    ``routes`` and ``revoked`` count its parts; ``term`` is its publisher's. ``since`` is the unix
    time at which this epoch replaced a lost one: what was used before it has been forgotten.
    ``server`` is the ``run_id`` of the process on which the epoch began. ``build`` counts the
    epochs of one term: a head of another epoch with a lower ``term``, or the same and a lower
    ``build``, is one that a failover has brought back. ``signed`` is the controller's signature of
    all this and of what the table holds (:mod:`shared.routes.signed_table`). ``moved`` is not
    in Redis: a reader sets it where another process answers than ``server``.
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
        """Say whether *other* is known to have come after this."""
        if self.epoch == other.epoch:
            return self.seq < other.seq
        return (self.term, self.build) < (other.term, other.build)


class Revocation(msgspec.Struct, frozen=True, gc=False):
    """A member of the revoked set; ``score`` is the unix time at which it may be dropped."""

    member: str
    score: float


class _Envelope(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    epoch: _Text
    seq: _Count
    at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    # A factory, because omit_defaults would leave a plain default out.
    v: Annotated[int, msgspec.Meta(ge=SCHEMA_VERSION, le=SCHEMA_VERSION)] = msgspec.field(
        default_factory=lambda: SCHEMA_VERSION
    )
    head: str | msgspec.UnsetType = msgspec.UNSET
    """The signed head that follows from this event, where the controller signs."""

    type: ClassVar[str]

    def encode(self) -> bytes:
        """Return the event as it travels."""
        return _encoder.encode(self)


class RouteUpserted(_Envelope, frozen=True, kw_only=True, tag="RouteUpserted"):
    """The route of ``sid`` is now ``route``: an object, or a string that holds a signed one."""

    type: ClassVar[str] = "RouteUpserted"
    sid: _Sid
    route: msgspec.Raw


class RouteRemoved(_Envelope, frozen=True, kw_only=True, tag="RouteRemoved"):
    """The session ``sid`` has ended and never comes back.

    ``status`` says how, for people (:mod:`shared.routes.statuses`). It is read apart: whatever
    it holds, the session has ended.
    """

    type: ClassVar[str] = "RouteRemoved"
    sid: _Sid
    reason: str = ""
    status: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class GrantRevoked(_Envelope, frozen=True, kw_only=True, tag="GrantRevoked", omit_defaults=True):
    """Grants have ended: of one ``jti``, one ``sub``, everybody on ``sid``, or one ``kid``.

    ``at`` is the time of the revocation, which decides over the tokens issued around it. ``proof``
    is the controller's signature of this revocation alone.
    """

    type: ClassVar[str] = "GrantRevoked"
    sid: _Sid | None = None
    jti: _Text | None = None
    sub: _Text | None = None
    kid: _Text | None = None
    proof: str | None = None

    def __post_init__(self) -> None:
        """Refuse what names nothing or two things, or does not say since when."""
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
        if self.at is None:  # kept out by __post_init__
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
        """Return the member of the revoked set that ends these grants."""
        if kid is not None:
            return f"kid:{kid}"
        if jti is not None:
            return f"jti:{jti}"
        return f"all:{sid}" if sub is None else f"sub:{sid}:{sub}"


class Heartbeat(_Envelope, frozen=True, kw_only=True, tag="Heartbeat"):
    """Nothing changed: ``seq`` is that of the last event."""

    type: ClassVar[str] = "Heartbeat"


class UnknownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a version or type that this code does not know."""

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
    """Return the event in *data*; fields that this code does not know are ignored.

    Raises:
        MalformedEvent: If it is too long, lacks what every version has, or is of a known version
            and type but does not fit it.
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
    """Return the unix time of the revocation that is kept with *score*."""
    return score - REVOCATION_KEPT_SECONDS


def event_time(unix_seconds: float) -> datetime:
    """Return *unix_seconds* as events carry it: UTC, to the millisecond."""
    return datetime.fromtimestamp(round(unix_seconds, 3), UTC)
