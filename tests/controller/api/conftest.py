"""Fixtures for API tests: the API over a real store and pipeline, with an orchestrator's client."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web_runner import BaseRunner
from pydantic import BaseModel
from pytest_aiohttp import AiohttpClient

from controller.api import application
from controller.api.application import list_operations
from controller.api.openapi import describe
from controller.api.operations import Operation
from controller.api.parts import ApiParts
from controller.api.server_sent_events import EventStreams
from controller.explain.explainer import Explainer
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.spec.accepted import Vault
from controller.jobs.submission.accept import Submissions
from controller.jobs.submission.commands import JobCommands
from controller.jobs.submission.dry_run import DryRun
from controller.jobs.tools.attachments import Tools
from controller.jobs.tools.plans import ToolPlans
from controller.kube.capacity import Capacity
from controller.kube.client import Kube
from controller.plugins import PLUGINS
from controller.resource_metrics.sampler import MetricSampler
from controller.sessions.service import SessionService
from controller.settings import read_settings
from controller.store.database import Store
from controller.store.instance import ensure_position
from controller.store.notifications import UpdateNotifications
from shared.bus import BusInspector, Keys, connect
from shared.jose.jwks import KeySource
from shared.settings import Environment
from shared.version import VERSION
from tests.controller.api.described import Described
from tests.controller.kube.api_server import Script, says
from tests.controller.new_stores import new_sqlite
from tests.controller.samples import make_context, make_plugins
from tests.shared.samples import ISSUER, SIGNERS, key_set_of, make_claims

Client = TestClient[web.Request, Any]
SIGNER = SIGNERS["EdDSA"]


class ApiServer(TestServer):
    """Serves an application as ``shared.runtime.listeners`` does: bodies are not decompressed."""

    async def _make_runner(self, **kwargs: Any) -> BaseRunner:
        return await super()._make_runner(auto_decompress=False, **kwargs)


@dataclass
class Api:
    """A running API with its store, its client and a record of the jobs it enqueued."""

    client: Client
    store: Store
    submissions: Submissions
    commands: JobCommands
    sessions: SessionService
    metrics: MetricSampler
    operations: Sequence[Operation]
    described: Described
    streams: EventStreams
    enqueued: list[str] = field(default_factory=list)


def service_token(**claims: Any) -> str:
    return SIGNER.sign(make_claims(time.time(), aud="fumarole-controller", **claims))


async def _tell(event: object, *, term: int) -> None:
    """Drop the event: these tests have no Redis."""


async def _starting(sids: Collection[str]) -> dict[str, Literal["starting", "ready"]]:
    return dict.fromkeys(sids, "starting")


async def _at_once(_sids: object) -> None:
    """Do nothing: these tests publish no routes."""


@pytest.fixture
def script() -> Script:
    """Return the API server's script: every object is missing, unless a test scripts more."""
    return Script(says({"reason": "NotFound"}, 404))


@pytest.fixture
def settings() -> dict[str, str]:
    """Return the deployment's settings: none, unless a test overrides this fixture."""
    return {}


@pytest.fixture
def others() -> list[type[JobPlugin]]:
    """Return third-party plugins to install: none, unless a test overrides this fixture."""
    return []


_DESCRIBED: dict[object, Described] = {}


def described_once(
    operations: Sequence[Operation],
    offered_fields: Collection[str],
    job_fields: Mapping[str, type[BaseModel]],
) -> Described:
    """Return the cached description; building one takes longer than most API tests."""
    key = (
        tuple(map(id, operations)),
        frozenset(offered_fields),
        frozenset(job_fields.items()),
    )
    if key not in _DESCRIBED:
        document = describe(VERSION, operations, offered_fields, job_fields)
        _DESCRIBED[key] = Described(document)
    return _DESCRIBED[key]


def describe_once(
    version: str,
    operations: Sequence[Operation],
    offered_fields: Collection[str],
    job_fields: Mapping[str, type[BaseModel]],
) -> Mapping[str, Any]:
    """Return the document that ``describe`` returns, from the cache."""
    assert version == VERSION
    return described_once(operations, offered_fields, job_fields).document


@pytest.fixture
async def api(
    tmp_path: Path,
    kube: Kube,
    settings: dict[str, str],
    others: list[type[JobPlugin]],
    aiohttp_client: AiohttpClient,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Api]:
    jobs = read_settings(Environment(settings)).jobs
    context = make_context(defaults=jobs)
    pipeline = Pipeline(
        make_plugins([*PLUGINS, *others], context), instance="test", namespace="jobs"
    )
    store, enqueued = Store(new_sqlite(tmp_path)), list[str]()
    await store.open()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity="test")
    dry_run = DryRun(kube, seconds=60.0, clock=time.monotonic)
    submissions = Submissions(
        store=store,
        pipeline=pipeline,
        vault=Vault([os.urandom(32)]),
        defaults=jobs,
        clock=time.time,
        random=os.urandom,
        enqueue=enqueued.append,
        dry_run=dry_run,
    )
    commands = JobCommands(
        store,
        clock=time.time,
        random=os.urandom,
        enqueue=enqueued.append,
        catalogue=jobs.pods.catalogue,
    )
    sessions = SessionService(
        store=store,
        base_domain="apps.example.com",
        clock=time.time,
        random=os.urandom,
        states_of=_starting,
        until_published=_at_once,
        enqueue=enqueued.append,
        tell=_tell,
    )
    (tmp_path / "jwks.json").write_bytes(key_set_of(SIGNER))
    metrics = MetricSampler([], interval=0, clock=time.time, monotonic=time.monotonic)
    parts = ApiParts(
        store=store,
        submissions=submissions,
        commands=commands,
        tools=Tools(
            store,
            plans=ToolPlans(pipeline, jobs, try_out=dry_run.problems_of),
            clock=time.time,
            enqueue=enqueued.append,
            routes=enqueued.append,
        ),
        sessions=sessions,
        kube=kube,
        capacity=Capacity(kube, gpu_resources=frozenset({"nvidia.com/gpu"}), clock=time.monotonic),
        defaults=jobs,
        notifications=UpdateNotifications(store),
        metrics=metrics,
        explainer=Explainer(
            store=store,
            # Nothing listens on this port: Redis is unreachable.
            inspector=BusInspector(connect("redis://127.0.0.1:1/0"), Keys("test")),
            kube=kube,
            keys=KeySource(str(tmp_path / "jwks.json"), clock=time.monotonic),
            issuer=ISSUER,
            instance="test",
            clock=time.time,
        ),
        offered_fields=pipeline.offered_fields,
        job_fields=pipeline.job_fields,
        clock=time.time,
    )
    keys = KeySource(str(tmp_path / "jwks.json"), clock=time.monotonic)
    monkeypatch.setattr(application, "describe", describe_once)
    app = application.make_api_app(parts, keys=keys, issuer=ISSUER)
    operations = [operation for operation, _ in list_operations(parts)]
    described = described_once(operations, parts.offered_fields, parts.job_fields)
    described.wrong.clear()
    app.middlewares.insert(0, described.middleware)
    headers = {"Authorization": f"Bearer {service_token()}"}
    client: Client = await aiohttp_client(ApiServer(app), headers=headers)
    yield Api(
        client=client,
        store=store,
        submissions=submissions,
        commands=commands,
        sessions=sessions,
        metrics=metrics,
        operations=operations,
        described=described,
        streams=parts.streams,
        enqueued=enqueued,
    )
    await client.close()
    await store.close()
    assert described.wrong == []
