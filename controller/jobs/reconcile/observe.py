"""Observes a job: reads its state from the store and from the informer's cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from math import inf
from typing import Final, get_args

from controller.jobs.cluster.informer import InformerCache, ObjectsOfJob
from controller.jobs.history.job_record import read_known, why_parked
from controller.jobs.history.pod_records import is_of
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState, hooks_matter
from controller.jobs.spec.accepted import has_delayed, lacks_secrets, read_spec
from controller.jobs.spec.endpoints import rank_services_of
from controller.jobs.tools.runs import DueRun, due_run, why_unwanted
from controller.store.database import Store, Transaction
from controller.store.instance import read_maintenance
from controller.store.jobs.job_rows import JobRecord, RequestedEnd, find_job
from controller.store.jobs.progress import (
    CompanionRecord,
    Hook,
    HookState,
    PodRecord,
    all_settled,
    attempts_of,
    companions_of,
    hooks_of,
    pod_records_of,
    timers_of,
)
from controller.store.jobs.relations import NOBODY, basis_of, callers_of, predecessors_of
from controller.store.jobs.tools import find_tool, runs_of, tools_of
from controller.volcano.names import is_rank_service
from controller.volcano.observed import (
    ObservedJob,
    ObservedPod,
    Progress,
    as_of,
    job_as_of,
    progress_of,
)

_HOOKS: Final[tuple[Hook, ...]] = get_args(Hook)


class LogObserver:
    """Reads the logs of pods before the pods are deleted; this base class reads none."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Why logs are not stored now."""
        return ()

    def observe(
        self,
        record: JobRecord,
        pods: Sequence[ObservedPod],
        departed: Sequence[ObservedPod],
        written: Collection[str],
    ) -> float | None:
        """Begin to read the logs that are due; *written* has the uids of recorded pods.

        Returns:
            Until when ended pods of the job must stay; None if they may be deleted.
        """
        return None

    def forget(self, job_id: str) -> None:
        """Drop the state of a job that is gone."""


