"""The route of a session: its fields, and its encoding. The contract is docs/proxy-events.md."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
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
"""The directions in which the clipboard works: ``in`` is from the browser into the session."""

SCHEMES_OF: Mapping[str, frozenset[str]] = {
    "web": frozenset({"http", "https"}),
    "vnc": frozenset({"tcp", "ws", "wss"}),
    "terminal": frozenset({"ws", "wss"}),
}
"""The schemes that the target of a session of each kind may have."""

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
_Host = Annotated[
    str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", min_length=1, max_length=253)
]
_BasePath = Annotated[str, msgspec.Meta(pattern=r"^/[!-\"$->@-\[\]-~]*$", max_length=1024)]
# A prefix of an origin-form path, without "?", "#" and "\".


class Target(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The address of an app, desktop or terminal.

    ``id`` identifies what is behind the address (a pod's UID, a shell of the hub): the same address
    with another ``id`` is another target. ``base_path`` is prepended to the path of a request;
    ``/`` adds nothing.
    """

    scheme: Scheme
    host: _Name
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    base_path: _BasePath = "/"
    id: _Name


_SESSION_HOST = re.compile(r"[a-z2-7]{26}(\.|$)", re.ASCII)


class Route(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The route of one session, as its publisher wrote it.

    - ``hosts[0]`` is ``<sid>.<base domain>``; further hosts are public links. None has a port.
    - ``expires_at`` is in unix seconds. ``target`` may be null while ``state`` is ``starting``.
    - ``epoch`` is set in routes with a signature of their own only.
    - ``status`` is for display and decides nothing.
    - ``clipboard`` and ``service_workers`` restrict access. :func:`encode_route` encodes such a
      route so that gateways that do not know these fields do not serve it.
    - With ``service_workers``, the app may register a service worker for its whole host, and the
      session can be used with a bearer token only.
    - With ``frame``, a browser that opens the session shows the app below a bar of the gateway.
      Gateways that do not know this field show the app alone.
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
        """Refuse a well-typed route that cannot be served."""
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
            # Otherwise a link could block another session's host, since a host that two routes
            # name is not served.
            if link != self.hosts[0] and _SESSION_HOST.match(link):
                raise ValueError("a public link must not look like a session's host")


_UNRESTRICTED: Mapping[str, object] = {"clipboard": "both", "service_workers": False}


def encode_route(route: Mapping[str, object]) -> bytes:
    """Return *route*, a :class:`Route` as a mapping, encoded for Redis and for events.

    A route without restrictions, status or frame is encoded as before these fields existed. A route
    with restrictions is wrapped in ``{"v":2,"route":…}``, which an older gateway cannot read and
    therefore does not serve (503).
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
"""Returns the payload of a compact JWS, or raises TokenRefused."""


class _Restricted(msgspec.Struct, frozen=True, gc=False):
    v: int
    route: msgspec.Raw


RESTRICTED_VERSION = 2
"""The version of routes with restrictions; all others have no version."""

_decode_restricted = msgspec.json.Decoder(_Restricted).decode
_decode_route = msgspec.json.Decoder(Route).decode
_decode_any = msgspec.json.Decoder().decode
_canonical = msgspec.json.Encoder(order="sorted").encode


class RouteReader:
    """Decodes routes from Redis and from events.

    Args:
        check: Verifies signed routes; unsigned ones are then refused. Without it, the signature of
            a signed route is not checked, so that controllers can begin to sign before all gateways
            have their keys.
    """

    def __init__(self, check: SignatureCheck | None = None) -> None:
        self._check = check

    def read(self, sid: str, raw: bytes | msgspec.Raw, *, epoch: str) -> Route:
        """Return the route *raw* of *sid*.

        Raises:
            UnreadableRoute: If it is malformed, too long, for another session, of another epoch, or
                unsigned although a signature is required.
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
            raise UnreadableRoute(f"the route's signature is invalid: {error}") from None


def _decode(raw: bytes | msgspec.Raw) -> Route:
    try:
        return _decode_version(raw)
    except msgspec.DecodeError as error:
        try:
            rest = without_status(raw)
        except UnreadableRoute:
            raise error from None
        # A malformed status counts as no status; other errors are raised as usual.
        return _decode_version(rest)


def _decode_version(raw: bytes | msgspec.Raw) -> Route:
    try:
        return _decode_route(raw)
    except msgspec.DecodeError:
        # Routes with a version are rare, so the version is not decoded first.
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
    """Return the part of one route in the table's hash: 64 bits of SHA-256.

    The input is the sid and the canonical JSON (sorted keys, no white space) of the received value.
    Unknown fields are included, so that gateways of different versions agree.
    """
    try:
        canonical = _canonical(_decode_any(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        canonical = bytes(raw)
    return int.from_bytes(hashlib.sha256(sid.encode() + canonical).digest()[:8], "big")
