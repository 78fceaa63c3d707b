"""``/.fumarole/open``: exchanges the token of a link for the cookie of a session."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import Final

from aiohttp import web

from gateway.core.access.access_right import AccessRight
from gateway.core.access.decision import ServePage
from gateway.core.access.grants import Grant, GrantKeys
from gateway.core.access.opening import (
    MAX_BODY_BYTES,
    SAME_SITE,
    Opening,
    OpeningRefused,
    check_route,
    expired_cookie,
    make_cookie,
    make_grant,
    may_post,
    read_opening,
)
from gateway.core.access.refusals import REFUSALS, Refusal
from gateway.core.http.accept import prefers_html
from gateway.core.limits.addresses import limit_key
from gateway.core.limits.rates import Rate, retry_after
from gateway.credentials.session_tokens import SessionTokens
from gateway.pages.assets import Inside
from gateway.pages.documents import Card, Documents, form_action, link_action
from gateway.pages.responses import Responses, field_of, page_request_of, texts_for
from shared.routes.route import Route
from shared.routes.table import Standing
from shared.tokens import SessionClaims

OPEN_PATH: Final = "/.fumarole/open"
FRAME_PATH: Final = "/.fumarole/frame"
_FRAMES: Final = frozenset({"iframe", "frame"})
_LINK_AT_FAULT: Final = frozenset(
    {"bad_credential", "token_spent", "token_unsure", "too_many_opens", "too_many_checks"}
)
"""Refusals that say nothing of the session, nor of what its users may do."""
_OTHER_USER: Final = Refusal(
    409,
    "other_user",
    "Another user's session is open in this browser; post replace=1 to replace it.",
)


@dataclass(slots=True)
class _Attempt:
    """What was posted, and the claims once they are verified, also if it is refused later."""

    opening: Opening | None = None
    claims: SessionClaims | None = None
    route: Route | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class OpenPage:
    """Handles requests to open a session."""

    open_origins: tuple[str, ...]
    """Origins that may post tokens, besides the session's own host."""
    tokens: SessionTokens
    grants: GrantKeys
    responses: Responses
    parts: Inside
    """Embeds the script and the style of the page."""
    of_address: Rate
    """The rate of attempts for one address (IPv6: a /64)."""
    of_session: Rate
    """The rate of attempts for one address and session, if the address exceeds its rate."""
    of_user: Rate
    """The rate of openings for one user. Only verified tokens count, so that no other client can
    use up a user's rate."""

    async def get(self, request: web.Request) -> web.Response:
        """Serve the page whose script takes the token from the URL fragment and posts it."""
        texts = texts_for(request)
        way_in = _way_in(request, "/")
        ways = link_action(way_in, texts("actions.enter"), first=True) if way_in else ""
        ways += self.responses.way_home(texts, first=not ways)
        card = Card(
            title=texts("opening.title"),
            status=texts("opening.text"),
            actions=f'<noscript><p class="next">{escape(texts("opening.needs_javascript"))}</p>'
            '</noscript><p id="what-next" class="next" hidden>'
            f"{escape(texts('opening.again'))}</p>"
            + (f'<div id="ways-on" class="actions" hidden>{ways}</div>' if ways else ""),
            script="open.js",
            busy=True,
        )
        text = Documents(self.parts).card(card, texts)
        return self.responses.html(text, texts, sameorigin_referrer=True, embedded=self.parts)

    async def post(self, request: web.Request) -> web.Response:
        """Open a session: respond 303 with the cookie, or refuse without spending the token."""
        page_request = page_request_of(request)
        opens = self.responses.meters.opens
        attempt = _Attempt()
        try:
            response = await self._open(request, page_request, attempt)
            opens["opened" if response.status == 303 else _OTHER_USER.code] += 1
            return response
        except OpeningRefused as refused:
            opens[refused.code] += 1
            refusal = REFUSALS[refused.code]
            if refused.retry_after_seconds is not None:
                refusal = replace(refusal, retry_after_seconds=refused.retry_after_seconds)
            place = _entered_place(request, page_request, attempt, refusal)
            if place is not None:
                self.responses.record(page_request, refusal, operation="open", who=attempt.claims)
                return _redirect(place)
            if refusal.code in _LINK_AT_FAULT and attempt.opening is not None:
                refusal = replace(refusal, way_in=_way_in(request, attempt.opening.next))
            return self.responses.refuse(request, refusal, operation="open", who=attempt.claims)

    async def _open(
        self, request: web.Request, page_request: ServePage, attempt: _Attempt
    ) -> web.Response:
        self._check_tries(page_request)
        self._check_origin(request, page_request)
        opening = read_opening(request.headers.get("Content-Type", ""), await _read(request))
        attempt.opening = opening
        peeked = self.tokens.peek(opening.token, sid=page_request.sid)
        claims, _ = await self.tokens.verify(peeked, address=page_request.client_address)
        attempt.claims = claims
        route = await self._find(claims, page_request.host)
        self._check(claims, route)
        attempt.route = route
        if (
            page_request.holder is not None
            and page_request.holder != claims.sub
            and not opening.replace
        ):
            return self._ask_first(request, opening, claims, page_request.holder)
        _check_rate(self.of_user, claims.sub)
        await self.tokens.mark(claims, "open")
        # The route may have changed during the Redis call.
        route = await self._find(claims, page_request.host)
        self._check(claims, route)
        framed = self._is_framed(request, opening)
        grant = make_grant(claims, now=self.tokens.wall(), framed=framed)
        response = self._opened(request, opening, grant, route)
        if page_request.holder not in (None, claims.sub):
            self.responses.forget_user(request, response)
        self.responses.audit.opened(claims, page_request.client_address)
        return response

    def _check_tries(self, page_request: ServePage) -> None:
        """Count an attempt of an address, which many clients may share.

        If one client has used up the rate of the address, others may still open sessions that were
        not attempted from there. Hosts of sessions are not guessable without a link.
        """
        address, table = limit_key(page_request.client_address), self.tokens.follower.table
        waits = self.of_address.take(address)
        is_known = table is not None and page_request.sid in table
        # The session's rate counts every attempt, also while the address is within its own.
        is_spent = not is_known or bool(self.of_session.take(f"{address} {page_request.sid}"))
        if waits and is_spent:
            raise OpeningRefused("too_many_opens", retry_after_seconds=retry_after(waits))

    def _check_origin(self, request: web.Request, page_request: ServePage) -> None:
        allowed = may_post(
            request.headers.get("Origin"),
            request.headers.get("Sec-Fetch-Site"),
            own=self.responses.site.origin_of(page_request.host),
            others=self.open_origins,
        )
        if not allowed:
            raise OpeningRefused("other_origin")

    async def _find(self, claims: SessionClaims, host: str) -> Route:
        table = self.tokens.table()
        if claims.sid not in table:
            await self.tokens.follower.repair()
            table = self.tokens.table()
        found = table.find(host)
        if found.standing is Standing.UNREADABLE:
            raise OpeningRefused("session_unreadable")
        if found.route is None or not found.private:
            raise OpeningRefused("not_found")
        return found.route

    def _check(self, claims: SessionClaims, route: Route) -> None:
        check_route(claims, route, self.tokens.table(), now=self.tokens.wall())

    def _ask_first(
        self, request: web.Request, opening: Opening, claims: SessionClaims, holder: str
    ) -> web.Response:
        if not prefers_html(field_of(request, "Accept")):
            return self.responses.refuse(request, _OTHER_USER, operation="open", who=claims)
        self.responses.record(page_request_of(request), _OTHER_USER, operation="open", who=claims)
        fields = [("token", opening.token), ("next", opening.next), ("replace", "1")]
        if opening.same_site:
            fields.append(("frame", SAME_SITE))
        texts, user = texts_for(request), claims.name or claims.sub
        card = Card(
            title=texts("other_user.title"),
            status=texts("other_user.text", holder=holder, user=user),
            advice=texts("other_user.advice", holder=holder),
            actions=form_action(OPEN_PATH, fields, texts("other_user.go_on", user=user))
            + link_action("/", texts("other_user.stay")),
            script="reopen.js",
            detail="409 · other_user",
        )
        return self.responses.page(card, texts, status=409, sameorigin_referrer=True)

    def _opened(
        self, request: web.Request, opening: Opening, grant: Grant, route: Route
    ) -> web.Response:
        access_right = AccessRight(route=route, host=route.hosts[0], grant=grant)
        site = self.responses.site
        secure = site.scheme == "https"
        cookie = make_cookie(
            site.cookie_name,
            self.grants.sign(grant),
            secure=secure,
            max_age_seconds=access_right.ends_at - self.tokens.wall(),
            framed=grant.framed,
        )
        place = _place_of(route, opening.next, request.headers.get("Sec-Fetch-Dest"))
        response = _redirect(place)
        if site.embed_origins and "Sec-Fetch-Dest" in request.headers:
            # A browser may send both kinds in one request, and two cookies are refused.
            other = expired_cookie(site.cookie_name, secure=secure, framed=not grant.framed)
            response.headers.add("Set-Cookie", other)
        response.headers.add("Set-Cookie", cookie)
        return response

    def _is_framed(self, request: web.Request, opening: Opening) -> bool:
        """Return whether the session is opened in a frame of another site.

        The posting page may be the gateway's own (:meth:`get`), which has tried it out, or the
        framing one.
        """
        framing = _framed_by(request)
        same_site = opening.same_site or framing == SAME_SITE
        return bool(self.responses.site.embed_origins) and framing is not None and not same_site


