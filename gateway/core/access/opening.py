"""How a token becomes a grant: docs/session-token.md, "Opening in a browser".

Each check is independent and raises :class:`OpeningRefused` with the code of the response. The
caller runs them from cheap to expensive and marks the token as used last.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote

from gateway.core.access.access_right import is_revoked
from gateway.core.access.grants import Grant
from shared.events import Head
from shared.jose.jws import strict_json_object
from shared.routes.route import Route
from shared.routes.table import RouteTable
from shared.tokens import SessionClaims

MAX_BODY_BYTES: Final = 16384
SINCE_LEEWAY_SECONDS: Final = 10
USED_KEPT_SECONDS: Final = 60
"""How long after ``exp`` a token is remembered as used."""

SAME_SITE: Final = "same-site"
_MAX_NEXT: Final = 4096
_DECODINGS: Final = 5
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\\]")
_ELSEWHERE = re.compile(r"/(?:\.{0,2}/)*/")
_NEXT_SAFE: Final = "/?#[]@!$&'()*+,;=:%-._~"


class OpeningRefused(Exception):
    """The token opens nothing here; ``code`` names the refusal.

    ``retry_after_seconds`` says when to retry, if that is known.
    """

    def __init__(self, code: str, *, retry_after_seconds: int | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class Opening:
    """The posted fields; the token is not in the ``repr``.

    ``same_site`` is set if the page that frames the session is of the same site (``frame``).
    """

    token: str = field(repr=False)
    next: str
    replace: bool
    same_site: bool = False


# The origin


def may_post(
    origin: str | None, fetch_site: str | None, *, own: str, others: tuple[str, ...]
) -> bool:
    """Return whether a page of *origin* may post tokens here.

    Programs send neither ``Origin`` nor ``Sec-Fetch-Site``. A client that sends only the latter is
    a browser that hides its origin.
    """
    if origin is not None:
        return origin == own or origin in others
    return fetch_site is None


# The body


def read_opening(content_type: str, body: bytes) -> Opening:
    """Return the fields that *body* posts, as JSON or as a form.

    Raises:
        OpeningRefused: ``body_too_large`` or ``bad_request``.
    """
    if len(body) > MAX_BODY_BYTES:
        raise OpeningRefused("body_too_large")
    try:
        fields = _fields(content_type, body)
    except ValueError:
        raise OpeningRefused("bad_request") from None
    token, after = fields.get("token"), fields.get("next", "/")
    if not isinstance(token, str) or not isinstance(after, str):
        raise OpeningRefused("bad_request")
    same_site = fields.get("frame") == SAME_SITE
    return Opening(token, safe_next(after), _is_yes(fields.get("replace")), same_site)


def _fields(content_type: str, body: bytes) -> dict[str, Any]:
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == "application/json":
        return strict_json_object(body)
    if media_type != "application/x-www-form-urlencoded":
        raise ValueError("neither JSON nor a form")
    pairs = parse_qsl(
        body.decode("utf-8"), keep_blank_values=True, max_num_fields=16, errors="strict"
    )
    fields: dict[str, Any] = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field is repeated")
    return fields


def _is_yes(value: object) -> bool:
    return value is True or value == "1" or (type(value) is int and value == 1)


def safe_next(path: str) -> str:
    """Return *path* if it is a place of this origin to continue at, otherwise ``/``.

    The path is checked as received and after each further percent-decoding, since other parties may
    decode it. The gateway's own pages are not allowed.
    """
    if len(path) > _MAX_NEXT:
        return "/"
    form = path
    for _ in range(_DECODINGS):
        if not _is_local_path(form):
            return "/"
        decoded = unquote(form, errors="replace")
        if decoded == form:
            return quote(path, safe=_NEXT_SAFE)
        form = decoded
    return "/"


def _is_local_path(path: str) -> bool:
    if not path.startswith("/") or _CONTROL.search(path) or _ELSEWHERE.match(path):
        return False
    plain = posixpath.normpath(re.split(r"[?#]", path, maxsplit=1)[0])
    return plain.split("/")[1] != ".fumarole"


# The grant


def check_route(claims: SessionClaims, route: Route, table: RouteTable, *, now: float) -> None:
    """Return only if *claims* may open *route* now.

    A starting route may be opened: its page waits for it, with a cookie that stays valid.

    Raises:
        OpeningRefused: ``other_session``, ``view_only``, ``session_expired``, ``session_closing``,
            ``grant_revoked``, ``grant_ended`` or ``bearer_only``.
    """
    if not is_for(claims, route):
        raise OpeningRefused("other_session")
    if claims.mode == "view" and claims.kind == "web":
        raise OpeningRefused("view_only")
    if route.service_workers:
        # The app's service worker would see the next opening token, and a bearer token suffices.
        raise OpeningRefused("bearer_only")
    if route.expires_at is not None and now >= route.expires_at:
        raise OpeningRefused("session_expired")
    if route.state == "closing":
        raise OpeningRefused("session_closing")
    if is_revoked(claims, table):
        raise OpeningRefused("grant_revoked")
    if claims.grant_ends_at(now) <= now:
        raise OpeningRefused("grant_ended")


def is_for(claims: SessionClaims, route: Route) -> bool:
    """Return whether *claims* are for the session of *route* and its endpoint."""
    here = (route.sid, route.job, route.rank, route.kind)
    return (claims.sid, claims.job, claims.rank, claims.kind) == here


def check_since(claims: SessionClaims, since: float | None) -> None:
    """Return only if Redis would know whether the token was used.

    Raises:
        OpeningRefused: ``token_unsure``, for a token that was issued too early to be in the epoch
            that replaced a lost one.
    """
    if since is not None and claims.iat < since + SINCE_LEEWAY_SECONDS:
        raise OpeningRefused("token_unsure")


def check_head(head: Head | None, table: RouteTable) -> None:
    """Return only if the token was marked in the Redis that *table* was read from.

    Raises:
        OpeningRefused: ``bus_lost``.
    """
    if head is None or head.epoch != table.epoch:
        raise OpeningRefused("bus_lost")


def make_grant(claims: SessionClaims, *, now: float, framed: bool = False) -> Grant:
    """Return what *claims* allow from *now* on; *framed* in a frame of another site."""
    return Grant(
        sid=claims.sid,
        jti=claims.jti,
        kid=claims.kid,
        sub=claims.sub,
        mode=claims.mode,
        issued_at=claims.issued_at,
        ends_at=claims.grant_ends_at(now),
        framed=framed,
    )


def expired_cookies(name: bytes, *, secure: bool, framed: bool) -> list[str]:
    """Return the ``Set-Cookie`` lines that make a browser forget a grant.

    A partitioned cookie is distinct from the unpartitioned one of the same name.
    """
    kinds = (False, True) if framed else (False,)
    return [expired_cookie(name, secure=secure, framed=kind) for kind in kinds]


def expired_cookie(name: bytes, *, secure: bool, framed: bool) -> str:
    """Return the ``Set-Cookie`` that makes a browser forget one kind of cookie."""
    return _set_cookie(name, "", secure=secure, max_age_seconds=0, framed=framed)


def make_cookie(
    name: bytes, value: str, *, secure: bool, max_age_seconds: float, framed: bool
) -> str:
    """Return the ``Set-Cookie`` of a grant, which lives for a second at least."""
    seconds = max(1, int(max_age_seconds))
    return _set_cookie(name, value, secure=secure, max_age_seconds=seconds, framed=framed)


def _set_cookie(
    name: bytes, value: str, *, secure: bool, max_age_seconds: int, framed: bool
) -> str:
    """Return a ``Set-Cookie``.

    A cookie set in another origin's frame belongs to that frame alone (Partitioned). Browsers
    accept it only if it is Secure; on localhost they accept that over http too.
    """
    cookie = f"{name.decode()}={value}; Path=/; Max-Age={max_age_seconds}; HttpOnly"
    if framed:
        return f"{cookie}; SameSite=None; Secure; Partitioned"
    return f"{cookie}; SameSite=Lax" + ("; Secure" if secure else "")
