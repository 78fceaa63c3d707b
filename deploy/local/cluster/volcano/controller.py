"""The job controller: one worker per job at a time, each turn from what the caches hold."""

import asyncio
import contextlib
import logging
import random
from collections import defaultdict, deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from deploy.local.cluster.client import PODS, Cache, Client, Object, Refused
from deploy.local.cluster.volcano.definitions import COMMANDS, JOBS, POD_GROUPS, QUEUES
from deploy.local.cluster.volcano.pods import (
    JOB_LABEL,
    companion_names,
    companions,
    group_name,
    make_group,
    make_pods,
    surplus,
)
from deploy.local.cluster.volcano.policies import Happened, called_for
from deploy.local.cluster.volcano.states import (
    FINISHED,
    Decision,
    Victim,
    count,
    decide,
    phase_of,
    pod_state,
    task_of,
)

_LOG: Final = logging.getLogger(__name__)
_RETRY_SECONDS: Final = 0.2
_TRIES: Final = 15
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Turn:
    """A reason to look at a job: an action to take, or just that something changed."""

    action: str | None = None
    victim: Victim = field(default_factory=Victim)


class JobController:
    """Makes and ends the pods of jobs; `run` starts it and returns only by cancellation."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        self._client = client
        self._chance = chance
        self.jobs = Cache(client, JOBS, changed=self._job_changed)
        self.pods = Cache(client, PODS, {"labelSelector": JOB_LABEL}, changed=self._pod_changed)
        self.groups = Cache(client, POD_GROUPS, changed=self._group_changed)
        self.queues = Cache(client, QUEUES, changed=self._queue_changed)
        self._commands = Cache(client, COMMANDS, changed=self._command_changed)
        self._turns: dict[Key, deque[Turn]] = defaultdict(deque)
        self._working: set[Key] = set()
        self._by_job: dict[Key, dict[str, Object]] = defaultdict(dict)
        self._own_deletions: set[str] = set()
        self._delayed: dict[tuple[str, str], asyncio.TimerHandle] = {}
        self._expiring: set[str] = set()
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Follow and act until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for cache in (self.queues, self.pods, self.groups, self.jobs, self._commands):
                tasks.create_task(cache.follow())

    async def synced(self) -> None:
        """Return when everything has been listed once."""
        for cache in (self.queues, self.pods, self.groups, self.jobs, self._commands):
            await cache.synced.wait()

    # --- what happens ---

    def _job_changed(self, change: str, job: Object) -> None:
        key = _key(job)
        if change == "DELETED":
            self._turns.pop(key, None)
            return
        self._look(key)
        self._expire_later(job)

    def _group_changed(self, change: str, group: Object) -> None:
        owner = _owner(group)
        if owner is not None:
            self._look((group["metadata"]["namespace"], owner))

    def _pod_changed(self, change: str, pod: Object) -> None:
        name = (pod["metadata"].get("labels") or {})[JOB_LABEL]
        key = (pod["metadata"]["namespace"], name)
        before = self._by_job[key].get(pod["metadata"]["name"])
        if change == "DELETED":
            self._by_job[key].pop(pod["metadata"]["name"], None)
        else:
            self._by_job[key][pod["metadata"]["name"]] = pod
        for event in self._events(change, before, pod, key):
            self._happened(key, event, pod)
        self._look(key)

    def _events(self, change: str, before: Object | None, pod: Object, key: Key) -> list[str]:
        if change == "DELETED":
            uid = pod["metadata"]["uid"]
            own = uid in self._own_deletions
            self._own_deletions.discard(uid)
            return [] if own else ["PodEvicted"]
        was, is_now = before and pod_state(before), pod_state(pod)
        if is_now == was:
            return []
        if is_now == "succeeded":
            return ["TaskCompleted"] if self._task_completed(key, task_of(pod)) else []
        named = {"failed": "PodFailed", "pending": "PodPending", "running": "PodRunning"}
        return [named[is_now]] if is_now in named else []

    def _task_completed(self, key: Key, name: str) -> bool:
        job = self.jobs.get(*key)
        tasks = job["spec"]["tasks"] if job else []
        wanted = next((task["replicas"] for task in tasks if task["name"] == name), None)
        own = [pod for pod in self._by_job[key].values() if task_of(pod) == name]
        return wanted is not None and count(own)["succeeded"] >= wanted

    def _happened(self, key: Key, event: str, pod: Object) -> None:
        """Take the turn that a policy calls for, at once or after its timeout."""
        uid = pod["metadata"]["uid"]
        over = {
            "PodRunning": ("PodFailed", "PodEvicted", "PodPending"),
            "PodFailed": ("PodPending",),
            "PodEvicted": ("PodPending",),
        }
        for kind in over.get(event, ()):
            if timer := self._delayed.pop((uid, kind), None):
                timer.cancel()
        job = self.jobs.get(*key)
        if job is None:
            return
        annotations = pod["metadata"].get("annotations") or {}
        happened = Happened(
            event,
            task=task_of(pod),
            pod=pod["metadata"]["name"],
            pod_uid=uid,
            exit_code=_exit_code(pod),
            version=int(annotations.get("volcano.sh/job-version", 0)),
        )
        called = called_for(job, happened)
        if called is None:
            return
        turn = Turn(called.action, Victim(happened.task, happened.pod))
        if called.delay_seconds:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(called.delay_seconds, self._look, key, turn)
            self._delayed[uid, event] = timer
        else:
            self._look(key, turn)

    async def _command_changed(self, change: str, command: Object) -> None:
        """Delete the Command, then do what it says: at most once, as in Volcano."""
        if change == "DELETED":
            return
        metadata, target = command["metadata"], command.get("target") or {}
        await self._client.delete(COMMANDS, metadata["namespace"], metadata["name"])
        if target.get("kind") == "Job":
            self._look((metadata["namespace"], target["name"]), Turn(command.get("action")))

    async def _queue_changed(self, change: str, queue: Object) -> None:
        """Open a new Queue, after a while that the seed chooses."""
        if change == "DELETED" or (queue.get("status") or {}).get("state"):
            return
        self._start(self._open_queue(queue["metadata"]["name"]))

    async def _open_queue(self, name: str) -> None:
        await asyncio.sleep(0 if name in ("default", "root") else self._chance.uniform(0, 0.3))
        while True:
            try:
                await self._client.patch(QUEUES, "", name, {"status": {"state": "Open"}}, "status")
                return
            except (Refused, OSError, TimeoutError) as error:
                if isinstance(error, Refused) and error.code == 404:
                    return
                await asyncio.sleep(_RETRY_SECONDS)

    # --- turns ---

    def _look(self, key: Key, turn: Turn | None = None) -> None:
        """Have a worker look at the job soon; a plain look is not queued twice."""
        turns = self._turns[key]
        if turn is not None or not turns:
            turns.append(turn or Turn())
        if key not in self._working:
            self._working.add(key)
            self._start(self._work(key))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        if self._tasks is not None:
            self._tasks.create_task(work)

    async def _work(self, key: Key) -> None:
        """Take the job's turns one after the other."""
        tries = 0
        try:
            while turns := self._turns.get(key):
                # Taken off first: what happens from now on is another reason to look.
                turn = turns.popleft()
                try:
                    await self._take(key, turn)
                except (Refused, OSError, TimeoutError) as error:
                    tries += 1
                    _LOG.info("%s/%s, try %d: %s", *key, tries, error)
                    if tries >= _TRIES:
                        turns.append(Turn("TerminateJob"))
                    else:
                        turns.appendleft(turn)
                        await asyncio.sleep(_RETRY_SECONDS)
                        with contextlib.suppress(Refused, OSError, TimeoutError):
                            await self._refresh(key)
                        continue
                tries = 0
        finally:
            self._working.discard(key)
            if not self._turns.get(key):
                self._turns.pop(key, None)

    async def _refresh(self, key: Key) -> None:
        """Read the job again: its cached state may be why a write was refused."""
        job = await self._client.get(JOBS, *key)
        if job is not None:
            await self.jobs.remember(job)

    async def _take(self, key: Key, turn: Turn) -> None:
        job = self.jobs.get(*key)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return
        pods = self._by_job[key]
        decision = decide(job, list(pods.values()), turn.action, turn.victim)
        if not phase_of(job):
            # A job's first status says no more than that it is Pending.
            await self._write(job, decision, with_counts=False)
            self._look(key)
            return
        for name in decision.kill:
            await self._kill(pods[name])
        group = self.groups.get(key[0], group_name(job))
        ended = decision.phase in FINISHED or decision.phase == "Aborted"
        if decision.full or ended:
            await self._drop(job, group)
        elif decision.phase in ("Pending", "Running"):
            await self._provide(job, group, pods)
        await self._write(job, decision, with_counts=not _told(job, decision))
        if ended and not _told(job, decision):
            self._forget_counts_later(key)

    async def _provide(self, job: Object, group: Object | None, pods: dict[str, Object]) -> None:
        """Make what is missing: companions and PodGroup, and pods once the group is let in."""
        namespace = job["metadata"]["namespace"]
        if group is None:
            for resource, value in companions(job):
                await self._client.ensure(resource, namespace, value)
            await self._client.ensure(POD_GROUPS, namespace, make_group(job))
            return
        if group["spec"].get("minMember") != job["spec"]["minAvailable"]:
            change = {"spec": make_group(job)["spec"]}
            await self._client.patch(POD_GROUPS, namespace, group_name(job), change)
        if (group.get("status") or {}).get("phase", "Pending") == "Pending":
            return
        for name in surplus(job, pods):
            await self._kill(pods[name])
        for pod in list(make_pods(job, pods)):
            try:
                made = await self._client.create(PODS, namespace, pod)
            except Refused as error:
                if error.reason != "AlreadyExists":
                    raise
            else:
                await self.pods.remember(made)

    async def _drop(self, job: Object, group: Object | None) -> None:
        """Remove PodGroup and companions, which come anew if the job does."""
        namespace = job["metadata"]["namespace"]
        if group is None:
            return
        for resource, value in companions(job):
            await self._client.delete(resource, namespace, value["metadata"]["name"])
        await self._client.delete(POD_GROUPS, namespace, group_name(job))

    async def _kill(self, pod: Object) -> None:
        metadata = pod["metadata"]
        self._own_deletions.add(metadata["uid"])
        options = {"preconditions": {"uid": metadata["uid"]}}
        try:
            await self._client.delete(PODS, metadata["namespace"], metadata["name"], options)
        except Refused as error:
            if error.code != 409:  # a new pod of that name: the old one is gone
                raise

    async def _write(self, job: Object, decision: Decision, *, with_counts: bool) -> None:
        """Write the job's status, if it says anything new."""
        pods = list(self._by_job[_key(job)].values())
        status = make_status(job, pods, decision, with_counts=with_counts, now=_now())
        if status != job.get("status"):
            written = await self._client.replace(JOBS, {**job, "status": status}, "status")
            await self.jobs.remember(written)
            self._expire_later(written)

    def _forget_counts_later(self, key: Key) -> None:
        """Look again soon: a finished job's counts vanish, as they do since Volcano 1.11."""
        loop = asyncio.get_running_loop()
        loop.call_later(self._chance.uniform(0, 0.5), self._look, key)

    def _expire_later(self, job: Object) -> None:
        """See to it that a finished job goes when its time to live is over."""
        uid, ttl = job["metadata"]["uid"], job["spec"].get("ttlSecondsAfterFinished")
        if ttl is None or phase_of(job) not in FINISHED or uid in self._expiring:
            return
        self._expiring.add(uid)
        since = datetime.fromisoformat(job["status"]["state"]["lastTransitionTime"])
        left = (since + timedelta(seconds=ttl) - datetime.now(UTC)).total_seconds()
        self._start(self._expire(job, max(left, 0.0)))

    async def _expire(self, job: Object, seconds: float) -> None:
        await asyncio.sleep(seconds)
        metadata = job["metadata"]
        options = {"propagationPolicy": "Foreground", "preconditions": {"uid": metadata["uid"]}}
        try:
            await self._client.delete(JOBS, metadata["namespace"], metadata["name"], options)
        except (Refused, OSError, TimeoutError) as error:
            _LOG.warning("time to live of %s: %s", metadata["name"], error)
        finally:
            self._expiring.discard(metadata["uid"])


