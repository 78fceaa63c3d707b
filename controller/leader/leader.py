"""The leader: reconciles jobs, and publishes routes to the gateways.

There is one leader: the process that raised the store's term last (see ``election``). Store and
Redis refuse everything that a former leader writes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from redis.asyncio import Redis

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.cluster.missing_companions import MissingCompanions
from controller.jobs.cluster.mount_points import MountPointCleaner
from controller.jobs.cluster.orphans import OrphanCollector
from controller.jobs.cluster.pending_reasons import PendingReasons
from controller.jobs.cluster.prerequisites import Prerequisites
from controller.jobs.cluster.priorities import PriorityValues
from controller.jobs.history.job_record import JobRecords
from controller.jobs.history.retention import Retention, RetentionPeriods
from controller.jobs.pipeline.pipeline import HookRecorder
from controller.jobs.reconcile.actions import Actions
from controller.jobs.reconcile.adoption import Adoption
from controller.jobs.reconcile.monitoring import Monitoring
from controller.jobs.reconcile.observe import Observer
from controller.jobs.reconcile.plugin_calls import PluginCalls
from controller.jobs.reconcile.reconciler import Reconciler, ReconcilerMetrics
from controller.jobs.reconcile.workqueue import WorkQueue
from controller.kube.client import Kube
from controller.kube.kinds import Kind
from controller.kube.lease import Lease
from controller.leader.discovery import CompanionRights, keep_learning
from controller.leader.election import ByLease, Election, NoElection
from controller.leader.standby import Standby
from controller.logs.keeper import LogKeeper
from controller.logs.live import PodLogs
from controller.logs.storage import LogStorage
from controller.process import Core, Process, first_error
from controller.sessions.desired import DesiredRoutes
from controller.sessions.gateways import Activities
from controller.sessions.publisher import RoutePublisher
from controller.sessions.queue_positions import QueuePositions
from controller.sessions.sign_outs import SignOutProcessor, count_sign_outs
from controller.settings import ControllerSettings
from controller.store.database import Store
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.instance import Leadership, raise_term, read_leadership, read_store_metadata
from controller.store.notifications import listen_for_changes
from controller.webhooks.dispatcher import Webhooks
from shared.bus import Keys, Publisher, ReportReader, SignOutReader
from shared.link import Seal

RELEASE_SECONDS = 3.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _LeaderContext:
    """The dependencies of all parts of the leader."""

    settings: ControllerSettings
    store: Store
    term: int
    revision: int
    core: Core
    kube: Kube
    informer: InformerCache
    cluster: JobObjects
    looked_until: float
    log_storage: LogStorage | None


@dataclass(frozen=True, slots=True)
class _Term:
    """The parts that run while this process leads."""

    number: int
    queue: WorkQueue
    adoption: Adoption
    reconciler: Reconciler
    publisher: RoutePublisher
    positions: QueuePositions
    rights: CompanionRights

    def look_at_store(self) -> None:
        """Have changes of other processes read from the store."""
        self.reconciler.look_at_store()
        self.publisher.look_at_store()


class Leader:
    """Leads whenever this process is elected; in between, it stands by.

    Args:
        process: The process' settings, store and metrics registry.
        core: The parts that the API uses as well.
        kube: The client.
        redis: The Redis that gateways read.
        election: Decides when this process leads.
        webhooks: Sends updates of jobs; None without receivers.
    """

    def __init__(
        self,
        process: Process,
        core: Core,
        kube: Kube,
        redis: Redis,
        election: Election,
        webhooks: Webhooks | None = None,
    ) -> None:
        self._process = process
        self._core = core
        self._kube = kube
        self._redis = redis
        self._election = election
        self._webhooks = webhooks
        self._standby = Standby(
            kube,
            instance=process.settings.instance,
            services=process.settings.jobs.rank_services,
        )
        self._term: _Term | None = None
        self._count_sign_out = count_sign_outs(process.registry)
        self._metrics = ReconcilerMetrics(process.registry)
        self._metrics.watch(
            queued=lambda: len(self._term.queue) if self._term else 0,
            routes=lambda: self._term.publisher.count if self._term else 0,
            leads=lambda: self._term is not None,
            parked=lambda: self._term.reconciler.parked if self._term else 0,
            unfollowed=lambda: len(self._standby.informer.problems()),
        )
        core.jobs.listeners.append(self._look_at_job)
        core.routes.listeners.append(self._look_at_routes)

    @property
    def publisher(self) -> RoutePublisher | None:
        """The publisher of routes; None while this process does not lead."""
        return self._term.publisher if self._term else None

    def problems(self) -> Sequence[str]:
        """Return why this process is not ready. A standby is ready once it could take over."""
        term = self._term
        if term is None:
            return self._standby.problems() if self._election.again else ("not the leader yet",)
        return (*term.adoption.problems, *self._standby.informer.problems())

    def degraded(self) -> Sequence[str]:
        """Return what does not work while the API works nevertheless."""
        term = self._term
        if term is None:
            return ()
        return (*term.publisher.problems, *term.rights.problems, *term.reconciler.degraded)

    def faults(self) -> Sequence[str]:
        """Return what makes no progress although it could: for liveness."""
        return self._term.reconciler.faults() if self._term is not None else ()

    async def run(self) -> None:
        """Lead and stand by, until cancelled.

        Raises:
            LeadershipLost: If another controller leads, and this one must not stand again.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._standby.run())
            await self._take_turns()

    async def _take_turns(self) -> None:
        while True:
            await self._election.acquire()
            try:
                await self._lead()
            except ExceptionGroup as group:
                # The tasks of a leader end together; the cause is why the first one ended.
                lost, others = group.split(LeadershipLost)
                if others is not None or lost is None or not self._election.again:
                    raise
                log.warning("lost leadership", extra={"why": str(first_error(lost))})
            finally:
                self._standby.stand_by()
                self._term = None
                with suppress(TimeoutError):
                    async with asyncio.timeout(RELEASE_SECONDS):
                        await self._election.release()

    async def _lead(self) -> None:
        term = await self._begin()
        async with asyncio.TaskGroup() as tasks:
            # Renewed from the beginning: reading everything may take long.
            tasks.create_task(self._election.renew())
            tasks.create_task(self._learn(term.number))
            tasks.create_task(term.rights.run())
            tasks.create_task(term.reconciler.run())
            tasks.create_task(listen_for_changes(self._process.store, term.look_at_store))
            tasks.create_task(_publish(term.publisher, term.adoption))
            tasks.create_task(term.positions.run(term.publisher.routes, term.publisher.enqueue))
            tasks.create_task(self._take_sign_outs(term))
            if self._webhooks is not None:
                sending = self._webhooks.run(term.number, failed=self._metrics.step_failed)
                tasks.create_task(sending)

    async def _begin(self) -> _Term:
        settings, store = self._process.settings, self._process.store
        before, number, revision = await self._raise_term()
        log.info("leading", extra={"term": number})
        queue = WorkQueue(
            clock=time.monotonic, random=random.random, count=self._metrics.job_enqueued
        )

        def changed(job_id: str) -> None:
            queue.enqueue(job_id, "cluster")
            self._job_changed(job_id)

        cluster = JobObjects(self._kube, instance=settings.instance)
        leader = _LeaderContext(
            settings,
            store,
            number,
            revision,
            self._core,
            self._kube,
            self._standby.informer,
            cluster,
            before.seen_at,
            self._process.log_storage,
        )
        adoption = _make_adoption(leader)
        reconciler = _make_reconciler(
            leader, adoption, queue, self._metrics, job_changed=self._job_changed
        )
        positions = _make_positions(leader, self._redis)
        publisher = _make_publisher(leader, self._redis, positions)
        rights = _make_rights(leader)
        self._term = _Term(number, queue, adoption, reconciler, publisher, positions, rights)
        # Followed from now on, so that no change by the previous leader is missed.
        self._standby.lead(changed)
        return self._term

    async def _raise_term(self) -> tuple[Leadership, int, int]:
        """Return the previous leadership, the new term, and the store's revision at its start."""
        holder = f"{socket.gethostname()}:{os.getpid()}"
        while True:
            try:
                async with self._process.store.write() as transaction:
                    before = await read_leadership(transaction)
                    term = await raise_term(transaction, holder=holder)
                    return before, term, (await read_store_metadata(transaction)).revision
            except StoreUnavailable as error:
                if not self._election.again:
                    raise
                log.warning("cannot raise the term", extra={"why": str(error)})
            await asyncio.sleep(1.0)

    async def _learn(self, term: int) -> None:
        await keep_learning(self._kube, self._process.store, self._core.pipeline, term=term)

    async def _take_sign_outs(self, term: _Term) -> None:
        processor = SignOutProcessor(
            store=self._process.store,
            reader=SignOutReader(self._redis, Keys(self._process.settings.instance)),
            term=term.number,
            clock=time.time,
            publish=term.publisher.look_at_store,
            count=self._count_sign_out,
        )
        await processor.run()

    def _look_at_job(self, job_id: str) -> None:
        if self._term is not None:
            self._term.queue.enqueue(job_id, "asked")

    def _look_at_routes(self, job_id: str) -> None:
        if self._term is not None:
            self._term.publisher.enqueue(job_id)

    def _job_changed(self, job_id: str) -> None:
        if self._term is not None:
            self._term.publisher.job_changed(job_id)


