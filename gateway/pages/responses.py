"""Responses of the pages, with the header fields that all of them share."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from gateway.core.access.decision import ServePage
from gateway.core.access.refusals import Refusal, RefusalRenderer, refusal_fields
from gateway.core.access.site import Site
from gateway.core.http.cookies import expiry_lines, foreign_cookie_names
from gateway.core.limits.rates import RefusalRate
from gateway.observers.audit_log import AuditLog, Operation, Verified
from gateway.pages.assets import Inside
from gateway.pages.documents import VARY, Card, Documents, link_action, page_headers
from gateway.pages.texts import LANGUAGES, Texts
from gateway.relay.http.page_connection import EXTRA_INFO
from gateway.relay.meters import Meters


def page_request_of(request: web.Request) -> ServePage:
    """Return the data path's decision about *request*; only the data path passes requests here."""
    page_request = request.transport.get_extra_info(EXTRA_INFO) if request.transport else None
    if not isinstance(page_request, ServePage):
        raise web.HTTPBadRequest
    return page_request


def texts_for(request: web.Request) -> Texts:
    """Return the texts in the language that *request* prefers."""
    return LANGUAGES.of(field_of(request, "Accept-Language"))


def field_of(request: web.Request, name: str) -> bytes:
    """Return the field *name* of *request*, several joined by commas; empty if there is none."""
    return ",".join(request.headers.getall(name, ())).encode("latin-1", "replace")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Responses:
    """Makes responses with pages and refusals."""

    documents: Documents
    errors: RefusalRenderer
    site: Site
    meters: Meters
    refusals: RefusalRate
    audit: AuditLog
    home: str | None = None
    """The orchestrator's site."""

    def way_home(self, texts: Texts, *, first: bool = True) -> str:
        """Return the link to where sessions are opened; empty if that is not known."""
        return link_action(self.home, texts("actions.home"), first=first) if self.home else ""

    def page(
        self, card: Card, texts: Texts, *, status: int = 200, sameorigin_referrer: bool = False
    ) -> web.Response:
        """Return *card* as a response."""
        text = self.documents.card(card, texts)
        return self.html(text, texts, status=status, sameorigin_referrer=sameorigin_referrer)

    def html(
        self,
        text: str,
        texts: Texts,
        *,
        status: int = 200,
        sameorigin_referrer: bool = False,
        framing: bool = False,
        embedded: Inside | None = None,
    ) -> web.Response:
        """Return *text*, a whole document in the language of *texts*, as a response.

        Its policy allows the scripts and styles that are *embedded* in it, else those of its host.
        """
        headers = page_headers(
            self.site.frame_ancestors,
            sameorigin_referrer=sameorigin_referrer,
            scripts=embedded.scripts if embedded else "'self'",
            styles=embedded.styles if embedded else "'self'",
            framing=framing,
        )
        headers["Content-Language"] = texts.language
        return web.Response(status=status, text=text, content_type="text/html", headers=headers)

    def json(self, value: object) -> web.Response:
        """Return *value* as a JSON response that is not cached."""
        headers = {
            "Cache-Control": "no-store",
            "Vary": VARY,
            "X-Content-Type-Options": "nosniff",
        }
        return web.json_response(value, headers=headers)

    def forget_user(self, request: web.Request, response: web.Response) -> None:
        """Make the browser clear what the app has stored for its user.

        Not ``"cookies"``: that would clear the whole registrable domain.
        """
        response.headers["Clear-Site-Data"] = '"cache", "storage"'
        self.expire_foreign(request, response)

    def expire_foreign(self, request: web.Request, response: web.Response) -> None:
        """Expire the cookies of *request* that are not the gateway's."""
        base = page_request_of(request).host.partition(".")[2]
        values = [
            value.encode("latin-1", "replace") for value in request.headers.getall("Cookie", ())
        ]
        secure = self.site.scheme == "https"
        framed = bool(self.site.embed_origins)
        names = foreign_cookie_names(values)
        for line in expiry_lines(names, base=base, secure=secure, framed=framed):
            response.headers.add("Set-Cookie", line)

    def record(
        self,
        page_request: ServePage,
        refusal: Refusal,
        *,
        operation: Operation,
        who: Verified | None = None,
    ) -> None:
        """Write *refusal* to the audit log; the arguments are those of :meth:`refuse`."""
        self.audit.refused(
            refusal,
            operation=operation,
            address=page_request.client_address,
            sid=page_request.sid,
            route=page_request.route,
            who=who or page_request.grant,
        )

    def refuse(
        self,
        request: web.Request,
        refusal: Refusal,
        *,
        operation: Operation = "request",
        who: Verified | None = None,
    ) -> web.Response:
        """Return *refusal* as HTML or JSON, or 429 after too many refusals for the address.

        Args:
            request: The refused request.
            refusal: The refusal.
            operation: The operation, for the audit log.
            who: The verified user; by default that of the grant in the request's cookie.
        """
        page_request = page_request_of(request)
        self.record(page_request, refusal, operation=operation, who=who)
        refusal = self.refusals.judge(refusal, page_request.client_address)
        refusal = refusal.for_request(request.method, opening=operation == "open")
        self.meters.refusals[refusal.code] += 1
        accept, languages = field_of(request, "Accept"), field_of(request, "Accept-Language")
        page = self.errors.render(refusal, accept, languages)
        headers = refusal_fields(refusal, page)
        return web.Response(status=refusal.status, body=page.body, headers=headers)
