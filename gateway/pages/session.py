"""The pages of a session: its desktop or terminal, its state, and static files."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import msgspec
from aiohttp import web

from gateway.core.access.access_right import AccessRight
from gateway.core.access.decision import ServePage, route_refusal
from gateway.core.access.refusals import REFUSALS, Refusal, subject_of
from gateway.core.downstream.end_notice import make_notice, notice_starts_at
from gateway.core.http.accept import accepts_gzip
from gateway.pages.assets import Assets, PortionedPayload
from gateway.pages.documents import EndNotice, Screen
from gateway.pages.errors import job_url
from gateway.pages.responses import Responses, field_of, page_request_of, texts_for
from gateway.pages.texts import title_of, words_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SessionPages:
    """Handles requests of clients with a grant to the session."""

    responses: Responses
    assets: Assets
    wall: Callable[[], float]
    public_keys: Callable[[], bytes] | None = None
    """Returns the public keys that verify assertions; None if assertions are off."""
    orchestrator: str | None = None
    """The URL template of a job's page."""
    end_notice_seconds: float = 0.0
    """How long before its end a bar shows the end notice; 0 is never."""
    waiting: Callable[[str, float], None] = lambda _sid, _now: None
    """Called with session and time for each poll of a start page."""

    async def screen(self, request: web.Request) -> web.Response:
        """Serve the desktop or terminal."""
        page_request = page_request_of(request)
        refusal = self._refusal(page_request)
        if refusal is not None or page_request.route is None or page_request.grant is None:
            return self.responses.refuse(request, refusal or REFUSALS["not_found"])
        texts = texts_for(request)
        route = page_request.route
        about = Screen(
            title=title_of(route, texts),
            mode=page_request.grant.mode,
            clipboard=route.clipboard,
            end=end_notice_of(page_request, self.end_notice_seconds, self.wall()),
            job_url=job_url(self.orchestrator, subject_of(route)),
            home=self.responses.home,
            framed=page_request.grant.framed,
        )
        match route.kind:
            case "terminal":
                text = self.responses.documents.terminal(about, texts)
            case "vnc":
                text = self.responses.documents.desktop(about, texts)
            case "web":
                return self.responses.refuse(request, REFUSALS["not_found"])
        return self.responses.html(text, texts)

    async def frame(self, request: web.Request) -> web.Response:
        """Serve the page that shows a web app below a bar, if its route requests one."""
        page_request = page_request_of(request)
        refusal, route = self._refusal(page_request), page_request.route
        if refusal is not None or route is None or not (route.frame and route.kind == "web"):
            return self.responses.refuse(request, refusal or REFUSALS["not_found"])
        texts = texts_for(request)
        where = job_url(self.orchestrator, subject_of(route))
        text = self.responses.documents.frame(
            title_of(route, texts), texts, job_url=where, notice_seconds=self.end_notice_seconds
        )
        return self.responses.html(text, texts, framing=True)

    async def state(self, request: web.Request) -> web.Response:
        """Serve the state of the session as JSON."""
        page_request = page_request_of(request)
        if page_request.refusal is not None or page_request.route is None:
            return self.responses.refuse(request, page_request.refusal or REFUSALS["not_found"])
        route = page_request.route
        if route.expires_at is not None and self.wall() >= route.expires_at:
            over = replace(REFUSALS["session_expired"], subject=subject_of(route))
            return self.responses.refuse(request, over)
        starting = route.state == "starting"
        if starting:
            self.waiting(route.sid, self.wall())
        body: dict[str, object] = {
            "state": route.state,
            "message": route.message if starting else None,
        }
        if route.frame:
            body["ends_at"] = _ends_at(page_request)
        if route.kind != "web":
            end = end_notice_of(page_request, self.end_notice_seconds, self.wall())
            body["end"] = end
        refusal = route_refusal(route, self.wall())
        words = words_of(refusal, texts_for(request)) if refusal is not None else None
        if words is not None:
            body |= {"title": words.title, "text": words.text}
        if starting and route.status is not None:
            body["status"] = msgspec.to_builtins(route.status)
        return self.responses.json(body)

    async def static(self, request: web.Request) -> web.Response:
        """Serve a built file; it may be cached for good, since its name holds its hash."""
        asset = self.assets.find(request.match_info["name"])
        if asset is None:
            return self.responses.refuse(request, REFUSALS["not_found"])
        headers = {
            "Content-Type": asset.content_type,
            "Cache-Control": "public, max-age=31536000, immutable",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Vary": "Accept-Encoding",
        }
        body = asset.compressed
        if body is None or not accepts_gzip(field_of(request, "Accept-Encoding")):
            return web.Response(body=PortionedPayload(asset.body), headers=headers)
        headers["Content-Encoding"] = "gzip"
        return web.Response(body=PortionedPayload(body), headers=headers)

    async def jwks(self, request: web.Request) -> web.Response:
        """Serve the public keys that verify assertions; needs no grant."""
        if self.public_keys is None:
            return self.responses.refuse(request, REFUSALS["not_found"])
        headers = {
            "Content-Type": "application/jwk-set+json",
            "Cache-Control": "public, max-age=300",
            "X-Content-Type-Options": "nosniff",
        }
        return web.Response(body=self.public_keys(), headers=headers)

    def refuse(self, request: web.Request, code: str) -> web.Response:
        """Refuse a path or method that no page serves; the data path's own refusal comes first."""
        refusal = page_request_of(request).refusal
        return self.responses.refuse(request, REFUSALS[code] if refusal is None else refusal)

    def refuse_method(self, request: web.Request, allowed: Collection[str]) -> web.Response:
        """Refuse a method that this page does not have (RFC 9110, section 15.5.6)."""
        refused = self.refuse(request, "method_not_allowed")
        if refused.status == REFUSALS["method_not_allowed"].status:
            refused.headers["Allow"] = ", ".join(sorted(allowed))
        return refused

    def _refusal(self, page_request: ServePage) -> Refusal | None:
        if page_request.refusal is not None:
            return page_request.refusal
        return (
            None if page_request.route is None else route_refusal(page_request.route, self.wall())
        )


def _ends_at(page_request: ServePage) -> float | None:
    """Return when the session or the access to it ends, whichever is first."""
    route, grant = page_request.route, page_request.grant
    ends = (route.expires_at if route else None, grant.ends_at if grant else None)
    return min((end for end in ends if end is not None), default=None)


def end_notice_of(page_request: ServePage, seconds: float, now: float) -> EndNotice | None:
    """Return the end notice for *page_request*; None if there is none.

    It is shown *seconds* before the end, as :func:`notice_starts_at` computes; 0 is never.
    """
    route, grant = page_request.route, page_request.grant
    if route is None or grant is None:
        return None
    right = AccessRight(route=route, host=page_request.host, grant=grant)
    begins = notice_starts_at(right, seconds)
    if not math.isfinite(begins):
        return None
    whole = make_notice(right).code == "session_ends_soon"
    return EndNotice(
        of="session" if whole else "access", at=right.ends_at, told_from=begins, now=now
    )
