"""``/.fumarole/sign-out``: a page with a button, and what the button does.

The grant of the request ends, here at once and everywhere within a second or so. A request from
anywhere but a page of this very host has no grant that counts (docs/session-token.md, "Where
requests may come from"), so no other page can press the button. A GET changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from gateway.core.access.decision import SIGN_OUT_PATH
from gateway.core.access.opening import expired_cookies
from gateway.core.access.refusals import REFUSALS
from gateway.core.access.site import Site
from gateway.core.http.accept import prefers_html
from gateway.core.limits.addresses import limit_key
from gateway.core.limits.rates import Rate, retry_after
from gateway.pages.documents import Card, form_action, link_action
from gateway.pages.responses import Responses, field_of, page_request_of, texts_for
from gateway.sign_outs import SignOuts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SignOutPage:
    """Signs users out of one session."""

    site: Site
    responses: Responses
    sign_outs: SignOuts
    of_address: Rate
    """How often an address (IPv6: a /64) may sign out."""
    of_user: Rate
    """How often a session's user may: less than the controller takes up of the session in all."""

    async def get(self, request: web.Request) -> web.Response:
        """Serve the page with the button."""
        page_request = page_request_of(request)
        if page_request.grant is None:
            return self.responses.refuse(request, page_request.refusal or REFUSALS["not_found"])
        texts = texts_for(request)
        card = Card(
            title=texts("signing_out.title"),
            status=texts("signing_out.text", user=page_request.grant.sub),
            advice=texts("signing_out.advice"),
            actions=form_action(SIGN_OUT_PATH.decode(), [], texts("page.sign_out"))
            + link_action("/", texts("signing_out.stay")),
        )
        # The button's own request must tell its origin: under no-referrer that would be null.
        return self.responses.page(card, texts, sameorigin_referrer=True)

    async def post(self, request: web.Request) -> web.Response:
        """End the grant of the request, and have the browser forget what belongs to it."""
        page_request = page_request_of(request)
        grant = page_request.grant
        if grant is None:
            refusal = page_request.refusal or REFUSALS["not_found"]
            return self.responses.refuse(request, refusal, operation="sign-out")
        # The user first: what is refused then costs nothing to others at the same address.
        waits = self.of_user.take(f"{grant.sid} {grant.sub}")
        waits = waits or self.of_address.take(limit_key(page_request.client_address))
        if waits:
            refusal = REFUSALS["too_many_opens"].with_retry_after(retry_after(waits))
            return self.responses.refuse(request, refusal, operation="sign-out")
        self.responses.audit.signed_out(grant, page_request.route, page_request.client_address)
        told = await self.sign_outs.end(grant)
        return self._signed_out(request, everywhere=told)

    def _signed_out(self, request: web.Request, *, everywhere: bool) -> web.Response:
        if prefers_html(field_of(request, "Accept")):
            texts = texts_for(request)
            card = Card(
                title=texts("signed_out.title"),
                status=texts("signed_out.text" if everywhere else "signed_out.text_later"),
                advice=texts("signed_out.advice"),
            )
            answer = self.responses.page(card, texts)
        else:
            answer = self.responses.json({"signed_out": True, "everywhere": everywhere})
        # Not "cookies": that would clear the whole registrable domain.
        answer.headers["Clear-Site-Data"] = '"cache", "storage"'
        secure = self.site.scheme == "https"
        framed = bool(self.site.embed_origins)
        for line in expired_cookies(self.site.cookie_name, secure=secure, framed=framed):
            answer.headers.add("Set-Cookie", line)
        self.responses.expire_foreign(request, answer)
        return answer