def make_election(process: Process, kube: Kube) -> Election:
    """Return how the leader is elected: with SQLite there is only one candidate."""
    settings = process.settings
    if process.store.is_single_host:
        return NoElection()
    namespace, instance = settings.jobs.namespace, settings.instance
    lease = Lease(
        kube,
        name=f"fumarole-{instance}",
        namespace=namespace,
        instance=instance,
        holder=f"{socket.gethostname()}_{os.urandom(8).hex()}",
        clock=time.monotonic,
        now=time.time,
    )
    return ByLease(kube, lease, namespace=namespace, instance=instance, store=process.store)


def _make_adoption(leader: _LeaderContext) -> Adoption:
    return Adoption(
        store=leader.store,
        term=leader.term,
        kube=leader.kube,
        informer=leader.informer,
        cluster=leader.cluster,
        instance=leader.settings.instance,
        namespace=leader.settings.jobs.namespace,
        defaults=leader.settings.jobs,
        clock=time.time,
    )


def _make_reconciler(
    leader: _LeaderContext,
    adoption: Adoption,
    queue: WorkQueue,
    metrics: ReconcilerMetrics,
    *,
    job_changed: Callable[[str], None],
) -> Reconciler:
    store, term, core = leader.store, leader.term, leader.core
    jobs = leader.settings.jobs
    calls = PluginCalls(lambda job_id: queue.enqueue(job_id, "plugin"))
    records = JobRecords(store, term=term, vault=core.vault, clock=time.time)
    actions = Actions(
        records,
        pipeline=core.pipeline,
        cluster=leader.cluster,
        prerequisites=Prerequisites(
            leader.kube, instance=leader.settings.instance, clock=time.monotonic
        ),
        priorities=PriorityValues(leader.kube, clock=time.monotonic),
        recorder=HookRecorder(store, term=term, clock=time.time, tries=leader.settings.hook_tries),
        looked_until=leader.looked_until,
        calls=calls,
    )
    observer = Observer(
        store,
        leader.informer,
        core.pipeline,
        evictions_allowed=jobs.eviction_retries,
        sidecar_seconds=jobs.sidecar_seconds,
        rank_services=jobs.rank_services,
        is_busy=calls.is_busy,
        hide_secrets=records.hide_secrets,
        clock=time.time,
    )
    monitoring = Monitoring(
        store=store,
        term=term,
        pipeline=core.pipeline,
        observe=observer.observe,
        show=actions.view_of,
        looked_until=lambda: leader.informer.looked_until,
        clock=time.time,
    )
    retention = Retention(
        store,
        term=term,
        keep=RetentionPeriods(
            history=jobs.history_seconds,
            tombstone=jobs.tombstone_seconds,
            updates=jobs.updates_seconds,
        ),
        may_be_there=leader.informer.may_have_job,
        clock=time.time,
        failed=metrics.step_failed,
    )
    orphans = OrphanCollector(
        store,
        term=term,
        kube=leader.kube,
        cluster=leader.cluster,
        informer=leader.informer,
        instance=leader.settings.instance,
        clock=time.monotonic,
        failed=metrics.step_failed,
        kinds=[
            Kind(api=one.api_version, plural=one.plural, kind=one.kind)
            for one in leader.core.pipeline.companion_kinds
        ],
    )
    missing = MissingCompanions(
        store,
        term=term,
        kube=leader.kube,
        instance=leader.settings.instance,
        clock=time.monotonic,
        enqueue=lambda job_id: queue.enqueue(job_id, "cluster"),
        failed=metrics.step_failed,
    )
    mount_points = MountPointCleaner(
        store,
        term=term,
        kube=leader.kube,
        cluster=leader.cluster,
        clock=time.time,
        failed=metrics.step_failed,
    )
    waiting = PendingReasons(
        records,
        kube=leader.kube,
        informer=leader.informer,
        changed=lambda job_id: queue.enqueue(job_id, "cluster"),
        clock=time.monotonic,
        failed=metrics.step_failed,
    )
    keeper = _make_log_keeper(
        leader,
        changed=lambda job_id: queue.enqueue(job_id, "waits"),
        failed=metrics.step_failed,
    )
    return Reconciler(
        store=store,
        informer=leader.informer,
        observer=observer,
        actions=actions,
        adoption=adoption,
        queue=queue,
        job_changed=job_changed,
        metrics=metrics,
        resync_per_second=jobs.resync_per_second,
        logs=keeper,
        background=(
            *((keeper.run,) if keeper is not None else ()),
            *(monitoring.run, retention.run, orphans.run, waiting.run, calls.run),
            *(mount_points.run, missing.run),
        ),
    )


