"""The job controller: at most one worker for a job at a time. Each turn uses only the caches."""

import asyncio
import contextlib
import logging
import random
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from deploy.local.cluster.client import PODS, Cache, Client, Object, Refused
from deploy.local.cluster.events import EventRecorder
from deploy.local.cluster.lags import Lags
from deploy.local.cluster.volcano.definitions import COMMANDS, JOBS, POD_GROUPS
from deploy.local.cluster.volcano.events import Key, PodEvents, Turn, action_now
from deploy.local.cluster.volcano.plugins import JOB_LABEL, companion_keys, companions
from deploy.local.cluster.volcano.pods import group_name, make_group, make_pods, surplus
from deploy.local.cluster.volcano.queues import QueueStates
from deploy.local.cluster.volcano.states import FINISHED, Decision, decide, phase_of
from deploy.local.cluster.volcano.status import is_told, make_status

_LOG: Final = logging.getLogger(__name__)
_RETRY_SECONDS: Final = 0.005
"""The pause before the second try; it doubles with each, as in client-go's work queue."""

_TRIES: Final = 15
_WORKERS: Final = 3
"""How many turns Volcano takes at once. The job's name decides which worker takes its turns."""


class JobController:
    """Makes and ends the pods of jobs. `run` starts it and returns only when it is cancelled."""

    def __init__(self, client: Client, chance: random.Random, lags: Lags) -> None:
        self._client = client
        self._chance = chance
        self._lags = lags
        # Both are legal: 1.15 makes the PodGroup anew at a restart of one pod, 1.16 does not.
        self._regroups = chance.random() < 0.5
        self.jobs = Cache(client, JOBS, changed=self._job_changed)
        self._events = PodEvents(lambda key: self.jobs.get(*key), self._look)
        self.pods = Cache(client, PODS, {"labelSelector": JOB_LABEL}, changed=self._events.changed)
        self.groups = Cache(client, POD_GROUPS, changed=self._group_changed)
        self._queue_states = QueueStates(
            client, chance, lambda: self.groups.objects.values(), self._start
        )
        self.queues = self._queue_states.cache
        self._commands = Cache(client, COMMANDS, changed=self._command_changed)
        self._turns: dict[Key, deque[Turn]] = defaultdict(deque)
        self._working: set[Key] = set()
        self._recorder = EventRecorder(client, "vc-controller-manager")
        self._asked: dict[Key, tuple[Object, str]] = {}
        self._phases: dict[str, str] = {}
        self._busy_until: dict[Key, float] = {}
        self._grounds: dict[Key, str] = {}
        self._workers = [asyncio.Lock() for _ in range(_WORKERS)]
        self._expiring: set[str] = set()
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Follow the objects and act until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._recorder.run())
            for cache in (self.queues, self.pods, self.groups, self.jobs, self._commands):
                tasks.create_task(cache.follow())

    async def synced(self) -> None:
        """Return when every kind has been listed once."""
        for cache in (self.queues, self.pods, self.groups, self.jobs, self._commands):
            await cache.synced.wait()

    # --- what happens ---

    def _job_changed(self, change: str, job: Object) -> None:
        key = _key(job)
        if change == "DELETED":
            self._turns.pop(key, None)
            self._asked.pop(key, None)
            self._grounds.pop(key, None)
            self._busy_until.pop(key, None)
            return
        asked = _asked(job)
        before, self._asked[key] = self._asked.get(key), (asked, phase_of(job))
        if before is not None and before[0] != asked and (late := self._late("volcano-sync")):
            self._busy_until[key] = time.monotonic() + late
        # A change of counts in the status alone enqueues no job, as in Volcano.
        if before != self._asked[key]:
            self._look(key)
        self._expire_later(job)

    def _group_changed(self, change: str, group: Object) -> None:
        if change == "DELETED":
            self._queue_states.group_gone(group)
        owner = _owner(group)
        if owner is None:
            return
        key = (group["metadata"]["namespace"], owner)
        if change == "MODIFIED" and (group.get("status") or {}).get("phase") == "Unknown":
            self._events.group_unknown(key)
        self._record_group_event(key, group)
        uid, phase = group["metadata"]["uid"], (group.get("status") or {}).get("phase", "")
        if self._phases.get(uid) == phase and change == "MODIFIED":
            return
        self._phases[uid] = phase
        if change == "DELETED":
            del self._phases[uid]
        self._look(key)

    def _record_group_event(self, key: Key, group: Object) -> None:
        """Write the PodGroup's conditions as events of the job: users see only jobs."""
        for condition in (group.get("status") or {}).get("conditions") or []:
            job, why = self.jobs.get(*key), condition.get("message", "")
            if job is None or condition["type"] != "Unschedulable" or self._grounds.get(key) == why:
                continue
            self._grounds[key] = why
            said = f"PodGroup {key[0]}:{key[1]} unschedulable, reason: {why}"
            self._recorder.record_event(job, "Warning", "PodGroupPending", said)

    async def _command_changed(self, change: str, command: Object) -> None:
        """Delete the Command, then carry it out: at most once, as in Volcano."""
        if change == "DELETED":
            return
        metadata, target = command["metadata"], command.get("target") or {}
        await self._client.delete(COMMANDS, metadata["namespace"], metadata["name"])
        # The target's uid is not compared: a late Command affects any job that has the name now.
        if target.get("kind") == "Job":
            key, action = (metadata["namespace"], target["name"]), command.get("action")
            if job := self.jobs.get(*key):
                said = f"Start to execute command {action}, and clean it up to make sure executed"
                said = f"{said} not more than once."
                self._recorder.record_event(job, "Normal", "CommandIssued", said)
            self._look(key, Turn(action))
        elif target.get("kind") == "Queue":
            self._queue_states.command(target["name"], command.get("action", ""))

    # --- turns ---

    def _look(self, key: Key, turn: Turn | None = None) -> None:
        """Have a worker look at the job soon; a plain look is not queued twice."""
        if turn is not None and turn.beside and self._lags.value("volcano-timeout"):
            self._start(self._take_beside(key, turn))
            return
        turn, turns = turn or Turn(), self._turns[key]
        # Volcano's queue drops a request only if an equal one is in it. A fast client need not tell
        # them apart. A slow one has several, and the first may already see what the last one
        # reports.
        apart = self._lags.value("volcano-client") > 0
        if turn.action is not None or not (turn in turns if apart else turns):
            turns.append(turn)
        if key not in self._working:
            self._working.add(key)
            self._start(self._work(key))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        if self._tasks is not None:
            self._tasks.create_task(_guarded(work))

    async def _work(self, key: Key) -> None:
        """Run the job's turns one after the other."""
        tries = 0
        try:
            while turns := self._turns.get(key):
                if until := self._busy_until.pop(key, 0.0):
                    await asyncio.sleep(until - time.monotonic())
                try:
                    async with self._worker(key):
                        # Removed first: anything that happens from now on is another reason to
                        # look.
                        turn = turns.popleft()
                        await self._take(key, turn)
                except Exception as error:  # noqa: BLE001 - the reconcile loop: logged, tried again
                    if not isinstance(error, (Refused, OSError)):
                        _LOG.exception("%s/%s", *key)
                    tries += 1
                    _LOG.info("%s/%s, try %d: %s", *key, tries, error)
                    if tries >= _TRIES:
                        self._record_giving_up(key, turn)
                        turns.append(Turn("TerminateJob"))
                    else:
                        turns.appendleft(turn)
                        await asyncio.sleep(_RETRY_SECONDS * 2 ** (tries - 1))
                        with contextlib.suppress(Refused, OSError, TimeoutError):
                            await self._refresh(key)
                        continue
                tries = 0
        finally:
            self._working.discard(key)
            if not self._turns.get(key):
                self._turns.pop(key, None)

    def _record_giving_up(self, key: Key, turn: Turn) -> None:
        if job := self.jobs.get(*key):
            said = f"Job failed on action {turn.action or 'SyncJob'} for retry limit reached"
            self._recorder.record_event(job, "Normal", "ExecuteAction", said)

    def _worker(self, key: Key) -> AbstractAsyncContextManager[None]:
        """Return the worker for the job's turns; with a slow client there are only a few."""
        if not self._lags.value("volcano-client"):
            return contextlib.nullcontext()
        return self._workers[zlib.crc32("/".join(key).encode()) % _WORKERS]

    def _late(self, lag: str) -> float:
        """Return how late something is this time: the seed chooses, at least half of the lag."""
        return self._lags.value(lag) * self._chance.uniform(0.5, 1)

    async def _take_beside(self, key: Key, turn: Turn) -> None:
        """Act for a policy with a timeout as Volcano does: from a copy, beside the worker.

        The worker sees the pods end and writes the status first. Then this status conflicts, and is
        lost together with the phase and the retry in it.
        """
        job = self.jobs.get(*key)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return
        pods = dict(self._events.pods(key))
        decision = decide(job, list(pods.values()), turn.action, turn.victim)
        try:
            for name in decision.kill:
                await self._kill(pods[name])
            await asyncio.sleep(self._late("volcano-timeout"))
            await self._write(job, decision, with_counts=True)
            if decision.full:
                await self._drop(job, self.groups.get(key[0], group_name(job)), regroup=True)
            self._look(key)
        except (Refused, OSError, TimeoutError) as error:
            _LOG.info("%s/%s, %s after its timeout: %s", *key, turn.action, error)

    async def _refresh(self, key: Key) -> None:
        """Read the job again: the cause of a refused write may be an old cached job."""
        job = await self._client.get(JOBS, *key)
        if job is not None:
            await self.jobs.remember(job)

    async def _take(self, key: Key, turn: Turn) -> None:
        job = self.jobs.get(*key)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return
        pods = self._events.pods(key)
        decision = decide(job, list(pods.values()), action_now(turn, job), turn.victim)
        if not phase_of(job):
            # A job's first status says only that it is Pending.
            await self._write(job, decision, with_counts=False)
            self._look(key)
            return
        for name in decision.kill:
            await self._kill(pods[name])
        group = self.groups.get(key[0], group_name(job))
        ended = decision.phase in FINISHED or decision.phase == "Aborted"
        if decision.full or ended:
            await self._drop(job, group, regroup=True)
        elif decision.kill:
            await self._drop(job, group, regroup=self._regroups)
        elif decision.phase in ("Pending", "Running"):
            await self._provide(job, group, pods)
        await self._write(job, decision, with_counts=not is_told(job, decision))
        if ended and not is_told(job, decision):
            self._forget_counts_later(key)

    async def _provide(self, job: Object, group: Object | None, pods: dict[str, Object]) -> None:
        """Make missing objects: companions and PodGroup, and pods once the group is admitted."""
        namespace = job["metadata"]["namespace"]
        if not (job.get("status") or {}).get("controlledResources"):
            for resource, value in companions(job):
                await self._client.ensure(resource, namespace, value)
        if group is None:
            await self._client.ensure(POD_GROUPS, namespace, make_group(job))
            return
        if group["spec"].get("minMember") != job["spec"]["minAvailable"]:
            change = {"spec": make_group(job)["spec"]}
            await self._client.patch(POD_GROUPS, namespace, group_name(job), change)
        if (group.get("status") or {}).get("phase", "Pending") != "Pending":
            await self._make_pods(job, pods)

    async def _make_pods(self, job: Object, pods: dict[str, Object]) -> None:
        for name in surplus(job, pods):
            await self._kill(pods[name])
        refused: list[str] = []
        for pod in list(make_pods(job, pods)):
            try:
                made = await self._client.create(PODS, job["metadata"]["namespace"], pod)
            except Refused as error:
                if error.reason != "AlreadyExists":
                    refused.append(_go_error(pod, error))
            else:
                await self.pods.remember(made)
        if refused:
            why = f"Error creating pods: [{' '.join(refused)}]"
            self._recorder.record_event(job, "Warning", "FailedCreate", why)
            raise Refused(0, "", why)

    async def _drop(self, job: Object, group: Object | None, *, regroup: bool) -> None:
        """Remove companions and, with *regroup*, the PodGroup; a later turn may make them anew."""
        namespace = job["metadata"]["namespace"]
        if (job.get("status") or {}).get("controlledResources"):
            for resource, name in companion_keys(job):
                await self._client.delete(resource, namespace, name)
        if regroup and group is not None:
            await self._client.delete(POD_GROUPS, namespace, group_name(job))

    async def _kill(self, pod: Object) -> None:
        metadata = pod["metadata"]
        self._events.expect_deletion(metadata["uid"])
        options = {"preconditions": {"uid": metadata["uid"]}}
        try:
            await self._client.delete(PODS, metadata["namespace"], metadata["name"], options)
        except Refused as error:
            if error.code != 409:  # 409 means a new pod of that name: the old one is gone
                raise

    async def _write(self, job: Object, decision: Decision, *, with_counts: bool) -> None:
        """Write the job's status if it has changed."""
        pods = list(self._events.pods(_key(job)).values())
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
        """Make sure that a finished job is deleted when its time to live is over."""
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


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    """Await *work*; an error with one job must not end the controller."""
    try:
        await work
    except Exception:  # noqa: BLE001 - the outermost border of a task: logged
        _LOG.exception("a task of the job controller")


