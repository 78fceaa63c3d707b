"""Why a job waits, or has failed: a word for programs, and a text for people. No I/O."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from controller.volcano.names import FILES_CONTAINER
from controller.volcano.observed import ObservedJob, ObservedPod

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
    """Return why the job failed: the first rank that did decides, but an eviction before all.

    Where a pod was taken away, the others may have failed for want of it.
    """
    failed = [pod for pod in pods if pod.owner_uid == job.uid and _has_failed(pod)]
    for pod in sorted(failed, key=lambda pod: (not pod.was_evicted, pod.task, pod.index)):
        where = f"{pod.task} {pod.index}"
        if pod.was_evicted:
            why = pod.message or pod.disrupted or pod.reason
            return "evicted", f"{where} was evicted: {why}"
        if pod.unprepared is not None:
            return explain_unprepared(*pod.unprepared)
        if pod.ended is None:
            continue
        if pod.ended.reason == "OOMKilled":
            return "out_of_memory", f"{where} used more memory than it had asked for"
        return "exit_code", f"{where} ended with exit code {pod.ended.exit_code}"
    return "failed", job.message or None


def explain_unprepared(container: str, message: str) -> tuple[str, str]:
    """Return why a program never ran: what a container that was to prepare its pod said."""
    if container == FILES_CONTAINER:
        return "files", "; ".join(line for line in message.splitlines() if line)
    return "preparation", f"{container}: {message}"


def _has_failed(pod: ObservedPod) -> bool:
    return pod.phase == "Failed" or pod.was_evicted
