"""Assembles the controller: creates and connects the parts of each role, and runs them.

One process can run all roles, or each role can be a process of its own. Roles communicate only
through the store, Redis and the cluster.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge
from redis.asyncio import Redis

from controller.api.application import make_api_app
from controller.api.parts import ApiParts
from controller.api.resources.updates import render_update
from controller.api.server_sent_events import EventStreams
from controller.configuration import Configuration
from controller.explain.explainer import Explainer
from controller.hub.scrollback import Scrollbacks
from controller.hub.server import serving_hub
from controller.jobs.pipeline.border import PluginBorder
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobPlugin, PluginContext
from controller.jobs.pipeline.plugin_loading import LoadedPlugins, make_loaded
from controller.jobs.pipeline.plugin_metrics import HookCounts
from controller.jobs.spec.accepted import Vault
from controller.jobs.spec.storage import remember_places
from controller.jobs.submission.accept import Submissions
from controller.jobs.submission.commands import JobCommands
from controller.jobs.submission.dry_run import DryRun, count_dry_runs
from controller.jobs.submission.reservations import PublicLinks
from controller.jobs.tools.attachments import Tools
from controller.jobs.tools.plans import ToolPlans
from controller.jobs.usage import Ledger
from controller.kube.capacity import Capacity
from controller.kube.client import Kube
from controller.kube.exec import PodExec
from controller.leader.leader import Leader, make_election
from controller.leader.watchdog import LoopStalls, Watchdog
from controller.logs.opening import open_storage
from controller.process import Core, EventHandlers, Process, ProcessTasks
from controller.resource_metrics.pod_metrics import PodMetricsSource
from controller.resource_metrics.prometheus import PrometheusSource, make_session
from controller.resource_metrics.sampler import MetricSampler, count_metric_samples
from controller.resource_metrics.sources import Source
from controller.sessions.gateways import Activities, Notices, PublishedRoutes
from controller.sessions.service import JobSessions, SessionService
from controller.settings import ControllerSettings
from controller.site.job_defaults import JobDefaults
from controller.store.database import Store
from controller.store.instance import ensure_position
from controller.store.jobs.hook_failures import blocked_calls
from controller.store.jobs.relations import Peers
from controller.store.notifications import UpdateNotifications
from controller.store.probing import StoreProbe
from controller.webhooks.dispatcher import WebhookCounts, Webhooks
from shared.bus import BusInspector, BusReader, Keys, ReportReader, connect
from shared.jose.jwks import KeySource
from shared.runtime.listeners import listening
from shared.runtime.ops import make_ops_app, make_registry
from shared.runtime.process import write_address_file

STOP_SECONDS = 5.0
_IDENTITY_BYTES = 16

log = logging.getLogger(__name__)


async def serve(configuration: Configuration, *, stopping: asyncio.Event) -> None:
    """Run the roles until *stopping* is set.

    Raises:
        OSError: If an address cannot be bound.
        ValueError: If a setting turns out to be invalid.
        StoreError, KubeError: If the store or the cluster's configuration cannot be used.
        LeadershipLost: If another controller leads.
    """
    settings = configuration.settings
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(_open_store(settings.store_url))
        registry = make_registry()
        kube = await stack.enter_async_context(Kube.connect(settings.kubeconfig))
        core = _make_core(settings, configuration.plugins, store, registry, kube.now)
        storage = await stack.enter_async_context(open_storage(settings.logs))
        redis = connect(settings.redis_url)
        stack.push_async_callback(redis.aclose)
        border = core.pipeline.border
        async with store.read() as transaction:
            border.switch_off(await blocked_calls(transaction))
        # Cancelled before their dependencies are closed, and after the listeners that enqueue work.
        tasks = await stack.enter_async_context(_until_failed(stopping))
        process = Process(settings, store, registry, tasks, storage)
        stalls = LoopStalls(registry)
        watchdog = Watchdog(border, store_url=settings.store_url, metrics=stalls)
        tasks.start(watchdog.run())
        probe = StoreProbe(store)
        process.problems.append(probe.problems)
        process.degraded.append(probe.degraded)
        tasks.start(probe.run())
        leading, notifications = None, UpdateNotifications(store)
        if "api" in settings.roles or settings.webhooks:
            tasks.start(notifications.listen())
        if "reconciler" in settings.roles:
            webhooks = await _make_webhooks(process, notifications)
            leading = Leader(process, core, kube, redis, make_election(process, kube), webhooks)
            process.problems.append(leading.problems)
            process.faults.append(leading.faults)
            process.degraded.append(leading.degraded)
            tasks.start(leading.run())
        if "hub" in settings.roles:
            await _start_hub(process, kube, stack)
        if "api" in settings.roles:
            await _start_api(process, core, kube, leading, redis, notifications, stack)
        debug = [_make_debug_route(leading)] if leading is not None else []
        _measure_readiness(process)
        ops = make_ops_app(
            process.registry,
            process.readiness,
            debug,
            health=process.health,
            degraded=process.degradation,
        )
        taken = await stack.enter_async_context(listening(ops, settings.ops_listen))
        process.listens("ops", taken)
        _publish_addresses(process)
        await stopping.wait()
        log.info("shutting down")


def _measure_readiness(process: Process) -> None:
    """Count the reasons of /readyz: an alert cannot read its body, and `degraded` is 200."""
    gauge = Gauge(
        "fumarole_controller_problems",
        "Reasons that /readyz gives now",
        ["status"],
        registry=process.registry,
    )
    gauge.labels("not_ready").set_function(lambda: len(process.readiness()))
    gauge.labels("degraded").set_function(lambda: len(process.degradation()))


@asynccontextmanager
async def _open_store(url: str) -> AsyncIterator[Store]:
    store = Store(url)
    try:
        await store.open()
        async with store.write() as transaction:
            identity = secrets.token_hex(_IDENTITY_BYTES)
            await ensure_position(transaction, new_identity=identity)
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def _until_failed(stopping: asyncio.Event) -> AsyncIterator[ProcessTasks]:
    """Own this process' tasks: a task that fails ends the process with its error."""
    tasks = ProcessTasks(stopping)
    try:
        yield tasks
    finally:
        await tasks.cancel()
    tasks.raise_failure()


