"""Reads VolcanoJobs, pods and Services from the JSON of the API server.

Every text of a program, a kubelet or a webhook is bounded and plain. Missing fields are empty.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from math import inf
from typing import Any, Final

from controller.volcano.names import (
    ALLOCATION_ANNOTATION,
    ATTEMPT_ANNOTATION,
    CREATED_ANNOTATION,
    EVICTIONS_ANNOTATION,
    FILES_CONTAINER,
    FIRST_START_ANNOTATION,
    INSTANCE_LABEL,
    JOB_CONTAINER,
    JOB_LABEL,
    RETRIES_USED_ANNOTATION,
    SPEC_ANNOTATION,
    TASK_LABEL,
    TOOL_ANNOTATION,
    volcano_job_name,
)
from controller.volcano.observed import (
    CONTAINER_LOST,
    CRASH_LOOP,
    DISRUPTED,
    EVICTIONS,
    LARGEST_NUMBER,
    STORAGE_LIMIT,
    Ended,
    ObservedJob,
    ObservedPod,
    ObservedService,
    Stuck,
)
from shared.text import plain_tail, plain_text, whole_number

_KEPT_ANNOTATIONS: Final = (
    SPEC_ANNOTATION,
    ATTEMPT_ANNOTATION,
    FIRST_START_ANNOTATION,
    CREATED_ANNOTATION,
    ALLOCATION_ANNOTATION,
    RETRIES_USED_ANNOTATION,
    EVICTIONS_ANNOTATION,
    TOOL_ANNOTATION,
)
_LOST_BY_RUNTIME: Final = ("ContainerStatusUnknown", "Unknown")
"""The reasons of such a container: the kubelet's, if its runtime does not know the container any
more (CRI-O wipes its containers at a restart), and containerd's, if the process is gone."""
_OWN_LIMIT: Final = re.compile(
    r"Container \S+ exceeded its local ephemeral storage limit "
    r"|Pod ephemeral local storage usage exceeds the total limit "
    r"|Usage of EmptyDir volume \S+ exceeds the limit "
)

_RETRY_ANNOTATION: Final = "volcano.sh/job-retry-count"
_LONGEST: Final = 1000
"""Characters of a text that is shown."""
_LONGEST_TAIL: Final = 2048
"""The limit of a container's last output; the kubelet takes as much of a log
(``FallbackToLogsOnError``).
"""
_MOST_TOLD: Final = 4096
"""The limit of a container's message; the kubelet takes the end of a longer one."""
_LONGEST_WORD: Final = 64
_LONGEST_IMAGE: Final = 512
_MOST_FINALIZERS: Final = 8
_LONGEST_NAME: Final = 253
"""Of an object (Kubernetes, "Object Names and IDs")."""
_NOT_YET: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""The kubelet's reasons for a container that is starting normally."""
_CLOCKS_DIFFER_SECONDS: Final = 30.0  # those of nodes and of servers
_EVICTED_BY_VOLCANO: Final = "Evict"
"""The reason that Volcano's scheduler gives the condition Ready before it preempts a pod."""


def read_service(given: Mapping[str, Any]) -> ObservedService:
    """Return the Service in *given* (JSON); one without an address has an empty one."""
    metadata, spec = given.get("metadata") or {}, given.get("spec") or {}
    address = spec.get("clusterIP") or ""
    owners = metadata.get("ownerReferences") or ()
    return ObservedService(
        namespace=_shared(metadata.get("namespace", "")),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        job_id=(metadata.get("labels") or {}).get(JOB_LABEL, ""),
        owners=frozenset(str(one.get("uid")) for one in owners),
        address="" if address == "None" else address,
        ports=frozenset(int(one.get("port") or 0) for one in spec.get("ports") or ()),
        deleting="deletionTimestamp" in metadata,
    )


def read_job(given: Mapping[str, Any]) -> ObservedJob:
    """Return the VolcanoJob in *given* (JSON); missing fields are empty."""
    metadata = given.get("metadata") or {}
    labels = metadata.get("labels") or {}
    annotations = metadata.get("annotations") or {}
    status = given.get("status") or {}
    state = status.get("state") or {}
    return ObservedJob(
        namespace=_shared(metadata.get("namespace", "")),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        instance=_shared(labels.get(INSTANCE_LABEL, "")),
        job_id=labels.get(JOB_LABEL, ""),
        phase=state.get("phase") or "",
        message=plain_text(state.get("message") or state.get("reason"), _LONGEST),
        annotations={name: annotations[name] for name in _KEPT_ANNOTATIONS if name in annotations},
        deleting="deletionTimestamp" in metadata,
        created_at=read_time(metadata.get("creationTimestamp")) or 0.0,
        retries=int(status.get("retryCount") or 0),
        max_retry=int((given.get("spec") or {}).get("maxRetry") or 0),
        ran=_ran(state, status),
        queue=_shared(plain_text((given.get("spec") or {}).get("queue"), _LONGEST_NAME)),
        timed=_is_timed(given.get("spec") or {}),
        phase_since=read_time(state.get("lastTransitionTime")) or 0.0,
        finalizers=_finalizers(metadata),
        asked_to_end_at=_asked_to_end(metadata),
    )


