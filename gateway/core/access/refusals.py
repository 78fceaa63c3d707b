"""The gateway's own responses, as one table: docs/session-token.md, "Responses".

A refusal is named by its code. A renderer makes it a page or JSON; this module puts it on the wire.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from shared.routes.route import Route
from shared.routes.statuses import Ended, Status
from shared.text import without_controls

RETRY_SECONDS: Final = 2
BUSY_SECONDS: Final = 5

CLOSE_GRANT_ENDED: Final = 4401
CLOSE_SESSION_ENDED: Final = 4410
CLOSE_SERVICE_RESTART: Final = 1012
CLOSE_TRY_AGAIN_LATER: Final = 1013
CLOSE_DRAINING: Final = 1001

REASONS: Final[Mapping[int, bytes]] = {
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    409: b"Conflict",
    410: b"Gone",
    413: b"Content Too Large",
    414: b"URI Too Long",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """The session that a refusal is about, for clients that may know of it."""

    sid: str
    job: str
    port: int | None
    status: Status | None


def subject_of(route: Route, *, public: bool = False) -> Subject | None:
    """Return what users may know about the session of *route*; nothing on a *public* link."""
    port = None if route.target is None else route.target.port
    return None if public else Subject(route.sid, route.job, port, route.status)


def ended_subject(sid: str, ended: Ended | None) -> Subject | None:
    """Return what users may know about the session *sid*, which has ended."""
    return None if ended is None else Subject(sid, ended.job, None, ended.status)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A response of the gateway and not of the app.

    ``code`` is stable, for programs and metrics. ``message`` is for users and never contains client
    input.
    """

    status: int
    code: str
    message: str
    retry_after_seconds: int | None = None
    closes: bool = False
    """Whether the connection closes after it, whatever the request was."""
    subject: Subject | None = None
    ends_at: int | None = None
    """The end that a notice announces, in unix seconds."""
    app_cookies: tuple[str, ...] = ()
    """``Set-Cookie`` values of the app's document that a notice replaces."""
    sent: Literal["", "form", "link"] = ""
    """The content that a page cannot send again by itself: a form, or the token of a link."""
    reason: str = ""
    """The fault of an app's response, in words of the gateway alone."""
    way_in: str = ""
    """The path of the session at which a user goes on who is signed in, whatever the link; empty
    if nobody is."""

    def for_request(self, method: str, *, opening: bool = False) -> Refusal:
        """Return the same refusal of a request with *method*; *opening* posts a link's token."""
        if method in ("GET", "HEAD"):
            return self
        return replace(self, sent="link" if opening else "form")

    @property
    def told_reason(self) -> str:
        """The reason for the app's developer; empty for clients that may not know the session."""
        return self.reason if self.subject is not None else ""

    def with_message(self, message: str | None) -> Refusal:
        """Return the same refusal with another *message*, if there is one.

        Control characters are removed, since the message comes from elsewhere.
        """
        return replace(self, message=without_controls(message)) if message else self


def _table(*rows: Refusal) -> Mapping[str, Refusal]:
    return MappingProxyType({row.code: row for row in rows})