def _make_core(
    settings: ControllerSettings,
    loaded: LoadedPlugins,
    store: Store,
    registry: CollectorRegistry,
    clock: Callable[[], float],
) -> Core:
    jobs, routes = EventHandlers(), EventHandlers()
    sessions = JobSessions(store, clock=time.time, enqueue=routes.enqueue)

    def enqueue(job_id: str) -> None:
        # Routes too: a session must end at once, and not only in its job's turn.
        routes.enqueue(job_id)
        jobs.enqueue(job_id)

    commands = JobCommands(
        store,
        clock=clock,
        random=os.urandom,
        enqueue=enqueue,
        catalogue=settings.jobs.pods.catalogue,
    )
    links = PublicLinks(store, clock=clock, random=os.urandom, enqueue=routes.enqueue)
    context = PluginContext(
        instance=settings.instance,
        jobs=settings.jobs,
        sessions=sessions,
        control=commands,
        ledger=Ledger(
            store,
            defaults=settings.jobs,
            clock=clock,
        ),
        links=links,
        peers=Peers(store),
    )
    plugins = make_loaded(loaded, context, registry)
    return Core(
        pipeline=_make_pipeline(settings, plugins, registry),
        vault=Vault(settings.link_keys),
        commands=commands,
        jobs=jobs,
        routes=routes,
    )


def _make_pipeline(
    settings: ControllerSettings, plugins: Sequence[JobPlugin], registry: CollectorRegistry
) -> Pipeline:
    names = [plugin.name for plugin in plugins]
    counts = HookCounts(registry)
    border = PluginBorder(settings.hook_seconds, metrics=counts)
    counts.watch(names, lambda: border.stuck)
    return Pipeline(
        plugins, instance=settings.instance, namespace=settings.jobs.namespace, border=border
    )


async def _make_webhooks(process: Process, notifications: UpdateNotifications) -> Webhooks | None:
    receivers = process.settings.webhooks
    if not receivers:
        return None
    counts = WebhookCounts(process.registry)
    webhooks = Webhooks(
        receivers,
        store=process.store,
        notifications=notifications,
        render=render_update,
        counts=counts,
    )
    await webhooks.begin()
    counts.watch([one.name for one in receivers], webhooks.oldest_seconds)
    return webhooks


