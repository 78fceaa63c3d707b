"""Decides how a job is removed from the cluster: what is deleted in which order, and may stay."""

from __future__ import annotations

from typing import Final

from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import (
    DeletePods,
    DeleteRevivedJob,
    DeleteVolcanoJob,
    Step,
    Wait,
)
from controller.volcano.observed import ObservedJob, ObservedPod

REVIVED_SECONDS: Final = 60.0
"""For this time after its deletion, or its job's end, a cached VolcanoJob may be outdated."""
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
    revived_at = _revived_at(seen, uid)
    if revived_at is not None and seen.now >= revived_at:
        return DeleteRevivedJob(uid)
    own = seen.own(seen.pods)
    if left := tuple(pod for pod in own if not pod.deleting and _may_be_deleted(seen, pod)):
        return DeletePods(left)
    # A dead node never confirms a deletion, and a pod that was kept on purpose is not deleted. Only
    # the next attempt needs the names of these pods.
    begins_again = record.renewal is not None and record.outcome is None
    awaited = [pod for pod in own if begins_again or not _stays(seen, pod)]
    if awaited or not shown or job is None or not job.deleting:
        return Wait(revived_at) if awaited or shown else None
    # The pods that stay keep it, or a finalizer of another controller does. The next attempt needs
    # the name of the VolcanoJob, too.
    is_kept = bool(own) or (job.held and not begins_again)
    return None if is_kept else Wait()


def _revived_at(seen: ObservedState, uid: str) -> float | None:
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
