"""The gateway's own pages as one aiohttp application.

It gets only requests that the data path passes to it: paths below ``/.fumarole/`` on private hosts,
and every path of a desktop or terminal.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from gateway.core.access.decision import JWKS_PATH, SIGN_OUT_PATH
from gateway.core.access.refusals import REFUSALS, Refusal
from gateway.core.http.response_heads import STRICT_TRANSPORT
from gateway.pages.open import FRAME_PATH, OPEN_PATH, OpenPage
from gateway.pages.responses import Responses
from gateway.pages.session import SessionPages
from gateway.pages.sign_out import SignOutPage
from shared.runtime.listeners import hide_versions

log = logging.getLogger(__name__)

_FAILED = Refusal(500, "internal_error", "The gateway failed to respond.")
"""The response to an exception in a handler."""


def make_pages(
    open_page: OpenPage, session: SessionPages, sign_out: SignOutPage, responses: Responses
) -> web.Application:
    """Return the application of these pages."""

    @web.middleware
    async def boundary(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Replace aiohttp's own error responses by the gateway's."""
        try:
            return await handler(request)
        except web.HTTPMethodNotAllowed as error:
            return session.refuse_method(request, error.allowed_methods)
        except web.HTTPNotFound:
            return session.refuse(request, "not_found")
        except web.HTTPException:
            return responses.refuse(request, REFUSALS["bad_request"])
        except Exception:  # the outermost boundary of a page
            log.exception("a page failed")
            return responses.refuse(request, _FAILED)

    async def count(_request: web.Request, response: web.StreamResponse) -> None:
        responses.meters.own_answers[response.status // 100] += 1
        if responses.site.strict_transport:
            response.headers["Strict-Transport-Security"] = STRICT_TRANSPORT

    app = web.Application(middlewares=[boundary])
    app.on_response_prepare.extend((hide_versions, count))
    app.router.add_get(OPEN_PATH, open_page.get)
    app.router.add_post(OPEN_PATH, open_page.post)
    app.router.add_get(SIGN_OUT_PATH.decode(), sign_out.get)
    app.router.add_post(SIGN_OUT_PATH.decode(), sign_out.post)
    app.router.add_get("/.fumarole/state", session.state)
    app.router.add_get(FRAME_PATH, session.frame)
    app.router.add_get("/.fumarole/static/{name}", session.static)
    if session.public_keys is not None:
        app.router.add_get(JWKS_PATH.decode(), session.jwks)
    app.router.add_get("/", session.screen)
    return app
