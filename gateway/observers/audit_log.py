"""The gateway's audit records: docs/audit.md.

::

    open page, pages, admission ────────▶ AuditLog ──▶ shared.audit
    ConnectionRegistry ──▶ Attachments ──▶ AuditLog

Each connection of a desktop or a terminal is one attachment. A web app opens HTTP connections and
WebSockets at any rate, so all those of one grant together are one attachment. It ends after
:data:`LINGER_SECONDS` without a connection. The gateway's own pages are no attachments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from gateway.core.access.access_right import AccessRight
from gateway.core.access.grants import Grant
from gateway.core.access.refusals import Refusal
from gateway.core.limits.addresses import limit_key
from shared.audit import AuditEvent, AuditRecord, Counted, RecordQuota, write_audit
from shared.routes.route import Route
from shared.tokens import SessionClaims

LINGER_SECONDS: Final = 10.0
_PAGE: Final = "page"
_HTTP: Final = "http"
_APP: Final = frozenset({_HTTP, "websocket"})
_CLOSED: Final = "closed"

_Visitor: TypeAlias = tuple[str, str]
"""A session, and a grant or, on public hosts, an address."""


@dataclass(slots=True, eq=False)
class _Visit:
    """The attachment of one visitor to a web app."""

    access_right: AccessRight
    number: int
    since: float
    count: int = 0
    left_at: float = 0.0
    reason: str = _CLOSED


class Attachments:
    """Records attachments; an observer of :class:`gateway.live.ConnectionRegistry`."""

    def __init__(self, audit: AuditLog, *, wall: Callable[[], float]) -> None:
        self._audit = audit
        self._wall = wall
        self._numbers = 0
        self._visits: dict[_Visitor, _Visit] = {}
        self._left: dict[_Visitor, _Visit] = {}
        """Visits without a connection, in the order in which their last connection closed."""
        self._public: RecordQuota[str] = RecordQuota()
        """Limits the records of public links, which anybody may open, by address."""

    def attached(self, kind: str, access_right: AccessRight) -> None:
        """Record a connection by *access_right*, whose address is set."""
        if kind == _PAGE:
            return
        if kind in _APP:
            self._visited(access_right)
            return
        number = self._begin(kind, access_right)
        access_right.attachment = (number, self._wall()) if number else None

    def detached(self, kind: str, access_right: AccessRight, reason: str | None) -> None:
        """Record that a connection closed, or was ended for *reason*."""
        if kind == _PAGE:
            return
        if kind in _APP:
            self._visit_left(access_right, reason)
            return
        attachment, access_right.attachment = access_right.attachment, None
        if attachment is not None:
            number, since = attachment
            self._ended(kind, access_right, number, since, self._wall(), reason or _CLOSED)

    def due(self) -> None:
        """Record the visits that have ended and the counts that are due; call it every second."""
        now = self._wall()
        for visitor, visit in tuple(self._left.items()):
            if now < visit.left_at + LINGER_SECONDS:
                break
            self._over(visitor, visit)
        self._count(self._public.due(now))

    def close(self) -> None:
        """Record everything that is still open, before the process ends."""
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
        self._ended(
            _HTTP, visit.access_right, visit.number, visit.since, visit.left_at, visit.reason
        )

    def _begin(self, kind: str, access_right: AccessRight) -> int:
        """Record a new attachment; return its number, or 0 if it is only counted."""
        if access_right.grant is None and not self._public.take(
            access_right.address, kind, self._wall()
        ):
            return 0
        self._numbers += 1
        self._audit.attachment("attached", kind, access_right, self._numbers)
        return self._numbers

    def _ended(
        self,
        kind: str,
        access_right: AccessRight,
        number: int,
        since: float,
        until: float,
        reason: str,
    ) -> None:
        reason = reason.replace(" ", "_")
        self._audit.attachment(
            "detached", kind, access_right, number, reason=reason, since=since, until=until
        )

    def _count(self, counted: list[Counted[str]]) -> None:
        for one in counted:
            self._audit.counted("attached", one.key, one)


def _visitor(access_right: AccessRight) -> _Visitor:
    grant = access_right.grant
    # The space keeps an address apart from a jti, which holds none.
    return access_right.sid, f"address {access_right.address}" if grant is None else grant.jti


TICK_SECONDS: Final = 1.0
_RECORDED: Final = frozenset({401, 403, 404, 409, 410, 429})
"""Statuses of refused access. The others mean a malformed request or a failure."""
_RECORDED_CODES: Final = frozenset({"two_cookies"})

Operation = Literal["open", "connect", "request", "sign-out"]
_Key: TypeAlias = tuple[str, str]
"""An address and "", or a session and one of its users."""


Verified: TypeAlias = Grant | SessionClaims
"""A user whose identity a signature has proved."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class AuditLog:
    """Writes the gateway's audit records."""

    issuer: str
    """The issuer of all session tokens."""
    process: str
    """The unique name of this process, a part of each attachment's name."""
    wall: Callable[[], float]
    write: Callable[[AuditRecord], None] = write_audit
    attachments: Attachments = field(init=False)
    _refusals: RecordQuota[_Key] = field(init=False, default_factory=RecordQuota)

    def __post_init__(self) -> None:
        self.attachments = Attachments(self, wall=self.wall)

    def opened(self, claims: SessionClaims, address: str) -> None:
        """Record that a token was exchanged for a grant."""
        self._record("opened", claims, claims, sid=claims.sid, address=address, operation="open")

    def signed_out(self, grant: Grant, route: Route | None, address: str) -> None:
        """Record that a user has ended a grant."""
        fields = {"address": address, "operation": "sign-out"}
        self._record("signed_out", grant, route, sid=grant.sid, **fields)

    def refused(
        self,
        refusal: Refusal,
        *,
        operation: Operation,
        address: str,
        sid: str | None,
        route: Route | None = None,
        who: Verified | None = None,
    ) -> None:
        """Record a refusal to the client at *address*; *who* is its user if that is proved."""
        wanted = operation in ("open", "sign-out") or refusal.code in _RECORDED_CODES
        if not wanted and refusal.status not in _RECORDED:
            return
        key = (limit_key(address), "") if who is None else (who.sid, who.sub)
        if not self._refusals.take(key, refusal.code, self.wall()):
            return
        fields = {"reason": refusal.code, "operation": operation, "mode": None}
        self._record("refused", who, route, sid=sid, address=address, **fields)

    def attachment(
        self,
        event: Literal["attached", "detached"],
        connection: str,
        access_right: AccessRight,
        number: int,
        **fields: Any,
    ) -> None:
        """Record the begin or the end of the attachment *number*."""
        self._record(
            event,
            access_right.grant,
            access_right.route,
            address=access_right.address or None,
            sid=access_right.sid,
            connection=connection,
            attachment=f"{self.process}-{number}",
            **fields,
        )

    def _record(
        self,
        event: AuditEvent,
        who: Verified | None,
        where: Route | SessionClaims | None,
        **fields: Any,
    ) -> None:
        """Write *event* of the user *who* on the session *where*; *fields* are added."""
        record: dict[str, Any] = {}
        if who is not None:
            record |= {"issuer": self.issuer, "subject": who.sub, "mode": who.mode}
            record |= {"jti": who.jti, "kid": who.kid}
        if where is not None:
            record |= {"job": where.job, "rank": where.rank, "kind": where.kind}
        self.write(AuditRecord(event=event, time=self.wall(), **record | fields))

    def counted(
        self,
        event: Literal["attached", "refused"],
        address: str | None,
        counted: Counted[str] | Counted[_Key],
        *,
        sid: str | None = None,
        subject: str | None = None,
    ) -> None:
        """Record the count of events of one address, one user or, without both, many addresses."""
        self.write(
            AuditRecord(
                event=event,
                time=self.wall(),
                issuer=None if subject is None else self.issuer,
                subject=subject,
                address=address,
                sid=sid,
                since=counted.since,
                until=counted.until,
                count=counted.count,
                reasons=dict(counted.reasons),
            )
        )

    async def run(self) -> None:
        """Record what is due every second until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.due()

    def due(self) -> None:
        """Record the visits that have ended and the counts that are due."""
        self.attachments.due()
        self._count(self._refusals.due(self.wall()))

    def close(self) -> None:
        """Record everything that is still open, before the process ends."""
        self.attachments.close()
        self._count(self._refusals.flush())

    def _count(self, found: list[Counted[_Key]]) -> None:
        for one in found:
            first, subject = one.key or (None, "")
            if subject:
                self.counted("refused", None, one, sid=first, subject=subject)
            else:
                self.counted("refused", first, one)
