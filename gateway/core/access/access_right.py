"""The right by which a connection exists, and whether it still holds."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from math import inf
from typing import Final

import msgspec

from gateway.core.access.grants import Grant
from gateway.core.access.refusals import (
    CLOSE_DRAINING,
    CLOSE_GRANT_ENDED,
    CLOSE_SERVICE_RESTART,
    CLOSE_SESSION_ENDED,
    CLOSE_TRY_AGAIN_LATER,
)
from shared.routes.route import Route
from shared.routes.table import RouteTable
from shared.tokens import SessionClaims


class ActivityCounter:
    """Counts the bytes of a session; ``input`` is set when a user types or clicks."""

    __slots__ = ("down", "input", "up")

    def __init__(self) -> None:
        self.up = 0
        self.down = 0
        self.input = False


UNCOUNTED: Final = ActivityCounter()
"""Shared by connections that belong to no session; nothing reads it."""


@dataclass(frozen=True, slots=True)
class EndReason:
    """Why a connection ends: as a WebSocket close, and as the code of a refusal."""

    close_code: int
    close_reason: str
    refusal: str


GRANT_ENDED: Final = EndReason(CLOSE_GRANT_ENDED, "grant ended", "grant_ended")
GRANT_REVOKED: Final = EndReason(CLOSE_GRANT_ENDED, "grant revoked", "grant_revoked")
SESSION_ENDED: Final = EndReason(CLOSE_SESSION_ENDED, "session ended", "session_ended")
SESSION_EXPIRED: Final = EndReason(CLOSE_SESSION_ENDED, "session expired", "session_expired")
STARTING: Final = EndReason(CLOSE_SERVICE_RESTART, "starting", "session_starting")
NEW_TARGET: Final = EndReason(CLOSE_SERVICE_RESTART, "new target", "target_changed")
UNREADABLE: Final = EndReason(CLOSE_SERVICE_RESTART, "session unreadable", "session_unreadable")
DRAINING: Final = EndReason(CLOSE_DRAINING, "gateway draining", "bus_lost")
OVERLOADED: Final = EndReason(
    CLOSE_TRY_AGAIN_LATER, "gateway short of memory", "gateway_overloaded"
)
BUS_LOST: Final = EndReason(CLOSE_SERVICE_RESTART, "bus lost", "bus_lost")


class AccessRight(msgspec.Struct, kw_only=True, eq=False):
    """The right of one connection to reach one route: by a grant, or None if the route is public.

    - ``route`` is replaced by newer revisions with the same target (:meth:`renew`).
    - ``ends_at`` is when the right ends by itself, in unix seconds; infinity for never.
    - ``address`` is the client's, once the request is admitted.
    - ``attachment`` is the number and the start of the attachment recorded for it
      (:mod:`gateway.observers.audit_log`).
    - ``activity`` counts its bytes: for its session, once it is registered
      (:mod:`gateway.observers.reporter`).
    """

    route: Route
    host: str
    grant: Grant | None
    sid: str = ""
    """The same in every revision of the route."""
    user: str | None = None
    """The authenticated user; None on a public host."""
    ends_at: float = inf
    address: str = ""
    attachment: tuple[int, float] | None = None
    activity: ActivityCounter = UNCOUNTED

    def __post_init__(self) -> None:
        """Derive the other fields from route and grant."""
        route, host, grant = self.route, self.host, self.grant
        # The route's own string, shared by thousands of connections.
        own = route.hosts[0]
        self.host = own if own == host else next((one for one in route.hosts if one == host), host)
        self.sid = route.sid
        if grant is not None:
            self.user = grant.sub
        self.renew(route)

    def for_client(self, address: str) -> AccessRight:
        """Return the same right of another connection, whose client is at *address*."""
        right = copy(self)
        right.address, right.attachment, right.activity = address, None, UNCOUNTED
        return right

    def renew(self, route: Route) -> None:
        """Continue with a newer revision of the route, which has the same target."""
        self.route = route
        grant, expires = self.grant, route.expires_at
        ends = inf if grant is None else grant.ends_at
        self.ends_at = ends if expires is None else min(ends, expires)


def check_access(access_right: AccessRight, table: RouteTable, now: float) -> EndReason | None:
    """Return why *access_right* has ended, None while it holds.

    The current route replaces the known one if its target is the same. A ``closing`` route does not
    end open connections.
    """
    route = table.route(access_right.sid)
    if route is None:
        return UNREADABLE if access_right.sid in table else SESSION_ENDED
    grant_over = _check_grant(access_right, table, route, now)
    if grant_over is not None:
        return grant_over
    if route.expires_at is not None and now >= route.expires_at:
        return SESSION_EXPIRED
    if route.state == "starting":
        return STARTING
    known = access_right.route
    # An open connection keeps the clipboard policy that it began with, so a new policy ends it.
    if _target_id(route) != _target_id(known) or route.clipboard != known.clipboard:
        return NEW_TARGET
    access_right.renew(route)
    return None


def _check_grant(
    access_right: AccessRight, table: RouteTable, route: Route, now: float
) -> EndReason | None:
    grant = access_right.grant
    if grant is None:
        return None if route.public and access_right.host in route.hosts[1:] else SESSION_ENDED
    if now >= grant.ends_at:
        return GRANT_ENDED
    return GRANT_REVOKED if is_revoked(grant, table) else None


def is_revoked(held: Grant | SessionClaims, table: RouteTable) -> bool:
    """Return whether the grant or token *held* is revoked."""
    return table.is_revoked(
        sid=held.sid, jti=held.jti, sub=held.sub, kid=held.kid, issued_at=held.issued_at
    )


def _target_id(route: Route) -> str | None:
    return route.target.id if route.target is not None else None
