"""A decision to forward, kept for the next requests of its connection."""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING

from gateway.core.access.decision import OWN_PREFIX
from gateway.core.http.headers import NO_UPSTREAM_HEAD

if TYPE_CHECKING:
    from gateway.core.access.access_right import AccessRight
    from gateway.core.access.assertions import Assertion
    from gateway.core.access.refusals import Refusal
    from gateway.core.http.fields import Fields
    from gateway.core.http.headers import UpstreamHead
    from gateway.core.http.heads import StartLine
    from shared.routes.route import Target
    from shared.routes.table import RouteTable


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class CachedDecision:
    """A decision to forward that holds for later requests of the connection, too.

    That is: for those with the same host, cookie and forwarded address and no other credential,
    while the table has not changed, the right has not ended, and the assertion in ``forwarded`` is
    not due for renewal. It holds until *until* at most. With ``notice`` those who navigate are
    told something first. Where such a request comes from is judged again. ``head``, what stands
    around a request's own parts in the head to the app, holds for the same ``fields``.
    """

    access_right: AccessRight
    target: Target
    table: RouteTable
    user: str
    forwarded: bytes
    kept: bool
    assertion: InitVar[Assertion | None] = None
    notice: Refusal | None = None
    until: InitVar[float] = math.inf
    changes: int = field(init=False)
    begins_at: float = -math.inf
    ends_at: float = field(init=False)
    path_prefix: bytes = field(init=False)
    fields: Fields | None = None
    method: bytes = b""
    by_person: bool = False
    """Whether a person has caused the request, as far as can be seen."""
    head: UpstreamHead = NO_UPSTREAM_HEAD

    def __post_init__(self, assertion: Assertion | None, until: float) -> None:
        self.changes = self.table.changes
        self.ends_at = min(until, self.access_right.ends_at)
        if assertion is not None:
            self.begins_at = assertion.made_at
            self.ends_at = min(self.ends_at, assertion.renew_at)
        self.path_prefix = self.target.base_path.rstrip("/").encode("ascii")

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
