"""One session's route: its fields, how it is written, and how it is read again.

docs/proxy-events.md is its contract.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Literal

import msgspec

from shared.errors import TokenRefused, UnreadableRoute
from shared.events import MOST_ROUTE_BYTES
from shared.jose.jws import unverified_payload
from shared.routes.statuses import Status, without_status

Kind = Literal["web", "vnc", "terminal"]
Scheme = Literal["http", "https", "tcp", "ws", "wss"]
State = Literal["starting", "ready", "closing"]
Clipboard = Literal["both", "in", "out", "none"]
"""Which way text may go over the clipboard: ``in`` is from the browser into the session."""

SCHEMES_OF: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "web": frozenset({"http", "https"}),
        "vnc": frozenset({"tcp", "ws", "wss"}),
        "terminal": frozenset({"ws", "wss"}),
    }
)
"""What may stand behind a session of each kind."""

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
_Host = Annotated[
    str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", min_length=1, max_length=253)
]
_BasePath = Annotated[str, msgspec.Meta(pattern=r"^/[!-\"$->@-\[\]-~]*$", max_length=1024)]
# Origin-form without "?" and "#" and without "\": what stands before a path as received.


class Target(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a session lives.

    ``id`` names what is behind the address (a pod's UID, a shell of the hub): the same address
    with another ``id`` is another target. ``base_path`` is put before the path as received; ``/``
    adds nothing.
    """

    scheme: Scheme
    host: _Name
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    base_path: _BasePath = "/"
    id: _Name


_SESSION_HOST = re.compile(r"[a-z2-7]{26}(\.|$)", re.ASCII)


