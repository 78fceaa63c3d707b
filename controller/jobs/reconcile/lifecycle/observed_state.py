"""The observed state of a job: the input of ``next_step``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.jobs.history.job_record import State, next_state, read_known
from controller.jobs.history.pod_records import OVER, own_pods
from controller.jobs.reconcile.lifecycle.steps import RunHooks, UpdateStatus, Wait
from controller.jobs.tools.runs import DueRun
from controller.store.jobs.job_rows import REMOVED_REASONS, JobRecord, RequestedEnd
from controller.store.jobs.progress import Hook, HookState, PodRecord, Timer
from controller.store.jobs.relations import Predecessor
from controller.volcano.observed import ObservedJob, ObservedPod, Progress, progress_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedState:
    """A job in the store and in the informer's cache, at one moment."""

    record: JobRecord
    now: float = 0.0
    """Unix seconds."""
    clock_offset: float = 0.0
    """How far the API server's clock is ahead of ``now``."""

    job: ObservedJob | None
    """The VolcanoJob, if the cache shows one."""
    last: ObservedJob | None = None
    """The last state of the VolcanoJob, if it was observed to be deleted."""
    phase_seen_at: float = 0.0
    """Since when this process observes the VolcanoJob in its phase, or after its deletion was
    accepted; 0 if that does not matter.
    """
    deleted_uids: frozenset[str] = frozenset()
    """Uids of VolcanoJobs of the job whose deletion was accepted, or that are gone."""

    pods: tuple[ObservedPod, ...]
    """The pods that the cache shows."""
    departed: tuple[ObservedPod, ...] = ()
    """The last states of pods that were observed to be deleted."""
    pods_stale: bool = False
    """Whether the watch of pods is interrupted, so that ``pods`` may be outdated."""
    jobs_stale: bool = False
    """Whether the watch of VolcanoJobs is interrupted, so that ``job`` may be outdated."""
    runs: Mapping[str, PodRecord] = field(default_factory=dict)
    """The records of the current attempt's pods, by uid."""
    ended_since: Mapping[str, float] = field(default_factory=dict)
    """Since when this process observes each ended pod in its phase, by uid."""
    sidecar_seconds: float = 60.0
    """How long sidecars may run after the job's own containers have ended."""
    logs_until: float | None = None
    """The time until which ended pods must stay, since their logs are being read."""

    companions_applied: bool
    """Whether all companions were applied and are owned by the VolcanoJob."""
    service_missing: bool = False
    """Whether the cache lacks a Service of a rank that was applied."""

    hooks: Mapping[str, HookState] = field(default_factory=dict)
    """The state of the plugins' hooks; empty while the hooks do not matter yet."""
    knows_hooks: bool = True
    """Whether ``hooks`` were read."""
    paused_hooks: frozenset[Hook] = frozenset()
    """Hooks that are not to be called now: they run, or failed and are retried later."""
    started: bool
    """Whether every plugin has completed its start hook."""
    completed: bool
    """Whether every plugin has completed its complete hook."""
    cleaned: bool
    """Whether every plugin has completed its cleanup hook."""

    submission_hold: str | None = None
    """Why nothing is submitted now (maintenance)."""
    predecessors: tuple[Predecessor, ...] = ()
    """The jobs that the job waits for, while it is not submitted."""
    evictions_allowed: int = 0
    """How often an evicted job is submitted again."""
    timers: Mapping[str, Timer] = field(default_factory=dict)
    """The timers of policies with a timeout, by trigger."""
    requeue_after: float | None = None
    """Seconds after which the job is due even without a change."""

    parked: str | None = None
    """Why this version cannot process the job."""
    overdue: bool = False
    """Whether the time of a parked job is over."""

    due_tools: tuple[DueRun, ...] = ()
    """Tools of the job that are due to run."""
    ending_runs: tuple[str, ...] = ()
    """Ids of runs of the job's tools that must end."""
    unwanted: RequestedEnd | None = None
    """The reason why a tool's run must end."""

    def after(self, record: JobRecord | None) -> ObservedState | None:
        """Return the observed state after a step that changed only the record.

        None if the job must be observed anew. The job must be observed anew if another process has
        changed the record meanwhile, if another attempt has begun, or if the next step depends on
        hooks that were not read.
        """
        if record is None or record.is_final:
            return None
        if (record.attempt, record.uid) != (self.record.attempt, self.record.uid):
            return None
        if hooks_matter(record) and not self.knows_hooks:
            return None
        last = self.last if record.outcome is None else None
        return replace(self, record=record, last=last)

    def own(self, pods: Sequence[ObservedPod]) -> list[ObservedPod]:
        """Return those of *pods* that belong to the current attempt."""
        return own_pods(pods, self.record.uid, self.runs)

    def still_runs(self) -> bool:
        """Return whether a pod of the current attempt has not ended."""
        return any(not pod.is_over for pod in self.own(self.pods))

    def awaits_pods(self) -> bool:
        """Return whether how the pods ended may still arrive: VolcanoJobs have another watch."""
        return self.pods_stale or self.still_runs()

    def staying(self) -> list[ObservedPod]:
        """Return the pods of the current attempt that are not being deleted."""
        return [pod for pod in self.own(self.pods) if not pod.deleting]

    def left_running(self) -> list[ObservedPod]:
        """Return the pods in which only sidecars still run."""
        if self.job is None or progress_of(self.job.phase) is not Progress.RUNNING:
            return []
        return [
            pod
            for pod in self.staying()
            if pod.ended is not None and pod.phase == "Running" and pod.others_running
        ]

    def ended_since_of(self, pods: Iterable[ObservedPod]) -> float:
        """Return since when this process has observed that all of these pods ended."""
        return max(self.ended_since.get(pod.uid, self.now) for pod in pods)

    def absent_since(self) -> float | None:
        """Return since when a job that had pods has none; None if one may be there."""
        if self.pods_stale or not self.runs or self.own(self.pods):
            return None
        ends = [run.ended_at for run in self.runs.values() if run.ended_at is not None]
        return max(ends) if len(ends) == len(self.runs) else None

    def all_ended_since(self) -> float | None:
        """Return since when the pods of all ranks have ended; None if one may not have."""
        over = [pod for pod in self.staying() if pod.phase in OVER]
        are_all = len(over) == len(self.staying()) >= read_known(self.record).ranks
        return self.ended_since_of(over) if are_all and not self.pods_stale else None

    def only_sidecars_ran(self) -> bool:
        """Return whether only sidecars run, or only sidecars ran until the VolcanoJob was deleted.

        Volcano never ends a VolcanoJob while a container of its pods runs.
        """
        record, job = self.record, self.job
        if record.removed_uid is not None and record.removed_uid == record.uid:
            return True
        return job is not None and job.uid == record.uid and bool(self.left_running())

    def late_pods(self) -> tuple[ObservedPod, ...]:
        """Return the pods that Volcano created late, for a VolcanoJob that was deleted already.

        Pods of the job's current VolcanoJob are deleted together with that (see ``removal``).
        """
        if not self.deleted_uids:
            return ()
        gone = self.deleted_uids if self.record.is_final else self.deleted_uids - {self.record.uid}
        return tuple(pod for pod in self.pods if pod.owner_uid in gone and not pod.deleting)

    def update_if_new(self, update: UpdateStatus) -> UpdateStatus | Wait:
        """Return *update*, or Wait if the record says the same already."""
        record = self.record
        current = (record.state, record.reason, record.message)
        state = next_state(record.state, update.event)
        return Wait() if current == (state, update.reason, update.message) else update

    def run_hook(self, hook: Hook) -> RunHooks | Wait:
        """Return the step that runs *hook*, or Wait if it must not be called now."""
        return Wait() if hook in self.paused_hooks else RunHooks(hook)


def hooks_matter(record: JobRecord) -> bool:
    """Return whether the next step may be to run a hook."""
    return record.state == State.RUNNING or record.outcome is not None


def must_be_removed(record: JobRecord) -> bool:
    """Return whether the VolcanoJob is deleted at once, and not by Volcano some time after its end.

    Volcano never deletes an aborted VolcanoJob.
    """
    why = record.reason if record.is_final else record.end_reason
    return record.desired == "ended" or record.stopping or why in REMOVED_REASONS
