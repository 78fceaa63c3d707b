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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from redis.asyncio import Redis

from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.reconcile.adoption import Adoption
from controller.jobs.reconcile.reconciler import ReconcilerMetrics
from controller.jobs.reconcile.workqueue import WorkQueue
from controller.kube.client import Kube
from controller.kube.lease import Lease
from controller.leader.discovery import keep_learning
from controller.leader.election import ByLease, Election, NoElection
from controller.leader.standby import Standby
from controller.leader.term import Term, TermContext, make_term
from controller.process import Core, Process, first_error
from controller.sessions.publisher import RoutePublisher
from controller.sessions.sign_outs import SignOutProcessor, Taken, count_sign_outs
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.instance import Leadership, raise_term, read_leadership, read_store_metadata
from controller.store.notifications import listen_for_changes
from controller.webhooks.dispatcher import Webhooks
from shared.bus import Keys, SignOutReader

RELEASE_SECONDS = 3.0

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, repr=False)
class Leader:
    """Leads whenever this process is elected; in between, it stands by."""

    process: Process
    """The process' settings, store and metrics registry."""
    core: Core
    """The parts that the API uses as well."""
    kube: Kube
    redis: Redis
    """The Redis that gateways read."""
    election: Election
    """Decides when this process leads."""
    webhooks: Webhooks | None = None
    """Sends updates of jobs; None without receivers."""
    _standby: Standby = field(init=False)
    _term: Term | None = None
    _count_sign_out: Callable[[Taken], None] = field(init=False)
    _metrics: ReconcilerMetrics = field(init=False)

    def __post_init__(self) -> None:
        self._standby = Standby(
            self.kube,
            instance=self.process.settings.instance,
            services=self.process.settings.jobs.rank_services,
        )
        self._count_sign_out = count_sign_outs(self.process.registry)
        self._metrics = ReconcilerMetrics(self.process.registry)
        self._metrics.watch(
            queued=lambda: len(self._term.queue) if self._term else 0,
            routes=lambda: self._term.publisher.count if self._term else 0,
            leads=lambda: self._term is not None,
            parked=lambda: self._term.reconciler.parked if self._term else 0,
            unfollowed=lambda: len(self._standby.informer.problems()),
        )
        self.core.jobs.listeners.append(self._look_at_job)
        self.core.routes.listeners.append(self._look_at_routes)

    @property
    def publisher(self) -> RoutePublisher | None:
        """The publisher of routes; None while this process does not lead."""
        return self._term.publisher if self._term else None

    def problems(self) -> Sequence[str]:
        """Return why this process is not ready. A standby is ready once it could take over."""
        term = self._term
        if term is None:
            return self._standby.problems() if self.election.again else ("not the leader yet",)
        return (*term.adoption.problems, *self._standby.informer.problems())

    def degraded(self) -> Sequence[str]:
        """Return what does not work while the API works nevertheless."""
        clocks, term = _clock_problems(self.kube.clock_offset), self._term
        if term is None:
            return clocks
        of_term = term.publisher.problems, term.rights.problems, term.reconciler.degraded
        return (*clocks, *(one for some in of_term for one in some))

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
            await self.election.acquire()
            try:
                await self._lead()
            except ExceptionGroup as group:
                # The tasks of a leader end together; the cause is why the first one ended.
                lost, others = group.split(LeadershipLost)
                if others is not None or lost is None or not self.election.again:
                    raise
                log.warning("lost leadership", extra={"why": str(first_error(lost))})
            finally:
                self._standby.stand_by()
                self._term = None
                with suppress(TimeoutError):
                    async with asyncio.timeout(RELEASE_SECONDS):
                        await self.election.release()

    async def _lead(self) -> None:
        term, failed = await self._begin(), self._metrics.step_failed
        async with asyncio.TaskGroup() as tasks:
            # Renewed from the beginning: reading everything may take long.
            tasks.create_task(self.election.renew())
            tasks.create_task(keep_learning(self.kube, term.store, self.core.pipeline, failed))
            tasks.create_task(term.rights.run(failed))
            tasks.create_task(term.reconciler.run())
            tasks.create_task(listen_for_changes(self.process.store, term.look_at_store))
            tasks.create_task(_publish(term.publisher, term.adoption))
            positions, publisher = term.positions, term.publisher
            tasks.create_task(positions.run(publisher.routes, publisher.enqueue, failed))
            tasks.create_task(self._take_sign_outs(term, failed))
            if self.webhooks is not None:
                tasks.create_task(self.webhooks.run(term.store, failed=failed))

    async def _begin(self) -> Term:
        settings, store = self.process.settings, self.process.store
        before, number, revision = await self._raise_term()
        log.info("leading", extra={"term": number})
        queue = WorkQueue(
            clock=time.monotonic, random=random.random, count=self._metrics.job_enqueued
        )

        def changed(job_id: str) -> None:
            queue.enqueue(job_id, "cluster")
            self._job_changed(job_id)

        context = TermContext(
            settings=settings,
            store=store.fenced(number),
            revision=revision,
            core=self.core,
            kube=self.kube,
            redis=self.redis,
            informer=self._standby.informer,
            cluster=JobObjects(self.kube, instance=settings.instance),
            looked_until=before.seen_at,
            log_storage=self.process.log_storage,
        )
        self._term = make_term(context, queue, self._metrics, job_changed=self._job_changed)
        # Followed from now on, so that no change by the previous leader is missed.
        self._standby.lead(changed)
        return self._term

    async def _raise_term(self) -> tuple[Leadership, int, int]:
        """Return the previous leadership, the new term, and the store's revision at its start."""
        holder = f"{socket.gethostname()}:{os.getpid()}"
        while True:
            try:
                async with self.process.store.write() as transaction:
                    before = await read_leadership(transaction)
                    term = await raise_term(transaction, holder=holder)
                    return before, term, (await read_store_metadata(transaction)).revision
            except StoreUnavailable as error:
                if not self.election.again:
                    raise
                log.warning("cannot raise the term", extra={"why": str(error)})
            await asyncio.sleep(1.0)

    async def _take_sign_outs(self, term: Term, failed: Callable[[Exception], None]) -> None:
        processor = SignOutProcessor(
            store=term.store,
            reader=SignOutReader(self.redis, Keys(self.process.settings.instance)),
            clock=time.time,
            publish=term.publisher.look_at_store,
            count=self._count_sign_out,
        )
        await processor.run(failed)

    def _look_at_job(self, job_id: str) -> None:
        if self._term is not None:
            self._term.queue.enqueue(job_id, "asked")

    def _look_at_routes(self, job_id: str) -> None:
        if self._term is not None:
            self._term.publisher.enqueue(job_id)

    def _job_changed(self, job_id: str) -> None:
        if self._term is not None:
            self._term.publisher.job_changed(job_id)


def _clock_problems(offset: float) -> tuple[str, ...]:
    """Return that the clocks of this process and of the API server differ, if they do."""
    if not offset:
        return ()
    how = "behind" if offset > 0 else "ahead of"
    return (f"this process' clock is {abs(offset):.0f} s {how} the API server's",)


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


async def _publish(publisher: RoutePublisher, adoption: Adoption) -> None:
    # A store that does not know this cluster's jobs must not delete their routes.
    await adoption.settled.wait()
    await publisher.run()
