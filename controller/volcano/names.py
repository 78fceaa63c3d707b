"""Names and labels of everything that is made for a job.

A job's identifier has no dot, so no name of a companion, which has one, is any VolcanoJob's, nor
that of what Volcano makes beside it (``<job>``, ``<job>-svc``, ``<job>-ssh``).
"""

from __future__ import annotations

from typing import Final

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

JOB_CONTAINER: Final = "job"
"""The container in which a job's own program runs."""

FILES_CONTAINER: Final = "fumarole-files"
"""The container that looks, before the job's own program, whether its files are there."""

DATA_CONTAINER: Final = "fumarole-data"
"""The container that copies data sets, before the job's own program, where the job asks for it."""

RANKS_CONTAINER: Final = "fumarole-ranks"
"""The container that writes, before the job's own program, what it is to know of its ranks."""

CLEANING_CONTAINER: Final = "fumarole-mount-points"
"""The container that removes, after jobs, the mount points that they left in an output folder."""

INDEX_LABEL: Final = "volcano.sh/task-index"
"""The label, and annotation, of a pod that holds its index within its task."""

_PREFIX: Final = "j-"
_RANK_PREFIX: Final = "rank-"


def volcano_job_name(job_id: str) -> str:
    """Return the name of the job's VolcanoJob."""
    return _PREFIX + job_id


def companion_name(job_id: str, what: str) -> str:
    """Return the name of the job's companion *what*; for kinds whose names may have a dot."""
    return f"{_PREFIX}{job_id}.{what}"


def peer_service_name(job_id: str) -> str:
    """Return the name of the Service by which other jobs reach the job: a DNS label.

    It begins with another letter than ``j``, as no VolcanoJob does, nor its own Service.
    """
    return f"peer-{job_id}"


def rank_service_name(job_id: str, rank: int) -> str:
    """Return the name of the Service behind which only the pod at *rank* is: a DNS label.

    It begins with another letter than ``j``, as no VolcanoJob does, nor its own Service.
    """
    return f"{_RANK_PREFIX}{job_id}-{rank}"


def is_rank_service(name: str, job_id: str) -> bool:
    """Say whether the Service *name* of the job is one of :func:`rank_service_name`."""
    return name.startswith(f"{_RANK_PREFIX}{job_id}-")


def pod_name(job_id: str, task: str, index: int) -> str:
    """Return the name that Volcano gives to the pod of a task's replica."""
    return f"{_PREFIX}{job_id}-{task}-{index}"


def labels_of(instance: str, job_id: str) -> dict[str, str]:
    """Return the labels by which everything of a job is found."""
    return {INSTANCE_LABEL: instance, JOB_LABEL: job_id}