def _entered_place(
    request: web.Request, page_request: ServePage, attempt: _Attempt, refusal: Refusal
) -> str | None:
    """Return where a user goes on who follows a used link, but is signed in; None for others.

    The browser's own grant admits the user there, and the token gives nothing.
    """
    claims, opening, route = attempt.claims, attempt.opening, attempt.route
    if claims is None or opening is None or route is None or refusal.code != "token_spent":
        return None
    if page_request.holder != claims.sub or not prefers_html(field_of(request, "Accept")):
        return None
    return _place_of(route, opening.next, request.headers.get("Sec-Fetch-Dest"))


def _way_in(request: web.Request, after: str) -> str:
    """Return the path at which the browser's user goes on; empty if nobody is signed in."""
    page_request = page_request_of(request)
    if page_request.holder is None or page_request.route is None:
        return ""
    return _place_of(page_request.route, after, request.headers.get("Sec-Fetch-Dest"))


def _redirect(place: str) -> web.Response:
    headers = {"Location": place, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return web.Response(status=303, headers=headers)


def _framed_by(request: web.Request) -> str | None:
    """Return how the page that navigates a frame is related (Fetch Metadata); None for no frame."""
    if request.headers.get("Sec-Fetch-Dest", "") not in _FRAMES:
        return None
    return request.headers.get("Sec-Fetch-Site", "")


def _place_of(route: Route, after: str, destination: str | None) -> str:
    """Return the redirect target: the page with a bar above the app, if the route requests one.

    A page that frames the session gets no bar, since it can show its own. Programs send no
    ``Sec-Fetch-Dest``.
    """
    framed = route.frame and route.kind == "web" and destination == "document"
    return f"{FRAME_PATH}#{after}" if framed else after


def _check_rate(rate: Rate, key: str) -> None:
    waits = rate.take(key)
    if waits:
        raise OpeningRefused("too_many_opens", retry_after_seconds=retry_after(waits))


async def _read(request: web.Request) -> bytes:
    """Return the body; one whose length is too large is refused before it arrives."""
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise OpeningRefused("body_too_large")
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise OpeningRefused("body_too_large")
    return bytes(body)
