"""The pages of a session: its desktop or terminal, its state, and the files that pages need."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from aiohttp import web

from gateway.core.access.answers import REFUSALS, Refusal, subject_of
from gateway.core.access.decision import route_refusal
from gateway.core.http.accept import takes_gzip
from gateway.core.http.oversize import is_own_click
from gateway.pages.answers import Answers, expire_foreign, field_of, page_request_of, texts_for
from gateway.pages.assets import Assets
from gateway.pages.documents import Screen
from gateway.pages.end_notice import end_notice_of
from gateway.pages.errors import job_url
from gateway.pages.wording import title_of, words_of
from gateway.relay.http.page_request import PageRequest


class SessionPages:
    """Serves what belongs to one session, to whoever holds a grant to it.

    Args:
        answers: Writes answers.
        assets: The built files.
        wall: Unix seconds.
        public_keys: Those that verify assertions, where apps are sent some.
        orchestrator: Where a job is managed.
        home: Where sessions are opened.
        end_notice_seconds: How long before its end the user of a desktop or terminal is told.
        waiting: Is told of each session whose start somebody waits for, and when.
    """

    def __init__(
        self,
        *,
        answers: Answers,
        assets: Assets,
        wall: Callable[[], float],
        public_keys: Callable[[], bytes] | None = None,
        orchestrator: str | None = None,
        home: str | None = None,
        end_notice_seconds: float = 0.0,
        waiting: Callable[[str, float], None] = lambda _sid, _now: None,
    ) -> None:
        self._waiting = waiting
        self._orchestrator = orchestrator
        self._home = home
        self._end_notice_seconds = end_notice_seconds
        self._public_keys = public_keys
        self._answers = answers
        self._assets = assets
        self._wall = wall

    @property
    def asserting(self) -> bool:
        """Whether apps are sent assertions, whose public keys are served."""
        return self._public_keys is not None

    async def screen(self, request: web.Request) -> web.Response:
        """Serve the desktop or terminal."""
        page_request = page_request_of(request)
        refusal = self._refusal(page_request)
        if refusal is not None or page_request.route is None or page_request.grant is None:
            return self._answers.refuse(request, refusal or REFUSALS["not_found"])
        texts = texts_for(request)
        route = page_request.route
        about = Screen(
            title=title_of(route, texts),
            mode=page_request.grant.mode,
            clipboard=route.clipboard,
            end=end_notice_of(page_request, self._end_notice_seconds, self._wall()),
            job_url=job_url(self._orchestrator, subject_of(route)),
            home=self._home,
        )
        match route.kind:
            case "terminal":
                text = self._answers.documents.terminal(about, texts)
            case "vnc":
                text = self._answers.documents.desktop(about, texts)
            case "web":
                return self._answers.refuse(request, REFUSALS["not_found"])
        return self._answers.html(text, texts)

    async def frame(self, request: web.Request) -> web.Response:
        """Serve the page that shows a web app beneath a bar, where its route asks for one."""
        page_request = page_request_of(request)
        refusal, route = self._refusal(page_request), page_request.route
        if refusal is not None or route is None or not (route.frame and route.kind == "web"):
            return self._answers.refuse(request, refusal or REFUSALS["not_found"])
        texts = texts_for(request)
        where = job_url(self._orchestrator, subject_of(route))
        text = self._answers.documents.frame(title_of(route, texts), texts, job_url=where)
        return self._answers.html(text, texts, framing=True)

    async def state(self, request: web.Request) -> web.Response:
        """Say in which state the session is; nothing else of it."""
        page_request = page_request_of(request)
        if page_request.refusal is not None or page_request.route is None:
            return self._answers.refuse(request, page_request.refusal or REFUSALS["not_found"])
        route = page_request.route
        if route.expires_at is not None and self._wall() >= route.expires_at:
            over = REFUSALS["session_expired"].about(subject_of(route))
            return self._answers.refuse(request, over)
        starting = route.state == "starting"
        if starting:
            self._waiting(route.sid, self._wall())
        told: dict[str, object] = {
            "state": route.state,
            "message": route.message if starting else None,
        }
        if route.frame:
            told["ends_at"] = _ends_at(page_request)
        if route.kind != "web":
            end = end_notice_of(page_request, self._end_notice_seconds, self._wall())
            told["end"] = end and end.told
        refusal = route_refusal(route, self._wall())
        words = words_of(refusal, texts_for(request)) if refusal is not None else None
        if words is not None:
            told |= {"title": words.title, "text": words.text}
        if starting and route.status is not None:
            told["status"] = msgspec.to_builtins(route.status)
        return self._answers.json(told)

    async def clear_cookies(self, request: web.Request) -> web.Response:
        """Expire the cookies that are not ours, by a click on a page of this host, and go on."""
        mode = field_of(request, "Sec-Fetch-Mode") or None
        if not is_own_click(field_of(request, "Sec-Fetch-Site"), mode):
            return self._answers.refuse(request, REFUSALS["other_origin"])
        answer = web.Response(status=303, headers={"Location": "/", "Cache-Control": "no-store"})
        expire_foreign(request, answer)
        return answer

    async def static(self, request: web.Request) -> web.Response:
        """Serve a built file, for good: its name changes with its content."""
        asset = self._assets.find(request.match_info["name"])
        if asset is None:
            return self._answers.refuse(request, REFUSALS["not_found"])
        headers = {
            "Content-Type": asset.content_type,
            "Cache-Control": "public, max-age=31536000, immutable",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Vary": "Accept-Encoding",
        }
        body = asset.compressed
        if body is None or not takes_gzip(field_of(request, "Accept-Encoding")):
            return web.Response(body=asset.body, headers=headers)
        return web.Response(body=body, headers=headers | {"Content-Encoding": "gzip"})

    async def jwks(self, request: web.Request) -> web.Response:
        """Serve the public keys that verify assertions, to everybody."""
        if self._public_keys is None:
            return self._answers.refuse(request, REFUSALS["not_found"])
        headers = {
            "Content-Type": "application/jwk-set+json",
            "Cache-Control": "public, max-age=300",
            "X-Content-Type-Options": "nosniff",
        }
        return web.Response(body=self._public_keys(), headers=headers)

    async def nothing(self, request: web.Request) -> web.Response:
        """Refuse any other path or method; without a grant, as any request without one."""
        page_request = page_request_of(request)
        if page_request.refusal is not None:
            return self._answers.refuse(request, page_request.refusal)
        return self._answers.refuse(request, REFUSALS["not_found"])

    def _refusal(self, page_request: PageRequest) -> Refusal | None:
        if page_request.refusal is not None:
            return page_request.refusal
        return (
            None if page_request.route is None else route_refusal(page_request.route, self._wall())
        )


def _ends_at(page_request: PageRequest) -> float | None:
    """Return when the session or the access to it ends, whichever is first."""
    route, grant = page_request.route, page_request.grant
    ends = (route.expires_at if route else None, grant.ends_at if grant else None)
    return min((end for end in ends if end is not None), default=None)
