"""Why a job waits: a machine-readable reason, a message, and details. No I/O.

A job may have several reasons to wait at once. The first reason in :data:`_HOLDS` is reported:
reasons that an operator has to remove come before those that pass by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from controller.volcano.observed import CRASH_LOOP, ObservedJob, ObservedPod, Stuck
from controller.volcano.reasons.causes import cause_of_missing, image_error, scheduling_details
from controller.volcano.reasons.waiting import (
    NO_NODE_FITS,
    NOT_TAKEN_UP,
    QUEUED,
    Explanation,
)
from shared.text import plain_text

LONGEST: Final = 2000
"""Characters of a message."""

NODE_UNREADY: Final = "node_not_ready"
"""The reason of a job one of whose nodes is not ready."""

_STUCK_WORDS: Final = MappingProxyType(
    {
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
        "PreCreateHookError": ("configuration", "the container cannot be made"),
        "PreStartHookError": ("configuration", "the container cannot be started"),
        "PostStartHookError": ("configuration", "the container cannot be started"),
        CRASH_LOOP: ("preparing", "a sidecar ends again and again"),
    }
)
_CAUSES: Final = MappingProxyType(
    {
        "ErrImagePull": "image_pull",
        "ImagePullBackOff": "image_pull",
        "InvalidImageName": "image_name",
        "ErrImageNeverPull": "image_absent",
        "RegistryUnavailable": "registry",
        "SignatureValidationFailed": "image_signature",
        CRASH_LOOP: "crash_loop",
    }
)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The facts about a waiting job; ``kept`` and ``reported`` as in :func:`explain_waiting`."""

    job: ObservedJob
    pods: tuple[ObservedPod, ...]
    """Those that are not being deleted."""
    held: Explanation | None
    """The dead node that keeps a deleted pod."""
    kept: Explanation | None
    reported: Explanation | None


def explain_waiting(
    job: ObservedJob,
    pods: Iterable[ObservedPod],
    kept: Mapping[str, Any] | None = None,
    reported: Explanation | None = None,
) -> Explanation:
    """Return why the job does not run yet.

    Args:
        job: The VolcanoJob.
        pods: The observed pods.
        kept: The reason that was last read from the cluster (see ``cluster.pending_reasons``).
        reported: The reason that was reported last. A kubelet that pauses between two pulls of an
            image no longer reports the error.
    """
    own = [pod for pod in pods if pod.owner_uid == job.uid]
    staying = tuple(pod for pod in own if not pod.deleting)
    held = _on_dead_node(pod for pod in own if pod.deleting)
    evidence = _Evidence(job, staying, held, _of_this(job, kept), reported)
    return next(found for hold in _HOLDS if (found := hold(evidence)) is not None)


def explain_running(job: ObservedJob, pods: Iterable[ObservedPod]) -> Explanation | None:
    """Return a known obstacle to a running job; None without one.

    A node that is not ready may recover. After five minutes, as a rule (``tolerationSeconds``), its
    pods are deleted. Volcano creates none in their place before they are gone, and as long as the
    node exists, only its kubelet can confirm that.
    """
    return _on_dead_node(pod for pod in pods if pod.owner_uid == job.uid)


def explain_held(pods: Iterable[ObservedPod], job: ObservedJob | None) -> Explanation | None:
    """Return which deleted object keeps the next attempt from beginning; None without one.

    The next attempt has a VolcanoJob and pods of the same names. A dead node never confirms a
    deletion, and a finalizer of another controller may keep the pod, or the VolcanoJob, too.
    """
    leaving = [pod for pod in pods if pod.deleting]
    if (found := _on_dead_node(leaving)) is not None:
        return found
    lost = [pod for pod in leaving if pod.lost]
    if not lost:
        return _kept_by_finalizers(job) if job is not None and job.held else None
    pod = min(lost, key=lambda one: (one.task, one.index))
    others = f" (and those of {len(lost) - 1} more)" if len(lost) > 1 else ""
    text = f"the deleted pod of {pod.task} {pod.index}{others} stays, and the next attempt waits"
    text += f" for its name: the node {pod.node}, or a finalizer, keeps it"
    details = {"task": pod.task, "index": pod.index, "pod": pod.name, "node": pod.node}
    return Explanation(NODE_UNREADY, text, {"cause": NODE_UNREADY, **details})


