"""Reads from the cluster why jobs wait, if the cached objects do not explain it.

Only objects without a watch are read, one job after another, at a limited rate. The result is
recorded with the job: events are deleted after an hour.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, asdict, dataclass, field
from typing import Any, Final

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.containment import Containment
from controller.jobs.history.explanations import is_explained
from controller.jobs.history.job_record import JobRecords
from controller.jobs.spec.problems import JobRejected
from controller.kube.capacity import NODES_READ
from controller.kube.client import Kube, Object, Objects
from controller.kube.errors import Forbidden, KubeError, NotFound, NotServed
from controller.kube.kinds import EVENTS, NODES, POD_GROUPS, QUEUES, VCJOBS
from controller.store.jobs.job_rows import JobRecord, find_job, lock_job, update_job
from controller.volcano.observed import ObservedJob, ObservedPod, Progress, progress_of
from controller.volcano.reasons.waiting import (
    NO_NODE_FITS,
    NOT_TAKEN_UP,
    QUEUED,
    Explanation,
    NodeRoom,
    explain_group,
    explain_preparing,
    explain_refused,
    group_name,
    read_node,
    why_no_node,
)
from shared.text import plain_text

ROUND_SECONDS: Final = 2.0
MOST_A_ROUND: Final = 4
"""Jobs in a round, each with at most five calls; the list of the nodes is one more."""
PATIENCE_SECONDS: Final = 3.0
"""The wait of a job before the cluster is read: most jobs start sooner."""
FIRST_AGAIN_SECONDS: Final = 15.0
LONGEST_AGAIN_SECONDS: Final = 300.0
FORBIDDEN_SECONDS: Final = 600.0
NODES_SECONDS: Final = 60.0
"""How long a list of the nodes is cached."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _WaitingJob:
    """A waiting VolcanoJob: when it is due, and the backoff after that."""

    uid: str
    at: float
    pause: float = FIRST_AGAIN_SECONDS


