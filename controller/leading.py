"""What the leader does: brings jobs to where they should be, and tells gateways.

There is one leader; who leads is whoever raised the store's term last. Everything that it writes,
into the store and into Redis, is refused once another one has.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from redis.asyncio import Redis

from controller.jobs.actions import Actions
from controller.jobs.adoption import Adoption
from controller.jobs.cluster import JobsInCluster
from controller.jobs.ground import Ground
from controller.jobs.housekeeping import Housekeeping
from controller.jobs.monitoring import Monitoring
from controller.jobs.picture import Picture
from controller.jobs.pipeline import HookRecorder
from controller.jobs.reconciler import Reconciler
from controller.jobs.records import Records
from controller.jobs.sight import Sight
from controller.jobs.workqueue import WorkQueue
from controller.kube.client import Kube
from controller.learning import keep_learning
from controller.measures import Measures
from controller.process import Core, Process
from controller.sessions.desired import DesiredRoutes
from controller.sessions.publisher import RoutePublisher
from controller.settings import ControllerSettings
from controller.store.database import Store
from controller.store.leadership import raise_term, read_leadership
from shared.bus import Keys, Publisher
from shared.link import Seal

LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class _Leader:
    """What all parts of the leader need."""

    settings: ControllerSettings
    store: Store
    term: int
    core: Core
    kube: Kube
    picture: Picture
    cluster: JobsInCluster
    looked_until: float


async def start_leading(process: Process, core: Core, kube: Kube, redis: Redis) -> RoutePublisher:
    """Lead from now on: what led before learns that it does no more.

    Raises:
        StoreUnavailable: If the store does not answer.
    """
    settings, measures = process.settings, Measures(process.registry)
    async with process.store.write() as transaction:
        before = await read_leadership(transaction)
        term = await raise_term(transaction)
    queue = WorkQueue(clock=time.monotonic, random=random.random)
    picture = Picture(kube, instance=settings.instance, changed=_both(queue.add, core.routes.wake))
    cluster = JobsInCluster(kube, instance=settings.instance)
    leader = _Leader(settings, process.store, term, core, kube, picture, cluster, before.seen_at)
    adoption = _make_adoption(leader)
    reconciler = _make_reconciler(leader, adoption, queue, measures)
    publisher = _make_publisher(leader, redis)
    core.jobs.listeners.append(queue.add)
    core.routes.listeners.append(publisher.wake)
    process.problems.append(lambda: adoption.problems)
    process.problems.append(
        lambda: [] if publisher.is_published else ["routes are not published to Redis"]
    )
    measures.watch(queued=lambda: len(queue), routes=lambda: publisher.count)
    process.tasks.start(keep_learning(kube, core.pipeline.learn))
    process.tasks.start(reconciler.run())
    process.tasks.start(_publish(publisher, adoption))
    return publisher


def _make_adoption(leader: _Leader) -> Adoption:
    return Adoption(
        store=leader.store,
        term=leader.term,
        kube=leader.kube,
        picture=leader.picture,
        cluster=leader.cluster,
        instance=leader.settings.instance,
        namespace=leader.settings.jobs.namespace,
        defaults=leader.settings.jobs,
        clock=time.time,
    )


def _make_reconciler(
    leader: _Leader, adoption: Adoption, queue: WorkQueue, measures: Measures
) -> Reconciler:
    store, term, core = leader.store, leader.term, leader.core
    jobs = leader.settings.jobs
    actions = Actions(
        Records(store, term=term, vault=core.vault, clock=time.time),
        pipeline=core.pipeline,
        cluster=leader.cluster,
        ground=Ground(leader.kube, instance=leader.settings.instance, clock=time.monotonic),
        recorder=HookRecorder(store, term=term, clock=time.time),
        looked_until=leader.looked_until,
    )
    sight = Sight(store, leader.picture, core.pipeline, evictions_allowed=jobs.eviction_retries)
    monitoring = Monitoring(
        store=store,
        term=term,
        pipeline=core.pipeline,
        see=sight.see,
        show=actions.picture_of,
        clock=time.time,
    )
    housekeeping = Housekeeping(
        store, term=term, history_seconds=jobs.history_seconds, clock=time.time
    )
    return Reconciler(
        store=store,
        picture=leader.picture,
        sight=sight,
        actions=actions,
        adoption=adoption,
        queue=queue,
        told=core.routes.wake,
        measures=measures,
        beside=(monitoring.run, housekeeping.run),
    )


def _make_publisher(leader: _Leader, redis: Redis) -> RoutePublisher:
    settings = leader.settings
    desired = DesiredRoutes(
        leader.store,
        term=leader.term,
        picture=leader.picture,
        vault=leader.core.vault,
        base_domain=settings.base_domain,
    )
    return RoutePublisher(
        store=leader.store,
        bus=Publisher(redis, Keys(settings.instance), term=leader.term),
        desired=desired,
        seal=Seal(settings.link_keys[0]),
        clock=time.time,
        random=os.urandom,
    )


async def _publish(publisher: RoutePublisher, adoption: Adoption) -> None:
    # A store that does not know this cluster's jobs must not wipe their routes.
    while adoption.problems:  # noqa: ASYNC110  # seldom, and for a moment
        await asyncio.sleep(LOOK_SECONDS)
    await publisher.run()


def _both(one: Callable[[str], None], other: Callable[[str], None]) -> Callable[[str], None]:
    def call(job_id: str) -> None:
        one(job_id)
        other(job_id)

    return call
