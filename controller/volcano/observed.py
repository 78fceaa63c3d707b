"""VolcanoJobs, pods and Services as observed: frozen, small, only fields that decisions use.

Counts in the status of a VolcanoJob vanish after its end (Volcano 1.11 and later), so exit codes
and numbers are read from pods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import inf
from typing import Any, Final

from controller.volcano.names import (
    API_VERSION,
    ATTEMPT_ANNOTATION,
)
from shared.text import whole_number

CONTAINER_LOST: Final = "ContainerLost"
"""The reason of a pod whose node lost a container, in most cases because the node restarted.

No kubelet reports it: see ``parsing``.
"""
DISRUPTED: Final = "DisruptionTarget"
"""The reason of a pod whose condition of that type has no known reason."""
EVICTIONS: Final = frozenset(
    {
        *("Evicted", "Preempting", "Preempted", "Shutdown", "NodeShutdown", "NodeLost"),
        *("Terminated", DISRUPTED, "PreemptionByScheduler", "DeletionByTaintManager"),
        *("Evict", "DeletionByDeviceTaintManager"),
        *("EvictionByEvictionAPI", "DeletionByPodGC", "TerminationByKubelet"),
        CONTAINER_LOST,
    }
)
"""Reasons of pods that kubelets and controllers end for the sake of the cluster.

Those from ``DisruptionTarget`` on are reasons of the pod condition of that type (Kubernetes,
"Disruptions"). ``Evict`` is the reason that Volcano's scheduler gives the condition Ready.
"""

STORAGE_LIMIT: Final = "StorageLimit"
"""The reason of a pod that exceeded a limit of its own for storage on its node.

The kubelet's reason is ``Evicted``, as for a node that is low on disk. But it adds no
``DisruptionTarget``, since the pod would exceed its limit on any node (``localStorageEviction`` in
``pkg/kubelet/eviction/eviction_manager.go``). Only the message tells them apart.
"""

LARGEST_NUMBER: Final = 10**9
"""The limit of attempts and replicas: a larger number is invalid, and fits no database."""
CRASH_LOOP: Final = "CrashLoopBackOff"
"""The kubelet's reason for a container that ends repeatedly; in a job's pod only a sidecar can."""

OVERDUE_SECONDS: Final = 120.0
"""The time after its grace period when a deleted pod counts as lost.

