"""Whether the log of a pod is followed or read, and why. No I/O."""

from __future__ import annotations

from typing import Literal

from controller.store.jobs.job_rows import JobRecord
from controller.volcano.observed import ObservedPod

Why = Literal["ended", "ending", "restartable"]
"""The program has ended; it or its job is ending; it runs and may be replaced at any moment."""


def why_wanted(record: JobRecord, pod: ObservedPod, *, restarts: bool) -> Why | None:
    """Return why the pod's log is read now; None if it is not.

    A running pod keeps its own log. When it is deleted, its grace period suffices to read what it
    wrote and to follow what it still writes. A pod that a policy restarts is deleted the moment it
    ends (Volcano, "Job Policy").

    Args:
        record: The job's record.
        pod: The pod in the informer.
        restarts: Whether a policy of the job restarts pods.
    """
    if pod.started_at is None:
        return None  # nothing was written
    if pod.is_over:
        return "ended"
    if pod.deleting or is_ending(record):
        return "ending"
    return "restartable" if restarts else None


def is_ending(record: JobRecord) -> bool:
    """Return whether the job's pods are about to end."""
    decided = (record.outcome, record.renewal, record.ordered)
    return record.desired != "run" or record.stopping or any(decided)
