"""Names and labels of everything that is made for a job.

A job's identifier has no dot, so no name of a companion, which has one, is any VolcanoJob's, nor
that of what Volcano makes beside it (``<job>``, ``<job>-svc``, ``<job>-ssh``).

A tool of a job is run as a job is, under an identifier of ours that has a dot: so it is no job's.
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
TOOL_ANNOTATION: Final = "fumarole.dev/tool"
"""Of a tool's VolcanoJob: whose tool it is, as JSON."""

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

TASK_LABEL: Final = "volcano.sh/task-spec"
"""The label of a pod that holds the name of its task."""

TASK_INDEX_LABEL: Final = "volcano.sh/task-index"
"""The label, and annotation, of a pod that holds its index within its task."""

TOOL_PREFIX: Final = "tool."
_PREFIX: Final = "j-"
_PREFIX_OF_TOOLS: Final = "t-"
_RANK_PREFIX: Final = "rank-"


def is_tool(job_id: str) -> bool:
    """Say whether the identifier is that of a tool's run, and no job's."""
    return job_id.startswith(TOOL_PREFIX)


def volcano_job_name(job_id: str) -> str:
    """Return the name of the job's VolcanoJob, or of the tool's."""
    if is_tool(job_id):
        return _PREFIX_OF_TOOLS + job_id.removeprefix(TOOL_PREFIX)
    return _PREFIX + job_id


def companion_name(job_id: str, what: str) -> str:
    """Return the name of the job's companion *what*; for kinds whose names may have a dot."""
    return f"{volcano_job_name(job_id)}.{what}"


def peer_service_name(job_id: str) -> str:
    """Return the name of the Service by which other jobs reach the job: a DNS label.

    It begins with another letter than ``j``, as no VolcanoJob does, nor its own Service. The
    identifiers of tools have one length, so no name made of one is another's.
    """
    return f"{volcano_job_name(job_id)}-peer" if is_tool(job_id) else f"peer-{job_id}"


def rank_service_name(job_id: str, rank: int) -> str:
    """Return the name of the Service behind which only the pod at *rank* is: a DNS label.

    It begins with another letter than ``j``, as no VolcanoJob does, nor its own Service.
    """
    return f"{_rank_services(job_id)}{rank}"


def is_rank_service(name: str, job_id: str) -> bool:
    """Say whether the Service *name* of the job is one of :func:`rank_service_name`."""
    return name.startswith(_rank_services(job_id))


def _rank_services(job_id: str) -> str:
    if is_tool(job_id):
        return f"{volcano_job_name(job_id)}-{_RANK_PREFIX}"
    return f"{_RANK_PREFIX}{job_id}-"


def pod_name(job_id: str, task: str, index: int) -> str:
    """Return the name that Volcano gives to the pod of a task's replica."""
    return f"{volcano_job_name(job_id)}-{task}-{index}"


def labels_of(instance: str, job_id: str) -> dict[str, str]:
    """Return the labels by which everything of a job is found."""
    return {INSTANCE_LABEL: instance, JOB_LABEL: job_id}
