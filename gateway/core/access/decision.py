"""The access decision: one pure function of each request. docs/session-token.md is its contract.

A decision is a value: forward, serve a page, open a bridge, or refuse. It can also ask for missing
input (a verified token, a repaired table) and is then made again with that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeAlias

import msgspec

from gateway.core.access.access_right import AccessRight, is_revoked
from gateway.core.access.grants import Grant, GrantKeys, GrantRefused
from gateway.core.access.opening import is_for, make_grant
from gateway.core.access.refusals import REFUSALS, Refusal, ended_subject, subject_of
from gateway.core.access.site import Site
from gateway.core.http.headers import own_bearer
from gateway.core.http.heads import Provenance
from gateway.core.http.request_reader import RequestHead
from shared.routes.route import Route
from shared.routes.table import RouteTable, Standing
from shared.tokens import SessionClaims

OWN_PREFIX: Final = b"/.fumarole"
OPEN_PATH: Final = b"/.fumarole/open"
ASSET_PREFIX: Final = b"/.fumarole/static/"
CONNECT_PATH: Final = b"/.fumarole/connect"
SIGN_OUT_PATH: Final = b"/.fumarole/sign-out"
JWKS_PATH: Final = b"/.fumarole/jwks.json"


class Forward(msgspec.Struct, frozen=True):
    """Relay the request to the route's target.

    A token with *claims* must be marked as used first.
    """

    access_right: AccessRight
    claims: SessionClaims | None = None


class OpenBridge(msgspec.Struct, frozen=True):
    """Open a bridge: the request is the upgrade of a desktop or terminal."""

    access_right: AccessRight
    claims: SessionClaims | None = None


class ServePage(msgspec.Struct, frozen=True, kw_only=True):
    """Have one of the gateway's pages respond; it gets these values from the request.

    - ``host`` is the private host (lower case, without port), ``sid`` the session to which it
      belongs by its form.
    - ``route`` is None for the files of the pages. It is also None for a POST to
      ``/.fumarole/open`` whose host is not known yet: the page then repairs the table once, after
      its cheap checks, and responds with 404 if the host stays unknown.
    - ``grant`` is what the credential allows on this route, also while the route is starting or
      closing.
    - ``refusal`` says why there is no usable credential (``no_credential``, ``other_origin``,
      ``grant_revoked``, …). A page that needs a grant responds with it.
    - ``holder`` is the ``sub`` of a cookie that verifies, whatever the request's origin. The
      opening page asks before it replaces another user's cookie.
    - ``client_address`` is set when the request is handed over.

    Any path of a vnc or terminal session leads here too; outside of ``/.fumarole/`` only with a
    grant and a route that is ready.
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
    """Respond with *refusal*."""

    refusal: Refusal


class VerifyToken(msgspec.Struct, frozen=True):
    """Have *token* verified; then decide again with its claims, or the refusal, as proof."""

    token: str


class RepairTable(msgspec.Struct, frozen=True):
    """Have the route table repaired once; then decide again."""


Decision: TypeAlias = Forward | OpenBridge | ServePage | Refuse | VerifyToken | RepairTable
Proof: TypeAlias = SessionClaims | Refusal


def _refuse(code: str) -> Refuse:
    return Refuse(REFUSALS[code])


_NOT_FOUND: Final = _refuse("not_found")
_SERVED: Final = Standing.SERVED


