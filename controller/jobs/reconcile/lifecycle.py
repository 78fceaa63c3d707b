"""What is to be done next for a job, as a function of what is.

``decide`` looks at the store and the cluster and names one step; the reconciler does it, and asks
again. Nothing here acts, and nothing remembers: asked twice about the same, it says the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, assert_never

from controller.jobs.cluster.recovery import to_keep
from controller.jobs.history.explanations import explain_waiting, same_but_for_numbers
from controller.jobs.history.failures import explain_failure
from controller.jobs.history.pod_records import are_recorded, is_of, retries_of
from controller.jobs.history.policy_timers import wanted_timers
from controller.jobs.history.retries import (
    Policies,
    Triggered,
    has_delayed,
    has_failed,
    policies_of,
    triggered,
    used_retries,
)
from controller.jobs.history.states import HOW_IT_ENDED, Happening, Outcome, State, next_state
from controller.jobs.reconcile.steps import (
    LOST,
    AdoptNewerAttempt,
    Conclude,
    Confirm,
    ConfirmPods,
    EndOverdue,
    EndTool,
    Expose,
    Finish,
    KeepForRecovery,
    Note,
    Order,
    Park,
    RecordPods,
    Remove,
    RemovePods,
    Replace,
    Rest,
    Restore,
    RunHooks,
    SetTimers,
    StartNextAttempt,
    StartTool,
    Step,
    Stop,
    Submit,
)
from controller.jobs.tools.runs import DueRun
from controller.store.jobs.hook_runs import HookState
from controller.store.jobs.job_rows import REMOVED_REASONS, JobRecord, RequestedEnd
from controller.store.jobs.pods import PodRecord
from controller.store.jobs.predecessors import Predecessor
from controller.store.jobs.progress import Hook
from controller.store.jobs.timers import Timer
from controller.volcano.names import CREATED_ANNOTATION
from controller.volcano.observed import ObservedJob, ObservedPod
from controller.volcano.phases import Progress, progress_of
from controller.volcano.policies import RESTARTS
from controller.volcano.waiting import Explanation

# What can be seen of a job


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
    submitted again. ``blind`` says that pods cannot be followed now: what is seen of them is old.
    ``paused`` are the hooks of which none is to be called now: they run, or have failed and are
    tried again later. ``again_in`` is after how many seconds something is to be done though nothing
    changes. ``gone`` are the uids of VolcanoJobs that are known to be gone, or on their way;
    ``timers`` are those of its policies with a timeout, by their triggers, and ``now`` is the time.
    ``parked`` says why this version cannot go on with the job, ``overdue`` that its time is over.
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


def hooks_matter(record: JobRecord) -> bool:
    """Say whether the next step may be to run a hook."""
    return record.state == State.RUNNING or record.outcome is not None


QUIET_SECONDS: Final = 300.0
"""How long a message is not told again of which only numbers have changed."""


def decide(seen: ObservedState) -> Step:
    """Return the next step."""
    record = seen.record
    if not are_recorded(seen.runs, _own(seen, seen.pods), _own(seen, seen.departed)):
        return RecordPods()
    if late := _late_pods(seen):
        return RemovePods(late)
    if record.is_final:
        return _after_the_end(seen)
    if seen.parked != record.parked:
        return Park(seen.parked)
    step = _undecided(seen) if record.outcome is None else _ending(seen)
    # Tools come last: they keep the job from nothing.
    return StartTool(seen.due_tools[0]) if seen.due_tools and isinstance(step, Rest) else step


def _undecided(seen: ObservedState) -> Step:
    """Return the next step for a job of which it is not decided yet how it ends."""
    record = seen.record
    if seen.job is not None and _is_newer(seen.job, record):
        return AdoptNewerAttempt()
    if record.desired == "ended":
        return _ended_on_purpose(record)
    if seen.unwanted is not None:
        return EndTool(seen.unwanted)
    if seen.parked is not None and seen.overdue:
        return EndOverdue()  # its plugins may never have seen it
    if record.renewal is not None:
        return _removal(seen) or Replace()
    if record.uid is None:
        return _submitting(seen)
    step = _submitted(seen)
    follows = isinstance(step, Conclude | Confirm | StartNextAttempt)
    # One whose policy waits for its time has been told to wait.
    if follows or (isinstance(step, ConfirmPods) and not seen.timers):
        return _told_to_run(seen) or step
    return step


def _is_newer(job: ObservedJob, record: JobRecord) -> bool:
    # What somebody writes into the annotations of an attempt that is known makes it no other one.
    return job.attempt > record.attempt and job.uid != record.uid


def _submitted(seen: ObservedState) -> Step:
    record = seen.record
    if seen.job is None or seen.job.uid != record.uid:
        return Confirm(_as_it_was(seen))
    if seen.job.deleting and progress_of(seen.job.phase) not in _OVER:
        return Conclude(State.FAILURE, "deleted", "its VolcanoJob was deleted by somebody else")
    step = _living(seen, seen.job)
    return _keeping(seen, seen.job, step) if isinstance(step, Rest) else step


def _told_to_run(seen: ObservedState) -> Note | None:
    """Return the news that the job ran, if it was over before anybody looked.

    Where hundreds of jobs begin at once, a short one ends before its turn comes.
    """
    job = seen.job if seen.job is not None else seen.last
    waits = seen.record.state == State.IN_QUEUE
    if not waits or job is None or job.uid != seen.record.uid or not job.ran:
        return None
    return Note(Happening.STARTED, None, None)


def _keeping(seen: ObservedState, job: ObservedJob, step: Rest) -> Step:
    """Keep what a lost store would lack, when there is nothing else to do."""
    what = to_keep(seen.record, job, seen.pods) if seen.exposed else None
    if seen.timers and step.until is None:
        step = Rest(min(timer.due_at for timer in seen.timers.values()))
    return step if what is None or what == seen.record.kept else KeepForRecovery(what)


_OVER: Final = (Progress.SUCCEEDED, Progress.FAILED)
"""One that is over is removed by Volcano itself, perhaps before we have seen its end."""


def _as_it_was(seen: ObservedState) -> Conclude | StartNextAttempt:
    """Return what follows if the VolcanoJob is gone: its own end, if it had come to that."""
    if seen.last is None:
        return LOST
    match progress_of(seen.last.phase):
        case Progress.SUCCEEDED:
            return _SUCCEEDED
        case Progress.FAILED:
            policies = policies_of(seen.record)
            followed = triggered(policies, seen.runs.values())
            return _after_failure(seen, seen.last, policies, followed)
        case _:
            return LOST


def _own(seen: ObservedState, pods: tuple[ObservedPod, ...]) -> list[ObservedPod]:
    return [pod for pod in pods if is_of(pod, seen.record.uid, seen.runs)]


_ON_PURPOSE: Final[Mapping[str, Outcome]] = MappingProxyType(
    {"SUCCESS": State.SUCCESS, "FAILURE": State.FAILURE, "EXPIRED": State.EXPIRED}
)


def _ended_on_purpose(record: JobRecord) -> Conclude:
    outcome = _ON_PURPOSE.get(record.end_state or "", State.SUCCESS)
    reason, message = record.end_reason or "asked", record.end_message or "ended as asked"
    return Conclude(outcome, reason, message, record.end_details)


def _submitting(seen: ObservedState) -> Step:
    if seen.parked is not None:
        return _note_if_new(seen, Note(Happening.WAITS, "parked", seen.parked))
    if seen.job is not None:
        return Submit()  # its making was not answered: it is found, whatever is wanted by now
    if bad := [one for one in seen.predecessors if not (one.goes_on or one.ended_well)]:
        return _never_begins(bad[0])
    if seen.record.desired == "suspended":
        return _note_if_new(seen, _SUSPENDED)
    if ahead := [one.job_id for one in seen.predecessors if one.goes_on]:
        return _note_if_new(seen, Note(Happening.WAITS, "predecessor", _waits_for(ahead)))
    if seen.held is not None:
        return _note_if_new(seen, Note(Happening.WAITS, "paused", seen.held))
    return Submit()


def _never_begins(one: Predecessor) -> Conclude:
    how = f"ended as {one.state} ({one.reason})" if one.state else "is not known any more"
    return Conclude(State.FAILURE, "predecessor", f"the job {one.job_id}, which it follows, {how}")


def _waits_for(job_ids: Sequence[str]) -> str:
    others = len(job_ids) - 1
    more = f" and {others} more" if others else ""
    return f"waits for the end of {job_ids[0]}{more}"


_UNEXPLAINED: Final = Conclude(State.FAILURE, "failed")
_SUCCEEDED: Final = Conclude(State.SUCCESS, "completed")
_SUSPENDED: Final = Note(Happening.SUSPENDED, "asked", "suspended as asked")


def _living(seen: ObservedState, job: ObservedJob) -> Step:
    progress = progress_of(job.phase)
    match progress:
        case Progress.WAITING | Progress.RUNNING if seen.record.desired == "suspended":
            return Stop(job.uid)
        case Progress.WAITING:
            return _timed(seen, job) or _expose_first(seen, _waiting(seen, job))
        case Progress.RUNNING:
            return _timed(seen, job) or _expose_first(seen, _running(seen))
        case Progress.ENDING:
            return Rest()
        case Progress.SUCCEEDED:
            completes = seen.record.ordered == "CompleteJob"
            return _as_ordered(seen.record) if completes else _SUCCEEDED
        case Progress.FAILED:
            step = _failed(seen, job)
            # Pods are followed apart from VolcanoJobs: how they ended may still be to come.
            waits = isinstance(step, ConfirmPods) and (seen.blind or _still_runs(seen))
            return Rest() if waits else step
        case Progress.STOPPED:
            return _stopped(seen, job)
        case _:
            assert_never(progress)


def _expose_first(seen: ObservedState, step: Step) -> Step:
    if seen.parked is not None:
        return step if isinstance(step, Note) else Rest()
    if not seen.exposed:
        return Expose()
    if not isinstance(step, Rest):
        return step
    # The cache may only be behind: so whatever else there is to do comes first.
    return Restore() if seen.lost else step


def _waiting(seen: ObservedState, job: ObservedJob) -> Step:
    record = seen.record
    told = Explanation(record.reason or "", record.message or "", record.details or {})
    found = explain_waiting(job, seen.pods, record.explained, told)
    note = Note(Happening.WAITS, found.reason, found.message, found.details)
    step = _note_if_new(seen, note)
    if isinstance(step, Rest) or not _is_told_but_for_numbers(record, note):
        return step
    # Counts of nodes and quotas change with every job that comes and goes.
    since = (record.details or {}).get("at")
    again_at = since + QUIET_SECONDS if isinstance(since, int | float) else seen.now
    return step if seen.now >= again_at else Rest()


def _is_told_but_for_numbers(record: JobRecord, note: Note) -> bool:
    same_state = record.state == next_state(record.state, note.happening)
    same = same_state and record.reason == note.reason
    return same and same_but_for_numbers(record.message, note.message)


def _running(seen: ObservedState) -> Step:
    noted = _note_if_new(seen, Note(Happening.STARTED, None, None))
    if isinstance(noted, Note) or seen.started:
        return noted
    return _hooks(seen, "start")


def _hooks(seen: ObservedState, hook: Hook) -> RunHooks | Rest:
    return Rest() if hook in seen.paused else RunHooks(hook)


def _note_if_new(seen: ObservedState, note: Note) -> Step:
    record = seen.record
    told = (record.state, record.reason, record.message)
    if told == (next_state(record.state, note.happening), note.reason, note.message):
        return Rest()
    return note


def _stopped(seen: ObservedState, job: ObservedJob) -> Step:
    if seen.record.ordered is not None and not seen.record.stopping:
        return _as_ordered(seen.record)
    if not seen.record.stopping or job.phase != "Aborted":
        return _stopped_by_others(seen, job)
    if _still_runs(seen):
        return Rest()
    if seen.record.desired == "suspended":
        return _note_if_new(seen, _SUSPENDED)
    return StartNextAttempt("resumed", "resumed, and submitted again")


def _stopped_by_others(seen: ObservedState, job: ObservedJob) -> Conclude | StartNextAttempt:
    """Return what follows where Volcano stopped a VolcanoJob: by a policy, or for a command."""
    policies = policies_of(seen.record)
    found = explain_failure(job, (*seen.pods, *seen.departed), seen.runs.values())
    details = found.details if found is not None else None
    followed = triggered(policies, seen.runs.values())
    if followed is not None and followed.rule.action == _STOPS.get(job.phase):
        return replace(_carried_out(followed), details=details)
    if (refused := _refused_pods(seen.record, job)) is not None:
        return refused
    text = f"its VolcanoJob is {job.phase}"
    if found is not None and found.message:
        text = f"{text}: {found.message}"
    return Conclude(State.FAILURE, "stopped", text, details)


MOST_ATTEMPTS: Final = 500
"""Of a job whose pods are refused again and again: Volcano gives each up after three minutes."""
_FINAL_REFUSALS: Final = frozenset({"pod_security", "limit_range", "admission"})
"""Causes for which the same pods are refused the next time, too."""


def _refused_pods(record: JobRecord, job: ObservedJob) -> Conclude | StartNextAttempt | None:
    """Return what follows where Volcano has given up making the pods; None where it has not.

    It terminates a VolcanoJob after fifteen tries (``--max-requeue-num``). A quota that others use
    up is no fault of the job's: it waits for room by another attempt.
    """
    kept = record.explained or {}
    is_why = kept.get("uid") == job.uid and kept.get("reason") == "forbidden"
    if not is_why or job.ran or job.phase != "Terminated":
        return None
    details = kept.get("details") or {}
    if details.get("cause") in _FINAL_REFUSALS or record.attempt >= MOST_ATTEMPTS:
        return Conclude(State.FAILURE, "refused", kept["message"], details)
    return StartNextAttempt("forbidden", kept["message"], details)


_STOPS: Final = MappingProxyType({"Aborted": "AbortJob", "Terminated": "TerminateJob"})


def _failed(seen: ObservedState, job: ObservedJob) -> Step:
    """Return what follows from it that the VolcanoJob has failed.

    What its policies say is carried out by us where Volcano did not come to ask them.
    """
    policies = policies_of(seen.record)
    if policies and seen.blind:
        return Rest()
    followed = triggered(policies, seen.runs.values())
    if followed is not None and policies.is_ours(followed.rule) and not _is_ordered(seen.record):
        # Its time may not have come.
        timers = _wanted_timers(seen, job, policies)
        if timers != seen.timers:
            return SetTimers(tuple(timers.values()))
        timer = timers.get(followed.trigger)
        if timer is not None and seen.now < timer.due_at:
            text = (
                f"{followed.why}; {followed.rule.action} follows after a while, as its policy says"
            )
            told = _note_if_new(seen, Note(Happening.WAITS, "restarting", text))
            return Rest(timer.due_at) if isinstance(told, Rest) else told
    step = _after_failure(seen, job, policies, followed)
    # A pod of which nothing is known yet may say why.
    return ConfirmPods(step) if policies or _is_unexplained(step) else step


def _is_unexplained(step: Step) -> bool:
    """Say whether no pod says why it failed; Volcano's own words say little."""
    if not isinstance(step, Conclude) or step.reason != _UNEXPLAINED.reason:
        return False
    return (step.details or {}).get("cause") in (None, "volcano")


