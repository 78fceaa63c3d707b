"""A job's state machine: tables, and the counts that move it on by themselves. No I/O.

An *action* (from a policy or a Command) kills pods and moves the job to a phase. Between actions
the counts of its pods move it. `decide` does all of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Object = dict[str, Any]
Scope = Literal["all", "living", "task", "partition", "pod"]
FINISHED: Final = ("Completed", "Failed", "Terminated")
_COUNTS: Final = ("pending", "running", "succeeded", "failed", "terminating", "unknown")


@dataclass(frozen=True, slots=True)
class Effect:
    """An action: which pods it kills, the phase it leads to, and whether it counts as a retry."""

    kills: Scope
    phase: str
    retry: bool = False


_ACTIVE: Final[Mapping[str, Effect]] = {
    "RestartJob": Effect("all", "Restarting", retry=True),
    "RestartTask": Effect("task", "Restarting", retry=True),
    "RestartPod": Effect("pod", "Restarting", retry=True),
    "RestartPartition": Effect("partition", "Restarting", retry=True),
    "AbortJob": Effect("living", "Aborting"),
    "TerminateJob": Effect("living", "Terminating"),
    "CompleteJob": Effect("living", "Completing"),
}
_RESUME: Final = Effect("living", "Restarting", retry=True)
ACTIONS: Final[Mapping[str, Mapping[str, Effect]]] = {
    "": _ACTIVE,
    "Pending": _ACTIVE,
    "Running": _ACTIVE,
    # In Restarting a command only kills. Its action is lost.
    "Restarting": {
        "AbortJob": Effect("all", "Restarting"),
        "TerminateJob": Effect("all", "Restarting"),
    },
    "Aborting": {"ResumeJob": _RESUME},
    "Aborted": {"ResumeJob": _RESUME},
    "Completing": {},
    "Terminating": {},
    "Completed": {},
    "Failed": {},
    "Terminated": {},
}
_ENDINGS: Final = {"Aborting": "Aborted", "Completing": "Completed", "Terminating": "Terminated"}
"""Phases that last until the living pods are gone, and the phase after each."""


@dataclass(frozen=True, slots=True)
class Victim:
    """The pod that an event was about."""

    task: str = ""
    pod: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a job."""

    phase: str
    kill: tuple[str, ...] = ()
    retry: bool = False
    full: bool = False
    """Whether all living pods are killed. Then PodGroup and companions go too, and the version
    rises.
    """


def phase_of(job: Object) -> str:
    """Return the job's phase; empty for a new one."""
    return str(((job.get("status") or {}).get("state") or {}).get("phase", ""))


def decide(job: Object, pods: Sequence[Object], action: str | None, victim: Victim) -> Decision:
    """Return what *action*, or without one the state of the *pods*, does to *job*."""
    phase = phase_of(job)
    effect = ACTIONS[phase].get(action) if action else None
    if effect is not None:
        return _effect(job, pods, effect, victim)
    if phase in _ENDINGS:
        counts = count(pods)
        alive = counts["pending"] + counts["running"] + counts["terminating"] + counts["unknown"]
        return Decision(
            _ENDINGS[phase] if not alive else phase, kill=_chosen(pods, "living", victim)
        )
    if phase in FINISHED or phase == "Aborted":
        return Decision(phase, kill=_chosen(pods, "living", victim))
    if phase == "Restarting":
        return Decision(_after_restarting(job, pods))
    return Decision(_by_counts(job, pods, phase or "Pending"))


def _effect(job: Object, pods: Sequence[Object], effect: Effect, victim: Victim) -> Decision:
    scope = effect.kills
    retries = (job.get("status") or {}).get("retryCount", 0) + effect.retry
    if scope == "all" and retries >= job["spec"].get("maxRetry", 3):
        scope = "living"  # the finished pods of the last attempt stay for their logs
    kill = _chosen(pods, scope, victim)
    full = effect.kills in ("all", "living")
    return Decision(effect.phase, kill=kill, retry=effect.retry, full=full)


