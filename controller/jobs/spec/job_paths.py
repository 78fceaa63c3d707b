"""From paths in the VolcanoJob to paths in the job.

A finding on the VolcanoJob of a job is reported with the part of the job that causes it: an
orchestrator knows only the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from controller.jobs.spec.model import EffectiveTask, Job
from controller.jobs.spec.problems import Problem
from shared.text import whole_number

_TASK: Final = re.compile(r"^spec\.tasks?\[([^\]]*)\]\.?(.*)$", re.DOTALL)

_ANY_TASK: Final = re.compile(r"^spec\.tasks?\.(.+)$", re.DOTALL)
"""Go names a field that it cannot decode without the index."""

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
"""Fields of a task that the job sets for all tasks."""


def problems_with(job: Job, findings: Iterable[tuple[str, str]]) -> list[Problem]:
    """Return the problems of *job*, given the findings on its VolcanoJob.

    If no part of the job causes a finding, the path is empty and the message names the
    VolcanoJob's.
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