def _after_failure(
    seen: ObservedState, job: ObservedJob, policies: Policies, followed: Triggered | None
) -> Conclude | StartNextAttempt:
    record = seen.record
    found = explain_failure(job, (*seen.pods, *seen.departed), seen.runs.values())
    failure = _UNEXPLAINED
    if found is not None:
        failure = Conclude(State.FAILURE, found.reason, found.message, found.details)
    message, details = failure.message or "it failed", failure.details
    if _is_ordered(record):
        return _as_ordered(record) if record.ordered else failure
    if followed is not None and followed.rule.action not in RESTARTS:
        return replace(_carried_out(followed), details=details)
    if record.evictions < seen.evictions_allowed:
        if failure.reason == "evicted":
            return StartNextAttempt("evicted", f"{message}; submitted again", details)
        if _has_paid_for_evictions(seen, job):
            why = "retries that went to evictions are given back"
            return StartNextAttempt("evicted", f"{message}; submitted again: {why}", details)
    if record.retries_used + used_retries(job.retries, seen.runs.values(), None) >= policies.most:
        return failure
    if followed is not None:
        return StartNextAttempt("retried", _retold(followed, policies), details)
    if policies.restarts and not any(has_failed(run) for run in seen.runs.values()):
        text = "no record says which of its policies applied, so nothing is started again"
        return replace(failure, message=f"{message}; {text}")
    return failure


