"""What the gateway writes into the audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from gateway.audit.attachments import Attachments
from gateway.core.limits.addresses import limit_key
from shared.audit import AuditRecord, Event, write_audit
from shared.record_quota import Counted, RecordQuota

if TYPE_CHECKING:
    from gateway.core.access.access_right import AccessRight
    from gateway.core.access.answers import Refusal
    from gateway.core.access.grants import Grant
    from shared.routes import Route
    from shared.tokens import SessionClaims

TICK_SECONDS: Final = 1.0
_RECORDED: Final = frozenset({401, 403, 404, 409, 410, 429})
"""Refusals of access; the others say that something is malformed or does not work."""
_RECORDED_CODES: Final = frozenset({"two_cookies"})

Operation = Literal["open", "connect", "request", "sign-out"]
_Key: TypeAlias = tuple[str, str]
"""An address and "", or a session and a user of it."""


class Verified(Protocol):
    """Whom a signature has proved: a grant, or the claims of a token."""

    @property
    def sub(self) -> str:
        """The user."""
        ...

    @property
    def sid(self) -> str:
        """The session that it is for."""
        ...

    @property
    def jti(self) -> str:
        """The token."""
        ...

    @property
    def kid(self) -> str:
        """The key that has signed the token."""
        ...

    @property
    def mode(self) -> Literal["control", "view"]:
        """What the user may do there."""
        ...


class Trail:
    """Writes the gateway's audit records.

    Args:
        issuer: Of all session tokens.
        process: Names this process in attachments; no other process ever has the same name.
        wall: Unix seconds.
        write: Takes the records.
    """

    def __init__(
        self,
        *,
        issuer: str,
        process: str,
        wall: Callable[[], float],
        write: Callable[[AuditRecord], None] = write_audit,
    ) -> None:
        self._issuer = issuer
        self._process = process
        self._wall = wall
        self._write = write
        self._refusals: RecordQuota[_Key] = RecordQuota()
        self.attachments = Attachments(self, wall=wall)

    def opened(self, claims: SessionClaims, address: str) -> None:
        """A token has become a grant."""
        self._record("opened", claims, claims, sid=claims.sid, address=address, operation="open")

    def signed_out(self, grant: Grant, route: Route | None, address: str) -> None:
        """A user has ended a grant."""
        said = {"address": address, "operation": "sign-out"}
        self._record("signed_out", grant, route, sid=grant.sid, **said)

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
        """Something was refused to the client at *address*, who is *who* where that is proved."""
        wanted = operation in ("open", "sign-out") or refusal.code in _RECORDED_CODES
        if not wanted and refusal.status not in _RECORDED:
            return
        key = (limit_key(address), "") if who is None else (who.sid, who.sub)
        if not self._refusals.take(key, refusal.code, self._wall()):
            return
        said = {"reason": refusal.code, "operation": operation, "mode": None}
        self._record("refused", who, route, sid=sid, address=address, **said)

    def attached(self, connection: str, access_right: AccessRight, number: int) -> None:
        """Somebody has come."""
        self._attachment("attached", connection, access_right, number)

    def detached(
        self,
        connection: str,
        access_right: AccessRight,
        number: int,
        since: float,
        until: float,
        reason: str,
    ) -> None:
        """Somebody has left, or was made to."""
        said = {"reason": reason.replace(" ", "_"), "since": since, "until": until}
        self._attachment("detached", connection, access_right, number, **said)

    def _attachment(
        self,
        event: Literal["attached", "detached"],
        connection: str,
        access_right: AccessRight,
        number: int,
        **said: Any,
    ) -> None:
        self._record(
            event,
            access_right.grant,
            access_right.route,
            address=access_right.address or None,
            sid=access_right.sid,
            connection=connection,
            attachment=f"{self._process}-{number}",
            **said,
        )

    def _record(
        self, event: Event, who: Verified | None, where: Route | SessionClaims | None, **said: Any
    ) -> None:
        """Write *event*, by *who* where anybody is proved; *said* are further fields of it."""
        fields: dict[str, Any] = {}
        if who is not None:
            fields |= {"issuer": self._issuer, "subject": who.sub, "mode": who.mode}
            fields |= {"jti": who.jti, "kid": who.kid}
        if where is not None:
            fields |= {"job": where.job, "rank": where.rank, "kind": where.kind}
        self._write(AuditRecord(event=event, time=self._wall(), **fields | said))

    def counted(
        self,
        event: Literal["attached", "refused"],
        address: str | None,
        counted: Counted[str] | Counted[_Key],
        *,
        sid: str | None = None,
        subject: str | None = None,
    ) -> None:
        """Many events of one address, one user or (without both) many addresses."""
        self._write(
            AuditRecord(
                event=event,
                time=self._wall(),
                issuer=None if subject is None else self._issuer,
                subject=subject,
                address=address,
                sid=sid,
                since=counted.since,
                until=counted.until,
                count=counted.count,
                reasons=dict(counted.reasons),
            )
        )

    # Time passes

    async def run(self) -> None:
        """Record what is due, until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.due()

    def due(self) -> None:
        """Record the visits that are over, and what was only counted."""
        self.attachments.due()
        self._count(self._refusals.due(self._wall()))

    def close(self) -> None:
        """Record what has not been so far: the process ends."""
        self.attachments.close()
        self._count(self._refusals.flush())

    def _count(self, found: list[Counted[_Key]]) -> None:
        for one in found:
            first, subject = one.key or (None, "")
            if subject:
                self.counted("refused", None, one, sid=first, subject=subject)
            else:
                self.counted("refused", first, one)
