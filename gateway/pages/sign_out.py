"""``/.fumarole/sign-out``: a page with a button, and the request that the button sends.

The POST ends the grant of the request, here at once and everywhere within about a second. Only
requests from a page of this host carry a grant that counts (docs/session-token.md, "Where requests
may come from"), so no other site can send the POST. A GET changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aiohttp import web

from gateway.core.access.decision import SIGN_OUT_PATH
from gateway.core.access.opening import expired_cookies
from gateway.core.access.refusals import REFUSALS
from gateway.core.http.accept import prefers_html
from gateway.core.limits.addresses import limit_key
from gateway.core.limits.rates import Rate, retry_after
from gateway.credentials.sign_outs import SignOuts
from gateway.pages.documents import Card, form_action, link_action
from gateway.pages.responses import Responses, field_of, page_request_of, texts_for


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SignOutPage:
    """Handles sign-outs from one session."""

    responses: Responses
    sign_outs: SignOuts
    of_address: Rate
    """The rate of sign-outs for one address (IPv6: a /64)."""
    of_user: Rate
    """The rate for one user of a session; less than the controller accepts for the session."""

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
        # The form's request must carry its origin; under no-referrer browsers send null.
        return self.responses.page(card, texts, sameorigin_referrer=True)

    async def post(self, request: web.Request) -> web.Response:
        """End the grant of the request, and clear the browser's data of the session."""
        page_request = page_request_of(request)
        grant = page_request.grant
        if grant is None:
            refusal = page_request.refusal or REFUSALS["not_found"]
            return self.responses.refuse(request, refusal, operation="sign-out")
        # The user first, so that a refused sign-out does not count for the address.
        waits = self.of_user.take(f"{grant.sid} {grant.sub}")
        waits = waits or self.of_address.take(limit_key(page_request.client_address))
        if waits:
            refusal = replace(REFUSALS["too_many_opens"], retry_after_seconds=retry_after(waits))
            return self.responses.refuse(request, refusal, operation="sign-out")
        self.responses.audit.signed_out(grant, page_request.route, page_request.client_address)
        sent = await self.sign_outs.end(grant)
        return self._signed_out(request, everywhere=sent)

    def _signed_out(self, request: web.Request, *, everywhere: bool) -> web.Response:
        if prefers_html(field_of(request, "Accept")):
            texts = texts_for(request)
            card = Card(
                title=texts("signed_out.title"),
                status=texts("signed_out.text" if everywhere else "signed_out.text_later"),
                advice=texts("signed_out.advice"),
                actions=self.responses.way_home(texts),
            )
            response = self.responses.page(card, texts)
        else:
            response = self.responses.json({"signed_out": True, "everywhere": everywhere})
        site = self.responses.site
        secure = site.scheme == "https"
        framed = bool(site.embed_origins)
        for line in expired_cookies(site.cookie_name, secure=secure, framed=framed):
            response.headers.add("Set-Cookie", line)
        self.responses.forget_user(request, response)
        return response