async def _start_api(
    process: Process,
    core: Core,
    kube: Kube,
    leading: Leader | None,
    redis: Redis,
    notifications: UpdateNotifications,
    stack: AsyncExitStack,
) -> None:
    settings = process.settings
    keys = KeySource(settings.token_jwks, clock=time.monotonic)
    process.tasks.start(keys.keep_fresh())
    process.problems.append(lambda: [] if keys.keys else ["no key of the orchestrator is known"])
    await remember_places(process.store, settings.jobs.pods.volumes)
    dry_run = _make_dry_run(process, kube)
    try_out = None if dry_run is None else dry_run.problems_of
    submissions = Submissions(
        store=process.store,
        pipeline=core.pipeline,
        vault=core.vault,
        defaults=settings.jobs,
        clock=kube.now,
        random=os.urandom,
        enqueue=core.jobs.enqueue,
        dry_run=dry_run,
    )
    names = Keys(settings.instance)
    publisher = (lambda: leading.publisher) if leading else (lambda: None)
    published = PublishedRoutes(BusReader(redis, names), publisher)
    sessions = SessionService(
        store=process.store,
        base_domain=settings.base_domain,
        clock=time.time,
        random=os.urandom,
        states_of=published.states_of,
        until_published=published.until_published,
        enqueue=core.routes.enqueue,
        tell=Notices(redis, names, signer=settings.bus_signer).tell,
        catalogue=settings.jobs.pods.catalogue,
        rank_services=settings.jobs.rank_services,
        activities_of=Activities(ReportReader(redis, names), clock=time.time).of,
    )
    metrics = await _make_sampler(process, kube, stack)
    if settings.metrics_seconds:
        process.tasks.start(metrics.run())
    parts = ApiParts(
        store=process.store,
        submissions=submissions,
        commands=core.commands,
        tools=Tools(
            process.store,
            plans=ToolPlans(core.pipeline, settings.jobs, try_out=try_out),
            clock=kube.now,
            enqueue=core.jobs.enqueue,
            routes=core.routes.enqueue,
        ),
        sessions=sessions,
        kube=kube,
        capacity=Capacity(kube, gpu_resources=_gpus(settings.jobs), clock=time.monotonic),
        defaults=settings.jobs,
        notifications=notifications,
        metrics=metrics,
        explainer=Explainer(
            store=process.store,
            inspector=BusInspector(redis, names),
            kube=kube,
            keys=keys,
            issuer=settings.token_issuer,
            instance=settings.instance,
            clock=time.time,
        ),
        offered_fields=core.pipeline.offered_fields,
        job_fields=core.pipeline.job_fields,
        clock=time.time,
        log_storage=process.log_storage,
        streams=EventStreams(settings.token_longest_seconds),
    )
    app = make_api_app(
        parts,
        keys=keys,
        issuer=settings.token_issuer,
        longest_token_seconds=settings.token_longest_seconds,
    )
    serving = listening(app, settings.listen, shutdown_seconds=STOP_SECONDS)
    process.listens("api", await stack.enter_async_context(serving))


def _make_dry_run(process: Process, kube: Kube) -> DryRun | None:
    seconds = process.settings.dry_run_seconds
    if not seconds:
        return None
    count = count_dry_runs(process.registry)
    return DryRun(kube, seconds=seconds, clock=time.monotonic, count=count)


async def _make_sampler(process: Process, kube: Kube, stack: AsyncExitStack) -> MetricSampler:
    settings, jobs = process.settings, process.settings.jobs
    namespace = jobs.namespace if jobs.fair_share is None else None
    sources: list[Source] = [
        PodMetricsSource(kube, instance=settings.instance, namespace=namespace)
    ]
    if settings.prometheus is not None:
        http = await stack.enter_async_context(make_session())
        server = settings.prometheus
        sources.append(PrometheusSource(http, url=server.url, token_file=server.token_file))
    return MetricSampler(
        sources,
        interval=settings.metrics_seconds,
        clock=time.time,
        monotonic=time.monotonic,
        count=count_metric_samples(process.registry),
    )


def _gpus(jobs: JobDefaults) -> frozenset[str]:
    products = jobs.pods.catalogue.products.values()
    return frozenset({jobs.gpu_resource, *(one.gpu_resource or "" for one in products)} - {""})


async def _start_hub(process: Process, kube: Kube, stack: AsyncExitStack) -> None:
    settings = process.settings
    hub = await stack.enter_async_context(
        serving_hub(
            store=process.store,
            executor=PodExec(kube),
            link_keys=settings.link_keys,
            listen=settings.hub_listen,
            advertise=settings.hub_advertise,
            scrollbacks=Scrollbacks(
                settings.hub_scrollback_bytes, settings.hub_scrollback_total_bytes
            ),
            registry=process.registry,
        )
    )
    process.listens("hub", hub.address)
    process.problems.append(hub.problems)


def _make_debug_route(leading: Leader) -> web.RouteDef:
    """Return ``/debug/routes``: the position that every gateway should have reached."""

    async def debug(_request: web.Request) -> web.Response:
        publisher = leading.publisher
        return web.json_response({"leads": False} if publisher is None else publisher.describe())

    return web.get("/debug/routes", debug)


def _publish_addresses(process: Process) -> None:
    log.info("listening", extra=process.addresses)
    write_address_file(process.settings.address_file, process.addresses)