@dataclass(slots=True, eq=False, repr=False)
class PendingReasons:
    """Finds out why jobs wait, as the leader."""

    records: JobRecords
    _: KW_ONLY
    kube: Kube
    informer: InformerCache
    changed: Callable[[str], None]
    """Called with the id of a job whose explanation has changed."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    failed: InitVar[Callable[[Exception], None]]
    _contained: Containment = field(init=False)
    _waits: dict[str, _WaitingJob] = field(default_factory=dict, init=False)
    _not_allowed_until: dict[str, float] = field(default_factory=dict, init=False)
    _nodes: list[NodeRoom] = field(default_factory=list, init=False)
    _nodes_good_until: float = 0.0

    def __post_init__(self, failed: Callable[[Exception], None]) -> None:
        self._contained = Containment("the reason why a job waits could not be read", failed)

    async def run(self) -> None:
        """Check every two seconds; returns only by LeadershipLost."""
        await self._contained.repeat(self.look, lambda: ROUND_SECONDS)

    async def look(self) -> None:
        """Read the reasons of the jobs that have been due longest.

        Raises:
            LeadershipLost: If another process leads.
            StoreUnavailable: If the result cannot be recorded.
        """
        for job in self._due():
            with self._contained.of(f"job {job.job_id}"):
                try:
                    await self._look_at(job)
                except (KubeError, JobRejected) as error:
                    # JobRejected: a job that this version cannot read.
                    log.info(
                        "the reason why a job waits could not be read",
                        extra={"job": job.job_id, "why": str(error)},
                    )

    def _due(self) -> Sequence[ObservedJob]:
        """Return the jobs to ask about now, and put off each of them."""
        now, waiting = self.clock(), dict[str, ObservedJob]()
        for job in self.informer.jobs:
            if self._waits_for_pods(job) and not job.deleting:
                waiting[job.job_id] = job
        # A job that waits again is treated as new.
        self._waits = {
            job_id: known
            if (known := self._waits.get(job_id)) is not None and known.uid == job.uid
            else _WaitingJob(job.uid, now + PATIENCE_SECONDS)
            for job_id, job in waiting.items()
        }
        due = sorted((one.at, job_id) for job_id, one in self._waits.items() if one.at <= now)
        for _, job_id in due[:MOST_A_ROUND]:
            waits = self._waits[job_id]
            waits.at = now + waits.pause
            waits.pause = min(2 * waits.pause, LONGEST_AGAIN_SECONDS)
        return [waiting[job_id] for _, job_id in due[:MOST_A_ROUND]]

    def _waits_for_pods(self, job: ObservedJob) -> bool:
        match progress_of(job.phase):
            case Progress.WAITING:
                return True
            case Progress.RUNNING:
                return not self.informer.pods.has_job(job.job_id)  # preempted, for example
            case _:
                return False

    async def _look_at(self, job: ObservedJob) -> None:
        pods = self.informer.pods.of_job(job.job_id)
        if self.clock() < self._not_allowed_until.get(job.namespace, 0.0):
            return
        async with self.records.store.read() as transaction:
            record = await find_job(transaction, job.job_id)
        if record is None or record.uid != job.uid or record.is_final:
            return
        ranks = self.records.readable_job(record).ranks
        if is_explained(job, pods, ranks=ranks):
            # The obstacle to the creation of the pods is gone.
            if record.explained is not None:
                await self._keep(job, None)
            return
        mine = [pod for pod in pods if pod.owner_uid == job.uid and not pod.deleting]
        try:
            found = await self.read_reason(job, record, mine, ranks=ranks)
        except Forbidden as error:
            # The permissions are those of an older version, or the site has restricted them.
            self._not_allowed_until[job.namespace] = self.clock() + FORBIDDEN_SECONDS
            log.warning(
                "no permission to read why jobs wait",
                extra={"namespace": job.namespace, "why": str(error)},
            )
            return
        # Events are deleted after an hour: their absence says nothing.
        explained = record.explained or {}
        recorded = explained.get("message"), explained.get("since", job.phase_since)
        if found is not None and recorded != (found.message, job.phase_since):
            await self._keep(job, found)
        elif found is None and explained and _has_passed(explained, job, mine, ranks=ranks):
            await self._keep(job, None)

    async def read_reason(
        self, job: ObservedJob, record: JobRecord, pods: Sequence[ObservedPod], *, ranks: int
    ) -> Explanation | None:
        """Return why *job* waits, by at most five calls and a list of the nodes.

        Raises:
            KubeError: If a call fails.
        """
        events = await self._events(job, job.uid) if len(pods) < ranks else []
        was_refused = explain_refused(events, since=job.phase_since) is not None
        group = await self._group(job) if was_refused else None
        if found := explain_refused(events, has_group=group is not None, since=job.phase_since):
            return found
        prepared = [pod for pod in pods if pod.node and not pod.running and not pod.is_over]
        if first := min(prepared, key=lambda pod: (pod.task, pod.index), default=None):
            return explain_preparing(await self._events(job, first.uid))
        # First, whatever the events of its group say: without a queue nothing else follows.
        if found := await self._of_queue(record) or await self._of_nodes(job):
            return found
        # The messages about the pods are more specific than those about their group.
        is_said = any(pod.unscheduled for pod in pods)
        may_be_left = not job.phase and self._is_known_well(job)
        if group is None and (may_be_left or not is_said):
            group = await self._group(job)
        if may_be_left and group is None:
            return NOT_TAKEN_UP
        found = None if is_said or group is None else await self._of_group(job, group)
        # A recorded refusal no longer holds the job.
        return found or (QUEUED if was_refused else None)

    def _is_known_well(self, job: ObservedJob) -> bool:
        """Return whether it has been asked about before: at first Volcano may only be busy."""
        waits = self._waits.get(job.job_id)
        return waits is not None and waits.pause > 2 * FIRST_AGAIN_SECONDS

    async def _of_nodes(self, job: ObservedJob) -> Explanation | None:
        """Return whether no node could run it, even an empty one; a second check needs no list."""
        if self.clock() >= self._nodes_good_until:
            nodes = await self.kube.list(NODES, transform=NODES_READ)
            self._nodes = [room for node in nodes if (room := read_node(node))]
            self._nodes_good_until = self.clock() + NODES_SECONDS
        try:
            whole = await self.kube.get(VCJOBS, job.name, job.namespace)
        except NotFound:
            return None
        return why_no_node(whole, self._nodes)

    async def _group(self, job: ObservedJob) -> Object | None:
        try:
            return await self.kube.get(POD_GROUPS, group_name(job.name, job.uid), job.namespace)
        except NotFound:
            return None

    async def _of_group(self, job: ObservedJob, group: Object) -> Explanation | None:
        uid = str(group["metadata"].get("uid") or "")
        return explain_group(group, await self._events(job, uid) if uid else ())

    async def _events(self, job: ObservedJob, uid: str) -> Objects:
        return await self.kube.list(EVENTS, job.namespace, fields=f"involvedObject.uid={uid}")

    async def _of_queue(self, record: JobRecord) -> Explanation | None:
        if record.queue is None:
            return None
        try:
            queue = await self.kube.get(QUEUES, record.queue)
        except NotServed:
            return None
        except NotFound:
            details = {"cause": "queue_missing", "queue": record.queue}
            return Explanation("queued", f"there is no queue {record.queue}", details)
        state = (queue.get("status") or {}).get("state")
        if state in (None, "", "Open"):
            return None
        text = f"the queue {record.queue} is not open: it is {plain_text(state, 64)}"
        return Explanation("queued", text, {"cause": "queue_closed", "queue": record.queue})

    async def _keep(self, job: ObservedJob, found: Explanation | None) -> None:
        explained: dict[str, Any] | None = (
            None if found is None else {"uid": job.uid, "since": job.phase_since, **asdict(found)}
        )
        async with self.records.store.write() as transaction:
            now = await lock_job(transaction, job.job_id)
            if now is None or now.uid != job.uid or now.explained == explained:
                return
            await update_job(transaction, now, now=self.records.clock(), explained=explained)
        self.changed(job.job_id)


def _has_passed(
    explained: Mapping[str, Any], job: ObservedJob, pods: Sequence[ObservedPod], *, ranks: int
) -> bool:
    """Return whether the recorded reason no longer holds: the *pods* exist, or have a node."""
    if (explained.get("details") or {}).get("cause") == NOT_TAKEN_UP.details["cause"]:
        return bool(job.phase)
    if len(pods) < ranks:
        return False
    of_pods = explained.get("reason") in ("forbidden", "preparing")
    no_node = (explained.get("details") or {}).get("cause") == NO_NODE_FITS
    return of_pods or no_node or any(pod.node for pod in pods)
