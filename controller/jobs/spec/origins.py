"""Which part of a job is behind a part of its VolcanoJob: who asks knows only the job. No I/O.

Volcano calls a pod ``<VolcanoJob>-<task>-<index>``, and identifiers and tasks may have hyphens: the
job ``exp`` has for its task ``train-main`` the pods of the job ``exp-train`` and its task ``main``.
A pod that is there already Volcano takes for made, and the second job waits without a word.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from controller.jobs.spec.model import DEFAULT_TASK, ID_PATTERN, TASK_PATTERN, EffectiveTask, Job
from controller.jobs.spec.problems import Problem
from shared.numbers import whole_number

_TASK: Final = re.compile(r"^spec\.tasks?\[([^\]]*)\]\.?(.*)$", re.DOTALL)

_ANY_TASK: Final = re.compile(r"^spec\.tasks?\.(.+)$", re.DOTALL)
"""As Go names a field that it cannot decode: without the position."""

_OF_JOB: Final[tuple[tuple[str, str], ...]] = (
    (r"metadata\.namespace", "owner"),
    (r"metadata\.name", "id"),
    (r"metadata\.labels", "labels"),
    (r"metadata\.annotations", ""),
    (r"spec\.queue", "queue"),
    (r"spec\.priorityClassName", "priority"),
    (r"spec\.minAvailable", "replicas"),
    (r"spec\.minSuccess", "min_success"),
    (r"spec\.maxRetry", "max_retry"),
    (r"spec\.networkTopology\.mode", "topology.network.mode"),
    (r"spec\.networkTopology\.highestTier\w*", "topology.network.tier"),
    (r"spec\.networkTopology", "topology.network"),
    (r"spec\.policies(\[\d+\])?(?:\.(\w+))?", "policies{0}"),
    (r"spec\.plugins\.\w+", "framework"),
    (r"spec\.tasks", "tasks"),
)
_OF_TASK: Final[tuple[tuple[str, str], ...]] = (
    (r"name", "name"),
    (r"replicas", "replicas"),
    (r"minAvailable", "min_available"),
    (r"dependsOn\.name(\[\d+\])?", "depends_on{0}"),
    (r"dependsOn", "depends_on"),
    (r"policies(\[\d+\])?", "policies{0}"),
    (r".*\.resources\.(?:limits|requests)\.(cpu|memory)", "resources.{0}"),
    (r".*\.resources\.(cpu|memory)", "resources.{0}"),
    (r".*\.resources", "resources"),
    (r".*\.image", "image"),
    (r".*\.env\b", "invocation.environment"),
    (r".*\.command", "invocation.command"),
)
_OF_ALL: Final[tuple[tuple[str, str], ...]] = (
    (r"topologyPolicy", "topology.numa"),
    (r".*\.ports\[([^\]]*)\]", "interactive.{0}"),
    (r".*\.ports", "interactive"),
    (r".*\.volumeMounts", "parameters"),
    (r".*\.runtimeClassName", "runtime"),
    (r".*\.(?:nodeSelector|affinity|tolerations)", "product"),
)
"""Of a task's parts those that the job says for all tasks."""


def problems_with(job: Job, findings: Iterable[tuple[str, str]]) -> list[Problem]:
    """Return what is wrong with *job*, given what is wrong with the VolcanoJob made of it.

    Where nothing of the job is behind it, the path is empty and the text says the VolcanoJob's.
    """
    problems = [_problem(job, path, message) for path, message in findings]
    return list(dict.fromkeys(problems))


def _problem(job: Job, path: str, message: str) -> Problem:
    found = _origin(job, path)
    if found is not None:
        return Problem(found, message)
    return Problem("", f"{path}: {message}" if path else message)


def _origin(job: Job, path: str) -> str | None:
    if match := _TASK.match(path):
        task = _find_task(job, match[1])
        if task is not None:
            return _of_task(task, match[2])
    if (match := _ANY_TASK.match(path)) and len(job.effective_tasks) == 1:
        return _of_task(job.effective_tasks[0], match[1])
    return _first(_OF_JOB, path)


def _of_task(task: EffectiveTask, rest: str) -> str | None:
    if not rest:
        return task.path
    own = _first(_OF_TASK, rest)
    return task.at(own) if own is not None else _first(_OF_ALL, rest)


def _find_task(job: Job, which: str) -> EffectiveTask | None:
    tasks = job.effective_tasks
    index = whole_number(which, most=len(tasks) - 1)
    if index is not None:
        return tasks[index]
    return next((task for task in tasks if task.name == which), None)


def _first(table: tuple[tuple[str, str], ...], path: str) -> str | None:
    for pattern, target in table:
        if match := re.match(pattern, path):
            return target.format(*(group or "" for group in match.groups()))
    return None


_ID = re.compile(ID_PATTERN)
_TASK_NAME = re.compile(TASK_PATTERN)


def same_pod_names(job: Job) -> dict[str, frozenset[str]]:
    """Return the tasks, by jobs that there may be, whose pods would be called as *job*'s are."""
    found = defaultdict[str, set[str]](set)
    for task in job.effective_tasks:
        for other, its_task in _read_as(f"{job.id}-{task.name}"):
            if other != job.id:
                found[other].add(its_task)
    return {other: frozenset(tasks) for other, tasks in found.items()}


def has_a_task(spec: object, names: Collection[str]) -> bool:
    """Say whether a job that was accepted as *spec*, which may be anything, has one of them."""
    tasks: object = spec.get("tasks") if isinstance(spec, Mapping) else ()
    if not tasks and isinstance(spec, Mapping):
        return DEFAULT_TASK in names
    given = [one for one in tasks if isinstance(one, Mapping)] if isinstance(tasks, list) else []
    return any(one.get("name") in list(names) for one in given)


def _read_as(stem: str) -> Iterator[tuple[str, str]]:
    for hyphen in re.finditer("-", stem):
        job_id, task = stem[: hyphen.start()], stem[hyphen.end() :]
        if _ID.match(job_id) and _TASK_NAME.match(task):
            yield job_id, task
