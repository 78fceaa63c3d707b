"""Why a job has failed, by the observations and records of its pods. No I/O.

A pod fails in one of few ways (:data:`_WAYS`). After the failure of one pod, others may be killed.
So an evicted pod decides; without one, the pod that failed first by itself.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from controller.jobs.history.pod_records import (
    DEADLINE,
    INIT,
    age,
    last_of_ranks,
    was_taken,
    was_undone,
)
from controller.store.jobs.progress import PodRecord
from controller.volcano.names import DATA_CONTAINER, FILES_CONTAINER
from controller.volcano.observed import (
    CONTAINER_LOST,
    EVICTIONS,
    STORAGE_LIMIT,
    ObservedJob,
    ObservedPod,
)
from controller.volcano.reasons.causes import start_error
from controller.volcano.reasons.waiting import Explanation
from shared.text import plain_tail, plain_text

LONGEST: Final = 2000
"""Characters of a message."""
MOST_LINES: Final = 20
LONGEST_TAIL: Final = 2000
"""Characters of the last lines of a log."""

KILLED: Final = frozenset({137, 143})
"""Exit codes of programs that a signal ended, perhaps because another pod failed."""

_UNPREPARED: Final = MappingProxyType({FILES_CONTAINER: "files", DATA_CONTAINER: "data"})
"""Reasons, by the init containers that report problems with a job's files."""

_START_ERRORS: Final = frozenset({"StartError", "ContainerCannotRun"})
"""The kubelet's reasons for a program that could not be started (containerd, Docker)."""
NODE_REFUSED: Final = "node_refused"
"""The cause of the failure if a kubelet rejected a pod, or gave it up."""