def _is_ordered(record: JobRecord) -> bool:
    """Say whether we had it aborted, terminated or completed: then no policy follows."""
    return record.stopping or record.ordered is not None


def _as_ordered(record: JobRecord) -> Conclude:
    outcome: Outcome = State.SUCCESS if record.ordered == "CompleteJob" else State.FAILURE
    reason = "completed" if outcome is State.SUCCESS else "stopped"
    return Conclude(outcome, reason, f"{record.ordered_why}: {record.ordered}, as its policy says")


def _carried_out(followed: Triggered) -> Conclude:
    """Return the end that a policy wants which does not start anything again."""
    action = followed.rule.action
    text = f"{followed.why}: {action}, as its policy says"
    if action == "CompleteJob":
        return Conclude(State.SUCCESS, "completed", text)
    return Conclude(State.FAILURE, "stopped", text)


def _retold(followed: Triggered, policies: Policies) -> str:
    action = followed.rule.action
    if policies.is_ours(followed.rule):
        return f"{followed.why}; started again by its policy {action}"
    text = f"{followed.why}; Volcano has not carried out its policy {action}"
    return f"{text}: the whole job is started again, as another attempt"


def _timed(seen: ObservedState, job: ObservedJob) -> Step | None:
    """Return what is to be done about policies that we time; None if nothing is now."""
    record = seen.record
    if record.ordered is not None:
        return Order(record.ordered, record.ordered_why or "")
    if seen.blind or not (seen.timers or has_delayed(record)):
        return None
    policies = policies_of(record)
    timers = _wanted_timers(seen, job, policies)
    if timers != seen.timers:
        return SetTimers(tuple(timers.values()))
    first = min(timers.values(), key=lambda one: (one.due_at, one.trigger), default=None)
    if first is None or seen.now < first.due_at:
        return None
    return ConfirmPods(_due(seen, job, policies, first))


