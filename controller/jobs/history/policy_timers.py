"""Timers of policies with a timeout: their triggers, and their cancellation. No I/O.

Volcano is not given these policies (see ``controller.volcano.policies.carried_out_here``). The
job's pods show the trigger. The store has the due time, which so outlives a leader. A timer is
cancelled if its trigger no longer holds: the replica's pod runs again, or Volcano restarted the
job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from controller.jobs.history.retries import Policies, Triggered, described, last_of_replicas
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.progress import PodRecord, Timer
from controller.volcano.observed import ObservedJob, ObservedPod
from controller.volcano.policies import Rule

_RETURNS: Final = ("PodFailed/", "PodEvicted/")
"""Triggers that hold until the replica's next pod runs."""

_RESTARTING: Final = "Restarting"
_FAILED: Final = "Failed"


def wanted_timers(
    record: JobRecord,
    job: ObservedJob,
    pods: Sequence[ObservedPod],
    *,
    runs: Mapping[str, PodRecord],
    policies: Policies,
    stored: Mapping[str, Timer],
    now: float,
) -> dict[str, Timer]:
    """Return the timers that should exist, by trigger; an existing timer keeps its due time.

    Args:
        record: The job.
        job: Its VolcanoJob.
        pods: The existing pods of this VolcanoJob.
        runs: The records of all its pods.
        policies: The job's policies.
        stored: The existing timers.
        now: Unix seconds.
    """
    current = {
        trigger: timer
        for trigger, timer in stored.items()
        if (timer.attempt, timer.retries) == (record.attempt, job.retries)
    }
    found: dict[str, Timer] = {}
    if job.timed and job.phase != _FAILED:
        return found  # created by an older version: Volcano itself times its policies
    for one in _triggered(record, job, pods, runs=runs, policies=policies, now=now):
        delay = one.rule.timeout_seconds or 0
        found[one.trigger] = current.get(one.trigger) or Timer(
            job_id=record.id,
            trigger=one.trigger,
            attempt=record.attempt,
            due_at=one.at + delay,
            action=one.rule.action,
            why=one.why,
            retries=job.retries,
        )
    return found | _waiting(current, runs)


def _waiting(stored: Mapping[str, Timer], runs: Mapping[str, PodRecord]) -> dict[str, Timer]:
    """Return the timers in *stored* whose replica's next pod has not run yet."""
    waiting = {}
    for trigger, timer in stored.items():
        run = runs.get(trigger.partition("/")[2])
        if trigger.startswith(_RETURNS) and run is not None and not _has_returned(run, runs):
            waiting[trigger] = timer
    return waiting


def _has_returned(run: PodRecord, runs: Mapping[str, PodRecord]) -> bool:
    replica = (run.task, run.index)
    later = (one for one in runs.values() if one.seen_at > run.seen_at)
    return any(one.started_at is not None and (one.task, one.index) == replica for one in later)


def _triggered(
    record: JobRecord,
    job: ObservedJob,
    pods: Sequence[ObservedPod],
    *,
    runs: Mapping[str, PodRecord],
    policies: Policies,
    now: float,
) -> Iterator[Triggered]:
    present = {pod.uid: pod for pod in pods}
    last = last_of_replicas(runs.values())
    for run in (*last, *_before(last, runs.values())):
        event, at = _of_pod(run, present.get(run.pod_uid), job)
        if event:
            # Clocks of nodes differ: no event counts as earlier than the pod's first observation.
            at = min(now, max(run.seen_at, at)) if event != "PodPending" else min(now, at)
            yield from _fitting(policies, event, run, run.task, at)
    for task in policies.tasks:
        done = [run for run in last if run.task == task.name and run.phase == "Succeeded"]
        if len(done) >= task.replicas:
            at = min(now, max(run.ended_at or now for run in done))
            yield from _fitting(policies, "TaskCompleted", None, task.name, at)
    if _is_torn(policies, pods):
        yield from _fitting(policies, "Unknown", None, "", now)


def _before(last: Iterable[PodRecord], runs: Iterable[PodRecord]) -> list[PodRecord]:
    """Return the pods whose successors have not run yet: their triggers still hold."""
    new = [run for run in last if run.started_at is None and run.ended_at is None]
    uids, replicas = {run.pod_uid for run in new}, {(run.task, run.index) for run in new}
    older = (run for run in runs if (run.task, run.index) in replicas)
    return last_of_replicas(run for run in older if run.pod_uid not in uids)


def _of_pod(run: PodRecord, pod: ObservedPod | None, job: ObservedJob) -> tuple[str, float]:
    """Return the event of a replica's last pod, and its time; an empty event if there is none."""
    if pod is None or pod.deleting:
        # At a higher restart count, Volcano deleted it.
        evicted = job.phase != _RESTARTING and (run.retry or 0) == job.retries
        return ("PodEvicted" if evicted else "", run.ended_at or run.seen_at)
    if pod.phase == "Failed":
        return "PodFailed", run.ended_at or run.seen_at
    if pod.phase == "Pending" and not pod.running:
        return "PodPending", pod.created_at or run.seen_at
    return "", 0.0


def _is_torn(policies: Policies, pods: Sequence[ObservedPod]) -> bool:
    """Return whether some pods run and too few are placed: the PodGroup is then Unknown."""
    needed = sum(task.min_available for task in policies.tasks if not task.depends_on)
    there = [pod for pod in pods if not pod.deleting]
    placed = sum(1 for pod in there if pod.node and pod.phase != "Failed")
    waits = any(not pod.node and pod.phase == "Pending" for pod in there)
    return waits and placed < needed and any(pod.running for pod in there)


def _fitting(
    policies: Policies, event: str, run: PodRecord | None, task: str, at: float
) -> Iterator[Triggered]:
    exit_code = run.exit_code if run is not None else None
    rule: Rule | None = policies.deciding(event, exit_code, task)
    if rule is None or not policies.is_ours(rule):
        return
    yield Triggered(
        rule=rule,
        event=event,
        at=at,
        why=_described(event, run, task),
        pod_uid=run.pod_uid if run is not None else "",
        task=task,
    )


def _described(event: str, run: PodRecord | None, task: str) -> str:
    match event:
        case "PodEvicted" if run is not None:
            return f"the pod of {task} {run.index} was deleted"
        case "PodPending" if run is not None:
            return f"{task} {run.index} has waited too long"
        case "Unknown":
            return "some pods run and others cannot be placed"
        case _:
            return described(run, task)