def _go_error(pod: Object, error: Refused) -> str:
    """Return a refusal in Volcano's format: the Status as Go prints it (``%#v``)."""
    message = str(error).replace("\\", "\\\\").replace('"', '\\"')
    return (
        f"failed to create pod {pod['metadata']['name']}, err: &errors.StatusError{{ErrStatus:"
        'v1.Status{TypeMeta:v1.TypeMeta{Kind:"", APIVersion:""}, ListMeta:v1.ListMeta{SelfLink:"", '
        'ResourceVersion:"", Continue:"", RemainingItemCount:(*int64)(nil)}, Status:"Failure", '
        f'Message:"{message}", Reason:"{error.reason}", Details:(*v1.StatusDetails)(0xc000a5e0c0), '
        f"Code:{error.code}}}}}"
    )


def _asked(job: Object) -> Object:
    """Return the part of a VolcanoJob that clients write."""
    kept = {n: job["metadata"].get(n) for n in ("labels", "annotations", "ownerReferences")}
    return {"spec": job["spec"], **kept}


def _owner(value: Object) -> str | None:
    owners = value["metadata"].get("ownerReferences") or []
    return next((o["name"] for o in owners if o["kind"] == "Job" and o.get("controller")), None)


def _key(value: Object) -> Key:
    return value["metadata"]["namespace"], value["metadata"]["name"]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