_EVICTED: Final = MappingProxyType(
    {
        "Preempting": ("preempted", "a critical pod needed its place"),
        "Preempted": ("preempted", "a job of higher priority needed its place"),
        "PreemptionByScheduler": ("preempted", "a job of higher priority needed its place"),
        "Evict": ("preempted", "the scheduler gave its place to another job"),
        "NodeLost": ("node_lost", "its node no longer answers"),
        "DeletionByTaintManager": ("node_lost", "its node is unreachable, or takes no such pods"),
        "DeletionByPodGC": ("node_lost", "its node is gone"),
        "DeletionByDeviceTaintManager": ("node_lost", "a device of its node failed"),
        CONTAINER_LOST: ("node_lost", "its node restarted, or lost its containers"),
        "Shutdown": ("node_shutdown", "its node shut down"),
        "NodeShutdown": ("node_shutdown", "its node shut down"),
        "Terminated": ("node_shutdown", "its node shut down"),
        "TerminationByKubelet": ("node_shutdown", "its node shut down, or ran out of something"),
        "EvictionByEvictionAPI": ("drained", "it was asked to leave its node"),
    }
)
"""Causes and messages, by the reasons of evicted pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """The failure of one pod, as observed or recorded."""

    rank: int | None
    task: str
    index: int
    pod: str
    node: str
    at: float
    reason: str
    message: str
    exit_code: int | None
    signal: int | None
    memory_limit: str | None
    evicted: bool
    tail: str = ""
    unprepared: tuple[str, str] | None = None
    other_failed: tuple[str, int] | None = None

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"{self.task} {self.index}"

    @property
    def order(self) -> tuple[bool, float, bool, str, int]:
        """Sort key: the first failure decides.

        Times are whole seconds, and one pod may be killed because of another.
        """
        killed = self.exit_code in KILLED
        return not self.evicted, self.at, killed, self.task, self.index


def explain_failure(
    job: ObservedJob, pods: Iterable[ObservedPod], runs: Iterable[PodRecord]
) -> Explanation | None:
    """Return why the job failed; None if neither its pods nor Volcano say anything.

    If a pod was evicted, the others may have failed without it. Volcano has deleted the pods that
    it would have restarted, so their records count as well.

    Args:
        job: The VolcanoJob.
        pods: The observed pods.
        runs: The records of this attempt's pods.
    """
    known = {run.pod_uid: run for run in runs}
    seen = [
        _of_pod(pod, known.get(pod.uid))
        for pod in pods
        if pod.owner_uid == job.uid and _has_failed(pod) and not was_undone(pod, known.get(pod.uid))
    ]
    last = last_of_ranks(known.values())
    written = [_of_run(run) for run in last if _was_failed(run)]
    for found in (seen, written):
        for failure in sorted(found, key=lambda one: one.order):
            if (explanation := _explanation_of(failure)) is not None:
                return explanation
    # The last pods are unknown: Volcano deleted them before they ran, or nobody observed their end.
    # The pods before them show the reason for the restart.
    for run in sorted(known.values(), key=age, reverse=True):
        explanation = _explanation_of(_of_run(run)) if run.exit_code else None
        if explanation is not None and not was_taken(run):
            return explanation
    return Explanation("failed", job.message, {"cause": "volcano"}) if job.message else None


def explain_run(run: PodRecord) -> Explanation:
    """Return how the pod of *run* failed."""
    failure = _of_run(run)
    text = f"{failure.name} failed"
    return _explanation_of(failure) or Explanation("failed", text, _details(failure, "failed"))


def explain_unprepared(container: str, message: str) -> tuple[str, str]:
    """Return why a program never started: the message of a failed init container."""
    if (reason := _UNPREPARED.get(container)) is not None:
        return reason, "; ".join(line for line in message.splitlines() if line)
    return "preparation", f"{container}: {message}"


def log_tail(said: str) -> list[str]:
    """Return the last lines of a program's output, as its pod's status has them."""
    # The kubelet writes them (``FallbackToLogsOnError``), so no log has to be read.
    return plain_tail(said, LONGEST_TAIL).split("\n")[-MOST_LINES:] if said.strip() else []


# The ways in which a pod fails, one by one


def _was_taken(one: _Failure) -> Explanation | None:
    if not one.evicted:
        return None
    cause, words = _EVICTED.get(one.reason, ("evicted", ""))
    # Of a lost container, the message is about an exit code that is not the program's.
    message = "" if one.reason == CONTAINER_LOST else one.message
    said = ": ".join(text for text in (words, message) if text) or one.reason
    return _made("evicted", f"{one.name} was evicted: {said}", one, cause)


def _was_not_prepared(one: _Failure) -> Explanation | None:
    if one.unprepared is None:
        return None
    reason, text = explain_unprepared(*one.unprepared)
    return _made(reason, text, one, reason)


def _was_too_long(one: _Failure) -> Explanation | None:
    if one.reason != DEADLINE:
        return None
    said = f"{one.name} ran for longer than its pod may: {one.message or DEADLINE}"
    return _made("failed", said, one, "deadline")


def _took_too_much_storage(one: _Failure) -> Explanation | None:
    if one.reason != STORAGE_LIMIT:
        return None
    said = f"{one.name} took more storage than it may: {one.message}"
    return _made("failed", said, one, "storage_limit")


def _did_not_begin(one: _Failure) -> Explanation | None:
    if one.exit_code is None or one.reason not in _START_ERRORS:
        return None
    why = start_error(one.tail or one.message) or one.reason
    said = f"{one.name} could not start its program (exit code {one.exit_code}): {why}"
    return _made("exit_code", said, one, "start_error")


def _took_too_much(one: _Failure) -> Explanation | None:
    if one.exit_code is None or one.reason != "OOMKilled":
        return None
    said = f"{one.name} used more memory than it had asked for"
    if one.memory_limit:
        said = f"{said}: {one.memory_limit}"
    return _made("out_of_memory", said, one, "out_of_memory", tail=one.tail)


def _ended(one: _Failure) -> Explanation | None:
    if not one.exit_code:
        return None
    name = _signal_name(one)
    said = f"{one.name} ended with exit code {one.exit_code}"
    if name is not None:
        said = f"{said} ({name})"
    cause = "exit_code" if name is None else "signal"
    return _made("exit_code", said, one, cause, tail=one.tail)


def _was_not_taken(one: _Failure) -> Explanation | None:
    """A kubelet rejected the pod, or gave it up: the pod's status says so."""
    said = ": ".join(text for text in (one.reason, one.message) if text)
    if one.exit_code is not None or not said:
        return None
    return _made("failed", f"{one.name} failed on its node: {said}", one, NODE_REFUSED)


