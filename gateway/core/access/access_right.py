"""By which right a connection exists, and whether it still does."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from gateway.core.access.refusals import (
    CLOSE_DRAINING,
    CLOSE_GRANT_ENDED,
    CLOSE_SERVICE_RESTART,
    CLOSE_SESSION_ENDED,
)

if TYPE_CHECKING:
    from gateway.core.access.grants import Grant
    from shared.routes.route import Route
    from shared.routes.table import RouteTable
    from shared.tokens import SessionClaims


class ActivityCounter(Protocol):
    """Where the bytes of a session are counted; ``input`` is set by what people do."""

    up: int
    down: int
    input: bool


class _Uncounted:
    """Takes the counts of what belongs to no session, and tells nobody."""

    __slots__ = ("down", "input", "up")

    def __init__(self) -> None:
        self.up = 0
        self.down = 0
        self.input = False


UNCOUNTED: Final[ActivityCounter] = _Uncounted()


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a connection ends: as a WebSocket close, and as an answer where none was sent yet."""

    close_code: int
    close_reason: str
    refusal: str


GRANT_ENDED: Final = Ending(CLOSE_GRANT_ENDED, "grant ended", "grant_ended")
GRANT_REVOKED: Final = Ending(CLOSE_GRANT_ENDED, "grant revoked", "grant_revoked")
SESSION_ENDED: Final = Ending(CLOSE_SESSION_ENDED, "session ended", "session_ended")
SESSION_EXPIRED: Final = Ending(CLOSE_SESSION_ENDED, "session expired", "session_expired")
STARTING: Final = Ending(CLOSE_SERVICE_RESTART, "starting", "session_starting")
NEW_TARGET: Final = Ending(CLOSE_SERVICE_RESTART, "new target", "target_changed")
UNREADABLE: Final = Ending(CLOSE_SERVICE_RESTART, "session unreadable", "session_unreadable")
DRAINING: Final = Ending(CLOSE_DRAINING, "gateway draining", "bus_lost")
BUS_LOST: Final = Ending(CLOSE_SERVICE_RESTART, "bus lost", "bus_lost")


class AccessRight(msgspec.Struct, kw_only=True, eq=False):
    """One connection's right to reach one route: by a grant, or None where the route is public.

    ``route`` is exchanged for newer revisions of the same target (:meth:`renew`), and ``ends_at``
    with it: when the right ends by itself, in unix seconds, infinity for never. ``address`` is the
    client's, once the request is let in. ``attachment`` is the number and the beginning of the
    attachment that is recorded for it (:mod:`gateway.audit`); ``activity`` is where its bytes are
    counted: its session's once the connection is registered (:mod:`gateway.reports`).
    """

    route: Route
    host: str
    grant: Grant | None
    sid: str = ""
    """The same in every revision of the route."""
    user: str | None = None
    """Who asks; None where nobody was asked."""
    ends_at: float = inf
    address: str = ""
    attachment: tuple[int, float] | None = None
    activity: ActivityCounter = UNCOUNTED

    def __post_init__(self) -> None:
        """Take the rest from route and grant."""
        route, host, grant = self.route, self.host, self.grant
        # The route's own string, which thousands of connections share.
        own = route.hosts[0]
        self.host = own if own == host else next((one for one in route.hosts if one == host), host)
        self.sid = route.sid
        if grant is not None:
            self.user = grant.sub
        self.renew(route)

    def renew(self, route: Route) -> None:
        """Go on with another revision of the route to the same target."""
        self.route = route
        grant, expires = self.grant, route.expires_at
        ends = inf if grant is None else grant.ends_at
        self.ends_at = ends if expires is None else min(ends, expires)


def judge(access_right: AccessRight, table: RouteTable, now: float) -> Ending | None:
    """Return why *access_right* holds no more, None while it does.

    The current route is taken over where it leads to the same target. A ``closing`` route leaves
    what is open alone.
    """
    route = table.route(access_right.sid)
    if route is None:
        return UNREADABLE if access_right.sid in table else SESSION_ENDED
    grant_over = _judge_grant(access_right, table, route, now)
    if grant_over is not None:
        return grant_over
    if route.expires_at is not None and now >= route.expires_at:
        return SESSION_EXPIRED
    if route.state == "starting":
        return STARTING
    known = access_right.route
    # What is open filters the clipboard as it did when it began: another policy begins anew.
    if _target_id(route) != _target_id(known) or route.clipboard != known.clipboard:
        return NEW_TARGET
    access_right.renew(route)
    return None


def _judge_grant(
    access_right: AccessRight, table: RouteTable, route: Route, now: float
) -> Ending | None:
    grant = access_right.grant
    if grant is None:
        return None if route.public and access_right.host in route.hosts[1:] else SESSION_ENDED
    if now >= grant.ends_at:
        return GRANT_ENDED
    return GRANT_REVOKED if is_revoked(grant, table) else None


def is_revoked(held: Grant | SessionClaims, table: RouteTable) -> bool:
    """Say whether what *held* allows has been withdrawn."""
    return table.is_revoked(
        sid=held.sid, jti=held.jti, sub=held.sub, kid=held.kid, issued_at=held.issued_at
    )


def _target_id(route: Route) -> str | None:
    return route.target.id if route.target is not None else None
