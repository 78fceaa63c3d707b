"""A job's states as a table, and what is to be done next as a function of what is.

``decide`` looks at the store and the cluster and names one step; the reconciler does it, and asks
again. Nothing here acts, and nothing remembers: asked twice about the same, it says the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, assert_never

from controller.store.jobs import JobRecord
from controller.volcano.observed import ObservedJob, ObservedPod
from controller.volcano.phases import Progress, progress_of


class State(StrEnum):
    """What the orchestrator is told."""

    IN_QUEUE = "IN_QUEUE"
    RUNNING = "RUNNING"
    CANCELING = "CANCELING"
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"


class Happening(StrEnum):
    """What may happen to a job."""

    WAITS = "waits"
    STARTED = "started"
    ASKED_TO_END = "asked to end"
    ENDED_WELL = "ended well"
    ENDED_BADLY = "ended badly"


TRANSITIONS: Final[Mapping[tuple[State, Happening], State]] = MappingProxyType(
    {
        (State.IN_QUEUE, Happening.WAITS): State.IN_QUEUE,
        (State.IN_QUEUE, Happening.STARTED): State.RUNNING,
        (State.IN_QUEUE, Happening.ASKED_TO_END): State.CANCELING,
        # A job can end between two looks at it.
        (State.IN_QUEUE, Happening.ENDED_WELL): State.SUCCESS,
        (State.IN_QUEUE, Happening.ENDED_BADLY): State.FAILURE,
        # Volcano starts a job over, or has lost too many of its pods to call it running.
        (State.RUNNING, Happening.WAITS): State.IN_QUEUE,
        (State.RUNNING, Happening.STARTED): State.RUNNING,
        (State.RUNNING, Happening.ASKED_TO_END): State.CANCELING,
        (State.RUNNING, Happening.ENDED_WELL): State.SUCCESS,
        (State.RUNNING, Happening.ENDED_BADLY): State.FAILURE,
        # What it does until it is gone no longer matters.
        (State.CANCELING, Happening.WAITS): State.CANCELING,
        (State.CANCELING, Happening.STARTED): State.CANCELING,
        (State.CANCELING, Happening.ASKED_TO_END): State.CANCELING,
        (State.CANCELING, Happening.ENDED_WELL): State.SUCCESS,
        (State.CANCELING, Happening.ENDED_BADLY): State.FAILURE,
    }
)
"""Everything else is no transition: a final state has none."""


def next_state(state: str, happening: Happening) -> str:
    """Return the state after *happening*; one that is final, or not known here, stays."""
    try:
        return TRANSITIONS[State(state), happening]
    except (KeyError, ValueError):
        return state


# What can be seen of a job


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A job in the store and in the cluster, at one moment.

    ``exposed`` says that all companions are there and owned by the VolcanoJob; ``started``,
    ``completed`` and ``cleaned``, which hooks have run to their end.
    """

    record: JobRecord
    job: ObservedJob | None
    pods: tuple[ObservedPod, ...]
    exposed: bool
    started: bool
    completed: bool
    cleaned: bool


# What may be the next step


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do until something changes."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Make the VolcanoJob, or find that it was made."""


@dataclass(frozen=True, slots=True)
class Expose:
    """Make the companions that come after the VolcanoJob, and have it own all of them."""


@dataclass(frozen=True, slots=True)
class Note:
    """Remember what happened, and tell the orchestrator."""

    happening: Literal[Happening.WAITS, Happening.STARTED]
    reason: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class RunHooks:
    """Run one hook of every plugin that has not done it."""

    hook: Literal["start", "complete", "cleanup"]


