"""A job as it is observed, at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.jobs.history.job_record import State, next_state
from controller.jobs.history.pod_records import own_pods
from controller.jobs.reconcile.lifecycle.steps import Note, Rest, RunHooks
from controller.jobs.tools.runs import DueRun
from controller.store.jobs.between_jobs import Predecessor
from controller.store.jobs.job_rows import JobRecord, RequestedEnd
from controller.store.jobs.progress import Hook, HookState, PodRecord, Timer
from controller.volcano.observed import ObservedJob, ObservedPod
from controller.volcano.policies import Progress, progress_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedState:
    """A job in the store and in the cluster, at one moment.

    ``pods`` are there, ``departed`` were seen to leave, ``last`` is the VolcanoJob as it was last
    if it was seen to leave; ``runs`` are what is written down of them,
    by their uids. ``exposed`` says that all companions were made and are owned by the VolcanoJob,
    ``lost`` that the cluster does not show one of those by which people reach it;
    ``hooks`` are how plugins' hooks stand, where that matters;
    ``started``, ``completed`` and ``cleaned``, which have run to their end. ``held`` says
    why nothing is submitted now, and ``evictions_allowed`` how often a job that was evicted is
    submitted again, ``sidecar_seconds`` how long containers of others may go on after its programs.
    ``blind`` says that pods cannot be followed now: what is seen of them is old.
    ``paused`` are the hooks of which none is to be called now: they run, or have failed and are
    tried again later. ``again_in`` is after how many seconds something is to be done though nothing
    changes. ``gone`` are the uids of VolcanoJobs that are known to be gone, or on their way;
    ``timers`` are those of its policies with a timeout, by their triggers, and ``now`` is the time.
    ``parked`` says why this version cannot go on with the job, ``overdue`` that its time is over,
    where it is parked.
    ``logs_until`` is until when pods that have ended are to stay, since their logs are being read.
    ``predecessors`` are the jobs that it waits for, while it is not submitted.
    ``due_tools`` are tools of the job that are to be run now, ``ending_runs`` the identifiers of
    runs of them that are to end; of such a run itself, ``unwanted`` says why.
    ``knows_hooks`` says that ``hooks`` were read, whether or not they mattered yet.
    """

    record: JobRecord
    job: ObservedJob | None
    pods: tuple[ObservedPod, ...]
    departed: tuple[ObservedPod, ...] = ()
    last: ObservedJob | None = None
    runs: Mapping[str, PodRecord] = field(default_factory=dict)
    exposed: bool
    started: bool
    completed: bool
    cleaned: bool
    hooks: Mapping[str, HookState] = field(default_factory=dict)
    held: str | None = None
    evictions_allowed: int = 0
    sidecar_seconds: float = 60.0
    lost: bool = False
    blind: bool = False
    gone: frozenset[str] = frozenset()
    paused: frozenset[Hook] = frozenset()
    again_in: float | None = None
    timers: Mapping[str, Timer] = field(default_factory=dict)
    now: float = 0.0
    parked: str | None = None
    overdue: bool = False
    logs_until: float | None = None
    predecessors: tuple[Predecessor, ...] = ()
    due_tools: tuple[DueRun, ...] = ()
    ending_runs: tuple[str, ...] = ()
    unwanted: RequestedEnd | None = None
    knows_hooks: bool = True

    def after(self, record: JobRecord | None) -> ObservedState | None:
        """Return how the job is observed after a step that changed its record, and nothing else.

        None where that takes another look: somebody has changed the record meanwhile, another
        attempt has begun, or what matters from now on was not read.
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
        """Return those of *pods* that belong to the present attempt."""
        return own_pods(pods, self.record.uid, self.runs)

    def still_runs(self) -> bool:
        """Say whether a pod of the present attempt is not over."""
        return any(not pod.is_over for pod in self.own(self.pods))

    def staying(self) -> list[ObservedPod]:
        """Return the pods of the present attempt that nobody has deleted."""
        return [pod for pod in self.own(self.pods) if not pod.deleting]

    def left_running(self) -> list[ObservedPod]:
        """Return the pods that run for containers alone which are not the job's own."""
        if self.job is None or progress_of(self.job.phase) is not Progress.RUNNING:
            return []
        return [
            pod
            for pod in self.staying()
            if pod.ended is not None and pod.phase == "Running" and pod.others_running
        ]

    def note_if_new(self, note: Note) -> Note | Rest:
        """Return *note*, unless that is what was told last."""
        record = self.record
        told = (record.state, record.reason, record.message)
        if told == (next_state(record.state, note.happening), note.reason, note.message):
            return Rest()
        return note

    def run_hook(self, hook: Hook) -> RunHooks | Rest:
        """Return the step that runs *hook*, unless it is not to be called now."""
        return Rest() if hook in self.paused else RunHooks(hook)


def hooks_matter(record: JobRecord) -> bool:
    """Say whether the next step may be to run a hook."""
    return record.state == State.RUNNING or record.outcome is not None