def make_status(
    job: Object, pods: list[Object], decision: Decision, *, with_counts: bool, now: str
) -> Object:
    """Return the status that goes with *decision*. No I/O."""
    old = job.get("status") or {}
    phase = decision.phase
    changed = phase != phase_of(job)
    # The kill that ends a job raises its version once more, when its counts go.
    raised = decision.full or (not with_counts and "taskStatusCount" in old)
    status: Object = {
        "state": {"phase": phase, "lastTransitionTime": now} if changed else old["state"],
        "minAvailable": job["spec"]["minAvailable"],
        "version": old.get("version", 0) + raised,
        "retryCount": old.get("retryCount", 0) + decision.retry,
        "controlledResources": companion_names(job),
        "conditions": list(old.get("conditions") or []),
    }
    if with_counts:
        status |= {name: number for name, number in count(pods).items() if number}
        status["taskStatusCount"] = _task_counts(job, pods)
    if changed:
        kept = [c for c in status["conditions"] if c["status"] != phase]
        status["conditions"] = [*kept, {"status": phase, "lastTransitionTime": now}]
    if phase in FINISHED:
        since = datetime.fromisoformat(job["metadata"]["creationTimestamp"])
        passed = (datetime.fromisoformat(now) - since).total_seconds()
        status["runningDuration"] = old.get("runningDuration") or f"{passed:.0f}s"
    return {name: value for name, value in status.items() if value not in ({}, [], 0)}


def _task_counts(job: Object, pods: list[Object]) -> Object:
    counts: Object = {}
    for task in job["spec"]["tasks"]:
        phases: dict[str, int] = defaultdict(int)
        for pod in pods:
            if task_of(pod) == task["name"]:
                phases[(pod.get("status") or {}).get("phase", "Pending")] += 1
        if phases:
            counts[task["name"]] = {"phase": dict(phases)}
    return counts


def _told(job: Object, decision: Decision) -> bool:
    """Whether this end was written before: then the counts are left out."""
    ended = decision.phase in FINISHED or decision.phase == "Aborted"
    return ended and phase_of(job) == decision.phase


def _exit_code(pod: Object) -> int | None:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    ended = (statuses[0].get("state") or {}).get("terminated")
    return int(ended["exitCode"]) if ended else None


def _owner(value: Object) -> str | None:
    owners = value["metadata"].get("ownerReferences") or []
    return next((o["name"] for o in owners if o["kind"] == "Job" and o.get("controller")), None)


def _key(value: Object) -> Key:
    return value["metadata"]["namespace"], value["metadata"]["name"]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
