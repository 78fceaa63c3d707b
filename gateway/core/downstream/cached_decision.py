"""A decision to forward, kept for the next requests of its connection."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gateway.core.access.decision import OWN_PREFIX
from gateway.core.http.headers import NO_HEAD

if TYPE_CHECKING:
    from gateway.core.access.access_right import AccessRight
    from gateway.core.access.assertions import Assertion
    from gateway.core.access.refusals import Refusal
    from gateway.core.http.fields import Fields
    from gateway.core.http.heads import StartLine
    from shared.routes.route import Target
    from shared.routes.table import RouteTable


class CachedDecision:
    """A decision to forward that holds for later requests of the connection, too.

    That is: for those with the same host, cookie and forwarded address and no other credential,
    while the table has not changed, the right has not ended, and the assertion in ``forwarded`` is
    not due for renewal. It holds until *until* at most. With ``notice`` those who navigate are
    told something first. Where such a request comes from is judged again. ``head``, what stands
    around a request's own parts in the head to the app, holds for the same ``fields``.
    """

    __slots__ = (
        "access_right",
        "base",
        "begins_at",
        "by_person",
        "changes",
        "ends_at",
        "fields",
        "forwarded",
        "head",
        "kept",
        "method",
        "notice",
        "table",
        "target",
        "user",
    )

    def __init__(
        self,
        *,
        access_right: AccessRight,
        target: Target,
        table: RouteTable,
        user: str,
        forwarded: bytes,
        kept: bool,
        assertion: Assertion | None = None,
        notice: Refusal | None = None,
        until: float = math.inf,
    ) -> None:
        self.access_right = access_right
        self.target = target
        self.table = table
        self.changes = table.changes
        self.begins_at = -math.inf if assertion is None else assertion.made_at
        self.notice = notice
        ends_at = min(until, access_right.ends_at)
        self.ends_at = ends_at if assertion is None else min(ends_at, assertion.renew_at)
        self.user = user
        self.base = target.base_path.rstrip("/").encode("ascii")
        self.forwarded = forwarded
        self.kept = kept
        self.fields: Fields | None = None
        self.method = b""
        self.by_person = False
        """Whether a person has caused the request, as far as can be seen."""
        self.head = NO_HEAD

    def covers(self, start: StartLine, fields: Fields, table: RouteTable, now: float) -> bool:
        """Say whether it holds for another request, but for where that comes from."""
        known = self.fields
        return (
            self.kept
            and known is not None
            and self.table is table
            and self.changes == table.changes
            and self.begins_at <= now < self.ends_at
            and not fields.websocket
            and not fields.service_worker
            and not start.target.startswith(OWN_PREFIX)
            and (
                known is fields
                or (
                    known.host == fields.host
                    and known.cookies == fields.cookies
                    and known.token is fields.token is None
                    and known.forwarded_for == fields.forwarded_for
                )
            )
        )

    def said_so(self, start: StartLine, fields: Fields) -> bool:
        """Say whether a request that it was used for came from the very same place."""
        known = self.fields
        return (
            known is not None
            and known.provenance is fields.provenance
            and self.method == start.method
        )