The kubelet of a dead or partitioned node confirms no deletion, and the pod exists as long as its
node (Kubernetes, "Force Delete StatefulSet Pods"). A foreign finalizer may keep it, too.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedJob:
    """A VolcanoJob as the cluster shows it."""

    namespace: str
    name: str
    uid: str
    instance: str
    job_id: str
    phase: str
    message: str
    annotations: Mapping[str, str]
    deleting: bool
    created_at: float
    retries: int = 0
    """The number of restarts by Volcano; a resume counts as a restart."""
    max_retry: int = 0
    """The count at which Volcano gives up; 0 if unknown."""
    ran: bool = False
    """Whether the job runs, or ran until it began to end; phases in between may be missed."""
    queue: str = ""
    """Its queue: an admission webhook may have changed the requested one."""
    timed: bool = False
    """Whether one of its policies has a timeout, which Volcano then times itself."""
    phase_since: float = 0.0
    """Since when it is in its phase, by the clock of Volcano's controller; 0 if unknown."""
    finalizers: tuple[str, ...] = ()
    """Names of the finalizers that keep it after its deletion."""
    asked_to_end_at: float | None = None
    """When its deletion was requested, by the server's clock."""
    held: bool = False
    """Whether it still exists long after that: see :func:`job_as_of`."""

    @property
    def attempt(self) -> int:
        """The number of the attempt; 1 if unknown."""
        raw = self.annotations.get(ATTEMPT_ANNOTATION, "")
        return whole_number(raw, most=LARGEST_NUMBER) or 1

    @property
    def held_at(self) -> float:
        """When the VolcanoJob counts as held if it still exists; infinite if it was not deleted."""
        return inf if self.asked_to_end_at is None else self.asked_to_end_at + OVERDUE_SECONDS

    @property
    def owner_reference(self) -> dict[str, Any]:
        """A reference with which the garbage collector deletes an object after this job."""
        # No controller reference: Volcano's own controller must not take it for its object.
        return {"apiVersion": API_VERSION, "kind": "Job", "name": self.name, "uid": self.uid}

    @property
    def restarts(self) -> int:
        """The number of restarts of its pods.

        Volcano counts a restart before it checks whether one is left.
        """
        return min(self.retries, self.max_retry - 1) if self.max_retry > 0 else self.retries


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of the job's container; ``message`` is its last output, or why it never started."""

    exit_code: int
    signal: int
    reason: str
    finished_at: float | None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """A container that cannot start, with the kubelet's reason and message."""

    container: str
    reason: str
    message: str = ""
    image: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPod:
    """A pod of a VolcanoJob as the cluster shows it."""

    namespace: str
    name: str
    uid: str
    instance: str
    job_id: str
    owner_uid: str
    task: str
    index: int
    phase: str
    reason: str
    message: str
    address: str
    node: str
    ready: bool
    answers: bool
    """Whether the job's container is ready."""
    deleting: bool
    waiting: str
    """Why the job's container does not run yet: the kubelet's reason, or empty."""
    running: bool
    started_at: float | None
    ended: Ended | None
    disrupted: str = ""
    """Why the cluster evicted it (the reason of the condition DisruptionTarget), or empty."""
    created_at: float | None = None
    retry: int | None = None
    """Volcano's count of restarts when it was created."""
    unprepared: tuple[str, str] | None = None
    """The init container that failed, and its message."""
    unscheduled: str = ""
    """Why no node fits: the scheduler's message, or empty."""
    undetermined: bool = False
    """Whether that message says only that it waits for others of its gang."""
    stuck: Stuck | None = None
    """The first of its containers that cannot start."""
    disruption: str = ""
    """The cluster's message about the eviction, or empty."""
    memory_limit: str | None = None
    """The memory limit of the job's container, as Kubernetes writes it."""
    asked_to_end_at: float | None = None
    """When its deletion was requested, by the server's clock."""
    had_time: bool = False
    """Whether it was deleted with a grace period."""
    due_to_end_at: float | None = None
    """When the grace period ends, by the server's clock: the kubelet then kills it."""
    lost: bool = False
    """Whether it still exists long after the end of the grace period: see :func:`as_of`."""
    others_running: tuple[str, ...] = ()
    """Running sidecars."""
    other_failed: tuple[str, int] | None = None
    """The first sidecar that ended with another exit code than 0, and that code."""
    missing_mount_points: tuple[int, ...] = ()
    """The numbers of mount points in the output folder that did not exist before it."""
    node_unready_since: float | None = None
    """Since when its node is not ready, if the cluster says so while its containers were."""
    unseen_since: float | None = None
    """The time since which a deleted pod was unobserved, if its deletion was missed."""

    @property
    def is_over(self) -> bool:
        """Whether its program has ended, and is known not to run again in this pod."""
        return self.phase in ("Succeeded", "Failed") or self.ended is not None or self.lost

    @property
    def lost_at(self) -> float:
        """When the pod counts as lost if it still exists; infinite if it was not deleted."""
        return inf if self.due_to_end_at is None else self.due_to_end_at + OVERDUE_SECONDS

    @property
    def was_evicted(self) -> bool:
        """Whether it ended because the cluster evicted it."""
        return bool(self.disrupted) or self.reason in EVICTIONS

    @property
    def says_something(self) -> bool:
        """Whether it has a message of a program, or of the runtime that should start it."""
        return bool(self.message or self.ended or self.stuck or self.unprepared)

    def with_words(self, change: Callable[[str], str]) -> ObservedPod:
        """Return the pod with *change* applied to messages of programs and kubelets."""
        ended, stuck, unprepared = self.ended, self.stuck, self.unprepared
        return replace(
            self,
            message=change(self.message),
            ended=ended and replace(ended, message=change(ended.message)),
            stuck=stuck and replace(stuck, message=change(stuck.message)),
            unprepared=unprepared and (unprepared[0], change(unprepared[1])),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedService:
    """A Service of a job as the cluster shows it; ``owners`` are the uids of its owners."""

    namespace: str
    name: str
    uid: str
    job_id: str
    owners: frozenset[str]
    address: str
    ports: frozenset[int]
    deleting: bool


def as_of(pod: ObservedPod, now: float) -> ObservedPod:
    """Return *pod* as of *now*, by the server's clock: lost, if it should have gone long ago."""
    return pod if now < pod.lost_at else replace(pod, lost=True)


def job_as_of(job: ObservedJob, now: float) -> ObservedJob:
    """Return *job* as of *now*, by the server's clock: held, if it should have gone long ago."""
    return job if now < job.held_at else replace(job, held=True)


class Progress(Enum):
    """The progress of a VolcanoJob from the view of a job."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDING = "ending"
    """Its pods are being ended; the outcome is decided, but not reached."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    """Ended by a command or a policy; Volcano never deletes an aborted one."""


PROGRESS: Final[dict[str, Progress]] = {
    # The first event of a new VolcanoJob has no status at all.
    "": Progress.WAITING,
    "Pending": Progress.WAITING,
    "Restarting": Progress.WAITING,
    "Running": Progress.RUNNING,
    "Aborting": Progress.ENDING,
    "Completing": Progress.ENDING,
    "Terminating": Progress.ENDING,
    "Aborted": Progress.STOPPED,
    "Terminated": Progress.STOPPED,
    "Completed": Progress.SUCCEEDED,
    "Failed": Progress.FAILED,
}


def progress_of(phase: str) -> Progress:
    """Return the meaning of *phase*; a phase of a later Volcano counts as waiting.

    Waiting changes nothing: an unknown phase neither starts nor ends a job.
    """
    return PROGRESS.get(phase, Progress.WAITING)
