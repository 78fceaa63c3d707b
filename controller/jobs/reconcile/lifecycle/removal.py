"""Decides how a job is removed from the cluster: what is deleted in which order, and may stay."""

from __future__ import annotations

from typing import Final

from controller.jobs.history.job_record import JobEvent, State
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import (
    DeletePods,
    DeleteRevivedJob,
    DeleteVolcanoJob,
    Step,
    UpdateStatus,
    Wait,
)
from controller.volcano.observed import ObservedJob, ObservedPod

REVIVED_SECONDS: Final = 60.0
"""For this time after its deletion, or its job's end, a cached VolcanoJob may be outdated."""
KEPT_SECONDS: Final = 10.0
"""How long a finalizer may keep a deleted VolcanoJob before a cancelled job says so."""
_UNDER_WAY: Final = ("Pending", "Running", "Restarting")
_ORPHAN: Final = "orphan"
"""The garbage collector's finalizer for ``--cascade=orphan``: the pods stay."""


def removal(seen: ObservedState) -> Step | None:
    """Return the next step of the removal; None once the VolcanoJob and its pods are gone.

    No pod is deleted before its VolcanoJob: Volcano would create the pod again, or treat it as
    evicted.
    """
    record, job = seen.record, seen.job
    uid = record.uid or (job.uid if job is not None else None)
    if uid is None:
        return None
    shown = job is not None and job.uid == uid
    if seen.logs_until is not None and seen.now < seen.logs_until:
        return Wait(seen.logs_until)
    if record.removed_uid != uid:
        others = shown and job is not None and _is_deleted_by_others(job)
        return Wait() if others and record.desired != "ended" else DeleteVolcanoJob(uid)
    undone_at = _deletion_undone_at(seen, uid)
    if undone_at is not None and seen.now >= undone_at:
        return DeleteRevivedJob(uid)
    own = seen.own(seen.pods)
    if left := tuple(pod for pod in own if not pod.deleting and _may_be_deleted(seen, pod)):
        return DeletePods(left)
    # A dead node never confirms a deletion, and a pod that was kept on purpose is not deleted. Only
    # the next attempt needs the names of these pods.
    begins_again = record.renewal is not None and record.outcome is None
    awaited = [pod for pod in own if begins_again or not _stays(seen, pod)]
    if awaited or not shown or job is None or not job.deleting:
        return Wait(undone_at) if awaited or shown else None
    # The pods that stay keep it, or a finalizer of another controller does. The next attempt needs
    # the name of the VolcanoJob, too.
    is_kept = bool(own) or (job.held and not begins_again)
    return None if is_kept else Wait()


def revived_at(seen: ObservedState) -> float | None:
    """Return when a VolcanoJob that has ended, or was deleted, counts as revived; None: it is not.

    After etcd was restored from a backup, the cluster shows it as it was then. Otherwise only an
    aborted one goes on again, by the command of an administrator (``ResumeJob``).
    """
    job, record = seen.job, seen.record
    if job is None or job.deleting or seen.jobs_stale:
        return None
    is_removed = job.uid == record.removed_uid
    if not record.is_final:
        # The next attempt begins once the cache no longer shows the one before.
        return 0.0 if is_removed and record.uid is None else None
    goes_on = job.uid == record.uid and job.phase in _UNDER_WAY
    if not goes_on and not is_removed:
        return None
    return (record.finished_at or 0.0) + REVIVED_SECONDS


def kept_by_finalizers(seen: ObservedState) -> UpdateStatus | Wait | None:
    """Return the status of a cancelled job of which only a deleted VolcanoJob is left."""
    record, job = seen.record, seen.job
    deleted_at = job.asked_to_end_at if job is not None and job.uid == record.uid else None
    if job is None or deleted_at is None or not job.finalizers or seen.own(seen.pods):
        return None
    if record.state != State.CANCELING:
        return None
    since = deleted_at - seen.clock_offset
    if seen.now < since + KEPT_SECONDS:
        return Wait(since + KEPT_SECONDS)
    text = f"its VolcanoJob is deleted, and its finalizers keep it: {', '.join(job.finalizers)}"
    # The reason and the details say who requested the end, and why.
    update = UpdateStatus(JobEvent.WAITS, record.reason, text, record.details)
    return seen.update_if_new(update)


def _deletion_undone_at(seen: ObservedState, uid: str) -> float | None:
    """Return when the deleted VolcanoJob counts as revived; None if the cache shows no such one.

    After etcd was restored from a backup, Volcano creates its deleted pods again.
    """
    job = seen.job
    goes_on = job is not None and job.uid == uid and not job.deleting and not seen.jobs_stale
    return seen.phase_seen_at + REVIVED_SECONDS if goes_on and seen.phase_seen_at else None


def _is_deleted_by_others(job: ObservedJob) -> bool:
    """Return whether another client deletes it, and has chosen whether its pods stay.

    The garbage collector carries that out within a minute or so. A VolcanoJob that a finalizer
    keeps for longer has pods that nobody else deletes: Volcano leaves it alone, too.
    """
    return job.deleting and (not job.held or _ORPHAN in job.finalizers)


def _stays(seen: ObservedState, pod: ObservedPod) -> bool:
    """Return whether a pod of the deleted VolcanoJob may stay in the cluster, and uses nothing."""
    kept = pod.is_over and not pod.deleting and not _may_be_deleted(seen, pod)
    return pod.lost or kept


def _may_be_deleted(seen: ObservedState, pod: ObservedPod) -> bool:
    """Return whether a pod of the deleted VolcanoJob may be deleted.

    A pod without an owner was kept on purpose (``--cascade=orphan``). It is deleted only once the
    end of the job is requested.
    """
    return bool(pod.owner_uid) or seen.record.desired == "ended"