@dataclass(slots=True, eq=False, repr=False)
class Observer:
    """Observes jobs."""

    store: Store
    informer: InformerCache
    pipeline: Pipeline
    """Returns whether a hook is completed."""
    _: KW_ONLY
    evictions_allowed: int = 0
    """How often an evicted job is submitted again."""
    sidecar_seconds: float = 60.0
    """How long sidecars may run after the job's own containers have ended."""
    rank_services: bool = False
    """Whether ranks have Services, which the cache shows."""
    is_busy: Callable[[str], bool] = lambda _: False
    """Returns whether hooks of a job run now."""
    hide_secrets: Callable[[JobRecord, ObservedPod], ObservedPod] = lambda _, pod: pod
    """Returns a pod of the job without the job's secrets in its messages."""
    clock: Callable[[], float] = time.time
    """Unix seconds."""
    clock_offset: Callable[[], float] = lambda: 0.0
    """Returns how far the API server's clock is ahead of *clock*, in seconds."""
    _readable: dict[str, float] = field(default_factory=dict, init=False)
    _parked_jobs: set[str] = field(default_factory=set, init=False)
    _ended: dict[str, dict[tuple[str, str], float]] = field(default_factory=dict, init=False)
    _phases: dict[str, tuple[tuple[str, str], float]] = field(default_factory=dict, init=False)

    async def observe(self, job_id: str) -> ObservedState | None:
        """Return the observed state of the job; None if the store does not know it.

        Raises:
            StoreUnavailable: If the store cannot be read.
        """
        # This comes before the store is read: only the caller starts further hooks of the job.
        busy = self.is_busy(job_id)
        async with self.store.read() as transaction:
            record = await find_job(transaction, job_id)
            if record is None:
                self._forget_departed(job_id)
                self._readable.pop(job_id, None)
                self._parked_jobs.discard(job_id)
                self._ended.pop(job_id, None)
                self._phases.pop(job_id, None)
                return None
            now = self.clock()
            offset = self.clock_offset()
            shown = _as_of(self.informer.objects_of(record.namespace, job_id), now + offset)
            # Only inputs of the next step are read: most observed jobs wait, or are over.
            is_final = record.is_final
            waits = record.uid is None and not is_final
            acts = record.uid is not None and not is_final
            undecided = acts and record.outcome is None
            companions = await companions_of(transaction, job_id) if undecided else []
            runs = await self._runs(transaction, record, acts or shown.pods or shown.departed)
            has_basis = any(one.basis is not None for one in companions)
            callers = await callers_of(transaction, job_id) if has_basis else []
            timers = (
                await timers_of(transaction, job_id) if acts and has_delayed(record.spec) else {}
            )
            knows_hooks = not is_final and _hooks_may_matter(record, shown.job)
            hooks = await hooks_of(transaction, job_id, record.attempt) if knows_hooks else {}
            hold = (await read_maintenance(transaction)).hold_reason if waits else None
            deleted_uids = await self._deleted_uids(transaction, record, shown.pods)
            follows = waits and "after" in (record.spec or ())
            predecessors = await predecessors_of(transaction, job_id) if follows else ()
            due_tools, ending_runs = await self._tools(transaction, record, shown.pods)
            may_be_unwanted = not is_final and record.tool is not None
            unwanted = await self._unwanted(transaction, record) if may_be_unwanted else None
        done = self.pipeline.done_hooks(hooks)
        paused, requeue_after = self._paused(hooks, now, busy=busy)
        parked, left = self._parked(record, is_final=is_final), None
        if parked is not None and record.expires_at is not None:
            left = record.expires_at - now
            requeue_after = requeue_after if left <= 0 else min(left, requeue_after or left)
        if (due_at := _due_at(shown)) < inf:
            later = inf if requeue_after is None else requeue_after
            requeue_after = min(due_at - (now + offset), later)
        applied = all_settled(companions, record.uid, basis_of(callers) if has_basis else NOBODY)
        last = self._last(record, shown.left, matters=undecided)
        current = (shown.job or last) if acts else None
        return ObservedState(
            record=record,
            job=shown.job,
            pods=self._without_secrets(record, shown.pods),
            departed=self._without_secrets(
                record, self._unrecorded(record, shown.departed, runs, is_final=is_final)
            ),
            last=last,
            phase_seen_at=self._phase_seen_at(record, current, now),
            runs=runs,
            companions_applied=applied and (not acts or self._has_its_services(record, companions)),
            service_missing=self._lacks_service(record, companions),
            hooks=hooks,
            knows_hooks=knows_hooks,
            started="start" in done,
            completed="complete" in done,
            cleaned="cleanup" in done,
            submission_hold=hold,
            evictions_allowed=self.evictions_allowed,
            ended_since=self._ended_since(job_id, shown.pods if undecided else (), now),
            sidecar_seconds=self.sidecar_seconds,
            pods_stale=shown.pods_stale,
            jobs_stale=shown.jobs_stale,
            deleted_uids=deleted_uids,
            paused_hooks=paused,
            requeue_after=requeue_after,
            timers=timers,
            now=now,
            clock_offset=offset,
            parked=parked,
            overdue=left is not None and left <= 0,
            predecessors=predecessors,
            due_tools=due_tools,
            ending_runs=ending_runs,
            unwanted=unwanted,
        )

    @property
    def parked(self) -> int:
        """The number of live jobs that this version cannot process."""
        return len(self._parked_jobs)

    def _parked(self, record: JobRecord, *, is_final: bool) -> str | None:
        """Return why this version cannot process the job, if so.

        A job that can be read once can always be read.
        """
        if is_final:
            self._readable.pop(record.id, None)
            self._parked_jobs.discard(record.id)
            return None
        if self._readable.get(record.id) == record.created_at and record.parked is None:
            return None
        why = why_parked(record)
        if why is None:
            self._readable[record.id] = record.created_at
            self._parked_jobs.discard(record.id)
        else:
            self._parked_jobs.add(record.id)
        return why

    def _paused(
        self, hooks: Mapping[str, HookState], now: float, *, busy: bool
    ) -> tuple[frozenset[Hook], float | None]:
        """Return the hooks that must not be called now, and the seconds until one is due."""
        if busy:
            return frozenset(_HOOKS), None
        if not hooks:
            return frozenset(), None
        calls = self.pipeline.next_calls(hooks)
        later = {hook: at - now for hook, at in calls.items() if at > now}
        return frozenset(later), min(later.values(), default=None)

    def _ended_since(
        self, job_id: str, pods: Sequence[ObservedPod], now: float
    ) -> Mapping[str, float]:
        """Return since when this process observes each of the ended pods in its phase, by uid.

        The time of an end is that of the node's clock, and the node may report the end late.
        """
        before = self._ended.pop(job_id, {})
        found = {}
        for pod in pods:
            if pod.is_over:
                key = (pod.uid, pod.phase)
                found[key] = min(now, before.get(key, now))
        if found:
            self._ended[job_id] = found
        return {uid: since for (uid, _), since in found.items()}

    def _phase_seen_at(self, record: JobRecord, job: ObservedJob | None, now: float) -> float:
        """Return since when this process observes the VolcanoJob in its phase, or as deleted.

        The time in its status is that of the clock of Volcano's controller.
        """
        before = self._phases.pop(record.id, None)
        if job is None:
            return 0.0
        key = job.uid, "" if job.uid == record.removed_uid else job.phase
        since = min(now, before[1]) if before is not None and before[0] == key else now
        self._phases[record.id] = key, since
        return since

    def _has_its_services(self, record: JobRecord, companions: Sequence[CompanionRecord]) -> bool:
        """Return whether the ranks have Services exactly if the setting requires them.

        The two differ if the setting was changed after the submission, or if the job was adopted.
        """
        made = {one.name for one in _rank_services(record, companions)}
        if not self.rank_services:
            return not made
        if record.id in self._parked_jobs:
            return True  # this version plans nothing for it
        if record.sealed is None and lacks_secrets(record.spec, {}):
            return True  # nothing can be planned for it any more: its secrets are unknown
        return made == {one.name for one in rank_services_of(read_spec(record.spec, {}))}

    def _lacks_service(self, record: JobRecord, companions: Sequence[CompanionRecord]) -> bool:
        # The cache lacks Services that were created while their watch was interrupted.
        if not self.rank_services or not self.informer.watches_services:
            return False
        shown = {one.uid for one in self.informer.services.of_job(record.id) if not one.deleting}
        return any(one.uid not in shown for one in _rank_services(record, companions))

    def _without_secrets(
        self, record: JobRecord, pods: Sequence[ObservedPod]
    ) -> tuple[ObservedPod, ...]:
        return tuple(self.hide_secrets(record, pod) for pod in pods)

    def _last(
        self, record: JobRecord, left: Sequence[ObservedJob], *, matters: bool
    ) -> ObservedJob | None:
        """Return the job's deleted VolcanoJob if it matters; otherwise drop it from the cache."""
        last = None
        for job in left:
            if job.uid == record.uid and matters:
                last = job
            else:
                self.informer.jobs.forget(job)
        return last

    async def _runs(
        self, transaction: Transaction, record: JobRecord, matter: object
    ) -> Mapping[str, PodRecord]:
        if not matter or record.uid is None:
            return {}
        return {
            run.pod_uid: run for run in await pod_records_of(transaction, record.id, record.attempt)
        }

    async def _tools(
        self, transaction: Transaction, record: JobRecord, pods: Sequence[ObservedPod]
    ) -> tuple[tuple[DueRun, ...], tuple[str, ...]]:
        """Return the job's tools that are due to run, and the ids of runs that must end."""
        if not record.tools:
            return (), ()
        tools = await tools_of(transaction, record.id)
        runs = await runs_of(transaction, tools)
        due, ending = list[DueRun](), list[str]()
        job = read_known(record)
        for tool in tools:
            last = runs.get(tool.run or "")
            if found := due_run(tool, last, job=job, record=record, pods=pods):
                due.append(found)
            ends = last is not None and not last.is_final and last.desired != "ended"
            if last is not None and ends and why_unwanted(last, tool, record=record, pods=pods):
                ending.append(last.id)
        return tuple(due), tuple(ending)

    async def _unwanted(self, transaction: Transaction, record: JobRecord) -> RequestedEnd | None:
        """Return why the run of a tool must end, if *record* is one."""
        if record.tool is None or record.desired == "ended":
            return None
        job_id, name, rank = (record.tool[field] for field in ("job", "name", "rank"))
        tool = await find_tool(transaction, (job_id, name, rank))
        job = await find_job(transaction, job_id)
        return why_unwanted(record, tool, record=job, pods=self.informer.pods.of_job(job_id))

    async def _deleted_uids(
        self, transaction: Transaction, record: JobRecord, pods: Sequence[ObservedPod]
    ) -> frozenset[str]:
        """Return the uids of the job's deleted VolcanoJobs that still have pods.

        An attempt begins only when the VolcanoJob of the attempt before it is gone.
        """
        owners = {pod.owner_uid for pod in pods} - {""}
        gone = owners & {record.removed_uid}
        if owners - {record.uid, record.removed_uid}:
            attempts = await attempts_of(transaction, record.id)
            gone |= owners & {one.uid for one in attempts if one.uid != record.uid}
        return frozenset(gone)

    def _unrecorded(
        self,
        record: JobRecord,
        departed: tuple[ObservedPod, ...],
        runs: Mapping[str, PodRecord],
        *,
        is_final: bool,
    ) -> tuple[ObservedPod, ...]:
        """Return the departed pods whose end is not recorded yet; drop the others."""
        kept = []
        for pod in departed:
            run = runs.get(pod.uid)
            mine = is_of(pod, record.uid, runs)
            if mine and (run is None or run.ended_at is None):
                kept.append(pod)
            elif record.uid is not None or is_final:
                # Otherwise its VolcanoJob may still be recorded: a leader can stop between the
                # creation and the record of it.
                self.informer.pods.forget(pod)
        return tuple(kept)

    def _forget_departed(self, job_id: str) -> None:
        for pod in self.informer.pods.departed_of(job_id):
            self.informer.pods.forget(pod)
        for job in self.informer.jobs.departed_of(job_id):
            self.informer.jobs.forget(job)


def _as_of(shown: ObjectsOfJob, now: float) -> ObjectsOfJob:
    pods, departed = (
        tuple(as_of(pod, now) for pod in some) for some in (shown.pods, shown.departed)
    )
    job = None if shown.job is None else job_as_of(shown.job, now)
    return replace(shown, job=job, pods=pods, departed=departed)


def _due_at(shown: ObjectsOfJob) -> float:
    """Return when the next deleted object counts as lost, or as held, if it still exists."""
    lost = [pod.lost_at for pod in shown.pods if not pod.lost]
    held = [shown.job.held_at] if shown.job is not None and not shown.job.held else []
    return min((*lost, *held), default=inf)


def _hooks_may_matter(record: JobRecord, job: ObservedJob | None) -> bool:
    """Return whether a step that follows from this observation may be to run a hook."""
    if record.desired == "ended" or hooks_matter(record):
        return True
    return job is not None and progress_of(job.phase) is not Progress.WAITING


def _rank_services(
    record: JobRecord, companions: Sequence[CompanionRecord]
) -> Iterator[CompanionRecord]:
    for one in companions:
        if one.kind == "Service" and is_rank_service(one.name, record.id):
            yield one
