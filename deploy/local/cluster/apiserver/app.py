"""Handles all requests: identifies the user, reads the request, writes refusals as Status."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web

from deploy.local.cluster.apiserver import discovery
from deploy.local.cluster.apiserver.access import ANONYMOUS, AccessControl, User, check_path
from deploy.local.cluster.apiserver.audit import Audit
from deploy.local.cluster.apiserver.errors import (
    ApiError,
    method_not_allowed,
    no_such_resource,
)
from deploy.local.cluster.apiserver.faults import Faults
from deploy.local.cluster.apiserver.kinds import KindTable
from deploy.local.cluster.apiserver.metrics import GROUP, POD_METRICS, MetricsServer
from deploy.local.cluster.apiserver.rbac import check_resource
from deploy.local.cluster.apiserver.requests import Target, is_true, parse_path, verb_of
from deploy.local.cluster.apiserver.resources import Resources, read_body
from deploy.local.cluster.apiserver.reviews import REVIEWS, account_user, answer_review

_LOG: Final = logging.getLogger(__name__)
_BODY_BYTES: Final = 3 * 1024 * 1024
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RequestHandler:
    """Handles every request; there is one route."""

    def __init__(
        self,
        kinds: KindTable,
        resources: Resources,
        access: AccessControl,
        faults: Faults,
        audit: Audit,
        metrics: MetricsServer | None = None,
    ) -> None:
        self._metrics = metrics
        self._audit = audit
        self._kinds = kinds
        self._resources = resources
        self._store = resources.store
        self._access = access
        self._faults = faults

    def make_app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=_BODY_BYTES, middlewares=[_border])
        app.router.add_route("*", "/{path:.*}", self.answer)
        return app

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Identify, authorise and answer one request."""
        user = self._access.identify(request.headers.get("Authorization"))
        user = self._impersonated(request, user)
        target = parse_path(request.path)
        if target is None:
            check_path(user, request.method.lower(), request.path)
            return self._say(request)
        watch = is_true(request.query.get("watch"))
        verb = verb_of(request.method, target, watch=watch)
        if target.group in REVIEWS and verb == "create" and user is not ANONYMOUS:
            identify = self._access.identify
            body = await read_body(request)
            return _json(answer_review(target, body, user, self._store, identify), 201)
        self._check(user, verb, target, tried=bool(request.query.get("dryRun")))
        if target.group == GROUP and self._metrics is not None:
            self._faults.refuse(verb, target, user)
            return self._metrics.answer(verb, target, request.query)
        kind = self._kinds.find(target.group, target.version, target.plural)
        if kind is None or (target.namespace and not kind.namespaced):
            return _unknown(target.group)
        quotas = self._store.items(("", "resourcequotas"), target.namespace)
        names = [one.value["metadata"]["name"] for one in quotas] if target.namespace else []
        self._faults.refuse(verb, target, user, quotas=names)
        response = await self._resources.answer(request, verb, kind, target, user)
        if request.transport is not None and not watch and self._faults.happens("lost", user):
            request.transport.abort()
        return response

    def _impersonated(self, request: web.Request, user: User) -> User:
        """Return the effective user: *user*, or the one that *user* may and does impersonate."""
        name = request.headers.get("Impersonate-User")
        groups = tuple(request.headers.getall("Impersonate-Group", []))
        if name is None:
            if any(header.startswith("Impersonate-") for header in request.headers):
                raise ApiError(500, "requested groups without impersonating a user", reason="")
            return user
        other = User(name)
        match name.split(":"):
            case ["system", "serviceaccount", namespace, account]:
                what = ("", "serviceaccounts", namespace, account)
                other = account_user(namespace, account)
            case _:
                what = ("", "users", "", name)
        check_resource(self._store, user, "impersonate", *what)
        for group in groups:
            check_resource(self._store, user, "impersonate", "", "groups", "", group)
        return User(other.name, groups or other.groups)

    def _check(self, user: User, verb: str, target: Target, *, tried: bool) -> None:
        what = (target.group, target.resource, target.namespace, target.name)
        try:
            check_resource(self._store, user, verb, *what)
        except ApiError:
            self._audit.note(user, verb, target, dry_run=tried, allowed=False)
            raise
        self._audit.note(user, verb, target, dry_run=tried, allowed=True)

    def _say(self, request: web.Request) -> web.Response:
        """Answer requests about the server itself."""
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        if request.path in ("/healthz", "/livez", "/readyz"):
            return web.Response(text="ok")
        kinds = [*self._kinds, *([POD_METRICS] if self._metrics is not None else [])]
        said = discovery.describe(request.path.strip("/").split("/"), kinds, request.host)
        if said is None:
            return _unknown("" if request.path.startswith("/api/") else "custom")
        return _json(said, 200)


@web.middleware
async def _border(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        return _refused(error)
    except web.HTTPRequestEntityTooLarge:
        return _refused(ApiError(413, f"Request entity too large: limit is {_BODY_BYTES}"))
    except (web.HTTPException, ConnectionError):
        raise
    except Exception:  # noqa: BLE001 - the outermost border: logged, and answered with a 500
        _LOG.exception("%s %s", request.method, request.path)
        return _refused(ApiError(500, "Internal error occurred"))


def _refused(error: ApiError) -> web.Response:
    if error.is_plain:
        return web.Response(text=f"{error.message}\n", status=error.code, headers=error.headers)
    return web.Response(
        body=msgspec.json.encode(error.status),
        status=error.code,
        content_type="application/json",
        headers=error.headers,
    )


def _json(value: object, status: int) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, content_type="application/json")


def _unknown(group: str) -> web.Response:
    """Answer for a path that is not served: the core group has a message, others a plain 404."""
    if not group:
        raise no_such_resource()
    return web.Response(text="404 page not found\n", status=404)
