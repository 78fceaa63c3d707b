"""A decision to forward, cached for further requests of its connection."""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass, field

from gateway.core.access.access_right import AccessRight
from gateway.core.access.assertions import Assertion
from gateway.core.access.decision import OWN_PREFIX
from gateway.core.access.refusals import Refusal
from gateway.core.http.fields import Fields
from gateway.core.http.headers import NO_UPSTREAM_HEAD, UpstreamHead
from gateway.core.http.heads import StartLine
from shared.routes.route import Target
from shared.routes.table import RouteTable


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class CachedDecision:
    """A decision to forward that also holds for later requests of the connection.

    It holds for a request if all of these are true:

    - Host, cookie and forwarded address are the same, and there is no other credential.
    - The route table has not changed.
    - The access right has not ended, and *until* has not passed.
    - The assertion in ``forwarded`` is not due for renewal.

    The request's provenance is checked again. ``head``, the constant parts of the upstream head,
    holds for the same ``fields``. ``notice``, if present, is shown to a user who navigates.
    """

    access_right: AccessRight
    target: Target
    table: RouteTable
    user: str
    forwarded: bytes
    reusable: bool
    assertion: InitVar[Assertion | None] = None
    notice: Refusal | None = None
    until: InitVar[float] = math.inf
    changes: int = field(init=False)
    begins_at: float = -math.inf
    ends_at: float = field(init=False)
    path_prefix: bytes = field(init=False)
    fields: Fields | None = None
    method: bytes = b""
    is_user_input: bool = False
    """Whether a user has caused the request, as far as can be seen."""
    head: UpstreamHead = NO_UPSTREAM_HEAD

    def __post_init__(self, assertion: Assertion | None, until: float) -> None:
        self.changes = self.table.changes
        self.ends_at = min(until, self.access_right.ends_at)
        if assertion is not None:
            self.begins_at = assertion.made_at
            self.ends_at = min(self.ends_at, assertion.renew_at)
        self.path_prefix = self.target.base_path.rstrip("/").encode("ascii")

    def covers(self, start: StartLine, fields: Fields, table: RouteTable, now: float) -> bool:
        """Return whether the decision holds for another request, apart from its provenance."""
        known = self.fields
        return (
            self.reusable
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

    def has_same_provenance(self, start: StartLine, fields: Fields) -> bool:
        """Return whether the last request had the same provenance and method."""
        known = self.fields
        return (
            known is not None
            and known.provenance is fields.provenance
            and self.method == start.method
        )