def _make_log_keeper(
    leader: _LeaderContext, *, changed: Callable[[str], None], failed: Callable[[Exception], None]
) -> LogKeeper | None:
    if leader.log_storage is None:
        return None
    return LogKeeper(
        leader.store,
        term=leader.term,
        logs=PodLogs(leader.kube),
        storage=leader.log_storage,
        shown=lambda: leader.informer.pods,
        clock=time.time,
        random=os.urandom,
        done=changed,
        failed=failed,
    )


def _make_rights(leader: _LeaderContext) -> CompanionRights:
    jobs, informer = leader.settings.jobs, leader.informer

    def namespace() -> str | None:
        # Permissions are the same in all owners' namespaces, and are granted with the first job.
        if jobs.fair_share is None:
            return jobs.namespace
        return next((one.namespace for one in informer.jobs), None)

    kinds = leader.core.pipeline.companion_kinds
    return CompanionRights(leader.kube, kinds, namespace=namespace)


def _make_positions(leader: _LeaderContext, redis: Redis) -> QueuePositions:
    reader = ReportReader(redis=redis, keys=Keys(leader.settings.instance))
    activities = Activities(reader, clock=time.time)
    return QueuePositions(leader.store, activities_of=activities.of, clock=time.time)


def _make_publisher(
    leader: _LeaderContext, redis: Redis, positions: Mapping[str, int]
) -> RoutePublisher:
    settings = leader.settings
    desired = DesiredRoutes(
        leader.store,
        term=leader.term,
        informer=leader.informer,
        vault=leader.core.vault,
        base_domain=settings.base_domain,
        rank_services=settings.jobs.rank_services,
        positions=positions,
    )
    return RoutePublisher(
        store=leader.store,
        bus=Publisher(redis, Keys(settings.instance), term=leader.term, signer=settings.bus_signer),
        desired=desired,
        seal=Seal(settings.link_keys[0]),
        clock=time.time,
        random=os.urandom,
        revision=leader.revision,
    )


async def _publish(publisher: RoutePublisher, adoption: Adoption) -> None:
    # A store that does not know this cluster's jobs must not delete their routes.
    await adoption.settled.wait()
    await publisher.run()
