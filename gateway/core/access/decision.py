"""Who may do what: one pure decision for each request. docs/session-token.md is its contract.

A decision is a value: forward, hand over to a page, connect a bridge, refuse, or ask for what is
missing (a proof of a token, a repaired table) and decide again with it.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from gateway.core.access.access_right import AccessRight, is_revoked
from gateway.core.access.grants import Grant, GrantKeys, GrantRefused
from gateway.core.access.opening import is_for, make_grant
from gateway.core.access.refusals import REFUSALS, Refusal, ended_subject, subject_of
from gateway.core.access.site import Provenance, Site, is_allowed_origin
from gateway.core.http.fields import Fields
from gateway.core.http.heads import StartLine
from shared.routes.route import Route
from shared.routes.table import RouteTable, Standing
from shared.tokens import SESSION_AUDIENCE, SessionClaims, names_audience

OWN_PREFIX: Final = b"/.fumarole"
OPEN_PATH: Final = b"/.fumarole/open"
ASSET_PREFIX: Final = b"/.fumarole/static/"
CONNECT_PATH: Final = b"/.fumarole/connect"
SIGN_OUT_PATH: Final = b"/.fumarole/sign-out"
JWKS_PATH: Final = b"/.fumarole/jwks.json"


class Request:
    """One request, as far as a decision needs it; immutable by convention.

    ``upgrade`` is a proper WebSocket upgrade, ``path`` as received, without the query.
    """

    __slots__ = ("fields", "path", "start", "upgrade")

    def __init__(self, start: StartLine, fields: Fields, upgrade: bool) -> None:
        self.start = start
        self.fields = fields
        self.upgrade = upgrade
        self.path = start.target.partition(b"?")[0]


class Forward(msgspec.Struct, frozen=True):
    """Relay it to the route's target. *claims* are of a token to be marked as a bearer first."""

    access_right: AccessRight
    claims: SessionClaims | None = None


class Connect(msgspec.Struct, frozen=True):
    """Make a bridge for it: it is the upgrade of a desktop or terminal."""

    access_right: AccessRight
    claims: SessionClaims | None = None


class ServePage(msgspec.Struct, frozen=True, kw_only=True):
    """Have a page of the gateway answer, which is told just this of the request.

    ``host`` is the private host (lower case, without port), ``sid`` the session whose own host it
    is by its form. ``route`` is None for the files of the gateway's own pages, and for a POST to
    ``/.fumarole/open`` whose host is not known yet: the page repairs once, after its cheap
    checks, and answers 404 if it still is not.

    ``grant`` is what the request's credential is good for on this route, also while the route
    starts or is closing. Without a usable credential ``refusal`` says why (``no_credential``,
    ``other_origin``, ``grant_revoked``, …); a page that needs a grant answers that. ``holder`` is
    the ``sub`` of a cookie that verifies, from wherever the request came: opening asks before it
    replaces another user's. ``client_address`` is entered when the request is handed over.

    A request for any path of a vnc or terminal session is such a request, too; outside of
    ``/.fumarole/`` only with a grant and a route that is ready.
    """

    host: str
    sid: str
    route: Route | None
    grant: Grant | None = None
    refusal: Refusal | None = None
    holder: str | None = None
    claims: SessionClaims | None = None
    client_address: str = ""


class Refuse(msgspec.Struct, frozen=True):
    """Answer with *refusal*."""

    refusal: Refusal


class Prove(msgspec.Struct, frozen=True):
    """Have *token* verified, and decide again with the claims or a refusal as proof."""

    token: str


class Repair(msgspec.Struct, frozen=True):
    """Repair the table once, and decide again."""


Decision: TypeAlias = Forward | Connect | ServePage | Refuse | Prove | Repair
Proof: TypeAlias = SessionClaims | Refusal


def _refuse(code: str) -> Refuse:
    return Refuse(REFUSALS[code])


_NOT_FOUND: Final = _refuse("not_found")
_SERVED: Final = Standing.SERVED


