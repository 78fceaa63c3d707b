"""Why a job waits, or has failed: a word for programs, and a text for people. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from controller.jobs.history.pod_records import last_runs
from controller.store.jobs.pods import PodRecord
from controller.volcano.names import FILES_CONTAINER
from controller.volcano.observed import EVICTIONS, ObservedJob, ObservedPod

_WAITING_WORDS: Final = MappingProxyType(
    {
        "ContainerCreating": ("preparing", "preparing the container"),
        "PodInitializing": ("preparing", "preparing the container"),
        "ErrImagePull": ("image", "the image cannot be pulled"),
        "ImagePullBackOff": ("image", "the image cannot be pulled"),
        "InvalidImageName": ("image", "the image's name is not valid"),
        "ErrImageNeverPull": ("image", "the image is not on the node"),
        "ImageInspectError": ("image", "the image cannot be read"),
        "RegistryUnavailable": ("image", "the image's registry cannot be reached"),
        "SignatureValidationFailed": ("image", "the image's signature is not valid"),
        "CreateContainerConfigError": ("configuration", "the container cannot be configured"),
        "CreateContainerError": ("configuration", "the container cannot be made"),
        "RunContainerError": ("configuration", "the container cannot be started"),
    }
)


def explain_waiting(
    job: ObservedJob,
    pods: tuple[ObservedPod, ...],
    kept: Mapping[str, str] | None = None,
) -> tuple[str, str]:
    """Return why the job does not run yet: a word for programs, and a text for people.

    Args:
        job: The VolcanoJob.
        pods: What is seen of its pods.
        kept: What the cluster last said about it when it was asked (see ``waiting``).
    """
    mine = [pod for pod in pods if pod.owner_uid == job.uid and not pod.deleting]
    for pod in mine:
        if pod.waiting in _WAITING_WORDS and pod.waiting not in ("ContainerCreating",):
            return _WAITING_WORDS[pod.waiting]
    if kept is not None and kept.get("uid") == job.uid and kept["reason"] == "forbidden":
        return "forbidden", kept["message"]
    if (text := _unscheduled(mine)) is not None:
        return "unschedulable", text
    if any(pod.node for pod in mine):
        return "preparing", "preparing the container"
    if job.phase == "Restarting":
        return "restarting", "starting again"
    if kept is not None and kept.get("uid") == job.uid:
        return kept["reason"], kept["message"]
    return "queued", "waiting in the queue"


def is_explained(job: ObservedJob, pods: Iterable[ObservedPod], *, ranks: int) -> bool:
    """Say whether what is seen of the job's pods explains why it waits; else it is asked for."""
    mine = [pod for pod in pods if pod.owner_uid == job.uid and not pod.deleting]
    if len(mine) < ranks:
        return False
    return _unscheduled(mine) is not None or any(pod.node for pod in mine)


def _unscheduled(pods: Iterable[ObservedPod]) -> str | None:
    waiting = [pod for pod in pods if pod.unscheduled and not pod.node]
    # Of all of a gang, always the same one's: what is told should not change with every look.
    first = min(waiting, key=lambda pod: (pod.task, pod.index), default=None)
    return first.unscheduled if first is not None else None


def explain_failure(
    job: ObservedJob, pods: Iterable[ObservedPod], runs: Iterable[PodRecord]
) -> tuple[str, str | None]:
    """Return why the job failed: the first rank that did decides, but an eviction before all.

    Where a pod was taken away, the others may have failed for want of it. Volcano has deleted
    the pods that it would have started again, so what is written down of them counts as well;
    ``runs`` are this attempt's.
    """
    failed = [pod for pod in pods if pod.owner_uid == job.uid and _has_failed(pod)]
    for pod in sorted(failed, key=lambda pod: (not pod.was_evicted, pod.task, pod.index)):
        if pod.was_evicted:
            return _evicted(pod.task, pod.index, pod.message or pod.disrupted or pod.reason)
        if pod.unprepared is not None:
            return explain_unprepared(*pod.unprepared)
        if pod.ended is not None and not pod.deleting:  # else it may have been killed after all
            return _ended(pod.task, pod.index, pod.ended.reason, pod.ended.exit_code)
    return _explain_by_runs(runs) or ("failed", job.message or None)


_KILLED: Final = (137, 143)


def _explain_by_runs(runs: Iterable[PodRecord]) -> tuple[str, str] | None:
    """Return why the last pod of some rank failed, that of the rank which did so first."""
    failed = [run for run in last_runs(runs) if run.exit_code or run.reason in EVICTIONS]

    def order(run: PodRecord) -> tuple[bool, float, bool, int]:
        # Where one has failed the others are killed, within the same second perhaps.
        ended_at = run.started_at or 0.0 if run.ended_at is None else run.ended_at
        return run.reason not in EVICTIONS, ended_at, run.exit_code in _KILLED, run.rank

    for run in sorted(failed, key=order):
        if run.reason in EVICTIONS:
            return _evicted(run.task, run.index, run.message or run.reason)
        return _ended(run.task, run.index, run.reason, run.exit_code)
    return None


def _evicted(task: str, index: int, why: str) -> tuple[str, str]:
    return "evicted", f"{task} {index} was evicted: {why}"


def _ended(task: str, index: int, reason: str, exit_code: int | None) -> tuple[str, str]:
    if reason == "OOMKilled":
        return "out_of_memory", f"{task} {index} used more memory than it had asked for"
    return "exit_code", f"{task} {index} ended with exit code {exit_code}"


def explain_unprepared(container: str, message: str) -> tuple[str, str]:
    """Return why a program never ran: what a container that was to prepare its pod said."""
    if container == FILES_CONTAINER:
        return "files", "; ".join(line for line in message.splitlines() if line)
    return "preparation", f"{container}: {message}"


def _has_failed(pod: ObservedPod) -> bool:
    return pod.phase == "Failed" or pod.was_evicted
