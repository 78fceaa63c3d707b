"""Assembles the API."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from aiohttp import web
from pydantic import BaseModel

from controller.api.audit import AUDIT, ApiAudit, record_refusals
from controller.api.authentication import bearer_only
from controller.api.docs_page import PUBLIC, DocsPage
from controller.api.error_responses import errors_as_json, without_nul, without_tools
from controller.api.openapi import describe
from controller.api.operations import Handler, Operation, offered_by
from controller.api.requests import MAX_BODY_BYTES, meet_expectation
from controller.api.resources.batches import BatchesResource
from controller.api.resources.explain import ExplainResource
from controller.api.resources.job_commands import JobWishes
from controller.api.resources.jobs import Jobs
from controller.api.resources.kinds import KindsResource
from controller.api.resources.logs import Logs
from controller.api.resources.maintenance import MaintenanceResource
from controller.api.resources.metrics import MetricsResource
from controller.api.resources.products import CapacityOf, Products
from controller.api.resources.sessions import SessionsResource
from controller.api.resources.tasks import TasksResource
from controller.api.resources.tools import ToolsResource
from controller.api.resources.updates import UpdatesResource
from controller.api.resources.usage import Usage
from controller.api.server_sent_events import EventStreams
from controller.explain.explainer import Explainer
from controller.jobs.submission.accept import Submissions
from controller.jobs.submission.commands import JobCommands
from controller.jobs.tools.attachments import Tools
from controller.kube.client import Kube
from controller.logs.live import PodLogs
from controller.logs.reading import LogReader
from controller.logs.storage import LogStorage
from controller.resource_metrics.sampler import MetricSampler
from controller.sessions.service import SessionService
from controller.settings import JobDefaults
from controller.store.database import Store
from controller.store.news import UpdateNews
from shared.jose.jwks import KeySource
from shared.tokens import LONGEST_SERVICE_SECONDS
from shared.version import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiParts:
    """What the API's resources call."""

    store: Store
    submissions: Submissions
    commands: JobCommands
    tools: Tools
    sessions: SessionService
    kube: Kube
    capacity: CapacityOf
    explainer: Explainer
    news: UpdateNews
    metrics: MetricSampler
    defaults: JobDefaults
    offered_fields: Collection[str]
    job_fields: Mapping[str, type[BaseModel]]
    clock: Callable[[], float]
    log_storage: LogStorage | None = None


def make_api_app(
    parts: ApiParts,
    *,
    keys: KeySource,
    issuer: str,
    longest_token_seconds: float = LONGEST_SERVICE_SECONDS,
) -> web.Application:
    """Return the application that the orchestrator calls.

    Every call needs a bearer token; there is nothing here for anybody else but ``/docs``.
    """
    streams = EventStreams()
    offered = list_offered(parts, streams)

    def description() -> bytes:
        operations = [operation for operation, _ in offered]
        document = describe(VERSION, operations, parts.offered_fields, parts.job_fields)
        return json.dumps(document).encode()

    docs = DocsPage(description)

    async def close_streams(_app: web.Application) -> None:
        streams.close()

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
            without_nul,
            without_tools,
        ],
    )
    # Else the end of this process would wait for readers who mean to stay.
    app.on_shutdown.append(close_streams)
    app[AUDIT] = log
    app.cleanup_ctx.append(log.flush_due)
    app.add_routes([web.get("/v1/openapi.json", docs.description), *docs.routes()])
    app.add_routes(
        web.route(one.method, one.path, handler, expect_handler=meet_expectation)
        for one, handler in offered
    )
    return app


def list_offered(parts: ApiParts, streams: EventStreams) -> list[tuple[Operation, Handler]]:
    """Return everything that is offered, in the order in which paths are looked for."""
    store = parts.store
    reader = LogReader(store, PodLogs(parts.kube), parts.log_storage)
    resources = (
        Jobs(store, parts.submissions, parts.commands, parts.defaults),
        BatchesResource(store, parts.submissions, parts.commands),
        JobWishes(parts.commands),
        TasksResource(store),
        MetricsResource(store, parts.metrics),
        ToolsResource(parts.tools),
        Logs(store, reader, streams, parts.defaults.pods.catalogue),
        UpdatesResource(store, streams, parts.news),
        SessionsResource(parts.sessions),
        ExplainResource(parts.explainer),
        Usage(store, parts.commands),
        Products(
            store,
            defaults=parts.defaults,
            offered_fields=parts.offered_fields,
            capacity=parts.capacity,
        ),
        KindsResource(parts.defaults.kinds),
        MaintenanceResource(store, clock=parts.clock),
    )
    return [offered for one in resources for offered in offered_by(one)]
