"""Telling people that a web session ends soon: once, in place of a document of the app's.

Nothing is put into apps, so a page of ours stands in for one of theirs, until the user goes on. It
never stands in for what is not shown as a document of its own: a download, a frame, a prefetch, the
response to a POST, or what programs ask for. Whether somebody was told is in a cookie of ours. It
names the end that was told, so that users of an extended session are told again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gateway.core.access.opening import make_cookie
from gateway.core.access.refusals import REFUSALS, Refusal, subject_of
from gateway.core.http.accept import prefers_html
from gateway.core.http.cookies import cut_cookie

if TYPE_CHECKING:
    from gateway.core.access.access_right import AccessRight
    from gateway.core.access.site import Site
    from gateway.core.http.fields import Fields
    from gateway.core.http.heads import StartLine
    from gateway.core.http.response_heads import ResponseHead
    from shared.routes.route import Route

_COOKIES: Final = re.compile(rb"^cookie:([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_CONDITIONS: Final = re.compile(
    rb"^(?:if-none-match|if-modified-since):[^\r\n]*\r\n", re.IGNORECASE | re.MULTILINE
)
_AHEAD: Final = re.compile(
    rb"^(?:sec-purpose|purpose|x-purpose|x-moz):", re.IGNORECASE | re.MULTILINE
)
"""A browser asks for what nobody wants to see yet."""
_TYPE: Final = re.compile(rb"^content-type:[ \t]*([^\r\n;]*)", re.IGNORECASE | re.MULTILINE)
_DISPOSITION: Final = re.compile(
    rb"^content-disposition:[ \t]*([^\r\n; ]*)", re.IGNORECASE | re.MULTILINE
)
_DOCUMENTS: Final = frozenset({b"text/html", b"application/xhtml+xml"})


def told_from(access_right: AccessRight, seconds: float) -> float:
    """Return from when on users are told that *access_right* ends, in unix seconds.

    *seconds* before the session ends, infinity for never. A short time is told
    of in its second half: whoever has just opened it knows. A session lasts from when its
    app began; where that is not known, from when its user was let in.
    """
    grant, route = access_right.grant, access_right.route
    if not seconds or grant is None:
        return float("inf")
    of_grant = grant.ends_at - min(seconds, (grant.ends_at - grant.issued_at) / 2)
    if route.expires_at is None:
        return of_grant
    begun = _begun_at(route)
    lasts = max(0.0, route.expires_at - (grant.issued_at if begun is None else begun))
    return min(of_grant, route.expires_at - min(seconds, lasts / 2))


def _begun_at(route: Route) -> float | None:
    """Return since when the app of *route* runs, where that is known."""
    status = route.status
    if status is None or status.phase != "ready":
        return None
    return dict(status.times).get("starting") if status.since is None else status.since


def notice_of(access_right: AccessRight) -> Refusal:
    """Return what is told of the end of *access_right*."""
    expires = access_right.route.expires_at
    whole = expires is not None and expires <= access_right.ends_at
    known = REFUSALS["session_ends_soon" if whole else "access_ends_soon"]
    return known.about(subject_of(access_right.route)).ending_at(int(access_right.ends_at))


def may_be_told(
    notice: Refusal, start: StartLine, fields: Fields, section: bytes, *, site: Site
) -> bool:
    """Say whether the user behind a request is to be told *notice*, if it shows a document.

    That is the case for the navigation of a window whose user was not told of this end before.
    *section* is the request's field section as it came.
    """
    said = fields.provenance
    return (
        start.method == b"GET"
        and said.mode == b"navigate"
        and said.dest == b"document"
        and fields.token is None
        and len(fields.cookies) == 1
        and not fields.websocket
        and not fields.service_worker
        and prefers_html(fields.accept)
        and _AHEAD.search(section) is None
        and not _was_told(notice, section, site.notice_name)
    )


def _was_told(notice: Refusal, section: bytes, name: bytes) -> bool:
    """Say whether a cookie called *name* says so: one of several: neighbours set them, too."""
    end = b"%d" % (notice.ends_at or 0)
    return any(end in cut_cookie(value, name)[1] for value in _COOKIES.findall(section))


def unconditional(end_to_end: bytes) -> bytes:
    """Return the fields of a request without those that may be answered with 304.

    A 304 does not say whether a browser shows what it has kept, or saves it to a file.
    """
    return _CONDITIONS.sub(b"", end_to_end)


def make_notice_cookie(site: Site, ends_at: int, *, now: float) -> str:
    """Return the ``Set-Cookie`` that says that its user was told of the end *ends_at*."""
    return make_cookie(
        site.notice_name,
        str(ends_at),
        secure=site.scheme == "https",
        max_age_seconds=ends_at - now,
        framed=False,
    )


def is_document(head: ResponseHead) -> bool:
    """Say whether a browser shows the response of *head* as a document, as far as can be seen.

    One without a type is looked into by browsers, and may be one. A file to be kept is none.
    """
    if head.status != 200:
        return False
    disposition = _DISPOSITION.search(head.raw)
    if disposition is not None and disposition[1].lower() != b"inline":
        return False
    found = _TYPE.search(head.raw)
    return found is None or found[1].strip(b" \t").lower() in _DOCUMENTS