def _due(
    seen: ObservedState, job: ObservedJob, policies: Policies, timer: Timer
) -> StartNextAttempt | Order:
    if timer.action not in RESTARTS:
        return Order(timer.action, timer.why)
    used = seen.record.retries_used + used_retries(job.retries, seen.runs.values(), None)
    if used < policies.most:
        return StartNextAttempt(
            "retried", f"{timer.why}; started again by its policy {timer.action}"
        )
    return Order("TerminateJob", f"{timer.why}, and no retry is left")


def _wanted_timers(seen: ObservedState, job: ObservedJob, policies: Policies) -> dict[str, Timer]:
    return wanted_timers(
        seen.record,
        job,
        _own(seen, seen.pods),
        runs=seen.runs,
        policies=policies,
        stored=seen.timers,
        now=seen.now,
    )


def _has_paid_for_evictions(seen: ObservedState, job: ObservedJob) -> bool:
    """Say whether Volcano gave it up for a count of retries in which evictions are."""
    given_up = 0 < job.max_retry <= job.retries
    return given_up and retries_of(job.retries, seen.runs.values()) < job.max_retry


def _ending(seen: ObservedState) -> Step:
    # Hooks begin before the removal, which does not wait for those that take long or fail.
    if not seen.completed and "complete" not in seen.paused:
        return RunHooks("complete")
    if must_be_removed(seen.record) and (step := _removal(seen)) is not None:
        return step
    if not seen.completed or _still_runs(seen):
        return Rest()  # what it uses is counted to the end
    if seen.record.outcome not in HOW_IT_ENDED:
        return Rest()  # a newer version has decided something else: it is that one's to tell
    return Finish() if seen.cleaned else _hooks(seen, "cleanup")