class Access:
    """Decides requests; its only state is its configuration.

    With *asserting*, every client may fetch the public keys of assertions.
    """

    def __init__(self, site: Site, grants: GrantKeys, *, asserting: bool = False) -> None:
        self._site = site
        self._grants = grants
        self._asserting = asserting

    def decide(
        self,
        request: RequestHead,
        *,
        table: RouteTable,
        now: float,
        proof: Proof | None = None,
        repaired: bool = False,
    ) -> Decision:
        """Return the decision on *request*.

        Args:
            request: The head of the request.
            table: The current route table.
            now: Unix seconds.
            proof: The result of a :class:`VerifyToken`.
            repaired: Whether a :class:`RepairTable` was carried out.
        """
        host = self._site.host_of(request.fields.host)
        if host is None:
            return _NOT_FOUND
        found = table.find(host)
        route = found.route
        if found.standing is _SERVED and route is not None:
            if not found.private:
                return _decide_public(request, route, host, now)
            return self._decide_private(request, route, host, table, now, proof)
        if found.standing is Standing.ABSENT:
            return self._decide_absent(request, host, table, now, repaired)
        if found.standing is Standing.UNREADABLE:
            return _refuse("session_unreadable")
        return _NOT_FOUND

    def find_asset(self, request: RequestHead) -> ServePage | None:
        """Return the decision on *request* if it is for a public asset of the gateway.

        Assets are the files of the gateway's pages and the public keys of assertions. Every host
        that could be a session's serves them, also after its session has ended and while no table
        is known: the error pages need their styles. No credential is required, since apps that
        fetch the keys have none.
        """
        if not (
            request.path.startswith(ASSET_PREFIX) or (self._asserting and request.path == JWKS_PATH)
        ):
            return None
        host = self._site.host_of(request.fields.host)
        sid = self._site.sid_of(host) if host is not None else None
        return ServePage(host=host, sid=sid, route=None) if host and sid else None

    def proven_sender(
        self, request: RequestHead, proof: Proof | None, now: float
    ) -> Grant | SessionClaims | None:
        """Return the proven sender of *request*, whatever its target and origin."""
        if isinstance(proof, SessionClaims):
            return proof
        if proof is not None or request.fields.token is not None:
            return None
        return self._sole_grant(request, now)

    def _sole_grant(self, request: RequestHead, now: float) -> Grant | None:
        """Return the grant of the request's only cookie; None if there is no valid one."""
        if len(request.fields.cookies) != 1:
            return None
        try:
            return self._grants.verify(request.fields.cookies[0], now)
        except GrantRefused:
            return None

    def _decide_absent(
        self, request: RequestHead, host: str, table: RouteTable, now: float, repaired: bool
    ) -> Decision:
        sid = self._site.sid_of(host)
        if sid is None:
            return _NOT_FOUND
        if request.start.method == b"POST" and request.path == OPEN_PATH:
            return ServePage(host=host, sid=sid, route=None)
        if request.path == OPEN_PATH and not repaired:
            # A user who is redirected here right after the opening may be ahead of its event.
            return RepairTable()
        grant = None if request.fields.token is not None else self._sole_grant(request, now)
        if grant is None or grant.sid != sid:
            return _NOT_FOUND
        if not repaired:
            return RepairTable()
        subject = ended_subject(sid, table.ended.get(sid))
        return Refuse(replace(REFUSALS["session_ended"], subject=subject))

    def _decide_private(
        self,
        request: RequestHead,
        route: Route,
        host: str,
        table: RouteTable,
        now: float,
        proof: Proof | None,
    ) -> Decision:
        path = request.path
        own = is_own(path)
        credential = self._credential(request, route, host, table, now, proof)
        if isinstance(credential, VerifyToken):
            return credential
        claims = proof if isinstance(proof, SessionClaims) else None
        connects = request.fields.websocket and route.kind != "web" and path == CONNECT_PATH
        if own and not connects:
            refusal, grant = (
                (credential, None) if isinstance(credential, Refusal) else (None, credential)
            )
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
        if isinstance(credential, Refusal):
            return Refuse(credential)
        refusal = route_refusal(route, now)
        if refusal is not None:
            return Refuse(refusal)
        if connects:
            return OpenBridge(AccessRight(route=route, host=host, grant=credential), claims)
        if route.kind == "web":
            if request.fields.service_worker and not route.service_workers and is_root(path):
                return _refuse("root_service_worker")
            return Forward(AccessRight(route=route, host=host, grant=credential), claims)
        holder = self._holder(request, route, table, now)
        return ServePage(
            host=host, sid=route.sid, route=route, grant=credential, holder=holder, claims=claims
        )

    def _credential(
        self,
        request: RequestHead,
        route: Route,
        host: str,
        table: RouteTable,
        now: float,
        proof: Proof | None,
    ) -> Grant | Refusal | VerifyToken:
        """Check the first credential that is present; there is no fallback to another one."""
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
            return VerifyToken(token.decode("latin-1"))
        if isinstance(proof, Refusal):
            return proof
        return _from_claims(proof, route, table, now)

    def _cookie(
        self, request: RequestHead, route: Route, host: str, table: RouteTable, now: float
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
        if not self._site.allows_origin(
            host,
            request.fields.provenance,
            method=request.start.method,
            upgrade=request.fields.websocket,
        ):
            return REFUSALS["other_origin"]
        return _check_mode(grant, route)

    def is_allowed_origin(
        self, access_right: AccessRight, method: bytes, provenance: Provenance
    ) -> bool:
        """Return whether another request by *access_right*, no upgrade, has an allowed origin.

        On public hosts every origin is allowed. Requests with a token are exempt, but never reach
        this check.
        """
        if access_right.grant is None:
            return True
        return self._site.allows_origin(access_right.host, provenance, method=method, upgrade=False)

    def _holder(
        self, request: RequestHead, route: Route, table: RouteTable, now: float
    ) -> str | None:
        grant = self._sole_grant(request, now)
        if grant is None or grant.sid != route.sid or is_revoked(grant, table):
            return None
        return grant.sub


def is_own(path: bytes) -> bool:
    """Return whether *path* belongs to the gateway."""
    return path.startswith(OWN_PREFIX) and path[len(OWN_PREFIX) :][:1] in (b"", b"/")


def is_root(target: bytes) -> bool:
    """Return whether *target* lies in the folder ``/``, so that a worker from there gets all paths.

    A worker's scope lies within the folder of its script (Service Workers, section 4.4), and the
    gateway's pages have only ``/`` above them. Browsers accept no worker script whose path contains
    an encoded slash or backslash.
    """
    slash = target.find(b"/", 1)
    return slash < 0 or target.find(b"?", 0, slash) >= 0


def route_refusal(route: Route, now: float, *, public: bool = False) -> Refusal | None:
    """Return why no new connection may use *route*, None if it may.

    *public* is set for a client on a public link, who learns nothing of the job but the route's
    message.
    """
    if route.expires_at is not None and now >= route.expires_at:
        return replace(REFUSALS["session_expired"], subject=subject_of(route, public=public))
    match route.state:
        case "closing":
            return replace(REFUSALS["session_closing"], subject=subject_of(route, public=public))
        case "starting":
            refusal = REFUSALS["session_starting"].with_message(route.message)
            return replace(refusal, subject=subject_of(route, public=public))
        case "ready":
            return None


def _decide_public(request: RequestHead, route: Route, host: str, now: float) -> Decision:
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
    return _check_mode(grant, route)


def _check_mode(grant: Grant, route: Route) -> Grant | Refusal:
    if route.kind == "web" and grant.mode != "control":
        return REFUSALS["view_only"]
    return grant
