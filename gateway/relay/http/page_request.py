"""What the gateway's own pages are told of a request that is handed over to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.core.access.grants import Grant
    from gateway.core.access.refusals import Refusal
    from shared.routes.route import Route

SIGN_OUT_PATH: Final = b"/.fumarole/sign-out"
EXTRA_INFO: Final = "fumarole"
"""``request.transport.get_extra_info(EXTRA_INFO)`` returns a request's :class:`PageRequest`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """What the data path has decided about one request.

    ``host`` is the private host (lower case, without port), ``sid`` the session whose own host it
    is by its form. ``route`` is None for the files of the gateway's own pages, and for a POST to
    ``/.fumarole/open`` whose host is not known yet: the page repairs once, after its cheap
    checks, and answers 404 if it still is not.

    ``grant`` is what the request's credential is good for on this route, also while the route
    starts or is closing. Without a usable credential ``refusal`` says why (``no_credential``,
    ``other_origin``, ``grant_revoked``, …); a page that needs a grant answers that. ``holder`` is
    the ``sub`` of a cookie that verifies, from wherever the request came: opening asks before it
    replaces another user's.

    A request for any path of a vnc or terminal session is handed over too; outside of
    ``/.fumarole/`` only with a grant and a route that is ready.
    """

    client_address: str
    scheme: str
    host: str
    sid: str
    route: Route | None
    grant: Grant | None
    refusal: Refusal | None
    holder: str | None
