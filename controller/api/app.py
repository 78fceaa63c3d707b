"""Assembles the API."""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib.metadata import PackageNotFoundError, version

from aiohttp import web

from controller.api.answers import errors_as_json
from controller.api.bearer import bearer_only
from controller.api.bodies import MAX_BODY_BYTES
from controller.api.jobs import Jobs
from controller.api.openapi import describe
from controller.api.sessions import Sessions
from controller.jobs.submission import Submissions
from controller.jobs.wishes import Wishes
from controller.sessions.service import SessionService
from controller.store.database import Store
from shared.jwks import KeySource


def make_api_app(
    *,
    store: Store,
    submissions: Submissions,
    wishes: Wishes,
    sessions: SessionService,
    keys: KeySource,
    issuer: str,
    offered_fields: Collection[str],
    clock: Callable[[], float],
) -> web.Application:
    """Return the application that the orchestrator calls.

    Every call needs a bearer token; there is nothing here for anybody else.
    """
    description = describe(_version(), offered_fields)

    async def openapi(_request: web.Request) -> web.Response:
        return web.json_response(description)

    app = web.Application(
        client_max_size=MAX_BODY_BYTES,
        middlewares=[errors_as_json, bearer_only(keys, issuer=issuer, clock=clock)],
    )
    app.add_routes([web.get("/v1/openapi.json", openapi)])
    app.add_routes(Jobs(store, submissions, wishes).routes())
    app.add_routes(Sessions(sessions).routes())
    return app


def _version() -> str:
    try:
        return version("fumarole")
    except PackageNotFoundError:
        return "0"  # run from its files alone, as in the image
