"""What a desktop's or terminal's page knows of its end: when, and from when on it is told."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gateway.core.access.access_right import AccessRight
from gateway.core.downstream.end_notice import notice_of, told_from

if TYPE_CHECKING:
    from gateway.relay.http.page_request import PageRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class EndNotice:
    """When a session (or the access to it) ends, and from when on its user is told.

    All times are unix seconds; ``now`` is the gateway's clock, since browsers' may be wrong.
    """

    of: Literal["session", "access"]
    at: float
    told_from: float
    now: float

    @property
    def told(self) -> dict[str, object]:
        """The same, as the page's script reads it."""
        return {"of": self.of, "at": self.at, "told_from": self.told_from, "now": self.now}


def end_notice_of(page_request: PageRequest, seconds: float, now: float) -> EndNotice | None:
    """Return what the user behind *page_request* is told; None where nobody is told.

    *seconds* before the end they are told, as :func:`told_from` has it; 0 is never.
    """
    route, grant = page_request.route, page_request.grant
    if route is None or grant is None:
        return None
    right = AccessRight(route=route, host=page_request.host, grant=grant)
    begins = told_from(right, seconds)
    if not math.isfinite(begins):
        return None
    whole = notice_of(right).code == "session_ends_soon"
    return EndNotice(
        of="session" if whole else "access", at=right.ends_at, told_from=begins, now=now
    )
