"""The parts that run during one term of leadership, and how they are made.

A new term has new parts: no state of a former term of this process outlives it, but the store's and
that of the informer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from redis.asyncio import Redis

from controller.jobs.cluster.companion_sweep import CompanionSweep
from controller.jobs.cluster.informer import InformerCache
from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.cluster.mount_points import MountPointCleaner
from controller.jobs.cluster.pending_reasons import PendingReasons
from controller.jobs.cluster.prerequisites import Prerequisites
from controller.jobs.cluster.priorities import PriorityValues
from controller.jobs.cluster.refused_shells import RefusedShells
from controller.jobs.history.job_record import JobRecords
from controller.jobs.history.retention import Retention, RetentionPeriods
from controller.jobs.pipeline.border import HookRecorder
from controller.jobs.reconcile.actions import Actions
from controller.jobs.reconcile.adoption import Adoption
from controller.jobs.reconcile.monitoring import Monitoring
from controller.jobs.reconcile.observe import Observer
from controller.jobs.reconcile.plugin_calls import PluginCalls
from controller.jobs.reconcile.reconciler import Reconciler, ReconcilerMetrics
from controller.jobs.reconcile.workqueue import WorkQueue
from controller.kube.client import Kube
from controller.kube.kinds import Kind
from controller.leader.discovery import CompanionRights
from controller.logs.keeper import LogKeeper
from controller.logs.live import PodLogs
from controller.logs.storage import LogStorage
from controller.process import Core
from controller.sessions.desired import DesiredRoutes
from controller.sessions.gateways import Activities
from controller.sessions.publisher import RoutePublisher
from controller.sessions.queue_positions import QueuePositions
from controller.settings import ControllerSettings
from controller.store.database import FencedStore
from shared.bus import Keys, Publisher, ReportReader
from shared.link import Seal


@dataclass(frozen=True, slots=True, kw_only=True)
class TermContext:
    """The objects that all parts of a term use."""

    settings: ControllerSettings
    store: FencedStore
    revision: int
    core: Core
    kube: Kube
    redis: Redis
    informer: InformerCache
    cluster: JobObjects
    looked_until: float
    log_storage: LogStorage | None


@dataclass(frozen=True, slots=True)
class Term:
    """The parts that run while this process leads."""

    store: FencedStore
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


def make_term(
    context: TermContext,
    queue: WorkQueue,
    metrics: ReconcilerMetrics,
    *,
    job_changed: Callable[[str], None],
) -> Term:
    """Return the parts of a term; none of them runs yet."""
    adoption, positions = _make_adoption(context), _make_positions(context)
    return Term(
        store=context.store,
        queue=queue,
        adoption=adoption,
        reconciler=_make_reconciler(context, adoption, queue, metrics, job_changed=job_changed),
        publisher=_make_publisher(context, positions),
        positions=positions,
        rights=_make_rights(context),
    )


def _make_adoption(context: TermContext) -> Adoption:
    return Adoption(
        store=context.store,
        kube=context.kube,
        informer=context.informer,
        cluster=context.cluster,
        instance=context.settings.instance,
        namespace=context.settings.jobs.namespace,
        defaults=context.settings.jobs,
        clock=context.kube.now,
    )


def _make_reconciler(
    context: TermContext,
    adoption: Adoption,
    queue: WorkQueue,
    metrics: ReconcilerMetrics,
    *,
    job_changed: Callable[[str], None],
) -> Reconciler:
    store, core = context.store, context.core
    jobs = context.settings.jobs
    calls = PluginCalls(lambda job_id: queue.enqueue(job_id, "plugin"))
    records = JobRecords(store, vault=core.vault, clock=context.kube.now)
    prerequisites = Prerequisites(
        context.kube,
        instance=context.settings.instance,
        clock=time.monotonic,
        grants=() if jobs.fair_share is None else jobs.fair_share.grants,
    )
    actions = Actions(
        records,
        pipeline=core.pipeline,
        cluster=context.cluster,
        prerequisites=prerequisites,
        priorities=PriorityValues(context.kube, clock=time.monotonic),
        recorder=HookRecorder(store, clock=context.kube.now, tries=context.settings.hook_tries),
        looked_until=context.looked_until,
        calls=calls,
    )
    observer = Observer(
        store.unfenced,
        context.informer,
        core.pipeline,
        evictions_allowed=jobs.eviction_retries,
        sidecar_seconds=jobs.sidecar_seconds,
        rank_services=jobs.rank_services,
        is_busy=calls.is_busy,
        hide_secrets=records.hide_secrets,
        clock=context.kube.now,
        clock_offset=lambda: context.kube.server_ahead,
    )
    monitoring = Monitoring(
        store=store,
        pipeline=core.pipeline,
        observe=observer.observe,
        show=actions.view_of,
        looked_until=lambda: context.informer.looked_until,
        held=metrics.submission_held,
        clock=context.kube.now,
        failed=metrics.step_failed,
    )
    retention = Retention(
        store,
        keep=RetentionPeriods(
            history=jobs.history_seconds,
            tombstone=jobs.tombstone_seconds,
            updates=jobs.updates_seconds,
        ),
        may_be_there=context.informer.may_have_job,
        clock=context.kube.now,
        failed=metrics.step_failed,
    )
    sweep = CompanionSweep(
        store,
        kube=context.kube,
        cluster=context.cluster,
        informer=context.informer,
        instance=context.settings.instance,
        clock=time.monotonic,
        enqueue=lambda job_id: queue.enqueue(job_id, "cluster"),
        failed=metrics.step_failed,
        kinds=[
            Kind(api=one.api_version, plural=one.plural, kind=one.kind)
            for one in context.core.pipeline.companion_kinds
        ],
    )
    mount_points = MountPointCleaner(
        store,
        kube=context.kube,
        cluster=context.cluster,
        clock=context.kube.now,
        failed=metrics.step_failed,
    )
    waiting = PendingReasons(
        records,
        kube=context.kube,
        informer=context.informer,
        changed=lambda job_id: queue.enqueue(job_id, "cluster"),
        clock=time.monotonic,
        failed=metrics.step_failed,
    )
    refused = RefusedShells(store.unfenced, prerequisites=prerequisites, failed=metrics.step_failed)
    keeper = _make_log_keeper(
        context,
        changed=lambda job_id: queue.enqueue(job_id, "waits"),
        failed=metrics.step_failed,
    )
    return Reconciler(
        store=store.unfenced,
        informer=context.informer,
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
            *(monitoring.run, retention.run, sweep.run, waiting.run, calls.run),
            mount_points.run,
            *(() if jobs.fair_share is None else (refused.run,)),
        ),
    )


def _make_log_keeper(
    context: TermContext, *, changed: Callable[[str], None], failed: Callable[[Exception], None]
) -> LogKeeper | None:
    if context.log_storage is None:
        return None
    return LogKeeper(
        context.store,
        logs=PodLogs(context.kube),
        storage=context.log_storage,
        shown=lambda: context.informer.pods,
        clock=context.kube.now,
        random=os.urandom,
        done=changed,
        failed=failed,
    )


def _make_rights(context: TermContext) -> CompanionRights:
    jobs, informer = context.settings.jobs, context.informer

    def namespace() -> str | None:
        # Permissions are the same in all owners' namespaces, and are granted with the first job.
        if jobs.fair_share is None:
            return jobs.namespace
        return next((one.namespace for one in informer.jobs), None)

    kinds = context.core.pipeline.companion_kinds
    return CompanionRights(context.kube, kinds, namespace=namespace)


def _make_positions(context: TermContext) -> QueuePositions:
    reader = ReportReader(redis=context.redis, keys=Keys(context.settings.instance))
    activities = Activities(reader, clock=time.time)
    return QueuePositions(context.store.unfenced, activities_of=activities.of, clock=time.time)


def _make_publisher(context: TermContext, positions: Mapping[str, int]) -> RoutePublisher:
    settings = context.settings
    desired = DesiredRoutes(
        context.store,
        informer=context.informer,
        vault=context.core.vault,
        base_domain=settings.base_domain,
        rank_services=settings.jobs.rank_services,
        positions=positions,
    )
    return RoutePublisher(
        store=context.store,
        bus=Publisher(
            context.redis,
            Keys(settings.instance),
            term=context.store.term,
            signer=settings.bus_signer,
        ),
        desired=desired,
        seal=Seal(settings.link_keys[0]),
        clock=time.time,
        random=os.urandom,
        revision=context.revision,
    )
