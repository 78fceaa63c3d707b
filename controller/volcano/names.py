"""Names and labels of everything that is created for a job.

A job's identifier has no dot, and a companion's name has one. So no companion has the name of a
VolcanoJob, or of an object that Volcano creates beside it (``<job>``, ``<job>-svc``,
``<job>-ssh``).

A run of a tool is a VolcanoJob, too. Its identifier has a dot, so it is no job's.

Volcano names a pod ``<VolcanoJob>-<task>-<index>``, and identifiers and tasks may have hyphens. So
the task ``train-main`` of the job ``exp`` has pods with the same names as the task ``main`` of the
job ``exp-train``. Volcano takes an existing pod for its own, and the second job would wait
silently: see :func:`same_pod_names`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

ID_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"
"""The pattern of a job's identifier."""
TASK_PATTERN: Final = r"^[a-z]([-a-z0-9]{0,10}[a-z0-9])?$"
"""The pattern of a task's name."""

API_VERSION: Final = "batch.volcano.sh/v1alpha1"
"""Of VolcanoJobs."""
INSTANCE_LABEL: Final = "fumarole.dev/instance"
JOB_LABEL: Final = "fumarole.dev/job"
KIND_LABEL: Final = "fumarole.dev/kind"
PRODUCT_LABEL: Final = "fumarole.dev/product"
SPEC_ANNOTATION: Final = "fumarole.dev/spec"
ATTEMPT_ANNOTATION: Final = "fumarole.dev/attempt"
FIRST_START_ANNOTATION: Final = "fumarole.dev/first-start"
CREATED_ANNOTATION: Final = "fumarole.dev/created"
ALLOCATION_ANNOTATION: Final = "fumarole.dev/allocated-seconds"
RETRIES_USED_ANNOTATION: Final = "fumarole.dev/retries-used"
EVICTIONS_ANNOTATION: Final = "fumarole.dev/evictions"
TOOL_ANNOTATION: Final = "fumarole.dev/tool"
"""The annotation of a tool run's VolcanoJob: the job and the tool, as JSON."""

JOB_CONTAINER: Final = "job"
"""The container of the job's own program."""

FILES_CONTAINER: Final = "fumarole-files"
"""The init container that checks whether the job's files exist."""

DATA_CONTAINER: Final = "fumarole-data"
"""The init container that copies data sets, if the job requests that."""

RANKS_CONTAINER: Final = "fumarole-ranks"
"""The init container that writes the files about the job's ranks."""

CLEANING_CONTAINER: Final = "fumarole-mount-points"
"""The container that deletes mount points which jobs left in an output folder."""

TASK_LABEL: Final = "volcano.sh/task-spec"
"""The pod label with the name of the task."""

TASK_INDEX_LABEL: Final = "volcano.sh/task-index"
"""The label and annotation of a pod with its index within the task."""

TOOL_PREFIX: Final = "tool."
_PREFIX: Final = "j-"
_PREFIX_OF_TOOLS: Final = "t-"
_RANK_PREFIX: Final = "rank-"
_ID: Final = re.compile(ID_PATTERN)
_TASK_NAME: Final = re.compile(TASK_PATTERN)


def is_tool(job_id: str) -> bool:
    """Return whether the identifier is a tool's run's, and no job's."""
    return job_id.startswith(TOOL_PREFIX)


def volcano_job_name(job_id: str) -> str:
    """Return the name of the job's VolcanoJob, or of the run's."""
    if is_tool(job_id):
        return _PREFIX_OF_TOOLS + job_id.removeprefix(TOOL_PREFIX)
    return _PREFIX + job_id


def companion_name(job_id: str, what: str) -> str:
    """Return the name of the job's companion *what*, for kinds whose names may have a dot."""
    return f"{volcano_job_name(job_id)}.{what}"


def peer_service_name(job_id: str) -> str:
    """Return the name of the Service by which other jobs reach the job: a DNS label.

    Its first letter is not ``j``, with which the names of VolcanoJobs and their Services begin. The
    identifiers of tools have one length, so the names made of them are unique, too.
    """
    return f"{volcano_job_name(job_id)}-peer" if is_tool(job_id) else f"peer-{job_id}"


def rank_service_name(job_id: str, rank: int) -> str:
    """Return the name of the Service for the pod at *rank* alone: a DNS label.

    Its first letter is not ``j``, with which the names of VolcanoJobs and their Services begin.
    """
    return f"{_rank_services(job_id)}{rank}"


def is_rank_service(name: str, job_id: str) -> bool:
    """Return whether the Service *name* of the job is one of :func:`rank_service_name`."""
    return name.startswith(_rank_services(job_id))


def _rank_services(job_id: str) -> str:
    if is_tool(job_id):
        return f"{volcano_job_name(job_id)}-{_RANK_PREFIX}"
    return f"{_RANK_PREFIX}{job_id}-"


def pod_name(job_id: str, task: str, index: int) -> str:
    """Return the name that Volcano gives the pod of a task's replica."""
    return f"{volcano_job_name(job_id)}-{task}-{index}"


def same_pod_names(job_id: str, tasks: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return tasks of possible jobs, by job id, whose pods would have the names of this job's."""
    found = defaultdict[str, set[str]](set)
    for task in tasks:
        for other, its_task in _read_as(f"{job_id}-{task}"):
            if other != job_id:
                found[other].add(its_task)
    return {other: frozenset(names) for other, names in found.items()}


def _read_as(stem: str) -> Iterator[tuple[str, str]]:
    for hyphen in re.finditer("-", stem):
        job_id, task = stem[: hyphen.start()], stem[hyphen.end() :]
        if _ID.match(job_id) and _TASK_NAME.match(task):
            yield job_id, task


def labels_of(instance: str, job_id: str) -> dict[str, str]:
    """Return the labels of everything that belongs to a job."""
    return {INSTANCE_LABEL: instance, JOB_LABEL: job_id}


def is_of_job(given: Mapping[str, Any], *, instance: str, job_id: str) -> bool:
    """Return whether the labels of an object say that it is this job's."""
    labels = given["metadata"].get("labels") or {}
    return (labels.get(INSTANCE_LABEL), labels.get(JOB_LABEL)) == (instance, job_id)