class Route(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One session's route as its publisher wrote it.

    ``hosts[0]`` is ``<sid>.<base domain>``, further hosts are public links; none has a port.
    ``expires_at`` is in unix seconds. ``target`` may be null while ``state`` is ``starting``.
    ``epoch`` is there in signed routes only. ``status`` is for people alone, and decides nothing.

    ``clipboard`` and ``service_workers`` restrict: a route that uses one of them is written as
    :func:`encode_route` does, so that gateways that do not know them do not serve it. With
    ``service_workers``, the app may register a service worker for all of its host, and the session
    is reached by bearer only.

    With ``frame``, a browser that opens the session is shown the app under a bar of the gateway's,
    which restricts nothing: gateways that do not know it show the app alone.
    """

    sid: Annotated[str, msgspec.Meta(pattern=r"^[a-z2-7]{26}$")]
    rev: Annotated[int, msgspec.Meta(ge=0)]
    job: _Name
    rank: Annotated[int, msgspec.Meta(ge=0)]
    kind: Kind
    owner: _Name
    hosts: Annotated[tuple[_Host, ...], msgspec.Meta(min_length=1, max_length=64)]
    target: Target | None = None
    state: State
    message: str | None = None
    expires_at: Annotated[float, msgspec.Meta(ge=0)] | None = None
    public: bool = False
    sealed: str | None = None
    epoch: str | None = None
    clipboard: Clipboard = "both"
    service_workers: bool = False
    status: Status | None = None
    frame: bool = False

    def __post_init__(self) -> None:
        """Refuse what is well-typed but cannot be served."""
        if self.target is None:
            if self.state != "starting":
                raise ValueError("only a starting route may have no target")
        elif self.target.scheme not in SCHEMES_OF[self.kind]:
            raise ValueError(f"a {self.kind} route cannot have a {self.target.scheme} target")
        if self.public and self.kind != "web":
            raise ValueError("only a web route can be public")
        if self.clipboard != "both" and self.kind == "web":
            raise ValueError("a web route has no clipboard")
        if self.service_workers and self.kind != "web":
            raise ValueError("only a web route has service workers")
        if self.hosts[0].partition(".")[0] != self.sid:
            raise ValueError("the first host must be the session's own")
        for link in self.hosts[1:]:
            # Or a link could take another session's host: what two routes name is served by none.
            if link != self.hosts[0] and _SESSION_HOST.match(link):
                raise ValueError("a public link must not look like a session's host")


_UNRESTRICTED: Mapping[str, object] = MappingProxyType(
    {"clipboard": "both", "service_workers": False}
)


def encode_route(route: Mapping[str, object]) -> bytes:
    """Return *route*, a :class:`Route` as a mapping, as it is written to Redis and into events.

    A route that restricts nothing stays as it was before there were restrictions, byte for byte,
    and so does one without a status or a frame.
    One that does stands in ``{"v":2,"route":…}``, which an older gateway cannot read, and so does
    not serve (503).
    """
    plain = {name: value for name, value in route.items() if name not in _UNRESTRICTED}
    if plain.get("status") is None:
        plain.pop("status", None)
    if not plain.get("frame"):
        plain.pop("frame", None)
    restricting = {
        name: route[name]
        for name, default in _UNRESTRICTED.items()
        if route.get(name, default) != default
    }
    if not restricting:
        return msgspec.json.encode(plain)
    return msgspec.json.encode({"v": RESTRICTED_VERSION, "route": plain | restricting})


SignatureCheck = Callable[[str], bytes]
"""Takes a compact JWS, returns its payload, or raises TokenRefused."""


class _Restricted(msgspec.Struct, frozen=True, gc=False):
    v: int
    route: msgspec.Raw


RESTRICTED_VERSION = 2
"""Of routes that restrict something; all others have no version."""

_decode_restricted = msgspec.json.Decoder(_Restricted).decode
_decode_route = msgspec.json.Decoder(Route).decode
_decode_any = msgspec.json.Decoder().decode
_canonical = msgspec.json.Encoder(order="sorted").encode


class RouteReader:
    """Reads routes as they stand in Redis and in events.

    Args:
        check: Verifies signed routes. With it, nothing but signed routes is read. Without it a
            signed route is taken at its word, as a plain one is, so that controllers can begin
            to sign before every gateway knows their keys.
    """

    __slots__ = ("_check",)

    def __init__(self, check: SignatureCheck | None = None) -> None:
        self._check = check

    def read(self, sid: str, raw: bytes | msgspec.Raw, *, epoch: str) -> Route:
        """Return the route *raw* of *sid*.

        Raises:
            UnreadableRoute: If it is malformed, too long, for another session, of
                another epoch, or not signed although it must be.
        """
        if len(raw) > MOST_ROUTE_BYTES:
            raise UnreadableRoute(f"the route is longer than {MOST_ROUTE_BYTES} bytes")
        signed = bytes(raw)[:1] == b'"'
        if self._check is not None and not signed:
            raise UnreadableRoute("the route is not signed")
        try:
            route = _decode(self._payload(bytes(raw)) if signed else raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UnreadableRoute(f"the route is malformed: {error}") from None
        if route.sid != sid:
            raise UnreadableRoute("the route is for another session")
        if signed and route.epoch != epoch:
            raise UnreadableRoute("the route was signed for another epoch")
        return route

    def _payload(self, raw: bytes) -> bytes:
        token = msgspec.json.decode(raw, type=str)
        try:
            return (self._check or unverified_payload)(token)
        except TokenRefused as error:
            raise UnreadableRoute(f"the route's signature does not hold: {error}") from None


def _decode(raw: bytes | msgspec.Raw) -> Route:
    try:
        return _decode_version(raw)
    except msgspec.DecodeError as error:
        try:
            rest = without_status(raw)
        except UnreadableRoute:
            raise error from None
        # A status that cannot be read is no status; what else is wrong is said as ever.
        return _decode_version(rest)


def _decode_version(raw: bytes | msgspec.Raw) -> Route:
    try:
        return _decode_route(raw)
    except msgspec.DecodeError:
        # Restricted ones are few: looking for their version first would cost all the others.
        try:
            versioned = _decode_restricted(raw)
        except msgspec.DecodeError:
            versioned = None
        if versioned is None:
            raise
    if versioned.v != RESTRICTED_VERSION:
        raise UnreadableRoute(f"the route is of version {versioned.v}")
    return _decode_route(versioned.route)


def digest(sid: str, raw: bytes | msgspec.Raw) -> int:
    """Return the share of one route in the table's hash: 64 bits of SHA-256.

    Taken over the sid and the canonical JSON (sorted keys, no white space) of the value as it
    was received, fields unknown to this version included, so that gateways of different
    versions agree.
    """
    try:
        canonical = _canonical(_decode_any(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        canonical = bytes(raw)
    return int.from_bytes(hashlib.sha256(sid.encode() + canonical).digest()[:8], "big")
