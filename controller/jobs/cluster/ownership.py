"""What makes an object one of a job's: its labels. And the reference to its owner.

No I/O. Another owner's object with a name that a job needs is never changed.
"""

from __future__ import annotations

from controller.kube.client import Object
from controller.volcano.manifest import API_VERSION
from controller.volcano.names import INSTANCE_LABEL, JOB_LABEL
from controller.volcano.observed import ObservedJob
from shared.errors import FumaroleError


class NameTaken(FumaroleError):
    """An object with a name that a job needs exists, and belongs to another owner."""


def is_of_job(given: Object, *, instance: str, job_id: str) -> bool:
    """Return whether the labels of the object say that it is this job's."""
    labels = given["metadata"].get("labels") or {}
    return (labels.get(INSTANCE_LABEL), labels.get(JOB_LABEL)) == (instance, job_id)


def owner_reference(job: ObservedJob) -> Object:
    """Return a reference with which the garbage collector deletes an object after *job*."""
    # No controller reference: Volcano's own controller must not take it for one of its objects.
    return {"apiVersion": API_VERSION, "kind": "Job", "name": job.name, "uid": job.uid}
