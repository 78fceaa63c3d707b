"""Assembles the orchestrator's API."""

from __future__ import annotations

import json
from typing import Final

from aiohttp import web

from controller.api.audit import AUDIT, ApiAudit, record_refusals
from controller.api.authentication import bearer_only
from controller.api.docs_page import PUBLIC, DocsPage
from controller.api.error_responses import (
    Handler,
    errors_as_json,
    refusals_as_errors,
    without_nul,
    without_tools,
)
from controller.api.openapi import describe
from controller.api.operations import Operation, operations_of
from controller.api.parts import ApiParts
from controller.api.requests import MAX_BODY_BYTES, few_large_bodies, meet_expectation
from controller.api.resources import (
    batches,
    explain,
    job_commands,
    jobs,
    kinds,
    logs,
    maintenance,
    metrics,
    products,
    sessions,
    tasks,
    tools,
    updates,
    usage,
)
from shared.jose.jwks import KeySource
from shared.tokens import LONGEST_SERVICE_SECONDS
from shared.version import VERSION

RESOURCES: Final = (
    jobs,
    batches,
    job_commands,
    tasks,
    metrics,
    tools,
    logs,
    updates,
    sessions,
    explain,
    usage,
    products,
    kinds,
    maintenance,
)
"""In the order in which paths are matched."""


def make_api_app(
    parts: ApiParts,
    *,
    keys: KeySource,
    issuer: str,
    longest_token_seconds: float = LONGEST_SERVICE_SECONDS,
) -> web.Application:
    """Return the application that the orchestrator calls.

    Every operation needs a bearer token. Only the paths of ``/docs`` are public.
    """
    handlers = list_operations(parts)

    def description() -> bytes:
        operations = [one for one, _ in handlers]
        document = describe(VERSION, operations, parts.offered_fields, parts.job_fields)
        return json.dumps(document).encode()

    docs = DocsPage(description)

    async def close_streams(_app: web.Application) -> None:
        parts.streams.close()

    log = ApiAudit(issuer=issuer, clock=parts.clock)
    app = web.Application(
        client_max_size=MAX_BODY_BYTES,
        middlewares=[
            errors_as_json,
            record_refusals(log),
            bearer_only(
                keys,
                issuer=issuer,
                longest_seconds=longest_token_seconds,
                clock=parts.clock,
                public=PUBLIC,
            ),
            few_large_bodies(),
            without_nul,
            without_tools,
            refusals_as_errors,
        ],
    )
    # Otherwise the shutdown waits for clients that follow a stream without end.
    app.on_shutdown.append(close_streams)
    app[AUDIT] = log
    app.cleanup_ctx.append(log.flush_due)
    app.add_routes([web.get("/v1/openapi.json", docs.description), *docs.routes()])
    app.add_routes(
        web.route(one.method, one.path, handler, expect_handler=meet_expectation)
        for one, handler in handlers
    )
    return app


def list_operations(parts: ApiParts) -> list[tuple[Operation, Handler]]:
    """Return every operation with its handler, in the order in which paths are matched."""
    return [one for module in RESOURCES for one in operations_of(module, parts)]
