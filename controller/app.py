"""Assembles the controller: each role's parts, wired, running until it is told to stop.

One process can play all roles, or each can be a process of its own; they meet only in the store,
in Redis and in the cluster.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from controller.api.app import make_api_app
from controller.hub.server import serving_hub
from controller.jobs.actions import Actions
from controller.jobs.adoption import Adoption
from controller.jobs.cluster import JobsInCluster
from controller.jobs.ground import Ground
from controller.jobs.housekeeping import Housekeeping
from controller.jobs.monitoring import Monitoring
from controller.jobs.picture import Picture
from controller.jobs.pipeline import Pipeline, make_plugins
from controller.jobs.plugin import PluginContext
from controller.jobs.reconciler import Reconciler
from controller.jobs.sight import Sight
from controller.jobs.submission import Submissions
from controller.jobs.workqueue import WorkQueue
from controller.kube.client import Kube
from controller.kube.exec import PodExec
from controller.plugins import PLUGINS
from controller.sessions.control import Sessions
from controller.sessions.publisher import RoutePublisher
from controller.sessions.service import SessionService
from controller.settings import ControllerSettings
from controller.store.database import Store
from controller.store.position import ensure_position, raise_term
from controller.store.vault import Vault
from shared.bus import Keys, Publisher, connect
from shared.jwks import KeySource
from shared.link import Seal
from shared.metrics import listening, make_ops_app, make_registry

STOP_SECONDS = 5.0
LOOK_SECONDS = 0.1
_IDENTITY_BYTES = 16

Problems = Callable[[], Sequence[str]]

log = logging.getLogger(__name__)


class Tasks:
    """Owns tasks that never end by themselves: one that does ends the process.

    Args:
        stopping: Is set when a task has failed.
    """

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run *work* until the process ends."""
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._stopping.set())
        self._tasks.append(task)

    async def cancel(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def raise_failure(self) -> None:
        """Raise what a task failed with, if one did."""
        for task in self._tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                raise _first(error)


def _first(error: BaseException) -> BaseException:
    """Return the first error of a task group's, which is why the others ended."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@dataclass(slots=True)
class Process:
    """What the roles of one process share, and add to."""

    settings: ControllerSettings
    store: Store
    registry: CollectorRegistry
    tasks: Tasks
    problems: list[Problems] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)

    def readiness(self) -> Sequence[str]:
        """Return why this process is not ready."""
        return [reason for problems in self.problems for reason in problems()]

    def listens(self, name: str, address: tuple[str, int]) -> None:
        """Note where something listens."""
        host, port = address
        self.addresses[name] = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(slots=True)
class Wakers:
    """Who is told that something about a job has changed; filled in as roles come up."""

    listeners: list[Callable[[str], None]] = field(default_factory=list)

    def wake(self, job_id: str) -> None:
        """Tell them."""
        for listener in self.listeners:
            listener(job_id)


@dataclass(frozen=True, slots=True)
class Core:
    """What API and reconciler share when they are in one process."""

    pipeline: Pipeline
    vault: Vault
    jobs: Wakers
    routes: Wakers


async def serve(settings: ControllerSettings, *, stopping: asyncio.Event) -> None:
    """Play the roles until *stopping*.

    Raises:
        OSError: If an address cannot be taken.
        ValueError: If a setting turns out to be wrong.
        StoreError, KubeError: If store or cluster configuration cannot be used.
        LeadershipLost: If another controller leads by now.
    """
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(_open_store(settings.store_url))
        kube = None
        if settings.roles & {"reconciler", "hub"}:
            kube = await stack.enter_async_context(Kube.connect(settings.kubeconfig))
        redis = connect(settings.redis_url)
        stack.push_async_callback(redis.aclose)
        # Ended before what tasks use is closed, after the listeners that give them work.
        tasks = await stack.enter_async_context(_until_failed(stopping))
        process = Process(settings, store, make_registry(), tasks)
        core = _make_core(process)
        publisher = None
        if kube is not None and "reconciler" in settings.roles:
            publisher = await _start_reconciler(process, core, kube, redis)
        if kube is not None and "hub" in settings.roles:
            await _start_hub(process, kube, stack)
        if "api" in settings.roles:
            await _start_api(process, core, publisher, stack)
        ops = make_ops_app(process.registry, process.readiness)
        taken = await stack.enter_async_context(listening(ops, settings.ops_listen))
        process.listens("ops", taken)
        _tell_addresses(process)
        await stopping.wait()
        log.info("ending")


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
async def _until_failed(stopping: asyncio.Event) -> AsyncIterator[Tasks]:
    """Give what owns this process' tasks: one that fails ends the process, with its error."""
    tasks = Tasks(stopping)
    try:
        yield tasks
    finally:
        await tasks.cancel()
    tasks.raise_failure()


def _make_core(process: Process) -> Core:
    settings, jobs, routes = process.settings, Wakers(), Wakers()
    sessions = Sessions(process.store, clock=time.time, wake=routes.wake)
    context = PluginContext(instance=settings.instance, jobs=settings.jobs, sessions=sessions)
    plugins = make_plugins(PLUGINS, context, wanted=settings.plugins)
    namespace = settings.jobs.namespace
    return Core(
        pipeline=Pipeline(plugins, instance=settings.instance, namespace=namespace),
        vault=Vault(settings.link_keys),
        jobs=jobs,
        routes=routes,
    )


async def _start_api(
    process: Process, core: Core, publisher: RoutePublisher | None, stack: AsyncExitStack
) -> None:
    settings = process.settings
    keys = KeySource(settings.token_jwks, clock=time.monotonic)
    process.tasks.start(keys.keep_fresh())
    process.problems.append(lambda: [] if keys.keys else ["no key of the orchestrator is known"])
    submissions = Submissions(
        store=process.store,
        pipeline=core.pipeline,
        vault=core.vault,
        namespace=settings.jobs.namespace,
        clock=time.time,
        random=os.urandom,
        wake=core.jobs.wake,
    )
    sessions = SessionService(
        store=process.store,
        base_domain=settings.base_domain,
        clock=time.time,
        random=os.urandom,
        state_of=publisher.state_of if publisher else lambda _sid: "starting",
        until_published=publisher.until_published if publisher else _at_once,
        wake=core.routes.wake,
    )
    app = make_api_app(
        store=process.store,
        submissions=submissions,
        sessions=sessions,
        keys=keys,
        issuer=settings.token_issuer,
        offered_fields=core.pipeline.offered_fields,
        clock=time.time,
    )
    serving = listening(app, settings.listen, shutdown_seconds=STOP_SECONDS)
    process.listens("api", await stack.enter_async_context(serving))


async def _start_reconciler(
    process: Process, core: Core, kube: Kube, redis: Redis
) -> RoutePublisher:
    settings, store = process.settings, process.store
    async with store.write() as transaction:
        term = await raise_term(transaction)
    queue = WorkQueue(clock=time.monotonic, random=random.random)
    picture = Picture(kube, instance=settings.instance, changed=_both(queue.add, core.routes.wake))
    cluster = JobsInCluster(kube, instance=settings.instance)
    adoption = Adoption(
        store=store,
        term=term,
        kube=kube,
        picture=picture,
        cluster=cluster,
        instance=settings.instance,
        namespace=settings.jobs.namespace,
        clock=time.time,
    )
    actions = Actions(
        store=store,
        term=term,
        vault=core.vault,
        pipeline=core.pipeline,
        cluster=cluster,
        ground=Ground(kube, instance=settings.instance, clock=time.monotonic),
        clock=time.time,
    )
    sight = Sight(store, picture, core.pipeline)
    monitoring = Monitoring(
        store=store,
        term=term,
        pipeline=core.pipeline,
        see=sight.see,
        show=actions.picture_of,
        clock=time.time,
    )
    keeping = settings.jobs.history_seconds
    housekeeping = Housekeeping(store, term=term, history_seconds=keeping, clock=time.time)
    reconciler = Reconciler(
        store=store,
        picture=picture,
        sight=sight,
        actions=actions,
        adoption=adoption,
        queue=queue,
        told=core.routes.wake,
        beside=(monitoring.run, housekeeping.run),
    )
    publisher = RoutePublisher(
        store=store,
        bus=Publisher(redis, Keys(settings.instance), term=term),
        picture=picture,
        vault=core.vault,
        seal=Seal(settings.link_keys[0]),
        base_domain=settings.base_domain,
        clock=time.time,
        random=os.urandom,
    )
    core.jobs.listeners.append(queue.add)
    core.routes.listeners.append(publisher.wake)
    process.problems.append(lambda: adoption.problems)
    process.problems.append(
        lambda: [] if publisher.is_published else ["routes are not published to Redis"]
    )
    process.tasks.start(reconciler.run())
    process.tasks.start(_publish(publisher, adoption))
    return publisher


async def _at_once(_sids: Collection[str]) -> None:
    # Another process publishes, and does not say when.
    return


async def _publish(publisher: RoutePublisher, adoption: Adoption) -> None:
    # A store that does not know this cluster's jobs must not wipe their routes.
    while adoption.problems:  # noqa: ASYNC110  # seldom, and for a moment
        await asyncio.sleep(LOOK_SECONDS)
    await publisher.run()


async def _start_hub(process: Process, kube: Kube, stack: AsyncExitStack) -> None:
    settings = process.settings
    connecting = PodExec.connect(kube.configuration, renew=kube.renew_credentials)
    hub = await stack.enter_async_context(
        serving_hub(
            store=process.store,
            executor=await stack.enter_async_context(connecting),
            link_keys=settings.link_keys,
            listen=settings.hub_listen,
            advertise=settings.hub_advertise,
            registry=process.registry,
        )
    )
    process.listens("hub", hub.address)
    process.problems.append(hub.problems)


def _both(one: Callable[[str], None], other: Callable[[str], None]) -> Callable[[str], None]:
    def call(job_id: str) -> None:
        one(job_id)
        other(job_id)

    return call


def _tell_addresses(process: Process) -> None:
    log.info("listening", extra=process.addresses)
    if process.settings.address_file is not None:
        # Renamed into place: whoever waits for the file finds it whole.
        path = process.settings.address_file
        pending = path.with_name(f"{path.name}.{os.getpid()}")
        pending.write_text(json.dumps(process.addresses))
        pending.replace(path)