def _kept_by_finalizers(job: ObservedJob) -> Explanation:
    by = ", ".join(job.finalizers) or "unknown"
    text = f"the deleted VolcanoJob {job.name} stays, and the next attempt waits for its name:"
    text += f" its finalizers keep it ({by})"
    return Explanation("preparing", plain_text(text, LONGEST), {"cause": "finalizer"})


def explain_absent(job: ObservedJob, kept: Mapping[str, Any] | None) -> Explanation:
    """Return why Volcano makes no pods for a running job that has none; *kept* as above.

    A preempted VolcanoJob is running to Volcano. But its PodGroup is back in the queue, and no pod
    is made before the scheduler admits it again.
    """
    found = _of_this(job, kept)
    return found if found is not None and found.reason in _OF_QUEUES else _ABSENT


_OF_QUEUES: Final = ("queued", "unschedulable", "forbidden")
_ABSENT: Final = Explanation(
    "queued", "its pods are gone, and Volcano has made no others yet", {"cause": "queued"}
)


NOT_NOTED: Final = Explanation(
    "not_taken_up",
    "its programs have ended, and Volcano has not noted it: its controllers may be away",
    {"cause": "not_taken_up"},
)
"""The explanation of a VolcanoJob that runs long after all of its pods have ended."""


def _on_dead_node(pods: Iterable[ObservedPod]) -> Explanation | None:
    """Return which of *pods* is on a node that is not ready, first the one that is for longest."""
    lost = [
        (pod.node_unready_since, pod.task, pod.index, pod)
        for pod in pods
        if pod.node_unready_since is not None
    ]
    if not lost:
        return None
    since, task, index, pod = min(lost, key=lambda one: one[:3])
    at = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    others = f" (and those of {len(lost) - 1} more)" if len(lost) > 1 else ""
    text = f"the node {pod.node} of {task} {index}{others} is not ready since {at}"
    if pod.deleting:
        text += ", and its deleted pod stays until the node comes back or is removed"
    details = {"task": task, "index": index, "pod": pod.name, "node": pod.node}
    return Explanation(NODE_UNREADY, text, {"cause": NODE_UNREADY, **details})


def is_explained(job: ObservedJob, pods: Iterable[ObservedPod], *, ranks: int) -> bool:
    """Return whether the observed pods explain why the job waits; otherwise the cluster is read."""
    mine = [pod for pod in pods if pod.owner_uid == job.uid and not pod.deleting]
    return len(mine) >= ranks and _first_stuck(mine) is not None


def same_but_for_numbers(one: str | None, other: str | None) -> bool:
    """Return whether two messages differ only in numbers, as counts of nodes often do."""
    return _without_numbers(one) == _without_numbers(other)


# The reasons to wait, one function each


def _stuck(evidence: _Evidence) -> Explanation | None:
    """A container that the kubelet cannot create: image, configuration, start."""
    found = _first_stuck(evidence.pods)
    if found is None:
        return None
    pod, stuck = found
    reason, text = _STUCK_WORDS[stuck.reason]
    of_image = reason == "image"
    said = image_error(stuck.message) if of_image else stuck.message
    if stuck.reason == CRASH_LOOP:
        said = stuck.container  # the kubelet's message is about its backoff, which changes
    details: dict[str, Any] = {
        "cause": _CAUSES.get(stuck.reason) or cause_of_missing(said, reason),
        "task": pod.task,
        "index": pod.index,
        "pod": pod.name,
        "node": pod.node,
        "container": stuck.container,
    }
    if of_image and stuck.image:
        details["image"] = stuck.image
        text = f"{text}: {stuck.image}"
    made = Explanation(reason, plain_text(f"{text}: {said}" if said else text, LONGEST), details)
    reported = evidence.reported
    if of_image and not said and reported is not None and _is_same_image(reported, made):
        return reported
    return made