def _finalizers(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    found = metadata.get("finalizers") or ()
    return tuple(_shared(plain_text(one, _LONGEST_NAME)) for one in found[:_MOST_FINALIZERS])


def _shared(text: str) -> str:
    """Return *text*, interned: there may be 50,000 objects with the same."""
    return sys.intern(text)


def _is_timed(spec: Mapping[str, Any]) -> bool:
    lists = [spec.get("policies"), *(task.get("policies") for task in spec.get("tasks") or ())]
    return any(policy.get("timeout") for policies in lists for policy in policies or ())


def read_pod(given: Mapping[str, Any]) -> ObservedPod:
    """Return the pod in *given* (JSON); missing fields are empty."""
    metadata = given.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    spec, status = given.get("spec") or {}, given.get("status") or {}
    container = _container(status)
    others = [(_shared(name), one) for name, one in _others(status)]
    state = container.get("state") or {}
    waiting, running = state.get("waiting") or {}, state.get("running") or {}
    terminated = state.get("terminated") or {}
    disrupted, disruption = _disruption(status, terminated)
    unscheduled, undetermined = _unscheduled(status)
    return ObservedPod(
        namespace=_shared(metadata.get("namespace", "")),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        instance=_shared(labels.get(INSTANCE_LABEL, "")),
        job_id=labels.get(JOB_LABEL) or _job_of_owner(metadata),
        owner_uid=_controller_uid(metadata),
        # Volcano sets it twice; a webhook may have removed the label.
        task=_shared(labels.get(TASK_LABEL) or annotations.get(TASK_LABEL) or ""),
        index=_index(metadata.get("name", "")),
        phase=_shared(status.get("phase") or ""),
        reason=_shared(_reason(status) or ("" if disrupted else _reason_of_lost(metadata, status))),
        message=plain_text(status.get("message"), _LONGEST),
        address=status.get("podIP") or "",
        node=_shared(spec.get("nodeName") or ""),
        ready=_is_ready(status),
        answers=bool(container.get("ready")),
        deleting="deletionTimestamp" in metadata,
        waiting=_shared(plain_text(waiting.get("reason"), _LONGEST_WORD)),
        running=state.get("running") is not None,
        started_at=read_time(running.get("startedAt") or terminated.get("startedAt")),
        ended=_ended(state.get("terminated")),
        unprepared=_unprepared(spec, status),
        others_running=tuple(name for name, one in others if one.get("running") is not None),
        other_failed=_first_failed(others),
        missing_mount_points=_missing_mount_points(status),
        node_unready_since=_node_unready_since(spec, status),
        disrupted=disrupted,
        disruption=disruption,
        unscheduled=unscheduled,
        undetermined=undetermined,
        stuck=_stuck(status),
        memory_limit=_memory_limit(spec),
        asked_to_end_at=_asked_to_end(metadata),
        had_time=_grace_seconds(metadata) > 0,
        due_to_end_at=read_time(metadata.get("deletionTimestamp")),
        created_at=read_time(metadata.get("creationTimestamp")),
        retry=whole_number(annotations.get(_RETRY_ANNOTATION) or "", most=LARGEST_NUMBER),
    )


def read_time(text: object) -> float | None:
    """Return an RFC 3339 time as unix seconds; None if there is none.

    The kubelet reports 1970 as the start of a program that never started, and the zero time of Go
    is in the year 1: neither is a time.
    """
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return at if at > 0 else None


_ENDS: Final = frozenset(
    ("Completing", "Terminating", "Aborting", "Completed", "Terminated", "Aborted", "Failed")
)


def _ran(state: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return whether Running is the phase, or was the phase before the end.

    Volcano appends a condition for each phase that it enters.
    """
    phases = [str(one.get("status")) for one in status.get("conditions") or ()]
    phases.append(str(state.get("phase")))
    return next((one for one in reversed(phases) if one not in _ENDS), "") == "Running"


def _reason(status: Mapping[str, Any]) -> str:
    reason, message = status.get("reason"), status.get("message")
    if reason == "Evicted" and isinstance(message, str) and _OWN_LIMIT.match(message):
        return STORAGE_LIMIT
    return plain_text(reason, _LONGEST_WORD)


def _reason_of_lost(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """Return the reason of a pod of which nobody knows how its program ended, or empty.

    The exit code (137 or 255) is not the program's, which may have been about to succeed. A pod
    that is being deleted may have been killed for that, for example since another rank failed.
    """
    if "deletionTimestamp" in metadata:
        return ""
    program = _container(status)
    own = _end_reason(program)
    # An init container beside it is a sidecar (``restartPolicy: Always``), and is started again.
    if (program.get("state") or {}).get("running") is not None:
        return ""
    if own is not None:
        return CONTAINER_LOST if own in _LOST_BY_RUNTIME else ""
    before = map(_end_reason, status.get("initContainerStatuses") or ())
    return CONTAINER_LOST if any(one in _LOST_BY_RUNTIME for one in before) else ""


def _end_reason(container: Mapping[str, Any]) -> str | None:
    """Return the runtime's reason for the end of a container; None if it has not ended."""
    terminated = (container.get("state") or {}).get("terminated")
    return None if terminated is None else str(terminated.get("reason") or "")


def _container(status: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses: Iterable[Mapping[str, Any]] = status.get("containerStatuses") or ()
    return next((one for one in statuses if one.get("name") == JOB_CONTAINER), {})


def _others(status: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the names and states of the containers that are not the job's own."""
    for one in status.get("containerStatuses") or ():
        if one.get("name") != JOB_CONTAINER:
            yield plain_text(one.get("name"), _LONGEST_WORD), one.get("state") or {}


def _first_failed(others: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[str, int] | None:
    for name, state in others:
        if code := int((state.get("terminated") or {}).get("exitCode") or 0):
            return name, code
    return None


def _unprepared(spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[str, str] | None:
    # A sidecar does not fail its pod: it is restarted, and ended once the pod's program has
    # (Kubernetes, "Sidecar Containers"), mostly by a signal.
    sidecars = {
        one.get("name")
        for one in spec.get("initContainers") or ()
        if one.get("restartPolicy") == "Always"
    }
    for container in status.get("initContainerStatuses") or ():
        if container.get("name") in sidecars:
            continue
        terminated = (container.get("state") or {}).get("terminated") or {}
        if code := int(terminated.get("exitCode") or 0):
            message = plain_tail(terminated.get("message"), _LONGEST_TAIL).strip()
            name = plain_text(container.get("name"), _LONGEST_WORD)
            return name, message or f"it ended with exit code {code}{_why_it_ended(terminated)}"
    return None


def _why_it_ended(terminated: Mapping[str, Any]) -> str:
    # A program that the kernel kills for its memory leaves no message.
    reason = plain_text(terminated.get("reason"), _LONGEST_WORD)
    return "" if reason in ("", "Error") else f" ({reason})"


def _missing_mount_points(status: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the report of the init container that checked the job's files."""
    for container in status.get("initContainerStatuses") or ():
        terminated = (container.get("state") or {}).get("terminated") or {}
        if container.get("name") != FILES_CONTAINER or terminated.get("exitCode"):
            continue
        message = str(terminated.get("message") or "")
        # The last number may be cut off, and of a long list the beginning; an end mark confirms the
        # others.
        *words, _ = message.split(";")
        if len(message) >= _MOST_TOLD:
            words = words[1:]
        numbers = (whole_number(word, most=LARGEST_NUMBER) for word in words)
        return tuple(number - 1 for number in numbers if number)
    return ()


def _ended(terminated: Mapping[str, Any] | None) -> Ended | None:
    if terminated is None:
        return None
    return Ended(
        exit_code=int(terminated.get("exitCode") or 0),
        signal=int(terminated.get("signal") or 0),
        reason=plain_text(terminated.get("reason"), _LONGEST_WORD),
        finished_at=read_time(terminated.get("finishedAt")),
        message=plain_tail(terminated.get("message"), _LONGEST_TAIL),
    )


def _stuck(status: Mapping[str, Any]) -> Stuck | None:
    containers = (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    )
    found = None
    for one in containers:
        waiting = (one.get("state") or {}).get("waiting") or {}
        reason = plain_text(waiting.get("reason"), _LONGEST_WORD)
        if reason in _NOT_YET or (found is not None and reason == CRASH_LOOP):
            continue
        found = Stuck(
            container=plain_text(one.get("name"), _LONGEST_WORD),
            reason=reason,
            message=plain_text(waiting.get("message"), _LONGEST),
            image=plain_text(one.get("image"), _LONGEST_IMAGE),
        )
        if reason != CRASH_LOOP:
            break  # a crashing sidecar may only wait for what another container lacks
    return found


def _memory_limit(spec: Mapping[str, Any]) -> str | None:
    for one in spec.get("containers") or ():
        if one.get("name") == JOB_CONTAINER:
            limits = (one.get("resources") or {}).get("limits") or {}
            return _shared(plain_text(limits.get("memory"), 32)) or None
    return None


def _is_ready(status: Mapping[str, Any]) -> bool:
    return any(
        one.get("type") == "Ready" and one.get("status") == "True"
        for one in status.get("conditions") or ()
    )


def _node_unready_since(spec: Mapping[str, Any], status: Mapping[str, Any]) -> float | None:
    """Return since when the pod counts as not ready though its containers are ready.

    The kubelet sets this state only for a pod with ``readinessGates``. For all other pods the node
    lifecycle controller sets it if the node does not report (``MarkPodsNotReady``), or Volcano's
    scheduler, which gives a reason.
    """
    conditions = {one.get("type"): one for one in status.get("conditions") or ()}
    ready, containers = conditions.get("Ready") or {}, conditions.get("ContainersReady") or {}
    by_node = ready.get("status") == "False" and containers.get("status") == "True"
    if not by_node or spec.get("readinessGates") or ready.get("reason") == _EVICTED_BY_VOLCANO:
        return None
    return read_time(ready.get("lastTransitionTime"))


def _disruption(status: Mapping[str, Any], terminated: Mapping[str, Any]) -> tuple[str, str]:
    """Return why the cluster evicted a pod: the reason and the message.

    Kubernetes' taint manager marks pods that have ended, too. That interrupted no program.
    """
    ended_at = read_time(terminated.get("finishedAt")) or inf
    for one in status.get("conditions") or ():
        of_target = one.get("type") == "DisruptionTarget" and one.get("status") == "True"
        of_volcano = one.get("type") == "Ready" and one.get("reason") == _EVICTED_BY_VOLCANO
        at = read_time(one.get("lastTransitionTime")) or 0.0
        if (of_target or of_volcano) and at <= ended_at + _CLOCKS_DIFFER_SECONDS:
            word = plain_text(one.get("reason"), _LONGEST_WORD)
            message = plain_text(one.get("message"), _LONGEST)
            if word in EVICTIONS:
                return word, message
            # A reason of a later version of Kubernetes.
            return DISRUPTED, ": ".join(text for text in (word, message) if text)
    return "", ""


def _asked_to_end(metadata: Mapping[str, Any]) -> float | None:
    # The timestamp of the server is the end of the grace period (ObjectMeta, "deletionTimestamp").
    at = read_time(metadata.get("deletionTimestamp"))
    return None if at is None else at - _grace_seconds(metadata)


def _grace_seconds(metadata: Mapping[str, Any]) -> int:
    grace = metadata.get("deletionGracePeriodSeconds")
    return grace if isinstance(grace, int) else 0


def _unscheduled(status: Mapping[str, Any]) -> tuple[str, bool]:
    """Return why no node fits a pod, and whether that is only because of others of its gang.

    The reason is ``Undetermined`` or ``Schedulable`` for pods whose gang waits for other pods.
    """
    for one in status.get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            text = plain_text(one.get("message") or one.get("reason"), _LONGEST)
            return text, one.get("reason") in ("Undetermined", "Schedulable")
    return "", False


def _controller_of(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    owners: Iterable[Mapping[str, Any]] = metadata.get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def _controller_uid(metadata: Mapping[str, Any]) -> str:
    return str(_controller_of(metadata).get("uid") or "")


def _job_of_owner(metadata: Mapping[str, Any]) -> str:
    """Return the job of a pod that has lost its label, by the name of its VolcanoJob."""
    owner = _controller_of(metadata)
    name = str(owner.get("name") or "")
    job_id = name.removeprefix(volcano_job_name(""))
    return job_id if owner.get("kind") == "Job" and name == volcano_job_name(job_id) else ""


def _index(name: str) -> int:
    last = name.rpartition("-")[2]
    index = whole_number(last, most=LARGEST_NUMBER)
    return -1 if index is None else index
