"""Whose pods have the same names as a job's. No I/O.

Volcano calls a pod ``<VolcanoJob>-<task>-<index>``, and identifiers and tasks may have hyphens: the
job ``exp`` has for its task ``train-main`` the pods of the job ``exp-train`` and its task ``main``.
A pod that is there already Volcano takes for made, and the second job waits without a word.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from controller.jobs.spec.model import DEFAULT_TASK, ID_PATTERN, TASK_PATTERN, Job

_ID = re.compile(ID_PATTERN)
_TASK = re.compile(TASK_PATTERN)


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
        if _ID.match(job_id) and _TASK.match(task):
            yield job_id, task