@dataclass(frozen=True, slots=True)
class Conclude:
    """Decide how the job ends."""

    outcome: Literal[State.SUCCESS, State.FAILURE]
    reason: str
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Confirm:
    """Ask the cluster itself whether the VolcanoJob is gone: the picture may be behind."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete the VolcanoJob."""

    uid: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Take the outcome as the state, and drop what was kept for the job."""


Step: TypeAlias = Rest | Submit | Expose | Note | RunHooks | Conclude | Confirm | Remove | Finish


def decide(seen: Seen) -> Step:
    """Return the next step."""
    record = seen.record
    if record.is_final:
        return _after_the_end(seen)
    if record.outcome is not None:
        return _ending(seen)
    if record.desired == "ended":
        return Conclude(State.SUCCESS, "asked", "ended as asked")
    if seen.job is None or (record.uid is not None and seen.job.uid != record.uid):
        return Submit() if record.uid is None else Confirm()
    if record.uid is None:
        return Submit()
    if seen.job.deleting:
        return Conclude(State.FAILURE, "deleted", "its VolcanoJob was deleted by somebody else")
    return _living(seen, seen.job)


def _living(seen: Seen, job: ObservedJob) -> Step:
    progress = progress_of(job.phase)
    match progress:
        case Progress.WAITING:
            return _expose_first(seen, _waiting(seen, job))
        case Progress.RUNNING:
            return _expose_first(seen, _running(seen))
        case Progress.ENDING:
            return Rest()
        case Progress.SUCCEEDED:
            return Conclude(State.SUCCESS, "completed")
        case Progress.FAILED:
            return Conclude(State.FAILURE, *explain_failure(job, seen.pods))
        case Progress.STOPPED:
            return Conclude(State.FAILURE, "stopped", f"its VolcanoJob is {job.phase}")
        case _:
            assert_never(progress)


def _expose_first(seen: Seen, step: Step) -> Step:
    return step if seen.exposed else Expose()


def _waiting(seen: Seen, job: ObservedJob) -> Step:
    reason, message = explain_waiting(job, seen.pods)
    return _note_if_new(seen, Note(Happening.WAITS, reason, message))


def _running(seen: Seen) -> Step:
    noted = _note_if_new(seen, Note(Happening.STARTED, None, None))
    if isinstance(noted, Note) or seen.started:
        return noted
    return RunHooks("start")


def _note_if_new(seen: Seen, note: Note) -> Step:
    record = seen.record
    told = (record.state, record.reason, record.message)
    if told == (next_state(record.state, note.happening), note.reason, note.message):
        return Rest()
    return note


def _ending(seen: Seen) -> Step:
    if not seen.completed:
        return RunHooks("complete")
    if must_be_removed(seen.record) and (step := _removal(seen)) is not None:
        return step
    return Finish() if seen.cleaned else RunHooks("cleanup")


def must_be_removed(record: JobRecord) -> bool:
    """Say whether the VolcanoJob goes at once, and not some time after its end by itself.

    Volcano never removes one that was aborted.
    """
    return record.desired == "ended" or record.reason in ("stopped", "deleted")


def _removal(seen: Seen) -> Step | None:
    """Return what is left to do until the VolcanoJob and its pods are gone; None when they are."""
    record, job = seen.record, seen.job
    if job is not None and job.uid == (record.uid or job.uid):
        return Rest() if job.deleting else Remove(job.uid)
    if any(pod.owner_uid == record.uid for pod in seen.pods):
        return Rest()
    return None


def _after_the_end(seen: Seen) -> Step:
    job = seen.job
    if job is not None and not job.deleting and job.uid == seen.record.uid:
        return Remove(job.uid) if must_be_removed(seen.record) else Rest()
    return Rest()


# What people are told


_WAITING_WORDS: Final = MappingProxyType(
    {
        "ContainerCreating": ("preparing", "preparing the container"),
        "PodInitializing": ("preparing", "preparing the container"),
        "ErrImagePull": ("image", "the image cannot be pulled"),
        "ImagePullBackOff": ("image", "the image cannot be pulled"),
        "InvalidImageName": ("image", "the image's name is not valid"),
        "ErrImageNeverPull": ("image", "the image is not on the node"),
        "CreateContainerConfigError": ("configuration", "the container cannot be configured"),
        "CreateContainerError": ("configuration", "the container cannot be made"),
        "RunContainerError": ("configuration", "the container cannot be started"),
    }
)


def explain_waiting(job: ObservedJob, pods: tuple[ObservedPod, ...]) -> tuple[str, str]:
    """Return why the job does not run yet: a word for programs, and a text for people."""
    mine = [pod for pod in pods if pod.owner_uid == job.uid and not pod.deleting]
    for pod in mine:
        if pod.waiting in _WAITING_WORDS and pod.waiting not in ("ContainerCreating",):
            return _WAITING_WORDS[pod.waiting]
    if any(pod.node for pod in mine):
        return "preparing", "preparing the container"
    if job.phase == "Restarting":
        return "restarting", "starting again"
    return "queued", "waiting in the queue"


def explain_failure(job: ObservedJob, pods: tuple[ObservedPod, ...]) -> tuple[str, str | None]:
    """Return why the job failed: the first rank that did decides."""
    failed = [pod for pod in pods if pod.owner_uid == job.uid and pod.phase == "Failed"]
    for pod in sorted(failed, key=lambda pod: (pod.task, pod.index)):
        where = f"{pod.task} {pod.index}"
        if pod.reason == "Evicted":
            return "evicted", f"{where} was evicted: {pod.message}"
        if pod.ended is None:
            continue
        if pod.ended.reason == "OOMKilled":
            return "out_of_memory", f"{where} used more memory than it had asked for"
        return "exit_code", f"{where} ended with exit code {pod.ended.exit_code}"
    return "failed", job.message or None
