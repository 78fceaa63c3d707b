"""Turns changes of pods into events for policies, and into turns of jobs."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from deploy.local.cluster.volcano.plugins import JOB_LABEL
from deploy.local.cluster.volcano.policies import Happened, called_for
from deploy.local.cluster.volcano.states import Victim, count, pod_state, task_of

Object = dict[str, Any]
Key = tuple[str, str]
_GONE: Final = ("LEAVING", "DELETED")
_NAMED: Final = {"failed": "PodFailed", "pending": "PodPending", "running": "PodRunning"}
_OVER: Final = {
    "PodRunning": ("PodFailed", "PodEvicted", "PodPending"),
    "PodFailed": ("PodPending",),
    "PodEvicted": ("PodPending",),
}
"""Timeouts that are cancelled once something else has happened."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A reason to look at a job: an action to take, or only that something changed."""

    action: str | None = None
    victim: Victim = field(default_factory=Victim)
    events: tuple[str, ...] = ()
    version: int | None = None
    """The job's version that the pod was made for, if a policy called for the action."""
    beside: bool = False
    """Whether it waited for a timeout: Volcano acts beside the job's worker then."""


def action_now(turn: Turn, job: Object) -> str | None:
    """Return the turn's action; None if its event has become outdated while it was queued.

    Volcano compares versions as it handles a request (``applyPolicies``). So of two pods that fail
    at once only the first restarts the job.
    """
    version = (job.get("status") or {}).get("version", 0)
    is_outdated = turn.version is not None and turn.version < version
    return None if is_outdated else turn.action


class PodEvents:
    """The pods of all jobs, and their events.

    Args:
        job_of: Returns a job by its key, or None.
        look: Called with every turn that a job has to take.
    """

    def __init__(
        self, job_of: Callable[[Key], Object | None], look: Callable[[Key, Turn | None], None]
    ) -> None:
        self._job_of = job_of
        self._look = look
        self._by_job: dict[Key, dict[str, Object]] = defaultdict(dict)
        self._own_deletions: set[str] = set()
        self._delayed: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def pods(self, key: Key) -> dict[str, Object]:
        """Return the job's pods by name."""
        return self._by_job.get(key, {})

    def expect_deletion(self, uid: str) -> None:
        """Record that the controller itself deletes a pod: that is no eviction."""
        self._own_deletions.add(uid)

    def changed(self, change: str, pod: Object) -> None:
        """Take a change of a pod from the server.

        To Volcano, a pod is gone as soon as its deletion is requested, and each later change of it
        says so again (``updatePod`` in job_controller_handler.go). So a job's phase does not wait
        for the grace periods of its pods.
        """
        if change != "DELETED" and pod["metadata"].get("deletionTimestamp"):
            change = "LEAVING"
        name = pod["metadata"]["labels"][JOB_LABEL]
        key = (pod["metadata"]["namespace"], name)
        pods = self._by_job[key]
        before = pods.pop(pod["metadata"]["name"], None)
        if change not in _GONE:
            pods[pod["metadata"]["name"]] = pod
        elif before is not None and before["metadata"]["uid"] != pod["metadata"]["uid"]:
            pods[pod["metadata"]["name"]] = before  # the pod that was made after it
        if not pods:
            del self._by_job[key]
        events = tuple(self._events(change, before, pod, key))
        for event in events:
            self._happened(key, event, pod)
        self._look(key, Turn(victim=Victim(pod=pod["metadata"]["name"]), events=events))

    def group_unknown(self, key: Key) -> None:
        """Take that a PodGroup is Unknown now: as in Volcano, for the job's first version."""
        self._take(key, Happened("Unknown"))

    def _events(self, change: str, before: Object | None, pod: Object, key: Key) -> Iterator[str]:
        if change in _GONE:
            uid = pod["metadata"]["uid"]
            if uid not in self._own_deletions:
                yield "PodEvicted"
            if change == "DELETED":
                self._own_deletions.discard(uid)
            return
        if before is None:
            # This includes pods that ended before anything looked: such a failure triggers nothing.
            yield "PodPending"
            return
        is_now = pod_state(pod)
        if is_now != pod_state(before):
            if is_now == "succeeded" and self._task_completed(key, task_of(pod)):
                yield "TaskCompleted"
            elif is_now in _NAMED:
                yield _NAMED[is_now]
        if _restarts(pod) > _restarts(before) and self._task_failed(key, task_of(pod)):
            yield "TaskFailed"

    def _task(self, key: Key, name: str) -> Object | None:
        job = self._job_of(key)
        tasks = job["spec"]["tasks"] if job else []
        return next((task for task in tasks if task["name"] == name), None)

    def _own(self, key: Key, name: str) -> list[Object]:
        return [pod for pod in self.pods(key).values() if task_of(pod) == name]

    def _task_completed(self, key: Key, name: str) -> bool:
        task = self._task(key, name)
        return task is not None and count(self._own(key, name))["succeeded"] >= task.get(
            "replicas", 0
        )

    def _task_failed(self, key: Key, name: str) -> bool:
        """Whether containers were restarted as often as the task's ``maxRetry`` allows."""
        task = self._task(key, name)
        alive = [p for p in self._own(key, name) if pod_state(p) in ("running", "pending")]
        return task is not None and sum(map(_restarts, alive)) >= task["maxRetry"]

    def _happened(self, key: Key, event: str, pod: Object) -> None:
        metadata = pod["metadata"]
        annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
        for kind in _OVER.get(event, ()):
            if timer := self._delayed.pop((metadata["uid"], kind), None):
                timer.cancel()
        happened = Happened(
            event,
            task=task_of(pod),
            pod=metadata["name"],
            pod_uid=metadata["uid"],
            partition=labels.get("volcano.sh/partition-id", ""),
            exit_code=_exit_code(pod),
            version=int(annotations.get("volcano.sh/job-version", 0)),
        )
        self._take(key, happened)

    def _take(self, key: Key, happened: Happened) -> None:
        """Give the job the turn that a policy calls for, at once or after its timeout."""
        job = self._job_of(key)
        called = called_for(job, happened) if job else None
        if called is None:
            return
        victim = Victim(happened.task, happened.pod, happened.partition)
        late = called.delay_seconds > 0
        turn = Turn(called.action, victim, version=happened.version, beside=late)
        if not called.delay_seconds:
            self._look(key, turn)
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(called.delay_seconds, self._look, key, turn)
        self._delayed[happened.pod_uid, happened.event] = timer


def _restarts(pod: Object) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return sum(status.get("restartCount", 0) for status in statuses)


def _exit_code(pod: Object) -> int | None:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    ended = (statuses[0].get("state") or {}).get("terminated")
    return int(ended["exitCode"]) if ended else None