def _refused(evidence: _Evidence) -> Explanation | None:
    """Pods that the API server refuses: the existing pods wait for the others."""
    kept = evidence.kept
    return kept if kept is not None and kept.reason == "forbidden" else None


def _unscheduled(evidence: _Evidence) -> Explanation | None:
    """A pod that fits on no node."""
    # Always the same pod of a gang, so that the message does not change with every observation.
    waiting = [pod for pod in evidence.pods if pod.unscheduled and not pod.node]
    first = min(waiting, key=lambda pod: (pod.undetermined, pod.task, pod.index), default=None)
    if first is None:
        return None
    text, details = first.unscheduled, scheduling_details(first.unscheduled)
    details |= {"task": first.task, "index": first.index, "pod": first.name}
    kept = evidence.kept
    if kept is not None and kept.details.get("cause") == NO_NODE_FITS:
        # Independent of the jobs queued before it: no node would fit it if it were alone.
        text = plain_text(f"{kept.message}; the scheduler says: {text}", LONGEST)
        details |= kept.details
    return Explanation("unschedulable", text, details)


def _preparing(evidence: _Evidence) -> Explanation | None:
    """A pod with a node, and no known problem, or one with its volumes."""
    first = min(
        (pod for pod in evidence.pods if pod.node and not pod.running),
        key=lambda pod: (pod.task, pod.index),
        default=None,
    )
    if first is None:
        first = next((pod for pod in evidence.pods if pod.node), None)
    if first is None:
        return None
    kept = evidence.kept
    if kept is not None and kept.reason == "preparing":
        return kept
    details = {"cause": "preparing", "task": first.task, "index": first.index}
    return Explanation("preparing", "preparing the container", details | {"node": first.node})


def _held(evidence: _Evidence) -> Explanation | None:
    """A deleted pod on a dead node: another one of its name cannot be created."""
    return evidence.held


def _restarting(evidence: _Evidence) -> Explanation | None:
    if evidence.job.phase != "Restarting":
        return None
    return Explanation("restarting", "starting again", {"cause": "restarting"})


def _kept(evidence: _Evidence) -> Explanation | None:
    """Return the reason found in the job's queue, its PodGroup and the nodes."""
    kept = evidence.kept
    if kept == NOT_TAKEN_UP and evidence.job.phase:
        return None
    return kept if kept is not None and kept.reason != "preparing" else None


def _queued(evidence: _Evidence) -> Explanation:
    return QUEUED


_HOLDS: Final[tuple[Callable[[_Evidence], Explanation | None], ...]] = (
    _stuck,  # the pod has a node, which cannot start it
    _refused,
    _unscheduled,
    _preparing,
    _held,
    _restarting,
    _kept,
    _queued,
)


def _of_this(job: ObservedJob, kept: Mapping[str, Any] | None) -> Explanation | None:
    """Return *kept* as an explanation, if it is of this VolcanoJob in its current phase."""
    if kept is None or kept.get("uid") != job.uid:
        return None
    # Older versions kept no time.
    if kept.get("since", job.phase_since) != job.phase_since:
        return None
    return Explanation(kept["reason"], kept["message"], kept.get("details") or {})


def _first_stuck(pods: Iterable[ObservedPod]) -> tuple[ObservedPod, Stuck] | None:
    for pod in sorted(pods, key=lambda pod: (pod.task, pod.index)):
        stuck = pod.stuck or (Stuck(container="", reason=pod.waiting) if pod.waiting else None)
        if stuck is None or stuck.reason not in _STUCK_WORDS:
            continue
        if stuck.reason != CRASH_LOOP or not pod.running:
            return pod, stuck
    return None


def _is_same_image(reported: Explanation, now: Explanation) -> bool:
    same = reported.details.get("image") == now.details.get("image")
    return reported.reason == now.reason and same and "image" in now.details


def _without_numbers(text: str | None) -> str:
    return _NUMBER.sub("#", text or "")


_NUMBER: Final = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?:m|[kMGTPE]i?)?(?![\w-])")
"""A number or quantity that is not part of a name or an address."""