def _after_restarting(job: Object, pods: Sequence[Object]) -> str:
    """Return where a restart leads: a job of maxRetry N restarts N-1 times."""
    if (job.get("status") or {}).get("retryCount", 0) >= job["spec"].get("maxRetry", 3):
        return "Failed"
    left = total_replicas(job) - count(pods)["terminating"]
    return "Pending" if left >= job["spec"]["minAvailable"] else "Restarting"


def _by_counts(job: Object, pods: Sequence[Object], phase: str) -> str:
    counts, spec = count(pods), job["spec"]
    ended = counts["succeeded"] + counts["failed"]
    if phase == "Pending":
        # A job without pods must not count as one whose pods are all up.
        up = counts["running"] + ended
        return (
            "Running" if spec["minAvailable"] <= up and (up or not total_replicas(job)) else phase
        )
    replicas = total_replicas(job)
    if not replicas:
        return phase
    if spec.get("minSuccess") and counts["succeeded"] >= spec["minSuccess"]:
        return "Completed"
    if ended == replicas:
        return "Completed" if _succeeded(job, pods, counts) else "Failed"
    if counts["pending"] > replicas - spec["minAvailable"]:
        return "Pending"
    return phase


def _succeeded(job: Object, pods: Sequence[Object], counts: Mapping[str, int]) -> bool:
    """Whether a job whose pods have all ended has succeeded."""
    spec = job["spec"]
    needed = sum(task["minAvailable"] for task in spec["tasks"])
    if spec["minAvailable"] >= needed:
        for task in spec["tasks"]:
            own = [pod for pod in pods if task_of(pod) == task["name"]]
            if count(own)["succeeded"] < task["minAvailable"]:
                return False
    if spec.get("minSuccess"):
        return bool(counts["succeeded"] >= spec["minSuccess"])
    return bool(counts["succeeded"] >= spec["minAvailable"])


def count(pods: Sequence[Object]) -> dict[str, int]:
    """Return the number of pods in each state, as a job's status counts them."""
    counts = dict.fromkeys(_COUNTS, 0)
    for pod in pods:
        counts[pod_state(pod)] += 1
    return counts


def pod_state(pod: Object) -> str:
    """Return the count of a job's status that includes *pod*."""
    if pod["metadata"].get("deletionTimestamp"):
        return "terminating"
    state = str((pod.get("status") or {}).get("phase", "Pending")).lower()
    return state if state in _COUNTS else "unknown"


def task_of(pod: Object) -> str:
    """Return the name of the task that *pod* belongs to."""
    return str((pod["metadata"].get("annotations") or {}).get("volcano.sh/task-spec", ""))


def partition_of(pod: Object) -> str:
    """Return the partition of its task that *pod* belongs to; empty where there are none."""
    return str((pod["metadata"].get("labels") or {}).get("volcano.sh/partition-id", ""))


def total_replicas(job: Object) -> int:
    """Return how many pods the job wants."""
    return sum(int(task.get("replicas", 0)) for task in job["spec"]["tasks"])


def _chosen(pods: Sequence[Object], scope: Scope, victim: Victim) -> tuple[str, ...]:
    """Return the names of the pods that *scope* kills and that are not terminating already."""
    states = {pod["metadata"]["name"]: (pod_state(pod), task_of(pod)) for pod in pods}
    there = {name: at for name, at in states.items() if at[0] != "terminating"}
    match scope:
        case "all":
            return tuple(there)
        case "living":
            return tuple(
                n for n, (state, _) in there.items() if state not in ("succeeded", "failed")
            )
        case "task":
            return tuple(n for n, (_, task) in there.items() if task == victim.task)
        case "partition":
            same = {
                pod["metadata"]["name"] for pod in pods if partition_of(pod) == victim.partition
            }
            return tuple(n for n, (_, task) in there.items() if task == victim.task and n in same)
        case "pod":
            return tuple(n for n in there if n == victim.pod)