class Access:
    """Decides requests; holds nothing but what it was made with.

    With *asserting*, the public keys of assertions are served to everybody.
    """

    __slots__ = ("_asserting", "_grants", "_site")

    def __init__(self, site: Site, grants: GrantKeys, *, asserting: bool = False) -> None:
        self._site = site
        self._grants = grants
        self._asserting = asserting

    def decide(
        self,
        request: Request,
        *,
        table: RouteTable,
        now: float,
        proof: Proof | None = None,
        repaired: bool = False,
    ) -> Decision:
        """Return what is to be done with *request*.

        Args:
            request: The request; strict, and read before.
            table: The table in use.
            now: Unix seconds.
            proof: What came of a :class:`Prove`.
            repaired: Whether a :class:`Repair` has been made.
        """
        host = self._site.host_of(request.fields.host)
        if host is None:
            return _NOT_FOUND
        found = table.find(host)
        route = found.route
        if found.standing is _SERVED and route is not None:
            if not found.private:
                return _public(request, route, host, now)
            return self._private(request, route, host, table, now, proof)
        if found.standing is Standing.ABSENT:
            return self._absent(request, host, table, now, repaired)
        if found.standing is Standing.UNREADABLE:
            return _refuse("session_unreadable")
        return _NOT_FOUND

    def asset(self, request: Request) -> ServePage | None:
        """Return what is to be done with *request* if it is for what is the same for everybody.

        These are the files of the gateway's own pages, and the public keys of assertions. Every
        host that could be a session's has them, also one that has ended, and also while nothing is
        known of any: the pages that say so need their looks. No credential is asked for: apps that
        fetch the keys have none.
        """
        if not (
            request.path.startswith(ASSET_PREFIX) or (self._asserting and request.path == JWKS_PATH)
        ):
            return None
        host = self._site.host_of(request.fields.host)
        sid = self._site.sid_of(host) if host is not None else None
        return ServePage(host=host, sid=sid, route=None) if host and sid else None

    def proved(
        self, request: Request, proof: Proof | None, now: float
    ) -> Grant | SessionClaims | None:
        """Return who is proved to have sent *request*, whatever it is for and wherever from."""
        if isinstance(proof, SessionClaims):
            return proof
        if (
            proof is not None
            or request.fields.token is not None
            or len(request.fields.cookies) != 1
        ):
            return None
        try:
            return self._grants.verify(request.fields.cookies[0], now)
        except GrantRefused:
            return None

    def _absent(
        self, request: Request, host: str, table: RouteTable, now: float, repaired: bool
    ) -> Decision:
        sid = self._site.sid_of(host)
        if sid is None:
            return _NOT_FOUND
        if request.start.method == b"POST" and request.path == OPEN_PATH:
            return ServePage(host=host, sid=sid, route=None)
        if request.path == OPEN_PATH and not repaired:
            # Who is sent here right after the session was opened may be ahead of the news of it.
            return Repair()
        if request.fields.token is not None or len(request.fields.cookies) != 1:
            return _NOT_FOUND
        try:
            grant = self._grants.verify(request.fields.cookies[0], now)
        except GrantRefused:
            return _NOT_FOUND
        if grant.sid != sid:
            return _NOT_FOUND
        if not repaired:
            return Repair()
        return Refuse(REFUSALS["session_ended"].about(ended_subject(sid, table.ended.get(sid))))

    def _private(
        self,
        request: Request,
        route: Route,
        host: str,
        table: RouteTable,
        now: float,
        proof: Proof | None,
    ) -> Decision:
        own = is_own(request.path)
        held = self._credential(request, route, host, table, now, proof)
        if isinstance(held, Prove):
            return held
        claims = proof if isinstance(proof, SessionClaims) else None
        connects = request.upgrade and route.kind != "web" and request.path == CONNECT_PATH
        if own and not connects:
            refusal, grant = (held, None) if isinstance(held, Refusal) else (None, held)
            if refusal is REFUSALS["two_cookies"]:
                return Refuse(refusal)
            holder = self._holder(request, route, table, now)
            return ServePage(
                host=host,
                sid=route.sid,
                route=route,
                grant=grant,
                refusal=refusal,
                holder=holder,
                claims=claims if grant is not None else None,
            )
        if isinstance(held, Refusal):
            return Refuse(held)
        refusal = route_refusal(route, now)
        if refusal is not None:
            return Refuse(refusal)
        if connects:
            return Connect(AccessRight(route=route, host=host, grant=held), claims)
        if route.kind == "web":
            if (
                request.fields.service_worker
                and not route.service_workers
                and is_root(request.path)
            ):
                return _refuse("root_service_worker")
            return Forward(AccessRight(route=route, host=host, grant=held), claims)
        holder = self._holder(request, route, table, now)
        return ServePage(
            host=host, sid=route.sid, route=route, grant=held, holder=holder, claims=claims
        )

    def _credential(
        self,
        request: Request,
        route: Route,
        host: str,
        table: RouteTable,
        now: float,
        proof: Proof | None,
    ) -> Grant | Refusal | Prove:
        """Judge the first credential that is present; nothing falls through to another."""
        fields = request.fields
        token = fields.token
        if token is None and fields.cookies:
            if route.service_workers:
                return REFUSALS["bearer_only"]
            return self._cookie(request, route, host, table, now)
        if token is None:
            token = own_bearer(fields.authorization)
        if token is None or request.path == OPEN_PATH:
            return REFUSALS["no_credential"]
        if proof is None:
            return Prove(token.decode("latin-1"))
        if isinstance(proof, Refusal):
            return proof
        return _from_claims(proof, route, table, now)

    def _cookie(
        self, request: Request, route: Route, host: str, table: RouteTable, now: float
    ) -> Grant | Refusal:
        if len(request.fields.cookies) > 1:
            return REFUSALS["two_cookies"]
        try:
            grant = self._grants.verify(request.fields.cookies[0], now)
        except GrantRefused as error:
            return REFUSALS["grant_ended" if error.reason == "ended" else "bad_credential"]
        if grant.sid != route.sid:
            return REFUSALS["other_session"]
        if is_revoked(grant, table):
            return REFUSALS["grant_revoked"]
        if not self._is_from(
            host, request.start.method, request.fields.provenance, upgrade=request.upgrade
        ):
            return REFUSALS["other_origin"]
        return _fitting(grant, route)

    def is_allowed_origin(self, access_right: AccessRight, method: bytes, said: Provenance) -> bool:
        """Say whether another request by *access_right*, no upgrade, comes from where it may.

        Nothing is asked on public hosts. What a token authenticates is exempt, but is never
        judged by this.
        """
        if access_right.grant is None:
            return True
        return self._is_from(access_right.host, method, said, upgrade=False)

    def _is_from(self, host: str, method: bytes, said: Provenance, *, upgrade: bool) -> bool:
        return is_allowed_origin(
            said,
            method=method,
            upgrade=upgrade,
            own_origin=self._site.origin_of(host).encode(),
            framed=bool(self._site.embed_origins),
        )

    def _holder(self, request: Request, route: Route, table: RouteTable, now: float) -> str | None:
        if len(request.fields.cookies) != 1:
            return None
        try:
            grant = self._grants.verify(request.fields.cookies[0], now)
        except GrantRefused:
            return None
        live = grant.sid == route.sid and not is_revoked(grant, table)
        return grant.sub if live else None


