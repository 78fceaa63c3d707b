"""The page and its calls. A cookie that this process issued at sign-in names the caller."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from aiohttp import web

from deploy.local.apps.catalogue import APPS
from deploy.local.orchestrator.controller import Controller, ControllerError
from deploy.local.orchestrator.keys import SigningKey
from deploy.local.orchestrator.sessions import APP_LABEL, Sessions

USERS: Final = ("ada", "bob")
COOKIE: Final = "orchestrator"
MAX_BODY: Final = 4096
JOB_SECONDS: Final = 4 * 3600
EXTENSION_SECONDS: Final = 3600
MOST_UPDATES: Final = 100
WEB: Final = Path(__file__).parent / "web"
STATIC: Final = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Handlers:
    """The HTTP handlers of the orchestrator."""

    def __init__(
        self,
        *,
        key: SigningKey,
        controller: Controller,
        sessions: Sessions,
        origin: str,
        gateway_sources: str,
        tools: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Create the handlers; *tools* can be attached to jobs, and are given with titles."""
        self._tools = tools
        self._key = key
        self._controller = controller
        self._sessions = sessions
        self._origin = origin
        self._gateway_sources = gateway_sources
        self._signed_in: dict[str, str] = {}

    def make_app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=MAX_BODY, middlewares=[self._guard])
        app.add_routes([web.get(path, self._static) for path in STATIC])
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/.well-known/jwks.json", self._jwks),
                web.get("/api/apps", self._apps),
                web.post("/api/login", self._login),
                web.get("/api/jobs", self._jobs),
                web.post("/api/jobs", self._start),
                web.post("/api/jobs/{id}/open", self._open),
                web.post("/api/jobs/{id}/stop", self._stop),
                web.post("/api/jobs/{id}/extend", self._extend),
                web.post("/api/jobs/{id}/share", self._share),
                web.get("/api/jobs/{id}/log", self._log),
                web.get("/api/jobs/{id}/history", self._history),
                web.get("/api/jobs/{id}/metrics", self._metrics),
                web.get("/api/jobs/{id}/tools", self._tools_of),
                web.post("/api/jobs/{id}/tools/{tool}/{act:attach|remove|open}", self._tool),
            ]
        )
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests of other pages, translate errors, and restrict what the page may load."""
        # A browser always sends the origin of a POST. Other programs need not.
        if request.method == "POST" and request.headers.get("Origin", self._origin) != self._origin:
            return _error(403, "foreign_origin", "This call comes from another page.")
        try:
            response = await handler(request)
        except ControllerError as error:
            response = _error(error.status, error.code, error.message)
        except web.HTTPException as error:
            response = _error(error.status, "refused", error.reason)
        response.headers.update(
            {
                # Opening ends in a redirect to the gateway, so form-action has to allow that.
                "Content-Security-Policy": "default-src 'none'; script-src 'self'; "
                "style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
                f"frame-ancestors 'none'; form-action 'self' {self._gateway_sources}",
                "Referrer-Policy": "same-origin",
                "X-Content-Type-Options": "nosniff",
                "Cache-Control": "no-store",
            }
        )
        return response

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _jwks(self, _request: web.Request) -> web.Response:
        return web.json_response(self._key.jwks())

    async def _static(self, request: web.Request) -> web.Response:
        name, kind = STATIC[request.path]
        return web.Response(text=(WEB / name).read_text("utf-8"), content_type=kind)

    async def _apps(self, request: web.Request) -> web.Response:
        apps = [{"name": app.name, "title": app.title, "about": app.about} for app in APPS.values()]
        user = self._signed_in.get(request.cookies.get(COOKIE, ""))
        tools = [{"name": name, "title": title} for name, title in self._tools.items()]
        shown = {"apps": apps, "tools": tools, "users": USERS, "user": user}
        return web.json_response(shown)

    async def _login(self, request: web.Request) -> web.Response:
        # A real orchestrator asks for proof here.
        user = (await _json(request)).get("user")
        if user not in USERS:
            return _error(400, "no_such_user", f"Users are {' and '.join(USERS)}.")
        ticket = secrets.token_urlsafe(32)
        self._signed_in[ticket] = user
        response = web.json_response({"user": user})
        response.set_cookie(COOKIE, ticket, httponly=True, samesite="Lax", path="/")
        return response

    def _user(self, request: web.Request) -> str:
        user = self._signed_in.get(request.cookies.get(COOKIE, ""))
        if user is None:
            raise ControllerError(401, "signed_out", "Choose who you are first.")
        return user

    async def _jobs(self, request: web.Request) -> web.Response:
        user = self._user(request)
        jobs = await self._controller.jobs_of(user) + await self._sessions.shared_with(user)
        jobs.sort(key=lambda job: -(job.get("submitted_at") or 0))
        return web.json_response({"jobs": [self._shown(job, user) for job in jobs]})

    async def _start(self, request: web.Request) -> web.Response:
        user = self._user(request)
        app = APPS.get(str((await _json(request)).get("app")))
        if app is None:
            return _error(400, "no_such_app", f"Apps are {', '.join(APPS)}.")
        job_id = f"{app.name}-{secrets.token_hex(4)}"
        job = {"id": job_id, "owner": {"user": user}, "name": app.title, **app.job}
        about = {"labels": {APP_LABEL: app.name}, "time_allocation_seconds": JOB_SECONDS}
        await self._controller.submit(job | about)
        return web.json_response({"id": job_id}, status=201)

    async def _open(self, request: web.Request) -> web.Response:
        job_id, user = request.match_info["id"], self._user(request)
        link = await self._sessions.link(job_id, user, tool=request.query.get("tool"))
        if request.content_type == "application/json":
            return web.json_response({"url": link})
        # A form with a target opens a tab without a script, so no pop-up is blocked.
        return web.Response(status=303, headers={"Location": link})

    async def _stop(self, request: web.Request) -> web.Response:
        job_id = request.match_info["id"]
        user = self._user(request)
        await self._sessions.job_of(job_id, user)
        await self._controller.delete(job_id, by=user)
        return web.json_response({"id": job_id})

    async def _own(self, request: web.Request) -> str:
        """Return the requested job, which is the user's own."""
        job_id = request.match_info["id"]
        await self._sessions.job_of(job_id, self._user(request))
        return job_id

    async def _extend(self, request: web.Request) -> web.Response:
        response = await self._controller.extend(await self._own(request), EXTENSION_SECONDS)
        return web.json_response({"expires_at": response.get("expires_at")})

    async def _share(self, request: web.Request) -> web.Response:
        job_id, user, body = request.match_info["id"], self._user(request), await _json(request)
        other, allowed = body.get("user"), body.get("allowed")
        if other not in USERS or other == user or not isinstance(allowed, bool):
            return _error(400, "no_such_user", f"Users are {' and '.join(USERS)}.")
        await self._sessions.share(job_id, user, other=other, allowed=allowed)
        return web.json_response({"id": job_id})

    async def _log(self, request: web.Request) -> web.Response:
        text = await self._controller.log(await self._own(request))
        return web.json_response({"text": text})

    async def _history(self, request: web.Request) -> web.Response:
        response = await self._controller.history(await self._own(request))
        told = ("at", "attempt", "state", "reason", "message")
        updates = response.get("updates", [])[-MOST_UPDATES:]
        shown = [{name: one.get(name) for name in told} for one in updates]
        return web.json_response({"updates": shown})

    async def _metrics(self, request: web.Request) -> web.Response:
        response = await self._controller.metrics(await self._own(request))
        told = ("values", "missing", "series")
        return web.json_response({name: response.get(name, {}) for name in told})

    async def _tools_of(self, request: web.Request) -> web.Response:
        tools = await self._controller.tools(await self._own(request))
        told = ("tool", "state", "reason", "message")
        # The page attaches tools to the first rank. Another program may attach others.
        shown = [{name: one.get(name) for name in told} for one in tools if one["rank"] == 0]
        return web.json_response({"tools": shown})

    async def _tool(self, request: web.Request) -> web.Response:
        job_id, tool = await self._own(request), request.match_info["tool"]
        if tool not in self._tools:
            return _error(404, "no_such_tool", "There is no such tool.")
        match request.match_info["act"]:
            case "attach":
                await self._controller.attach(job_id, tool)
            case "remove":
                await self._controller.remove_tool(job_id, tool)
            case _:
                link = await self._sessions.link_to_tool(job_id, self._user(request), tool)
                return web.Response(status=303, headers={"Location": link})
        return web.json_response({"id": job_id, "tool": tool})

    def _shown(self, job: dict[str, Any], user: str) -> dict[str, Any]:
        app = APPS.get(job.get("labels", {}).get(APP_LABEL, ""))
        same = ("id", "state", "reason", "message", "submitted_at", "started_at", "expires_at")
        owner = job["owner"]["user"]
        return {name: job.get(name) for name in same} | {
            "title": app.title if app else job["id"],
            "owner": owner,
            "mine": owner == user,
            "shared_with": sorted(self._sessions.shared.get(job["id"], ())),
        }


async def _json(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.text())
    except ValueError:
        body = None
    if request.content_type != "application/json" or not isinstance(body, dict):
        raise ControllerError(400, "bad_json", "A JSON object is expected.")
    return body


def _error(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"code": code, "message": message}, status=status)