REFUSALS: Final = _table(
    Refusal(400, "bad_request", "The request is malformed."),
    Refusal(400, "bad_upgrade", "The request is not a proper WebSocket upgrade."),
    Refusal(400, "two_cookies", "The session's cookie came twice."),
    Refusal(401, "no_credential", "This session has to be opened first."),
    Refusal(401, "bad_credential", "The credential does not verify."),
    Refusal(401, "token_spent", "The link has been used already."),
    Refusal(401, "grant_ended", "The access to this session has ended."),
    Refusal(401, "grant_revoked", "The access to this session was withdrawn."),
    Refusal(403, "other_session", "The credential is for something else."),
    Refusal(403, "other_origin", "The request comes from another page."),
    Refusal(403, "view_only", "A web session cannot be opened for viewing only."),
    Refusal(403, "bearer_only", "This session is reached by programs, with a bearer token."),
    Refusal(403, "root_service_worker", "A service worker for the whole session is not allowed."),
    Refusal(404, "not_found", "There is no such session here."),
    Refusal(405, "method_not_allowed", "This method is not served here."),
    Refusal(408, "head_timeout", "The request took too long to arrive."),
    Refusal(408, "body_timeout", "The request's body came too slowly."),
    # Not final: the app responds to the same request once the notice was shown.
    Refusal(409, "session_ends_soon", "The session ends soon."),
    Refusal(409, "access_ends_soon", "The access to this session ends soon."),
    Refusal(410, "session_ended", "The session has ended."),
    Refusal(410, "session_expired", "The session's time is over."),
    Refusal(410, "session_closing", "The session is being closed."),
    Refusal(413, "body_too_large", "The body is too large."),
    Refusal(414, "target_too_long", "The address is too long."),
    Refusal(429, "too_many_connections", "Too many connections are open.", BUSY_SECONDS),
    Refusal(429, "too_many_opens", "Sessions are opened too often from here.", BUSY_SECONDS),
    Refusal(429, "too_many_checks", "Too many links are being checked.", BUSY_SECONDS),
    Refusal(429, "too_many_refusals", "Too much was refused here.", BUSY_SECONDS, closes=True),
    Refusal(431, "head_too_large", "The request's header is too large."),
    Refusal(501, "method_unknown", "This is not a method of HTTP."),
    Refusal(502, "app_unreachable", "The application cannot be reached."),
    Refusal(502, "app_bad_answer", "The application's answer is malformed."),
    Refusal(503, "session_starting", "The session is starting.", RETRY_SECONDS),
    Refusal(503, "session_unreadable", "The session cannot be served.", RETRY_SECONDS),
    Refusal(503, "target_changed", "The application is being replaced.", RETRY_SECONDS),
    Refusal(503, "target_forbidden", "The application's address is out of bounds.", RETRY_SECONDS),
    Refusal(503, "bus_lost", "The gateway cannot verify sessions at the moment.", RETRY_SECONDS),
    Refusal(503, "token_unsure", "Whether the link was used is not known.", RETRY_SECONDS),
    Refusal(503, "gateway_full", "The gateway holds all the connections it can.", BUSY_SECONDS),
    Refusal(
        503, "gateway_overloaded", "The gateway is short of memory.", BUSY_SECONDS, closes=True
    ),
    Refusal(503, "controller_silent", "No new connection can be made now.", RETRY_SECONDS),
    Refusal(504, "app_timeout", "The application did not answer in time."),
)


class Page(NamedTuple):
    """A rendered refusal; *fields* are added to the head."""

    content_type: str
    body: bytes
    fields: tuple[tuple[str, str], ...] = ()


class RefusalRenderer:
    """Renders refusals for clients: every one as JSON, for programs."""

    def render(self, refusal: Refusal, accept: bytes, languages: bytes = b"") -> Page:
        """Return the page for a client with this ``Accept``; must not fail and must not block.

        *languages* is its ``Accept-Language``.
        """
        return json_page(refusal)


def json_page(refusal: Refusal, **shown: str) -> Page:
    """Return *refusal* as JSON, with further members that are *shown* to users."""
    if refusal.told_reason:
        shown["reason"] = refusal.told_reason
    body = json.dumps({"code": refusal.code, "message": refusal.message} | shown).encode()
    return Page("application/json", body)


def refusal_fields(refusal: Refusal, page: Page) -> list[tuple[str, str]]:
    """Return the header fields of *page*.

    Every such response forbids storing and type sniffing: it depends on the user.
    """
    fields = [
        ("Content-Type", page.content_type),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
    ]
    if refusal.retry_after_seconds is not None:
        fields.append(("Retry-After", str(refusal.retry_after_seconds)))
    if refusal.status == 401:
        fields.append(("WWW-Authenticate", 'Bearer realm="fumarole"'))
    return [*fields, *page.fields]


def write_response(
    refusal: Refusal, page: Page, *, close: bool, head_only: bool = False, date: bytes = b""
) -> bytes:
    """Return *page* as the bytes of a complete HTTP/1.1 response.

    *date* is the whole field: see :class:`gateway.core.http.response_heads.HttpDate`.
    """
    lines = [
        b"HTTP/1.1 %d %s" % (refusal.status, REASONS[refusal.status]),
        b"Content-Length: %d" % len(page.body),
    ]
    fields = refusal_fields(refusal, page)
    lines += [f"{name}: {value}".encode("latin-1") for name, value in fields]
    if refusal.status == 405:
        lines.append(b"Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
    if refusal.code == "bad_upgrade":
        # RFC 6455, section 4.4: the supported version.
        lines.append(b"Sec-WebSocket-Version: 13")
    if close:
        lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n" + date + b"\r\n" + (b"" if head_only else page.body)