def _failed_beside(one: _Failure) -> Explanation | None:
    """Its program succeeded, and an injected sidecar failed."""
    if one.other_failed is None:
        return None
    name, code = one.other_failed
    said = f"{one.name} failed by its container {name}, which ended with exit code {code}"
    details = {"container": name, "exit_code": code}
    made = _made("failed", said, one, "sidecar")
    return replace(made, details={**made.details, **details})


_WAYS: Final[tuple[Callable[[_Failure], Explanation | None], ...]] = (
    _was_taken,
    _was_not_prepared,
    _was_too_long,
    _took_too_much_storage,
    _did_not_begin,
    _took_too_much,
    _ended,
    _failed_beside,
    _was_not_taken,
)


def _explanation_of(failure: _Failure) -> Explanation | None:
    return next((found for way in _WAYS if (found := way(failure)) is not None), None)


def _made(reason: str, text: str, one: _Failure, cause: str, *, tail: str = "") -> Explanation:
    lines = log_tail(tail)
    details = _details(one, cause) | ({"log_tail": lines} if lines else {})
    return Explanation(reason, plain_text(text, LONGEST), details)


def _details(one: _Failure, cause: str) -> dict[str, Any]:
    details: dict[str, Any] = {
        "cause": cause,
        "rank": one.rank,
        "task": one.task,
        "index": one.index,
        "pod": one.pod,
        "node": one.node,
        "exit_code": one.exit_code,
        "signal": one.signal,
        "memory_limit": one.memory_limit,
    }
    return {name: value for name, value in details.items() if value not in (None, "")}


def _signal_name(one: _Failure) -> str | None:
    """Return the signal that ended it: the kubelet gives its number, or 128 + it as exit code."""
    number = one.signal or (one.exit_code or 0) - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


# From observations and records


def _of_pod(pod: ObservedPod, run: PodRecord | None) -> _Failure:
    if run is not None and run.exit_code is not None and pod.ended is None and not pod.deleting:
        return _of_run(run)  # the pod no longer says how its program ended
    # A pod that is being deleted may have been killed after all: its exit code is no evidence.
    ended = None if pod.deleting and not pod.was_evicted else pod.ended
    at = ended.finished_at if ended is not None else None
    known = pod.reason or pod.disrupted
    return _Failure(
        rank=run.rank if run is not None and run.rank >= 0 else None,
        task=pod.task,
        index=pod.index,
        pod=pod.name,
        node=pod.node,
        at=at or pod.started_at or 0.0,
        reason=known or (ended.reason if ended is not None else ""),
        message=pod.message or pod.disruption,
        exit_code=ended.exit_code if ended is not None else None,
        signal=ended.signal if ended is not None else None,
        memory_limit=pod.memory_limit,
        evicted=pod.was_evicted,
        tail=ended.message if ended is not None else "",
        unprepared=pod.unprepared,
        other_failed=pod.other_failed,
    )


def _of_run(run: PodRecord) -> _Failure:
    evicted = run.reason in EVICTIONS
    of_pod = evicted or run.reason in (DEADLINE, STORAGE_LIMIT) or run.exit_code is None
    init = run.reason.removeprefix(INIT) if run.reason.startswith(INIT) else None
    return _Failure(
        rank=run.rank if run.rank >= 0 else None,
        task=run.task,
        index=run.index,
        pod=run.pod,
        node=run.node,
        at=(run.started_at or 0.0) if run.ended_at is None else run.ended_at,
        reason=run.reason,
        message=run.message if of_pod else "",
        exit_code=run.exit_code,
        signal=run.signal,
        memory_limit=run.memory_limit,
        evicted=evicted,
        tail="" if of_pod else run.message,
        unprepared=None if init is None else (init, run.message),
    )


def _has_failed(pod: ObservedPod) -> bool:
    return pod.phase == "Failed" or pod.was_evicted


def _was_failed(run: PodRecord) -> bool:
    return bool(run.exit_code) or run.reason in EVICTIONS or run.phase == "Failed"
