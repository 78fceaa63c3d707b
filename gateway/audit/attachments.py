"""Who is in which session, from when until when, as :class:`gateway.live.Live` sees it.

A desktop or a terminal is an attachment of its own. The HTTP connections and WebSockets of a web
app come and go as often as its scripts like: those of one grant are one attachment, which ends
once there was none for :data:`LINGER_SECONDS`. The gateway's own pages are no part of a session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from shared.record_quota import Counted, RecordQuota

if TYPE_CHECKING:
    from gateway.audit.trail import Trail
    from gateway.core.access.access_right import AccessRight

LINGER_SECONDS: Final = 10.0
_PAGE: Final = "page"
_HTTP: Final = "http"
_APP: Final = frozenset({_HTTP, "websocket"})
_CLOSED: Final = "closed"

_Visitor: TypeAlias = tuple[str, str]
"""A session, and a grant or (on public hosts) an address."""


class _Visit:
    """The connections of one visitor to a web app."""

    __slots__ = ("access_right", "count", "left_at", "number", "reason", "since")

    def __init__(self, access_right: AccessRight, number: int, since: float) -> None:
        self.access_right = access_right
        self.number = number
        self.since = since
        self.count = 0
        self.left_at = 0.0
        self.reason = _CLOSED


class Attachments:
    """Notes who comes and goes.

    Args:
        trail: Where it is recorded.
        wall: Unix seconds.
    """

    def __init__(self, trail: Trail, *, wall: Callable[[], float]) -> None:
        self._trail = trail
        self._wall = wall
        self._numbers = 0
        self._visits: dict[_Visitor, _Visit] = {}
        self._left: dict[_Visitor, _Visit] = {}
        """Those without a connection, in the order in which they left."""
        self._public: RecordQuota[str] = RecordQuota()
        """Nobody knows who opens public links, and anybody may: by address."""

    def attached(self, kind: str, access_right: AccessRight) -> None:
        """A connection was let in by *access_right*, whose address is known."""
        if kind == _PAGE:
            return
        if kind in _APP:
            self._visited(access_right)
            return
        number = self._begin(kind, access_right)
        access_right.attachment = (number, self._wall()) if number else None

    def detached(self, kind: str, access_right: AccessRight, reason: str | None) -> None:
        """It has closed, or was ended for *reason*."""
        if kind == _PAGE:
            return
        if kind in _APP:
            self._visit_left(access_right, reason)
            return
        attachment, access_right.attachment = access_right.attachment, None
        if attachment is not None:
            number, since = attachment
            self._trail.detached(kind, access_right, number, since, self._wall(), reason or _CLOSED)

    def due(self) -> None:
        """Record the visits that are over, and what was only counted; called every second or so."""
        now = self._wall()
        for visitor, visit in tuple(self._left.items()):
            if now < visit.left_at + LINGER_SECONDS:
                break
            self._over(visitor, visit)
        self._count(self._public.due(now))

    def close(self) -> None:
        """Record what has not been so far: the process ends."""
        for visitor, visit in tuple(self._visits.items()):
            visit.left_at = visit.left_at or self._wall()
            self._over(visitor, visit)
        self._count(self._public.flush())

    # Web apps

    def _visited(self, access_right: AccessRight) -> None:
        visitor = _visitor(access_right)
        visit = self._visits.get(visitor)
        if visit is None:
            number = self._begin(_HTTP, access_right)
            if not number:
                return
            visit = self._visits[visitor] = _Visit(access_right, number, self._wall())
        self._left.pop(visitor, None)
        visit.count += 1
        visit.left_at = 0.0

    def _visit_left(self, access_right: AccessRight, reason: str | None) -> None:
        visitor = _visitor(access_right)
        visit = self._visits.get(visitor)
        if visit is None or not visit.count:
            return
        visit.count -= 1
        visit.reason = reason or visit.reason
        if visit.count:
            return
        visit.left_at = self._wall()
        if reason is None:
            self._left[visitor] = visit
        else:
            self._over(visitor, visit)

    def _over(self, visitor: _Visitor, visit: _Visit) -> None:
        self._left.pop(visitor, None)
        del self._visits[visitor]
        self._trail.detached(
            _HTTP, visit.access_right, visit.number, visit.since, visit.left_at, visit.reason
        )

    def _begin(self, kind: str, access_right: AccessRight) -> int:
        """Record that somebody came; return the attachment's number, 0 where it is only counted."""
        if access_right.grant is None and not self._public.take(
            access_right.address, kind, self._wall()
        ):
            return 0
        self._numbers += 1
        self._trail.attached(kind, access_right, self._numbers)
        return self._numbers

    def _count(self, counted: list[Counted[str]]) -> None:
        for one in counted:
            self._trail.counted("attached", one.key, one)


def _visitor(access_right: AccessRight) -> _Visitor:
    grant = access_right.grant
    # Never equal to a jti, which holds no space.
    return access_right.sid, f"address {access_right.address}" if grant is None else grant.jti
