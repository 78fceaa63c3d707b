"""``/v1/jobs/{id}/tasks`` and ``/history``: the current ranks, and all attempts and pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aiohttp import web

from controller.api.error_responses import or_not_found
from controller.api.operations import operation
from controller.api.parts import ApiParts
from controller.api.resources.updates import shown
from controller.api.response_models import (
    AttemptView,
    History,
    LogView,
    RunView,
    TaskState,
    TaskView,
)
from controller.jobs.history.job_record import read_known
from controller.jobs.history.pod_records import last_of_ranks
from controller.jobs.history.retries import has_failed
from controller.jobs.spec.model import Job
from controller.loop_turn import LoopTurn
from controller.store.jobs.job_rows import JobRecord, find_job
from controller.store.jobs.progress import Attempt, PodRecord, attempts_of, pod_records_of
from controller.store.jobs.stored_logs import StoredLog, logs_of
from controller.store.outbox.update_rows import updates_of


@operation("GET", "/v1/jobs/{id}/tasks", "listTasks", "List the ranks of a job")
async def show(api: ApiParts, request: web.Request) -> list[TaskView]:
    """Return each rank of the current attempt, in order."""
    async with api.store.read() as transaction:
        record = or_not_found(await find_job(transaction, request.match_info["id"]), "job")
        runs = await pod_records_of(transaction, record.id, record.attempt)
    return task_views(record, read_known(record), runs)


@operation(
    "GET",
    "/v1/jobs/{id}/history",
    "getHistory",
    "Get the attempts, pods and updates of a job",
)
async def history(api: ApiParts, request: web.Request) -> History:
    """Return the recorded history, which outlives pods, VolcanoJobs and attempts."""
    async with api.store.read() as transaction:
        record = or_not_found(await find_job(transaction, request.match_info["id"]), "job")
        attempts = await attempts_of(transaction, record.id)
        runs = await pod_records_of(transaction, record.id)
        updates = await updates_of(transaction, record.id)
        logs = await logs_of(transaction, record.id)
    return History(
        id=record.id,
        attempts=await attempt_views(attempts, runs, logs),
        updates=shown(updates),
    )


_OF_POD: Final = ("pod", "node", "started_at", "ended_at", "exit_code", "reason", "message")
"""Fields of a rank that are None before it has a pod."""


def task_views(record: JobRecord, job: Job, runs: Sequence[PodRecord]) -> list[TaskView]:
    """Return each rank with the state of its last pod."""
    last: dict[int, PodRecord] = {}
    for run in sorted(runs, key=lambda run: (run.seen_at, run.started_at or 0.0)):
        last[run.rank] = run
    return [
        _task(record, last, task.name, index, task.first + index)
        for task in job.effective_tasks
        for index in range(task.replicas)
    ]


def _task(
    record: JobRecord, last: Mapping[int, PodRecord], task: str, index: int, rank: int
) -> TaskView:
    run = last.get(rank)
    state = task_state(record, run)
    shown = {"rank": rank, "task": task, "index": index, "state": state, "attempt": record.attempt}
    of_pod = {name: getattr(run, name, None) for name in _OF_POD}
    return TaskView.model_validate(shown | of_pod)


def task_state(record: JobRecord, run: PodRecord | None) -> TaskState:
    """Return the state of a rank from its last pod."""
    if run is None:
        return "GONE" if record.is_final else "WAITING"
    if run.exit_code is not None:
        return "SUCCEEDED" if run.exit_code == 0 else "FAILED"
    if run.phase == "Failed":
        return "FAILED"
    if run.ended_at is not None:
        return "GONE"
    if run.started_at is not None:
        return "RUNNING"
    return "PREPARING" if run.node else "WAITING"


async def attempt_views(
    attempts: Sequence[Attempt], runs: Sequence[PodRecord], logs: Mapping[str, StoredLog]
) -> list[AttemptView]:
    """Return the attempts with their pods. Yields to the event loop: there may be thousands."""
    of_attempt = dict[int, list[PodRecord]]()
    for run in runs:
        of_attempt.setdefault(run.attempt, []).append(run)
    views, turn = list[AttemptView](), LoopTurn()
    for attempt in attempts:
        own, shown_runs = of_attempt.get(attempt.attempt, []), list[RunView]()
        for run in own:
            shown_runs.append(_run(run, logs.get(run.pod_uid)))
            await turn.rest()
        views.append(_attempt(attempt, own, shown_runs))
    return views


def _attempt(
    attempt: Attempt, own: Sequence[PodRecord], shown_runs: Sequence[RunView]
) -> AttemptView:
    values = {name: getattr(attempt, name) for name in Attempt.__slots__}
    if attempt.restarts is not None:
        # Volcano also counts the restart that it refuses.
        values["retries"] = attempt.restarts
    # Counted from the pods: Volcano's own counts are lost when the VolcanoJob ends.
    last = [run for run in last_of_ranks(own) if run.rank >= 0]
    values["succeeded"] = sum(run.phase == "Succeeded" for run in last)
    values["failed"] = sum(has_failed(run) for run in last)
    return AttemptView(**values, runs=list(shown_runs))


def _run(run: PodRecord, log: StoredLog | None) -> RunView:
    names = set(RunView.model_fields) - {"uid", "restart", "log"}
    values = {name: getattr(run, name) for name in names}
    shown_log = None if log is None else _log(log)
    return RunView(uid=run.pod_uid, restart=run.retry, log=shown_log, **values)


def _log(log: StoredLog) -> LogView:
    return LogView(bytes=log.size, complete=log.state == "whole", truncated=sorted(log.lost))
