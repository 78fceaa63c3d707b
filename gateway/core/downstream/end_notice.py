"""The notice that a web session ends soon: once, in place of one of the app's documents.

Nothing is injected into apps. A page of the gateway replaces one of the app's documents until the
user continues. It never replaces anything else: a download, a frame, a prefetch, the response to a
POST, or a response to a program. A cookie records that the user has seen the notice. It names the
announced end, so the users of an extended session get another notice.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from gateway.core.access.access_right import AccessRight
from gateway.core.access.opening import make_cookie
from gateway.core.access.refusals import REFUSALS, Refusal, subject_of
from gateway.core.access.site import Site
from gateway.core.http.accept import prefers_html
from gateway.core.http.cookies import cut_cookie
from gateway.core.http.request_reader import RequestHead
from gateway.core.http.response_heads import ResponseHead
from shared.routes.route import Route

_COOKIES: Final = re.compile(rb"^cookie:([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_CONDITIONS: Final = re.compile(
    rb"^(?:if-none-match|if-modified-since):[^\r\n]*\r\n", re.IGNORECASE | re.MULTILINE
)
_AHEAD: Final = re.compile(
    rb"^(?:sec-purpose|purpose|x-purpose|x-moz):", re.IGNORECASE | re.MULTILINE
)
"""A prefetch: a browser requests what no user wants to see yet."""
_TYPE: Final = re.compile(rb"^content-type:[ \t]*([^\r\n;]*)", re.IGNORECASE | re.MULTILINE)
_DISPOSITION: Final = re.compile(
    rb"^content-disposition:[ \t]*([^\r\n; ]*)", re.IGNORECASE | re.MULTILINE
)
_SET_COOKIE: Final = re.compile(rb"^set-cookie:[ \t]*([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_DOCUMENTS: Final = frozenset({b"text/html", b"application/xhtml+xml"})


def notice_starts_at(access_right: AccessRight, seconds: float) -> float:
    """Return from when on users get a notice that *access_right* ends, in unix seconds.

    That is *seconds* before the end; infinity for never. In a short session it is the second half:
    a user who has just opened it knows its end. A session's duration counts from the start of its
    app or, if that is unknown, from the grant.
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
    """Return since when the app of *route* runs; None if that is unknown."""
    status = route.status
    if status is None or status.phase != "ready":
        return None
    return dict(status.times).get("starting") if status.since is None else status.since


def make_notice(access_right: AccessRight) -> Refusal:
    """Return the notice about the end of *access_right*."""
    expires = access_right.route.expires_at
    whole = expires is not None and expires <= access_right.ends_at
    known = REFUSALS["session_ends_soon" if whole else "access_ends_soon"]
    subject = subject_of(access_right.route)
    return replace(known, subject=subject, ends_at=int(access_right.ends_at))


def shows_notice(notice: Refusal, request: RequestHead, *, site: Site) -> bool:
    """Return whether the user of *request* gets *notice* in place of a document.

    That is the case for a navigation of a window whose user has not seen a notice of this end.
    """
    fields, section = request.fields, request.raw_fields
    said = fields.provenance
    return (
        request.start.method == b"GET"
        and said.mode == b"navigate"
        and said.dest == b"document"
        and fields.token is None
        and len(fields.cookies) == 1
        and not fields.websocket
        and not fields.service_worker
        and prefers_html(fields.accept)
        and _AHEAD.search(section) is None
        and not _has_seen_notice(notice, section, site.notice_name)
    )


def _has_seen_notice(notice: Refusal, section: bytes, name: bytes) -> bool:
    """Return whether one of the cookies called *name* records this end; neighbours can set more."""
    end = b"%d" % (notice.ends_at or 0)
    return any(end in cut_cookie(value, name)[1] for value in _COOKIES.findall(section))


def without_conditions(end_to_end: bytes) -> bytes:
    """Return *end_to_end* without the fields that allow a 304.

    A 304 does not tell whether the browser shows its cached copy or saves it to a file.
    """
    return _CONDITIONS.sub(b"", end_to_end)


def make_notice_cookie(site: Site, ends_at: int, *, now: float) -> str:
    """Return the ``Set-Cookie`` that records that the user has seen the end *ends_at* announced."""
    return make_cookie(
        site.notice_name,
        str(ends_at),
        secure=site.scheme == "https",
        max_age_seconds=ends_at - now,
        framed=False,
    )


def app_cookies(section: bytes) -> tuple[str, ...]:
    """Return the values of the ``Set-Cookie`` fields of *section*, which may cross the gateway.

    They go to the browser with the notice: an app that renews its session cookie in each document
    would otherwise sign its user out.
    """
    values = _SET_COOKIE.findall(section)
    return tuple(value.decode("latin-1") for value in values)


def is_document(head: ResponseHead) -> bool:
    """Return whether a browser shows the response of *head* as a document, as far as can be seen.

    A response without a type can be one, since browsers sniff it. An attachment is none.
    """
    if head.status != 200:
        return False
    disposition = _DISPOSITION.search(head.raw)
    if disposition is not None and disposition[1].lower() != b"inline":
        return False
    found = _TYPE.search(head.raw)
    return found is None or found[1].strip(b" \t").lower() in _DOCUMENTS