def _still_runs(seen: ObservedState) -> bool:
    return any(not pod.is_over for pod in _own(seen, seen.pods))


def must_be_removed(record: JobRecord) -> bool:
    """Say whether the VolcanoJob goes at once, and not some time after its end by itself.

    Volcano never removes one that was aborted.
    """
    why = record.reason if record.is_final else record.end_reason
    return record.desired == "ended" or record.stopping or why in REMOVED_REASONS


def _removal(seen: ObservedState) -> Step | None:
    """Return what is left to do until the VolcanoJob and its pods are gone; None when they are.

    No pod is deleted before its VolcanoJob: Volcano would make it again, or take it for evicted.
    """
    record, job = seen.record, seen.job
    uid = record.uid or (job.uid if job is not None else None)
    if uid is None:
        return None
    shown = job is not None and job.uid == uid
    if seen.logs_until is not None and seen.now < seen.logs_until:
        return Rest(seen.logs_until)
    if record.removed_uid != uid:
        # Whoever else deletes it has said what is to become of its pods.
        others = shown and job is not None and job.deleting and record.desired != "ended"
        return Rest() if others else Remove(uid)
    own = _own(seen, seen.pods)
    if left := tuple(pod for pod in own if not pod.deleting and _may_go(seen, pod)):
        return RemovePods(left)
    return Rest() if shown or own else None


def _may_go(seen: ObservedState, pod: ObservedPod) -> bool:
    """Say whether a pod of the VolcanoJob that is gone may be deleted.

    One that nobody owns any more was left there on purpose (``--cascade=orphan``): it goes only
    when somebody asks for the job's end.
    """
    return bool(pod.owner_uid) or seen.record.desired == "ended"


def _late_pods(seen: ObservedState) -> tuple[ObservedPod, ...]:
    """Return the pods that Volcano has made, late, for a VolcanoJob that was gone already.

    Those of the job's own VolcanoJob are dealt with where that is removed.
    """
    gone = seen.gone if seen.record.is_final else seen.gone - {seen.record.uid}
    return tuple(pod for pod in seen.pods if pod.owner_uid in gone and not pod.deleting)


def _after_the_end(seen: ObservedState) -> Step:
    job, record = seen.job, seen.record
    if job is None or job.deleting or job.uid == record.removed_uid:
        return Rest()
    # Another one of the same job: its making was not answered, and came later than the end.
    late = job.uid != record.uid and job.annotations.get(CREATED_ANNOTATION) == repr(
        record.created_at
    )
    its_own = job.uid == record.uid and must_be_removed(record)
    return Remove(job.uid) if late or its_own else Rest()
