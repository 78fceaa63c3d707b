"""Whether the log of a pod is to be followed or read, and why. No I/O."""

from __future__ import annotations

from typing import Literal

from controller.store.jobs.job_rows import JobRecord
from controller.volcano.observed import ObservedPod

Why = Literal["ended", "ending", "restartable"]
"""Its program has ended; it ends, or its job does; it runs, and may be replaced at any moment."""


def why_wanted(record: JobRecord, pod: ObservedPod, *, restarts: bool) -> Why | None:
    """Return why the pod's log is read now; None where it is not.

    A pod that only runs keeps its log itself: it is deleted with its grace, in which what it wrote
    is read and what it still writes is followed. One that a policy restarts is deleted the moment
    it has ended (Volcano, "Job Policy").

    Args:
        record: The job's.
        pod: As the cluster shows it.
        restarts: Whether a policy of the job starts anything again.
    """
    if pod.started_at is None:
        return None  # nothing was written
    if pod.is_over:
        return "ended"
    if pod.deleting or is_ending(record):
        return "ending"
    return "restartable" if restarts else None


def is_ending(record: JobRecord) -> bool:
    """Say whether the job's pods are about to end: what runs of it is not to run on."""
    decided = (record.outcome, record.renewal, record.ordered)
    return record.desired != "run" or record.stopping or any(decided)
