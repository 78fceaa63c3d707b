"""A decision to forward, cached for further requests of its connection, or for upgrades like it."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from gateway.core.access.access_right import AccessRight
from gateway.core.access.assertions import Assertion
from gateway.core.access.decision import OWN_PREFIX
from gateway.core.access.refusals import Refusal
from gateway.core.http.fields import Fields
from gateway.core.http.headers import NO_UPSTREAM_HEAD, UpstreamHead
from gateway.core.http.request_reader import RequestHead
from shared.routes.route import Target
from shared.routes.table import RouteTable


class CachedDecision(msgspec.Struct, kw_only=True, eq=False):
    """A decision to forward that also holds for later requests of the connection.

    It holds for a request if all of these are true:

    - Host, cookie and forwarded address are the same, and there is no other credential.
    - The route table has not changed.
    - The access right has not ended, and *until* has not passed.
    - The assertion in ``forwarded`` is not due for renewal.

    The request's provenance is checked again. ``head``, the constant parts of the upstream head,
    holds for the same ``fields``; an upgrade's lacks client and key. Without ``fields``, which were
    those of a large head, the decision holds for no other request. ``notice``, if present, is
    shown to a user who navigates.
    """

    access_right: AccessRight
    target: Target
    version: object
    user: str
    forwarded: bytes
    reusable: bool
    begins_at: float
    ends_at: float
    path_prefix: bytes
    notice: Refusal | None = None
    fields: Fields | None = None
    method: bytes = b""
    is_user_input: bool = False
    """Whether a user has caused the request, as far as can be seen."""
    head: UpstreamHead = NO_UPSTREAM_HEAD

    @classmethod
    def make(
        cls,
        *,
        access_right: AccessRight,
        target: Target,
        table: RouteTable,
        user: str,
        forwarded: bytes,
        reusable: bool,
        assertion: Assertion | None = None,
        notice: Refusal | None = None,
        until: float = math.inf,
    ) -> CachedDecision:
        """Return the decision, which was made with the present *table*."""
        begins_at, ends_at = -math.inf, min(until, access_right.ends_at)
        if assertion is not None:
            begins_at, ends_at = assertion.made_at, min(ends_at, assertion.renew_at)
        return cls(
            access_right=access_right,
            target=target,
            version=table.version,  # not the table, which would outlive its replacement
            user=user,
            forwarded=forwarded,
            reusable=reusable,
            begins_at=begins_at,
            ends_at=ends_at,
            path_prefix=target.base_path.rstrip("/").encode("ascii"),
            notice=notice,
        )

    def covers(self, request: RequestHead, table: RouteTable, now: float) -> bool:
        """Return whether the decision holds for another request, apart from its provenance."""
        known, fields = self.fields, request.fields
        return (
            self.reusable
            and known is not None
            and self._holds(table, now)
            and not fields.websocket
            and not fields.service_worker
            and not request.start.target.startswith(OWN_PREFIX)
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

    def covers_upgrade(self, request: RequestHead, table: RouteTable, now: float) -> bool:
        """Return whether this decision on an upgrade holds for the upgrade of another connection.

        That request must have the same cached section.
        """
        return self._holds(table, now) and not request.start.target.startswith(OWN_PREFIX)

    def for_client(self, address: str) -> CachedDecision:
        """Return the decision on another connection's upgrade, by the client at *address*."""
        return replace(self, access_right=self.access_right.for_client(address))

    def _holds(self, table: RouteTable, now: float) -> bool:
        """Return whether neither the table nor the time has ended the decision."""
        return self.version is table.version and self.begins_at <= now < self.ends_at

    def has_same_provenance(self, request: RequestHead) -> bool:
        """Return whether the last request had the same provenance and method."""
        known = self.fields
        return (
            known is not None
            and known.provenance is request.fields.provenance
            and self.method == request.start.method
        )