def is_own(path: bytes) -> bool:
    """Say whether *path* belongs to the gateway."""
    return path.startswith(OWN_PREFIX) and path[len(OWN_PREFIX) :][:1] in (b"", b"/")


def is_root(target: bytes) -> bool:
    """Say whether *target* lies in the folder ``/``: a worker from there would have all paths.

    A worker's scope lies within the folder of its script (Service Workers, section 4.4), and the
    gateway's own pages are below ``/`` alone. Browsers take no script whose path holds an encoded
    slash or backslash.
    """
    slash = target.find(b"/", 1)
    return slash < 0 or target.find(b"?", 0, slash) >= 0


def own_bearer(authorization: bytes | None) -> bytes | None:
    """Return the token in an ``Authorization`` that is meant for us; None when it is the app's."""
    if authorization is None:
        return None
    scheme, _, rest = authorization.replace(b"\t", b" ").partition(b" ")
    token = rest.strip(b" ")
    if scheme.lower() != b"bearer" or not token:
        return None
    return token if names_audience(token.decode("latin-1"), SESSION_AUDIENCE) else None


def route_refusal(route: Route, now: float, *, public: bool = False) -> Refusal | None:
    """Return why nothing new may begin on *route*, None when it may.

    *public* is who asks under a public link: of the job nothing is told but the route's message.
    """
    if route.expires_at is not None and now >= route.expires_at:
        return REFUSALS["session_expired"].about(subject_of(route, public=public))
    match route.state:
        case "closing":
            return REFUSALS["session_closing"].about(subject_of(route, public=public))
        case "starting":
            refusal = REFUSALS["session_starting"].saying(route.message)
            return refusal.about(subject_of(route, public=public))
        case "ready":
            return None


def _public(request: Request, route: Route, host: str, now: float) -> Decision:
    if not route.public or route.kind != "web" or is_own(request.path):
        return _NOT_FOUND
    refusal = route_refusal(route, now, public=True)
    if refusal is not None:
        return Refuse(refusal)
    return Forward(AccessRight(route=route, host=host, grant=None))


def _from_claims(
    claims: SessionClaims, route: Route, table: RouteTable, now: float
) -> Grant | Refusal:
    if not is_for(claims, route):
        return REFUSALS["other_session"]
    grant = make_grant(claims, now=now)
    if now >= grant.ends_at:
        return REFUSALS["grant_ended"]
    if is_revoked(grant, table):
        return REFUSALS["grant_revoked"]
    return _fitting(grant, route)


def _fitting(grant: Grant, route: Route) -> Grant | Refusal:
    if route.kind == "web" and grant.mode != "control":
        return REFUSALS["view_only"]
    return grant
