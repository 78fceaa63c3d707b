"""A decision to forward, cached for further requests of its connection."""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass, field
from typing import Final

from gateway.core.access.access_right import AccessRight
from gateway.core.access.assertions import Assertion
from gateway.core.access.decision import OWN_PREFIX
from gateway.core.access.refusals import Refusal
from gateway.core.http.fields import Fields
from gateway.core.http.headers import NO_UPSTREAM_HEAD, UpstreamHead
from gateway.core.http.heads import StartLine
from gateway.core.http.request_reader import MAX_SECTIONS, CachedSection
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
    table: InitVar[RouteTable]
    user: str
    forwarded: bytes
    reusable: bool
    assertion: InitVar[Assertion | None] = None
    notice: Refusal | None = None
    until: InitVar[float] = math.inf
    version: object = field(init=False)
    begins_at: float = -math.inf
    ends_at: float = field(init=False)
    path_prefix: bytes = field(init=False)
    fields: Fields | None = None
    method: bytes = b""
    is_user_input: bool = False
    """Whether a user has caused the request, as far as can be seen."""
    head: UpstreamHead = NO_UPSTREAM_HEAD

    def __post_init__(self, table: RouteTable, assertion: Assertion | None, until: float) -> None:
        self.version = table.version  # not the table, which would outlive its replacement
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
            and self._holds(table, now)
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

    def covers_upgrade(
        self, start: StartLine, table: RouteTable, now: float, *, address: str
    ) -> bool:
        """Return whether this decision on an upgrade holds for the upgrade of another connection.

        That request must have the same cached section. It comes from the client at *address*.
        """
        return (
            self._holds(table, now)
            and self.access_right.address == address
            and not start.target.startswith(OWN_PREFIX)
        )

    def _holds(self, table: RouteTable, now: float) -> bool:
        """Return whether neither the table nor the time has ended the decision."""
        return self.version is table.version and self.begins_at <= now < self.ends_at

    def has_same_provenance(self, start: StartLine, fields: Fields) -> bool:
        """Return whether the last request had the same provenance and method."""
        known = self.fields
        return (
            known is not None
            and known.provenance is fields.provenance
            and self.method == start.method
        )


MAX_UPGRADE_DECISIONS: Final = MAX_SECTIONS


class UpgradeDecisions:
    """Decisions on WebSocket upgrades by the cached section of the request, oldest evicted first.

    Browsers open one WebSocket after the other with the same fields, each on a new connection.
    Connections whose requests had the same section share a decision, and with it an access right.
    """

    def __init__(self) -> None:
        self._known: dict[CachedSection, CachedDecision] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, section: CachedSection) -> CachedDecision | None:
        """Return the last decision on an upgrade with *section*; it may not hold any more."""
        return self._known.get(section)

    def put(self, section: CachedSection, decision: CachedDecision) -> None:
        """Keep the *decision* to admit an upgrade with *section* by the grant in its cookie."""
        if section not in self._known and len(self._known) >= MAX_UPGRADE_DECISIONS:
            del self._known[next(iter(self._known))]
        self._known[section] = decision
